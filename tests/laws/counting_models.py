"""Models that count their steps: the count is part of their state, and each step is written down as it is made."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hocket.executors.inprocess.model_factory import Stretch
from hocket.pack import Training

DATA = TensorDataset(torch.zeros(8, 2), torch.zeros(8, dtype=torch.long))


class Counting(nn.Module):
    def __init__(self, steps: list[int]) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.count: torch.Tensor
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self._steps = [steps]  # in a list, or a copy of the module would have a copy of it

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self._steps[0].append(int(self.count))
        return self.layer(inputs)


class CountingModels:
    """One model for each job, of the same name."""

    def __init__(self, until: int) -> None:
        self.steps: dict[str, list[int]] = defaultdict(list)
        self._until = until

    def stretch(self, job: str) -> Stretch:
        return Stretch(job, self._until, 1)

    def training(self, job: str) -> Training:
        model = Counting(self.steps[job])
        optimiser = torch.optim.SGD(model.parameters(), 0.1)
        return Training(job, model, optimiser, DataLoader(DATA, 8), self._until + 1, loss=nn.CrossEntropyLoss())

    def metrics(self, _job: str, _module: nn.Module) -> dict[str, float]:
        return {}
