"""A journal that is kept in memory and on disk, for simulations."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hocket.control.journal import JournalError, SqliteJournal
from hocket.control.ports import Cycle, Header

# A simulation can be run again, so it need not wait for the disk after every cycle as a live run does.
_BATCH = 4096


class Recording:
    """Cycles go to SQLite in batches, under another name until the run is over or interrupted."""

    def __init__(self, path: Path, header: Header) -> None:
        if path.exists() and path.stat().st_size:
            raise JournalError(f"journal '{path}' exists already; a run needs a new one")
        self.header = header
        self.cycles: list[Cycle] = []
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        _remove(self._part)  # of a run that was killed
        self._disk = SqliteJournal(self._part, header)
        self._written = 0

    def append(self, cycle: Cycle) -> None:
        """Keep one cycle; it is on disk once its batch is full."""
        self.cycles.append(cycle)
        if len(self.cycles) - self._written >= _BATCH:
            self._flush()

    def __iter__(self) -> Iterator[Cycle]:
        return iter(self.cycles)

    def __len__(self) -> int:
        return len(self.cycles)

    def _flush(self) -> None:
        self._disk.extend(self.cycles[self._written :])
        self._written = len(self.cycles)

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, KeyboardInterrupt):
            self._written = self._disk.recover()  # The interrupt may have come in the middle of a batch.
            self._flush()  # What was recorded up to it is a journal too.
            self._disk.close()
            os.replace(self._part, self._path)
        else:
            self._disk.close()
            _remove(self._part)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
