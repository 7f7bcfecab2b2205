"""A script for `hocket tune` whose models write down every step that they make, if LEDGER names a file."""

import os
import time
from contextlib import suppress
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hocket.pack import Training
from hocket.tune import Asha, Hyperband, RandomSearch, Study, SuccessiveHalving, choice, loguniform

SEARCHES = {
    "hyperband": Hyperband(units=9),
    "hyperband in turn": Hyperband(units=9, in_turn=True),
    "halving": SuccessiveHalving(trials=9, units=9),
    "asha": Asha(trials=9, units=9, at_once=4),
    "random": RandomSearch(trials=4, units=5),
}
UNIT_STEPS = 3
LEDGER = os.environ.get("LEDGER")
space = SPACE = {"rate": loguniform(1e-3, 0.5), "batch_size": choice([8, 16]), "dropout": choice([0.0, 0.3])}

dice = torch.Generator().manual_seed(0)
X = torch.randn(256, 8, generator=dice)
Y = (X @ torch.randn(8, 3, generator=dice)).argmax(1)


class Counting(nn.Module):
    """Knows how many steps it has made: that is part of its state."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 3))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def wait_while_held(ledger: Path) -> None:
    """Stand still once so many steps were made as a file beside the ledger says, for as long as it is there."""
    with suppress(FileNotFoundError):
        while int(ledger.with_name("hold").read_text()) <= len(set(ledger.read_text().splitlines())):
            time.sleep(0.01)


def training(config):
    def forward(module, batch):
        module.steps += 1
        if LEDGER:
            with Path(LEDGER).open("a") as file:
                file.write(f"{config.name} {int(module.steps)}\n")
            wait_while_held(Path(LEDGER))
        return nn.functional.cross_entropy(module(batch[0]), batch[1])

    model = Counting(config["dropout"])
    optimiser = torch.optim.SGD(model.parameters(), config["rate"], momentum=0.9)
    loader = DataLoader(TensorDataset(X[:192], Y[:192]), config["batch_size"], shuffle=True)
    return Training(config.name, model, optimiser, loader, config.steps, forward=forward)


def evaluate(module, _config):
    return {"accuracy": (module(X[192:]).argmax(1) == Y[192:]).float().mean(), "steps": module.steps}


def study(folder: Path | None, search: str = "hyperband", **options) -> Study:
    """The script's study, in this process."""
    return Study(
        training, space, evaluate=evaluate, metric="accuracy", goal="max", search=SEARCHES[search],
        unit_steps=UNIT_STEPS, folder=folder, **{"mode": "turn", **options},
    )  # fmt: skip


def outcome(study: Study) -> dict:
    """All that a study found, but how long it took."""
    results = {
        f"{t.number}@{r.units}": {k: v for k, v in r.metrics.items() if not k.startswith("pack.")}
        for t in study.trials
        for r in t.results
    }
    return {"best": study.best.number, "configs": [t.config for t in study.trials], "results": results}
