"""How much memory the models on a device need together, corrected by measurements."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import nn

from hocket.runtimes.packing.device_datasets import device_dataset_bytes
from hocket.runtimes.packing.training import Training

SPARE = 1.02  # Fragmentation, and memory that a dry run does not see.


@dataclass(frozen=True)
class Need:
    """Bytes that one model takes; `stays` all the time, `passes` at the height of a step."""

    parameters: int  # parameters and buffers
    gradients: int  # gradients of all parameters that are trained
    optimiser: int  # state of the optimiser
    activations: int  # at the peak, with workspaces as far as they were seen
    inputs: int  # its batches; shared ones count once for a pack
    kept: int = 0  # its last good states, where they are kept on the device
    data: int = 0  # its data set on the device, which counts once for all models that read it

    @property
    def stays(self) -> int:
        """What is held between two steps."""
        return self.parameters + self.optimiser + self.kept

    @property
    def passes(self) -> int:
        """What a step needs beside that, without its input."""
        return self.gradients + self.activations

    @property
    def peak(self) -> int:
        """All of it."""
        return self.stays + self.passes + self.inputs + self.data


class Memory:
    """What the models on a `device` need, its `limit` in bytes, and how far predictions were off.

    A model is given as its `training`, or by its `name`.
    """

    def __init__(self, device: torch.device, limit: int) -> None:
        self.device, self.limit = device, limit
        self.workspace = workspace_of(device)  # of the libraries, for each stream
        self.needs: dict[str, Need] = {}
        self.seen: dict[str, tuple[int, int]] = {}  # by model: passing bytes as predicted, as seen
        self._kinds: dict[str, object] = {}
        self._factors: dict[str, float] = {}  # by model: what its prediction was corrected by
        self._read: dict[str, int] = {}  # by model: which data set
        self._learned: dict[object, float] = {}  # by kind of module: seen over predicted

    def corrected(self, training: Training, need: Need) -> Need:
        """The predicted `need`, corrected by what was measured for the same kind of module."""
        factor = self._learned.get(kind_of(training), 1.0)
        return replace(need, activations=int(need.activations * factor))

    def enter(self, training: Training, need: Need) -> None:
        """Count this model, with its `need`, as being on the device."""
        self.needs[training.name], self._kinds[training.name] = need, kind_of(training)
        self._read[training.name] = data_set_of(training)
        self._factors[training.name] = self._learned.get(kind_of(training), 1.0)

    def leave(self, name: str) -> None:
        """Stop counting this model."""
        self.needs.pop(name, None)

    def learn(self, name: str, passed: int) -> None:
        """A step of this model was measured to take `passed` bytes beside what stays."""
        need = self.needs[name]
        if name in self.seen or not need.passes:
            return
        self.seen[name] = need.passes, passed
        kind = self._kinds[name]
        if need.activations:
            actual = max(passed - need.gradients, 0) / need.activations
            self._learned[kind] = self._factors[name] * actual

    def is_learned(self, name: str) -> bool:
        """Whether a model of its kind was seen already."""
        return self._kinds[name] in self._learned

    def total(self, side_by_side: bool, extras: Sequence[tuple[Training, Need]] = ()) -> int:
        """Bytes of all models, with `extras`; unless they step `side_by_side`, only one is at the peak of its step."""
        needs = [*self.needs.values(), *(need for _, need in extras)]
        if not needs:
            return 0
        data = {self._read[name]: need.data for name, need in self.needs.items()}
        data |= {data_set_of(training): need.data for training, need in extras}
        passing = [need.passes for need in needs]
        inputs = max(need.inputs for need in needs)
        height = sum(passing) if side_by_side else max(passing)
        height += self.workspace * (1 + len(needs) * side_by_side)
        return sum(need.stays for need in needs) + height + inputs + sum(data.values())

    def fits(self, side_by_side: bool, extras: Sequence[tuple[Training, Need]] = ()) -> bool:
        """Whether there is room for `total(side_by_side, extras)`, and a little to spare."""
        return self.total(side_by_side, extras) * SPARE <= self.limit

    def error(self) -> dict[str, float]:
        """By model: how far the predicted bytes of a step were off, as a share of what was seen."""
        return {name: predicted / seen - 1 for name, (predicted, seen) in self.seen.items() if seen}


def kind_of(training: Training) -> object:
    """The kind of a module: modules with the same classes, types and precision need about the same memory."""
    layers = tuple(type(m).__name__ for m in training.module.modules())
    return layers, training.autocast


def data_set_of(training: Training) -> int:
    """A number that is equal for models that read the same data."""
    return id(getattr(training.data, "dataset", training.data))


@cache
def workspace_of(device: torch.device) -> int:
    """Workspace of the matrix libraries on a new stream: measured, since it differs by device."""
    if device.type != "cuda":
        return 0
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    with torch.cuda.stream(stream):
        layer = nn.Linear(64, 64, device=device)
        layer(torch.ones(64, 64, device=device)).sum().backward()
        del layer
    torch.cuda.synchronize(device)
    return int(torch.cuda.memory_allocated(device) - before)


def limit_of(device: torch.device) -> int:
    """The memory that is available on the device now; data sets on it count as needs of models."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free + held + device_dataset_bytes(device))
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") if hasattr(os, "sysconf") else 1 << 62
