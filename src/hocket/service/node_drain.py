"""Nodes that users drain: what is told to the controller, and which jobs stay for now."""

from __future__ import annotations

from concurrent.futures import Future
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from hocket.control.ports import LiveExecutor
from hocket.model.event import Event, NodeDrained, NodeUndrained
from hocket.model.snapshot import Snapshot


class DrainSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """How a node is drained."""

    now: Annotated[bool, Meta(description="pause the jobs on it, and place them elsewhere")] = False
    by: Annotated[str, Meta(max_length=200, description="user who asks")] = ""


class DrainError(ValueError):
    """A node that cannot be drained, or opened; says why."""


class UnknownNode(DrainError):
    """There is no such node."""


def read_drain(body: bytes) -> DrainSpec:
    """What a call says. Raises DrainError."""
    try:
        return msgspec.json.decode(body or b"{}", type=DrainSpec)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DrainError(str(error)) from error


def drain(executor: LiveExecutor, node: str, spec: DrainSpec) -> Future[Any]:
    """Done when it is in the journal. The future raises DrainError for a node that is not there."""

    def make(snapshot: Snapshot, now_s: float) -> list[Event]:
        known = snapshot.nodes.get(node)
        if known is None:
            raise _unknown(node, snapshot)
        is_so = known.drained and known.cleared == spec.now
        return [] if is_so else [NodeDrained(now_s, node, spec.now, spec.by)]

    return executor.post(make)


def undrain(executor: LiveExecutor, node: str, by: str) -> Future[Any]:
    """Done when it is in the journal. The future raises DrainError for a node that is not there, or not drained."""

    def make(snapshot: Snapshot, now_s: float) -> list[Event]:
        known = snapshot.nodes.get(node)
        if known is None:
            raise _unknown(node, snapshot)
        if not known.drained:
            raise DrainError(f"node '{node}' is not drained")
        return [NodeUndrained(now_s, node, by)]

    return executor.post(make)


def drained_row(snapshot: Snapshot, node: str, now_s: float) -> dict[str, Any]:
    """The jobs that are still on a node, and why those stay that may not be preempted."""
    jobs = []
    for view in snapshot.jobs.values():
        held = [h for t in view.tenancies for h in (t.holding, t.coming) if h is not None]
        if any(part.node == node for h in held for part in h.slices):
            jobs.append({"id": view.id, "protected": view.protected_at(now_s) if view.partitions else ""})
    known = snapshot.nodes[node]
    return {"id": node, "drained": known.drained, "cleared": known.cleared, "jobs": jobs}


def _unknown(node: str, snapshot: Snapshot) -> UnknownNode:
    near = get_close_matches(node[:100], list(snapshot.nodes), n=1, cutoff=0.6)
    return UnknownNode(f"there is no node '{node[:200]}'" + (f"; did you mean '{near[0]}'?" if near else ""))
