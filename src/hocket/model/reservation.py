"""Nodes that are reserved for some owners for a time: only their jobs are placed there."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct


class NodeReservation(Struct, frozen=True, gc=False):
    """A node that only jobs of some owners get, from one moment to another. Those of one node never overlap."""

    name: str  # unique among reservations that are not over
    node: str  # id of the node; it may be lost
    owners: tuple[str, ...]  # whose jobs are placed there; at least one
    from_s: float  # when it begins, in seconds: simulated from 0 on, live since 1970
    until_s: float | None = None  # when it ends; None: when it is removed
    by: str = ""  # name of the user that asked; empty if not known

    def holds_at(self, now_s: float) -> bool:
        """Has it begun, and not ended?"""
        return self.from_s <= now_s and not self.is_over_at(now_s)

    def is_over_at(self, now_s: float) -> bool:
        """Has it ended by itself?"""
        return self.until_s is not None and self.until_s <= now_s

    def overlaps(self, other: NodeReservation) -> bool:
        """Would both hold on one node at some moment?"""
        if self.node != other.node:
            return False
        ends_before = self.until_s is not None and self.until_s <= other.from_s
        return not ends_before and not (other.until_s is not None and other.until_s <= self.from_s)

    @property
    def words(self) -> str:
        """For whom, and under which name: `reserved for ana, bo as 'demo'`."""
        return f"reserved for {', '.join(self.owners)} as '{self.name}'"


def holding_at(reservations: Iterable[NodeReservation], now_s: float) -> tuple[NodeReservation, ...]:
    """Those of the `reservations` that hold at `now_s`."""
    return tuple(r for r in reservations if r.holds_at(now_s))


def next_change_s(reservations: Iterable[NodeReservation], now_s: float) -> float | None:
    """When the next of them begins or ends after `now_s`; None if none does."""
    moments = [at_s for r in reservations for at_s in (r.from_s, r.until_s) if at_s is not None and at_s > now_s]
    return min(moments, default=None)


def excluded_nodes(holding: Iterable[NodeReservation], owner: str) -> tuple[str, ...]:
    """The nodes that an `owner` does not get while these reservations hold, sorted."""
    return tuple(sorted(r.node for r in holding if owner not in r.owners))
