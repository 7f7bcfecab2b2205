"""The controller's journal on a simulated disk: encoded and checked as every stored journal is, with commits that fail.

A commit is one call of the system: the process may be killed before it, and after it. It may also fail, and leave open
whether it took place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

import msgspec
from tests.faultsim.kernel import Kernel

from hocket.control.journal.stored import JournalError, Row, StoredJournal
from hocket.control.ports import Header


class Trouble(Enum):
    """What is wrong with the disk of the journal."""

    NONE = "none"
    FULL = "full"  # no commit takes place
    IN_DOUBT = "in doubt"  # it takes place, and its caller is told that it did not


class Store:
    """What is on the disk; it outlives controllers."""

    def __init__(self) -> None:
        self.header = b""
        self.rows: list[Row] = []
        self.states: list[Row] = []
        self.kept: dict[tuple[str, str], bytes] = {}
        self.trouble = Trouble.NONE
        self.recoveries = 0  # times that a controller began anew, and did not know which reports it had taken in
        self.is_behind = False  # the controller is in a commit, and ahead of what is here


class SimulatedJournal(StoredJournal):
    """A journal in a `Store`."""

    name = "simulated"

    def __init__(self, kernel: Kernel, store: Store, header: Header) -> None:
        super().__init__(writes=True)
        self._kernel, self._store = kernel, store
        if not store.header:
            store.header = msgspec.json.encode(header)
        self.header = self._decoded_header(store.header)
        self._last = len(store.rows)
        store.is_behind = False

    def recover(self) -> int:
        """A controller begins with what is here."""
        self._store.recoveries += 1
        return super().recover()

    def close(self) -> None:
        """Nothing to close."""

    def keep(self, kind: str, values: Mapping[str, bytes | None]) -> None:
        """Keep values beside the cycles; they are there at once or not at all."""
        self._kernel.call()
        for key, value in values.items():
            if value is None:
                self._store.kept.pop((kind, key), None)
            else:
                self._store.kept[kind, key] = value

    def kept(self, kind: str, key: str | None = None) -> dict[str, bytes]:
        """The values of that kind."""
        return {k: value for (of, k), value in self._store.kept.items() if of == kind and key in (None, k)}

    # -- no cycles are removed here: benchmarks/retention.py kills what does that ------------------------------------

    size, epoch = 0, 1

    def shrink(self, most: int) -> int:  # noqa: ARG002
        """Nothing to give back."""
        return 0

    def _commit_beginning(self, row: Row, blocks: list[Row], header: bytes) -> None:
        raise NotImplementedError

    def _delete(self, last: int, most: int) -> int:
        raise NotImplementedError

    def _beginning_row(self) -> Row | None:
        return None

    def _ended_rows(self) -> Iterator[Row]:
        return iter(())

    def _ended_blocks(self) -> int:
        return 0

    def _commit(self, rows: list[Row]) -> None:
        kernel, store = self._kernel, self._store
        store.is_behind = True
        if kernel.current is not None:
            kernel.sleep(kernel.rng.uniform(0.0005, 0.005))
        kernel.call()
        if store.trouble is Trouble.FULL:
            raise JournalError("journal 'simulated': no space left on device")
        store.rows += rows
        store.is_behind = False
        kernel.call()
        if store.trouble is Trouble.IN_DOUBT:
            raise JournalError("journal 'simulated': disk I/O error")

    def _commit_state(self, row: Row) -> None:
        self._kernel.call()
        if self._store.trouble is Trouble.FULL:
            raise JournalError("journal 'simulated': no space left on device")
        self._store.states = [row, *self._store.states[:1]]

    def _page(self, first: int) -> list[Row]:
        return self._store.rows[first - 1 : first + 255]

    def _newest(self) -> int:
        return len(self._store.rows)

    def _states(self) -> list[Row]:
        return list(self._store.states)
