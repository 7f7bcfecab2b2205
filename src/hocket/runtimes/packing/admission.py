"""Admission: a model is loaded if all models together are predicted to fit into the device's memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from hocket.runtimes.packing.dry_run import need_of
from hocket.runtimes.packing.member import Member
from hocket.runtimes.packing.memory import Memory, Need, limit_of
from hocket.runtimes.packing.shared_reading import SharedReader
from hocket.runtimes.packing.tensors import mapped
from hocket.runtimes.packing.training import NoRoom, Training

MIB = 1 << 20

_weighed: WeakKeyDictionary[Training, tuple[tuple[object, ...], Need]] = WeakKeyDictionary()


class Admission:
    """Predicts memory and admits models. Without a GPU and a limit every model is admitted."""

    def __init__(self, reader: SharedReader, memory_mib: float | None, keeps: bool = True) -> None:
        self._device = device = reader.copier.device
        self._reader, self._keeps = reader, keeps  # `keeps`: models' good states are kept
        self._asked = device.type == "cuda" or memory_mib is not None
        self.memory = Memory(device, limit_of(device) if memory_mib is None else int(memory_mib * MIB))
        self._side_by_side: bool | None = None

    def predict(self, training: Training) -> Need:
        """Predict by a dry run, corrected by measurements of its kind."""
        need = weighed(training, self._device)
        need = replace(need, data=self._reader.footprint(training.data), kept=need.kept if self._keeps else 0)
        return self.memory.corrected(training, need)

    def admit(self, training: Training) -> Need | None:
        """The model's need, if it fits; else raises NoRoom."""
        if not self._asked:
            return None
        need = self.predict(training)
        extras = [(training, need)]
        if not self.memory.fits(side_by_side=False, extras=extras):
            before, total = self.memory.total(side_by_side=False), self.memory.total(side_by_side=False, extras=extras)
            raise NoRoom(
                f"model '{training.name}' would bring the device from {before / MIB:.0f} to {total / MIB:.0f} MiB,"
                f" more than its {self.memory.limit / MIB:.0f} MiB"
            )
        return need

    def side_by_side(self) -> bool:
        """Whether all models' steps fit at the same time, as captured graphs need it."""
        if self._side_by_side is None:
            self._side_by_side = not self._asked or self.memory.fits(side_by_side=True)
        return self._side_by_side

    def changed(self) -> None:
        """Models were loaded or freed."""
        self._side_by_side = None

    @contextmanager
    def watching(self, member: Member) -> Iterator[None]:
        """A context in which a model makes a step alone: on a GPU, once its state exists, its peak is measured."""
        name = member.name
        new = member.step == 1 and name in self.memory.needs and not self.memory.is_learned(name)
        if self._device.type != "cuda" or not new or name in self.memory.seen:
            yield
            return
        member.optimiser.zero_grad(set_to_none=True)
        torch.cuda.synchronize(self._device)
        before = torch.cuda.memory_allocated(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        yield
        torch.cuda.synchronize(self._device)
        self.memory.learn(name, torch.cuda.max_memory_allocated(self._device) - before)


def weighed(training: Training, device: torch.device) -> Need:
    """The need by a dry run, once for each training: it is used at submission and again at admission."""
    parts = training.module, training.optimiser, training.data, training.loss, training.forward, training.autocast
    key = (device, training.accumulate, training.clip is None, *map(id, parts))
    if training not in _weighed or _weighed[training][0] != key:
        _weighed[training] = key, need_of(training, example(training), device)
    return _weighed[training][1]


def example(training: Training) -> Any:
    """A batch of the right shapes without contents, from one example or the first batch."""
    data = training.data
    if isinstance(data, DataLoader) and not isinstance(data.dataset, IterableDataset) and data.batch_size:
        one = data.collate_fn([data.dataset[0]])
        size = data.batch_size
        return mapped(one, lambda t: torch.empty((size, *t.shape[1:]), dtype=t.dtype, device="meta"))
    return mapped(next(iter(data)), _empty)


def _empty(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
