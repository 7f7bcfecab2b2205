"""What changes in the state when a node is drained: it gets no new jobs, and those on it go on or make way."""

from __future__ import annotations

from msgspec.structs import replace

from hocket.control.state import State
from hocket.model.event import NodeDrained, NodeUndrained
from hocket.model.view import JobView


def node_drained(state: State, event: NodeDrained) -> None:
    """A node is closed for new jobs. With `clear`, jobs on it that may be preempted leave it."""
    known = state.nodes.live.get(event.node)
    if known is None:
        return
    if known.is_open:
        state.capacity = state.capacity.close(event.node)
    state.nodes.put(event.node, replace(known, drained=True, cleared=event.clear))
    state.notes.alarm = True
    for view in state.jobs.values():
        if view.suspended is not None and view.suspended.node == event.node:
            state.unsettle((view.job.id, ""))  # There is no memory for it any more.
    if event.clear:
        here = [v for v in state.jobs.values() if event.node in _planned_nodes(state, v)]
        for view in sorted(here, key=lambda v: v.number):
            leave_cleared_node(state, view.job.id)


def node_undrained(state: State, event: NodeUndrained) -> None:
    """A drained node is open again."""
    known = state.nodes.live.get(event.node)
    if known is None or not known.drained:
        return
    if known.up:
        taken = [part for p in state.partitions.values() for part in p.slices]
        state.capacity = state.capacity.reopen(event.node, taken)
    state.nodes.put(event.node, replace(known, drained=False, cleared=False))
    state.notes.alarm = state.notes.freed = True


def leave_cleared_node(state: State, job_id: str) -> None:
    """The job waits for another place, if it is on a node that is to be cleared and may be preempted now."""
    view = state.jobs.live.get(job_id)
    if view is None or view.verdict or not view.partitions or view.protected_at(state.now_s):
        return
    nodes = state.nodes.live
    cleared = [node for node in _planned_nodes(state, view) if nodes[node].cleared]
    if not cleared:
        return
    tasks = {t.task for p in view.partitions for t in state.partitions.live[p].tenants if t.job == job_id}
    state.vacate(view)
    left = replace(view, partitions=(), reason=f"paused: node '{cleared[0]}' is drained")
    state.put_view(view, left)
    state.update_leaving(view)
    for task in sorted(tasks):
        state.unsettle((job_id, task))
    state.arrived.setdefault(job_id)
    state.notes.alarm = state.notes.freed = True


def _planned_nodes(state: State, view: JobView) -> list[str]:
    """The nodes on which the plan has the job."""
    parts = (part.node for pid in view.partitions for part in state.partitions.live[pid].slices)
    return list(dict.fromkeys(parts))
