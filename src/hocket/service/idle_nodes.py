"""Which nodes no job needs, so that they can be given back to what lent them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set

from hocket.model.capacity import Capacity, Free, shape_of
from hocket.model.job import Job
from hocket.model.resources import Node
from hocket.model.snapshot import Snapshot
from hocket.model.view import Hold, JobState


def idle_nodes(snapshot: Snapshot, with_files: Mapping[str, Set[str]]) -> dict[str, bool]:
    """The nodes that are up and that no job needs; of each, whether it is drained, so that none can come to need it.

    A job needs a node that it has or is to get, that it could wait for, or that has its state while it does not run:
    `with_files` tells by job which nodes have files that no other node has. A node that is reserved is kept, too.
    """
    used = {part.node for partition in snapshot.partitions.values() for part in partition.slices}
    used |= {part.node for slices in snapshot.leaving.values() for part in slices}
    used |= {reservation.node for reservation in snapshot.reservations}
    free = [view for view in snapshot.nodes.values() if view.up and view.node.id not in used]
    if not free:
        return {}
    kept: set[str] = set()
    for view in snapshot.jobs.values():
        if view.suspended is not None:
            kept.add(view.suspended.node)
        if view.state in (JobState.WAITING, JobState.PAUSED):
            kept |= with_files.get(view.id, frozenset())
    waiting = [snapshot.jobs[job_id].job for _rank, _number, job_id in snapshot.waiting]
    waiting += [view.job for view in snapshot.jobs.values() if view.held is Hold.RESTS]
    of_each_shape = {shape_of(job): job for job in waiting}.values()
    return {
        view.node.id: view.drained
        for view in free
        if view.node.id not in kept and not any(_serves(snapshot.capacity, view.node, job) for job in of_each_shape)
    }


def _serves(capacity: Capacity, node: Node, job: Job) -> bool:
    """Could it have a replica of the job, with nothing else on it? Tasks of a graph may go anywhere."""
    if job.tasks is not None:
        return True
    whole = Free((1 << node.gpus) - 1, node.cores, node.mem_mib, node.net_mbps)
    return bool(capacity.layout.eligible(job) & capacity.layout.bits[node.id][2]) and whole.room(job.demand) > 0
