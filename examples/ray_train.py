"""A script of Ray Train as one writes it: a `TorchTrainer` whose function reports checkpoints, and resumes from them.

python examples/ray_train.py                                                         on Ray
hocket submit --gpus 1-4 -- torchrun -m hocket.ray.train examples/ray_train.py       as an elastic job of Hocket

It does not know of Hocket. It needs `pip install 'ray[train]' torch`.
"""

import argparse
import os
import tempfile
import time

import torch
from ray import train
from ray.train import Checkpoint, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch.utils.data import DataLoader, TensorDataset


def train_function(config):
    """Fit a line to points; each process has a share of them."""
    torch.manual_seed(0)
    points = torch.rand(512, 8)
    truth = points @ torch.arange(1.0, 9.0).unsqueeze(1)
    loader = prepare_data_loader(DataLoader(TensorDataset(points, truth), batch_size=32, shuffle=True))
    line = torch.nn.Linear(8, 1)
    optimiser, first = torch.optim.SGD(line.parameters(), lr=0.02), 0
    if (found := train.get_checkpoint()) is not None:
        with found.as_directory() as folder:
            saved = torch.load(os.path.join(folder, "state.pt"))
        line.load_state_dict(saved["line"])
        optimiser.load_state_dict(saved["optimiser"])
        first = saved["epoch"]
    model = prepare_model(line)
    for epoch in range(first + 1, config["epochs"] + 1):
        total = 0.0
        for inputs, wanted in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), wanted)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.item()
        time.sleep(config["pace"])
        metrics = {"loss": total / len(loader), "processes": train.get_context().get_world_size(), "epoch_of": epoch}
        with tempfile.TemporaryDirectory() as folder:
            if train.get_context().get_world_rank() == 0:
                state = {"line": line.state_dict(), "optimiser": optimiser.state_dict(), "epoch": epoch}
                torch.save(state, os.path.join(folder, "state.pt"))
            train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def main():
    """Train on as many workers as are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds of sleep in each epoch")
    said = parser.parse_args()
    trainer = TorchTrainer(
        train_function,
        train_loop_config={"epochs": said.epochs, "pace": said.pace},
        scaling_config=ScalingConfig(num_workers=said.workers),
    )
    print(trainer.fit().metrics)


if __name__ == "__main__":
    main()
