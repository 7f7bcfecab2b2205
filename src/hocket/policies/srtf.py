"""Shortest remaining time first."""

from collections.abc import Iterator
from math import inf
from typing import Annotated

from msgspec import Meta

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.common_params import EverydayParams
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.lent_gpus import lend_idle, start_in_lent
from hocket.policies.kit.remaining_time import (
    depends_on_place,
    fix_end,
    fix_ends_of_reviewed,
    fixed_end_s,
    left_s,
    nodes_of,
    pace_in,
    planned_pace,
    restart_s,
)
from hocket.policies.registry import policy


class Srtf(EverydayParams, frozen=True):
    hysteresis: Annotated[
        float,
        Meta(ge=0, description="a job makes way if it has longer left than the other by more than this share"),
    ] = 0.1


def rank(view: JobView, now_s: float, params: Srtf) -> tuple[int, float]:
    """By priority; then waiting jobs by the time they need at their smallest size at best, placed ones by their end.

    What a waiting job needs does not change, nor does the end of one that runs, while what is left of it does. So
    both queues stay in the right order as time passes, and `end - now` is what a placed job has left.
    """
    return _priority(view, params), fixed_end_s(view, now_s) if view.partitions else _needs_s(view, now_s)


def _priority(view: JobView, params: Srtf) -> int:
    """The highest comes first in line."""
    return -view.job.priority if params.priority else 0


def _needs_s(view: JobView, now_s: float) -> float:
    if not view.partitions and view.memo is not None and "needs_s" in view.memo:
        return float(view.memo["needs_s"])  # as it was told to leave; until it has, it gets a little further
    # At its smallest size, the only one it can be sure of: else two elastic jobs might displace each other for ever.
    return left_s(view, now_s, view.job.sizes[0], _best_pace(view))


def _best_pace(view: JobView) -> float:
    """Its pace on the fastest GPUs that it accepts: it is not known yet which it will get."""
    beliefs, accepted = view.beliefs, view.job.gpu_kinds
    if not beliefs.kinds:
        return 1.0
    return max(beliefs.pace_on(kind, 1) for kind in accepted) if accepted else max(1.0, *beliefs.kinds.values())


@policy("srtf", params=Srtf, order=rank, reads_usage=False, reads=("priority",))
def decide(snapshot: Snapshot, params: Srtf) -> Plan:
    """The jobs that are believed to be done soonest run; those with longer left make way, the longest first.

    Jobs of which nothing is believed come last. A job that outlives its belief is reviewed then, and believed to need
    as long again as it has run. Idle GPUs are lent to elastic jobs. A higher priority goes before all of that.
    """
    draft, now_s = Draft(snapshot), snapshot.now_s
    fix_ends_of_reviewed(draft)
    waiting = False
    slower_s: dict[str, float] = {}  # job → what it needs where it would come to, if that is longer than at best

    def stands_s(view: JobView) -> float:
        return slower_s.get(view.job.id) or _needs_s(view, now_s)

    line = draft.candidates(over_quota=True)
    for view in draft.with_displaced(line, lambda v: (_priority(v, params), stands_s(v))):
        why = "starts: shortest remaining time first" if not view.partitions else "goes on in what is left"
        before = draft.saved() if depends_on_place(view) else None
        if not (
            _start(draft, view, why)
            or (params.lend and _start_in_lent(draft, view, params, why))
            or _displace(draft, view, params, why)
        ):
            waiting = True
            continue
        if before is not None:
            needs_s = left_s(view, now_s, draft.size_of(view), planned_pace(draft, view))
            if needs_s > stands_s(view):
                # Others may be done sooner there than this one, which stood before them by what it needs at best.
                draft.restore(before)
                slower_s[view.job.id] = needs_s
                draft.requeue(view)
                continue
        fix_end(draft, view)
    waiting = waiting or draft.paused > 0
    if waiting:
        draft.reasons["*"] = "waits: those that run are believed to be done sooner, or it does not fit"
    lending = lend_idle(draft, params, lambda v: fix_end(draft, v, restart_s(v)))
    return draft.plan(lending.wake(Wake(freed_gpus=1 if waiting or draft.over_quota else None, epoch=False)))


def _start(draft: Draft, view: JobView, why: str) -> bool:
    """Start the job in what is free."""
    if depends_on_place(view) and draft.capacity.place(view.job, view.job.sizes[0]) is None:
        return False  # Another of its shape may still make room, if it is faster there: `start` would pass it over.
    return draft.start(view, why)


def _start_in_lent(draft: Draft, view: JobView, params: Srtf, why: str) -> bool:
    """Start the job in what is lent to elastic jobs that have longer left."""
    if depends_on_place(view):
        return False  # It may be slower there than where those are.
    borrowers = [v for v in _longer(draft, view, params) if v.job.is_elastic and draft.size_of(v)]
    shrunk = start_in_lent(draft, view, why, borrowers)
    for borrower in shrunk:
        fix_end(draft, borrower, restart_s(borrower))
    return bool(shrunk)


def _displace(draft: Draft, view: JobView, params: Srtf, why: str) -> bool:
    """Start the job in the place of others that have longer left than it needs there, or a lower priority."""
    now_s, before = draft.snapshot.now_s, draft.saved() if depends_on_place(view) else None
    paused = f"paused: '{view.job.id}' is believed to be done sooner"
    if (last := draft.snapshot.placed.last()) is not None and last[0][0] > _priority(view, params):
        paused = f"paused: '{view.job.id}' has a higher priority, or is believed to be done sooner"
    victims = draft.displace(view, _longer(draft, view, params), paused, why)
    if victims and before is not None:
        enough_s, mine = _enough_s(view, now_s, params, planned_pace(draft, view)), _priority(view, params)
        equals = (victim for victim in victims if victim.rank[0] == mine)
        if any(victim.rank[1] - now_s <= enough_s for victim in equals):
            draft.restore(before)  # It came to places where it is slower than where they are.
            return False
    for victim in victims:
        needs_s = _needs_s(victim, now_s)
        draft.memos[victim.job.id] = {"needs_s": needs_s} if needs_s < inf else None
    return bool(victims)


def _longer(draft: Draft, view: JobView, params: Srtf) -> Iterator[JobView]:
    """The placed jobs of lower priority, and those that have longer left than this one needs in their place.

    Longer by more than the hysteresis. The lowest priority comes first, in it the longest.
    """
    snapshot, differs = draft.snapshot, depends_on_place(view)
    enough_s, mine = _enough_s(view, snapshot.now_s, params, _best_pace(view)), _priority(view, params)
    for entry in snapshot.placed.backwards():
        priority, ends_s = entry[0]
        victim, has_left_s = snapshot.jobs[entry[-1]], ends_s - snapshot.now_s
        if priority > mine:  # A lower one: ranks begin with the negative.
            yield victim
            continue
        if priority < mine or has_left_s <= enough_s or enough_s == inf:
            return
        if differs:
            there = nodes_of(draft, victim)[:1]
            if has_left_s <= _enough_s(view, snapshot.now_s, params, pace_in(view, there)):
                continue
        yield victim


def _enough_s(view: JobView, now_s: float, params: Srtf, pace: float) -> float:
    """A job that has longer left than this makes way for a waiting one, which would run at that pace."""
    needs_s = _needs_s(view, now_s)
    if pace != (best := _best_pace(view)):
        needs_s = needs_s * best / pace if pace > 0 else inf
    return needs_s * (1 + params.hysteresis)
