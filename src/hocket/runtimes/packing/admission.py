"""Who may come: a model is let in if all together are predicted to fit into the device's memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from hocket.runtimes.packing.member import Member
from hocket.runtimes.packing.memory import Memory, Need, limit_of, need_of
from hocket.runtimes.packing.tensors import mapped, shape
from hocket.runtimes.packing.training import NoRoom, Training

MIB = 1 << 20


class Admission:
    """Predicts, admits and learns. Where there is neither a GPU nor a limit, it lets everybody in."""

    def __init__(self, device: torch.device, memory_mib: float | None) -> None:
        self._device = device
        self._asked = device.type == "cuda" or memory_mib is not None
        self.memory = Memory(device, limit_of(device) if memory_mib is None else int(memory_mib * MIB))
        self._known: dict[tuple[object, ...], Need] = {}
        self._side_by_side: bool | None = None

    def predict(self, training: Training) -> Need:
        """By a dry run, made once for each kind of model and batch; corrected by what was seen."""
        batch = example(training)
        given = training.optimiser
        key = (
            tuple((type(m).__name__, m.extra_repr()) for m in training.module.modules()),
            shape(batch),
            (type(given), tuple(bool(v) for v in given.defaults.values())) if hasattr(given, "defaults") else id(given),
            (training.autocast, training.accumulate, training.clip is None),
        )
        if key not in self._known:
            self._known[key] = need_of(training, batch, self._device)
        return self.memory.corrected(training, self._known[key])

    def admit(self, training: Training) -> Need | None:
        """Its need, if there is room for it."""
        if not self._asked:
            return None
        need = self.predict(training)
        total = self.memory.total(side_by_side=False, extra=need)
        if total > self.memory.limit:
            before = self.memory.total(side_by_side=False)
            raise NoRoom(
                f"model '{training.name}' would bring the device from {before / MIB:.0f} to {total / MIB:.0f} MiB,"
                f" more than its {self.memory.limit / MIB:.0f} MiB"
            )
        return need

    def side_by_side(self) -> bool:
        """Whether all models' steps fit at the same time, as captured graphs need it."""
        if self._side_by_side is None:
            self._side_by_side = not self._asked or self.memory.total(side_by_side=True) <= self.memory.limit
        return self._side_by_side

    def changed(self) -> None:
        """Somebody came or left."""
        self._side_by_side = None

    @contextmanager
    def watching(self, member: Member) -> Iterator[None]:
        """Within, a model makes a step alone: on a GPU, once its state is made, its peak is read."""
        name = member.name
        if self._device.type != "cuda" or member.step != 1 or name in self.memory.seen or name not in self.memory.needs:
            yield
            return
        member.optimiser.zero_grad(set_to_none=True)
        torch.cuda.synchronize(self._device)
        before = torch.cuda.memory_allocated(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        yield
        torch.cuda.synchronize(self._device)
        self.memory.learn(name, torch.cuda.max_memory_allocated(self._device) - before)


def example(training: Training) -> Any:
    """A batch of the right shapes, without contents: one example is read, or the first batch."""
    data = training.data
    if isinstance(data, DataLoader) and not isinstance(data.dataset, IterableDataset) and data.batch_size:
        one = data.collate_fn([data.dataset[0]])
        size = data.batch_size
        return mapped(one, lambda t: torch.empty((size, *t.shape[1:]), dtype=t.dtype, device="meta"))
    return mapped(next(iter(data)), _empty)


def _empty(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
