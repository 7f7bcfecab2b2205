"""Nodes that users reserve for owners: what is told to the controller, and what is shown of reservations."""

from __future__ import annotations

from concurrent.futures import Future
from difflib import get_close_matches
from itertools import count
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from hocket.control.ports import LiveExecutor
from hocket.model.event import Event, NodeReserved, NodeUnreserved
from hocket.model.job import Name, Text
from hocket.model.reservation import NodeReservation
from hocket.model.snapshot import Snapshot
from hocket.model.validation import explained
from hocket.service.node_drain import NodeError, UnknownNode, jobs_on, unknown_node

T = TypeVar("T")
_Seconds = Annotated[float, Meta(ge=0, le=1e10)]


class ReserveSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """For whom a node is reserved, and when."""

    owners: Annotated[
        tuple[Name, ...], Meta(min_length=1, max_length=100, description="whose jobs are placed on the node")
    ]
    begin_in_s: Annotated[_Seconds, Meta(description="seconds from now to its begin")] = 0.0
    end_in_s: Annotated[_Seconds | None, Meta(description="seconds from now to its end; null: when it is removed")] = (
        None
    )
    name: Annotated[Text, Meta(description="made up from the first owner's if empty")] = ""
    by: Annotated[Text, Meta(description="user who asks")] = ""


class UnreserveSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """How a reservation is removed."""

    by: Annotated[Text, Meta(description="user who asks")] = ""


def read_reserve(body: bytes) -> ReserveSpec:
    """What a call says. Raises NodeError."""
    return _read(body, ReserveSpec)


def read_unreserve(body: bytes) -> UnreserveSpec:
    """What a call says. Raises NodeError."""
    return _read(body or b"{}", UnreserveSpec)


def _read(body: bytes, kind: type[T]) -> T:
    try:
        given = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NodeError(f"the body must be JSON: {error}") from error
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise NodeError(explained(error, given)) from error


def reserve(executor: LiveExecutor, node: str, spec: ReserveSpec) -> Future[Any]:
    """Done when it is in the journal, with the name of the reservation.

    The future raises UnknownNode for a node that is not there, NodeError for a reservation that breaks a rule.
    """
    made: list[str] = []

    def make(snapshot: Snapshot, now_s: float) -> list[Event]:
        new = _reservation(snapshot, node, spec, now_s)
        made.append(new.name)
        return [NodeReserved(now_s, new)]

    return executor.post(make, lambda _refused: made[-1])


def _reservation(snapshot: Snapshot, node: str, spec: ReserveSpec, now_s: float) -> NodeReservation:
    if node not in snapshot.nodes:
        raise unknown_node(node, snapshot)
    from_s = now_s + spec.begin_in_s
    until_s = None if spec.end_in_s is None else now_s + spec.end_in_s
    if until_s is not None and until_s <= from_s:
        raise NodeError(
            f"a reservation must end after it begins, and this one would begin in {spec.begin_in_s:g} s and end in "
            f"{spec.end_in_s:g} s"
        )
    there = _not_over(snapshot, now_s)
    taken = {r.name: r for r in there}
    if spec.name in taken:
        raise NodeError(f"there is a reservation '{spec.name}' already, of node '{taken[spec.name].node}'")
    if spec.name in snapshot.nodes:
        raise NodeError(f"a reservation must not have the name of a node, as '{spec.name}' is")
    names = (f"{spec.owners[0]}-{n}" for n in count(1))
    name = spec.name or next(n for n in names if n not in taken and n not in snapshot.nodes)
    new = NodeReservation(name, node, tuple(dict.fromkeys(spec.owners)), from_s, until_s, spec.by)
    for other in there:
        if new.overlaps(other):
            raise NodeError(f"node '{node}' is {other.words} at that time; `hocket node unreserve` removes that")
    return new


def unreserve(executor: LiveExecutor, name: str, by: str) -> Future[Any]:
    """Remove the reservation of this name, or all of the node of this name; done when it is in the journal.

    Its result is the names of those that were removed. The future raises UnknownNode if there is none.
    """
    removed: list[str] = []

    def make(snapshot: Snapshot, now_s: float) -> list[Event]:
        removed[:] = _named(snapshot, name, now_s)
        return [NodeUnreserved(now_s, each, by) for each in removed]

    return executor.post(make, lambda _refused: removed)


def _not_over(snapshot: Snapshot, now_s: float) -> list[NodeReservation]:
    """The reservations that have not ended: while there are no jobs, the state still has those that have."""
    return [r for r in snapshot.reservations if not r.is_over_at(now_s)]


def _named(snapshot: Snapshot, name: str, now_s: float) -> list[str]:
    """The reservation of this name, or those of the node of this name. Raises UnknownNode."""
    there = _not_over(snapshot, now_s)
    names = [r.name for r in there]
    if name in names:
        return [name]
    if found := [r.name for r in there if r.node == name]:
        return found
    if name in snapshot.nodes:
        raise UnknownNode(f"node '{name}' is not reserved")
    near = get_close_matches(name[:100], [*names, *snapshot.nodes], n=1, cutoff=0.6)
    raise UnknownNode(
        f"there is no reservation and no node '{name[:200]}'" + (f"; did you mean '{near[0]}'?" if near else "")
    )


def reservation_rows(snapshot: Snapshot, node: str, now_s: float) -> list[dict[str, Any]]:
    """The reservations of a node that are not over, the first to begin first."""
    mine = [r for r in _not_over(snapshot, now_s) if r.node == node]
    return [_row(r, now_s) for r in sorted(mine, key=lambda r: r.from_s)]


def _row(reservation: NodeReservation, now_s: float) -> dict[str, Any]:
    return {
        "name": reservation.name,
        "owners": reservation.owners,
        "from_s": reservation.from_s,
        "until_s": reservation.until_s,
        "holds": reservation.holds_at(now_s),
        "by": reservation.by,
    }


def reserved_row(snapshot: Snapshot, name: str, now_s: float) -> dict[str, Any]:
    """A reservation that was just made, and the jobs of other owners that are on its node and run on.

    Raises NodeError if it is not there: another one was made at the same time.
    """
    found = next((r for r in snapshot.reservations if r.name == name), None)
    if found is None:
        raise NodeError("another reservation of the node, or of this name, was made at the same time")
    others = [view for view in jobs_on(snapshot, found.node) if view.job.owner not in found.owners]
    jobs = [{"id": view.id, "owner": view.job.owner} for view in others]
    return {"id": found.node, "reservation": _row(found, now_s), "jobs": jobs}
