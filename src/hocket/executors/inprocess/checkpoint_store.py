"""Where models stand between two stretches of their training: in memory, and on disk if they shall survive a kill."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from hocket.runtimes.packing.checkpoint import ModelCheckpoint
from hocket.runtimes.packing.member import Member
from hocket.runtimes.packing.tensors import n_bytes

IN_MEMORY_BYTES = 1 << 30  # of checkpoints that are on disk, too: reading one again costs more than keeping it


class MemoryBudget:
    """Bytes that models which wait may take."""

    def __init__(self, most: int) -> None:
        self.most, self.taken = most, 0

    def take(self, size: int) -> bool:
        """So many, if there are so many left."""
        if self.taken + size > self.most:
            return False
        self.taken += size
        return True

    def give_back(self, size: int) -> None:
        """So many that were taken."""
        self.taken -= size


class _Kept(NamedTuple):
    checkpoint: ModelCheckpoint
    size: int
    of_budget: int  # bytes of the device


class CheckpointStore:
    """Checkpoints by the name of their model; the last of each.

    Without a folder they stay on the model's device while the `budget` allows it: to copy a ResNet-50 with Adam to the
    host takes as long as nine of its steps.
    """

    def __init__(self, folder: Path | None, budget: MemoryBudget | None = None) -> None:
        self._folder, self._budget = folder, budget
        self._kept: dict[str, _Kept] = {}  # the oldest first
        self._bytes = 0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def put(self, member: Member, reason: str) -> None:
        """Keep the model as it is now; on disk when this returns, if there is a folder."""
        kept = self._on_device(member, reason)
        if kept is None:
            checkpoint = member.checkpoint(reason)
            kept = _Kept(checkpoint, n_bytes(checkpoint.state), 0)
        if self._folder is not None:
            kept.checkpoint.save(self._path(member.name))
        self._forget(member.name)
        self._kept[member.name] = kept
        self._bytes += kept.size
        while self._folder is not None and self._bytes > IN_MEMORY_BYTES and len(self._kept) > 1:
            self._forget(next(iter(self._kept)))

    def _on_device(self, member: Member, reason: str) -> _Kept | None:
        if self._budget is None or self._folder is not None or member.device.type == "cpu":
            return None
        state = member.state()
        size = n_bytes((state["module"], state["optimiser"]))
        if not self._budget.take(size):
            return None
        try:
            return _Kept(member.checkpoint(reason, place=member.device), size, size)
        except torch.OutOfMemoryError:
            self._budget.give_back(size)
            return None

    def get(self, name: str) -> ModelCheckpoint | None:
        """The last checkpoint of a model, if there is one."""
        if name in self._kept:
            return self._kept[name].checkpoint
        if self._folder is None or not (path := self._path(name)).exists():
            return None
        return ModelCheckpoint.read(path)

    def drop(self, name: str) -> None:
        """It will not be asked for again."""
        self._forget(name)
        if self._folder is not None:
            self._path(name).unlink(missing_ok=True)

    def _forget(self, name: str) -> None:
        if name in self._kept:
            _, size, of_budget = self._kept.pop(name)
            self._bytes -= size
            if self._budget is not None:
                self._budget.give_back(of_budget)

    def _path(self, name: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{name}.pt"
