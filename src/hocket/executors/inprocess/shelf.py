"""Where models stand between two stretches of their training: in memory, and on disk if they shall survive a kill."""

from __future__ import annotations

from pathlib import Path

from hocket.runtimes.packing.checkpoint import Checkpoint
from hocket.runtimes.packing.tensors import n_bytes

IN_MEMORY_BYTES = 1 << 30  # of checkpoints that are on disk, too: reading one again costs more than keeping it


class Shelf:
    """Checkpoints by the name of their model; the last of each."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._kept: dict[str, tuple[Checkpoint, int]] = {}  # the oldest first
        self._bytes = 0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def put(self, checkpoint: Checkpoint) -> None:
        """Keep it; on disk when this returns, if there is a folder."""
        if self._folder is not None:
            checkpoint.save(self._path(checkpoint.name))
        self._forget(checkpoint.name)
        size = n_bytes(checkpoint.state)
        self._kept[checkpoint.name] = checkpoint, size
        self._bytes += size
        while self._folder is not None and self._bytes > IN_MEMORY_BYTES and len(self._kept) > 1:
            self._forget(next(iter(self._kept)))

    def get(self, name: str) -> Checkpoint | None:
        """The last checkpoint of a model, if there is one."""
        if name in self._kept:
            return self._kept[name][0]
        if self._folder is None or not (path := self._path(name)).exists():
            return None
        return Checkpoint.read(path)

    def drop(self, name: str) -> None:
        """Nobody will ask for it again."""
        self._forget(name)
        if self._folder is not None:
            self._path(name).unlink(missing_ok=True)

    def _forget(self, name: str) -> None:
        if name in self._kept:
            self._bytes -= self._kept.pop(name)[1]

    def _path(self, name: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{name}.pt"
