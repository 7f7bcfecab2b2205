"""Naive co-location: jobs share machines at random. A baseline of Harmony."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hocket.model.partition import Sharing
from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.group_draft import GroupDraft, fitting
from hocket.policies.registry import Params, policy

_MIX = 2654435761  # Knuth's multiplier: neighbouring numbers end up far apart


class Naive(Params, frozen=True):
    together: Annotated[int, Meta(ge=1, description="jobs that share machines")] = 2
    machines: Annotated[int, Meta(ge=1, description="machines that they share")] = 16
    coordinated: Annotated[bool, Meta(description="whether their phases take turns, as under Harmony")] = False


@policy(
    "naive",
    params=Naive,
    paper="the baseline of Harmony, ICDCS'21; after Gandiva",
    reads_beliefs=False,
    reads_usage=False,
    reads=(),
)
def decide(snapshot: Snapshot, params: Naive) -> Plan:
    """Parameter-server jobs share machines at random, and their phases are not coordinated; other jobs run alone.

    A job that ends is replaced by any waiting job whose data has room. The seed of a run decides which jobs meet: many
    seeds are a sample of all co-locations.
    """
    sharing = Sharing.INTERLEAVED if params.coordinated else Sharing.STACKED
    draft = GroupDraft(snapshot, sharing)
    waiting: list[JobView] = []
    for view in draft.candidates():
        if draft.start_on_reserved(view):
            continue
        if draft.is_groupable(view.job):
            waiting.append(view)
        elif not draft.start(view, "starts alone: it cannot share a group"):
            draft.pass_over(view)
    waiting.sort(key=lambda v: (_random_order(v.number, snapshot.seed), v.number))
    groups = draft.groups()
    groups.sort(key=lambda p: min(snapshot.jobs[t.job].number for t in p.tenants))
    for partition in groups:
        if len(partition.tenants) < params.together and waiting:
            there = [snapshot.jobs[t.job] for t in partition.tenants]
            draft.dissolve(partition.id)
            missing = params.together - len(there)
            others = fitting(waiting, len(partition.slices) - sum(v.job.sizes[0] for v in there), missing)
            placed = draft.form(partition.id, [s.node for s in partition.slices], [*there, *others])
            waiting = _still_waiting(draft, waiting, placed, "starts: beside jobs chosen at random")
    free = draft.free_machines()
    while waiting and free:
        together = fitting(waiting, len(free), params.together)
        wanted = max(min(len(free), params.machines), sum(v.job.sizes[0] for v in together))
        nodes = free if len(free) < 2 * wanted else free[:wanted]
        placed = draft.form(draft.new_id(), nodes, together)
        if not placed:
            break
        waiting = _still_waiting(draft, waiting, placed, "starts: with jobs chosen at random")
        free = free[len(nodes) :]
    for view in waiting:
        draft.reasons[view.job.id] = "waits: every machine has as many jobs as may share it"
    at_s = snapshot.now_s if draft.freed and draft.free_machines() and snapshot.waiting.count > len(waiting) else None
    return draft.plan(Wake(freed_gpus=1, epoch=False, at_s=at_s))


def _still_waiting(draft: GroupDraft, waiting: list[JobView], placed: tuple[JobView, ...], why: str) -> list[JobView]:
    for view in placed:
        if view in waiting:
            draft.reasons[view.job.id] = why
    return [v for v in waiting if v not in placed]


def _random_order(number: int, seed: int) -> int:
    """A pseudo-random number that depends on the job and the seed alone."""
    x = (number + 1) * _MIX + (seed + 1) * 40503
    x ^= x >> 15
    return (x * _MIX) >> 7 & 0xFFFFFFFF
