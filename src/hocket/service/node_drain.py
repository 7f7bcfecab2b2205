"""Nodes that users drain: what is told to the controller, and which jobs stay for now."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from hocket.control.ports import LiveExecutor
from hocket.model.event import Event, NodeDrained, NodeUndrained
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView


class DrainSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """How a node is drained."""

    now: Annotated[bool, Meta(description="pause the jobs on it, and place them elsewhere")] = False
    by: Annotated[str, Meta(max_length=200, description="user who asks")] = ""


class NodeError(ValueError):
    """What was asked of a node cannot be done; says why."""


class UnknownNode(NodeError):
    """There is no node, or no reservation, of that name."""


def read_drain(body: bytes) -> DrainSpec:
    """What a call says. Raises NodeError."""
    try:
        return msgspec.json.decode(body or b"{}", type=DrainSpec)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NodeError(str(error)) from error


def drain(executor: LiveExecutor, node: str, spec: DrainSpec) -> Future[Any]:
    """Done when it is in the journal. The future raises NodeError for a node that is not there."""

    def make(snapshot: Snapshot, now_s: float) -> list[Event]:
        known = snapshot.nodes.get(node)
        if known is None:
            raise unknown_node(node, snapshot)
        is_so = known.drained and known.cleared == spec.now
        return [] if is_so else [NodeDrained(now_s, node, spec.now, spec.by)]

    return executor.post(make)


def undrain(executor: LiveExecutor, node: str, by: str) -> Future[Any]:
    """Done when it is in the journal. The future raises NodeError for a node that is not there, or not drained."""

    def make(snapshot: Snapshot, now_s: float) -> list[Event]:
        known = snapshot.nodes.get(node)
        if known is None:
            raise unknown_node(node, snapshot)
        if not known.drained:
            raise NodeError(f"node '{node}' is not drained")
        return [NodeUndrained(now_s, node, by)]

    return executor.post(make)


def drained_row(snapshot: Snapshot, node: str, now_s: float) -> dict[str, Any]:
    """The jobs that are still on a node, and why those stay that may not be preempted."""
    jobs = [
        {"id": view.id, "protected": view.protected_at(now_s) if view.partitions else ""}
        for view in jobs_on(snapshot, node)
    ]
    known = snapshot.nodes[node]
    return {"id": node, "drained": known.drained, "cleared": known.cleared, "jobs": jobs}


def jobs_on(snapshot: Snapshot, node: str) -> Iterator[JobView]:
    """The jobs that have something of a node in fact, or are about to."""
    for view in snapshot.jobs.values():
        held = [h for t in view.tenancies for h in (t.holding, t.coming) if h is not None]
        if any(part.node == node for h in held for part in h.slices):
            yield view


def unknown_node(node: str, snapshot: Snapshot) -> UnknownNode:
    """That there is no such node, and which may be meant."""
    near = get_close_matches(node[:100], list(snapshot.nodes), n=1, cutoff=0.6)
    return UnknownNode(f"there is no node '{node[:200]}'" + (f"; did you mean '{near[0]}'?" if near else ""))
