"""What the tuners of `benchmarks.tune` search: a small network on generated pictures, and the loop that trains it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from msgspec import Struct
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hocket.pack import Training

CORES = 2
RATE, SIZES, WIDTHS = (1e-3, 1.0), [16, 32], [32, 64]


class Sweep(Struct, frozen=True):
    """How far it goes."""

    units: int = 27
    unit_steps: int = 40
    trials: int = 49  # as many as Hyperband has with these units


def _pictures() -> tuple[TensorDataset, torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (1800,), generator=rng)
    patterns = torch.rand(10, 64, generator=rng)
    x = (patterns[labels] + 0.9 * torch.randn(1800, 64, generator=rng)).clamp(0, 1)
    return TensorDataset(x[:1300], labels[:1300]), x[1300:], labels[1300:]


DATA, SEEN_NEVER, LABELS = _pictures()


def network(config: dict[str, Any]) -> nn.Module:
    """Two hidden layers."""
    width = config["width"]
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def optimiser(module: nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    """Stochastic gradient descent."""
    return torch.optim.SGD(module.parameters(), config["rate"], momentum=0.9)


def loader(config: dict[str, Any]) -> DataLoader[Any]:
    """Shuffled batches."""
    return DataLoader(DATA, config["batch_size"], shuffle=True, generator=torch.Generator().manual_seed(1))


def right(module: nn.Module) -> float:
    """The share of pictures it never saw that it names right."""
    with torch.no_grad():
        return float((module(SEEN_NEVER).argmax(1) == LABELS).float().mean())


def training(config: Any) -> Training:
    """For Hocket."""
    module = network(config)
    return Training(
        config.name, module, optimiser(module, config), loader(config), config.steps, loss=nn.CrossEntropyLoss()
    )


class Learner:
    """For the others: the plain loop."""

    def __init__(self, module: nn.Module, config: dict[str, Any]) -> None:
        self.module, self.optimiser = module, optimiser(module, config)
        self._batches = self._endless(loader(config))
        self._loss = nn.CrossEntropyLoss()

    @staticmethod
    def _endless(batches: DataLoader[Any]) -> Iterator[Any]:
        while True:
            yield from batches

    def __call__(self, steps: int) -> None:
        """Make so many steps."""
        for _ in range(steps):
            x, y = next(self._batches)
            self.optimiser.zero_grad()
            self._loss(self.module(x), y).backward()
            self.optimiser.step()


def learner(config: dict[str, Any]) -> tuple[nn.Module, Learner]:
    """A network and what trains it."""
    module = network(config)
    return module, Learner(module, config)
