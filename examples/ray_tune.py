"""A script of Ray Tune as one writes it, whose trials may be jobs of Hocket: one line is different.

python examples/ray_tune.py --plain                       trials on Ray
hocket up --detach --gpus 2; python examples/ray_tune.py  trials are jobs: `hocket jobs`, `hocket top`

Ray Tune's scheduler (ASHA) stops trials that fall behind, and so their jobs. It needs `pip install 'ray[tune]'`.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from ray import tune
from ray.tune.schedulers import ASHAScheduler

from hocket.ray.tune import trainable


def train(config):
    """Fit a line to points by gradient descent; a function of Ray Tune, which does not know of Hocket."""
    rng = np.random.default_rng(0)
    points = rng.random((256, 8))
    truth = points @ np.arange(1.0, 9.0)
    line, first = np.zeros(8), 0
    if (found := tune.get_checkpoint()) is not None:  # It was paused, or moved.
        with found.as_directory() as folder:
            saved = json.loads((Path(folder) / "state.json").read_text())
        line, first = np.array(saved["line"]), saved["epoch"]
    for epoch in range(first + 1, config["epochs"] + 1):
        for _ in range(20):
            line -= config["rate"] * 2.0 / len(points) * points.T @ (points @ line - truth)
        loss = float(np.mean((points @ line - truth) ** 2))
        time.sleep(config["pace"])
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "state.json").write_text(json.dumps({"line": line.tolist(), "epoch": epoch}))
            tune.report({"loss": loss}, checkpoint=tune.Checkpoint.from_directory(folder))


def main():
    """Search for the best rate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--pace", type=float, default=0.2, help="seconds of sleep in each epoch")
    parser.add_argument("--plain", action="store_true", help="trials on Ray, as without Hocket")
    said = parser.parse_args()
    tuner = tune.Tuner(
        train if said.plain else trainable(train, gpus=1),
        param_space={"rate": tune.loguniform(1e-4, 0.3), "epochs": said.epochs, "pace": said.pace},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=said.trials,
            scheduler=ASHAScheduler(max_t=said.epochs, grace_period=2, reduction_factor=2),
        ),
    )
    found = tuner.fit()
    for result in found:
        loss, epochs = result.metrics["loss"], result.metrics["training_iteration"]
        print(f"rate {result.config['rate']:.5f}: loss {loss:.4f}, {epochs} epochs")
    print(f"best rate: {found.get_best_result().config['rate']:.5f}")


if __name__ == "__main__":
    main()
