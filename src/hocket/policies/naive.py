"""Naive co-location: so many jobs on the same machines, whichever they are. What Harmony is compared with."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hocket.model.partition import Sharing
from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.harmony.hall import Hall, fitting, groupable
from hocket.policies.registry import Params, policy

_MIX = 2654435761  # Knuth's multiplier: neighbouring numbers end up far apart


class Naive(Params, frozen=True):
    together: Annotated[int, Meta(ge=1, description="jobs that share machines")] = 2
    machines: Annotated[int, Meta(ge=1, description="machines that they share")] = 16
    coordinated: Annotated[bool, Meta(description="whether their phases take turns, as under Harmony")] = False


@policy(
    "naive",
    params=Naive,
    paper="the baseline of Harmony, ICDE'21; after Gandiva",
    reads_beliefs=False,
    reads_usage=False,
)
def decide(snapshot: Snapshot, params: Naive) -> Plan:
    """Parameter-server jobs are put together at random, and nobody coordinates them; other jobs run alone.

    A job that ends is replaced by any that waits and whose data has room. The seed of a run decides who meets whom:
    many seeds are a sample of all co-locations.
    """
    sharing = Sharing.INTERLEAVED if params.coordinated else Sharing.STACKED
    hall = Hall(snapshot, sharing)
    machines = [v.node for v in snapshot.nodes.values() if v.up]
    line: list[JobView] = []
    for view in hall.candidates():
        if groupable(view.job, machines):
            line.append(view)
        elif not hall.start(view, "starts: alone, for it takes no turns"):
            hall.pass_over(view)
    line.sort(key=lambda v: (_lot(v.number, snapshot.seed), v.number))
    groups = [p for p in snapshot.partitions.data().values() if p.sharing is sharing]
    groups.sort(key=lambda p: min(snapshot.jobs[t.job].number for t in p.tenants))
    for partition in groups:
        if len(partition.tenants) < params.together and line:
            there = [snapshot.jobs[t.job] for t in partition.tenants]
            hall.dissolve(partition.id)
            missing = params.together - len(there)
            beside = fitting(line, len(partition.slices) - sum(v.job.sizes[0] for v in there), missing)
            seated = hall.form(partition.id, [s.node for s in partition.slices], [*there, *beside])
            line = _left(hall, line, seated, "starts: beside any others")
    free = hall.free_machines()
    while line and free:
        together = fitting(line, len(free), params.together)
        wanted = max(min(len(free), params.machines), sum(v.job.sizes[0] for v in together))
        nodes = free if len(free) < 2 * wanted else free[:wanted]
        seated = hall.form(hall.new_id(), nodes, together)
        if not seated:
            break
        line = _left(hall, line, seated, "starts: with any others")
        free = free[len(nodes) :]
    for view in line:
        hall.reasons[view.job.id] = "waits: the machines are taken, by as many jobs as may share them"
    at_s = snapshot.now_s if hall.freed and hall.free_machines() and snapshot.waiting.count > len(line) else None
    return hall.plan(Wake(freed_gpus=1, epoch=False, at_s=at_s))


def _left(hall: Hall, line: list[JobView], seated: tuple[JobView, ...], why: str) -> list[JobView]:
    for view in seated:
        if view in line:
            hall.reasons[view.job.id] = why
    return [v for v in line if v not in seated]


def _lot(number: int, seed: int) -> int:
    """A number by lot: the same for a job all along, another under another seed."""
    x = (number + 1) * _MIX + (seed + 1) * 40503
    x ^= x >> 15
    return (x * _MIX) >> 7 & 0xFFFFFFFF
