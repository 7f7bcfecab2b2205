"""A journal in memory, for simulations and tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hocket.control.journal.no_others import NoOthers
from hocket.control.ports import Beginning, Cycle, Header, OtherControllers


class MemoryJournal:
    """Keeps the cycles themselves; nothing is encoded."""

    name = "in memory"
    others: OtherControllers = NoOthers()

    def __init__(self, header: Header) -> None:
        self.header = header
        self.cycles: list[Cycle] = []
        self.append = self.cycles.append
        self._kept: dict[str, dict[str, bytes]] = {}
        self._saved: tuple[tuple[int, bytes], ...] = ()

    def extend(self, cycles: Sequence[Cycle]) -> None:
        """Keep several cycles."""
        self.cycles.extend(cycles)

    def after(self, number: int) -> Iterator[Cycle]:
        """The cycles that follow the first `number`."""
        return iter(self.cycles[number:])

    def beginning(self) -> Beginning | None:
        """It begins with its first cycle: none is ever removed."""
        return None

    def ended(self) -> Iterator[bytes]:
        """Nothing: all jobs are in the cycles."""
        return iter(())

    def __iter__(self) -> Iterator[Cycle]:
        return iter(self.cycles)

    def __len__(self) -> int:
        return len(self.cycles)

    def recover(self) -> int:
        """How many cycles there are; appending never fails here."""
        return len(self.cycles)

    def save(self, state: bytes) -> None:
        """Keep the state after the last cycle."""
        self._saved = ((len(self.cycles), state), *self._saved[:1])

    def saved(self) -> Iterator[tuple[int, bytes]]:
        """The saved states, newest first."""
        return iter(self._saved)

    def keep(self, kind: str, values: Mapping[str, bytes | None]) -> None:
        """Keep values beside the cycles by their keys, and remove those that are None."""
        there = self._kept.setdefault(kind, {})
        for key, value in values.items():
            there.pop(key, None)
            if value is not None:
                there[key] = value

    def kept(self, kind: str, key: str | None = None) -> dict[str, bytes]:
        """The values of that kind by their keys, or the one with this key, if there is any."""
        return {k: value for k, value in self._kept.get(kind, {}).items() if key in (None, k)}

    def close(self) -> None:
        """Nothing to close."""
