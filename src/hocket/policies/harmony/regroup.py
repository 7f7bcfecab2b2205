"""Who may take the place of a job that left a group, how far a regrouping should reach, and what it may cost.

Pure choices; the plan is written elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from hocket.model.phases import Profile
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView

_PUNCTUAL_S = 1e-3  # whoever asked to be asked then is asked then, give or take so much
_LOOKED_AT = 200  # jobs that wait, for a bundle
_TO_BEGIN_WITH_S = 1800.0  # of machine time for migrations there is so much when nothing was saved up yet
_SAVED_UP_S = 6 * 3600.0  # … and at most


def substitutes(comp: float, comm: float, machines: int, waiting: Sequence[Profile], within: float) -> tuple[int, ...]:
    """Of those who wait, one that is like whoever left, else a bundle that is; empty if there is none.

    Alike are the iteration time and the share of COMP in it, each within a share of the other's.
    """
    wanted_s = comp / machines + comm
    if wanted_s <= 0:
        return ()
    wanted_share = comp / machines / wanted_s
    times = [(p.comp_machine_s / machines, p.comm_s) for p in waiting]

    def alike(comp_s: float, comm_s: float) -> bool:
        total_s = comp_s + comm_s
        return abs(total_s - wanted_s) <= within * wanted_s and abs(comp_s / total_s - wanted_share) <= within * max(
            wanted_share, 1 - wanted_share
        )

    for i, (comp_s, comm_s) in enumerate(times):
        if alike(comp_s, comm_s):
            return (i,)
    small = [i for i, (c, n) in enumerate(times[:_LOOKED_AT]) if c + n < wanted_s]
    # A bundle grows from each in turn, by whoever then comes closest.
    for first in small:
        bundle, comp_s, comm_s = [first], *times[first]
        while comp_s + comm_s < wanted_s * (1 - within):
            rest = [i for i in small if i not in bundle and comp_s + comm_s + sum(times[i]) <= wanted_s * (1 + within)]
            if not rest:
                break
            aim_comp, aim_comm = wanted_s * wanted_share - comp_s, wanted_s * (1 - wanted_share) - comm_s
            nearest = min(rest, key=lambda i: abs(times[i][0] - aim_comp) + abs(times[i][1] - aim_comm))
            bundle.append(nearest)
            comp_s, comm_s = comp_s + times[nearest][0], comm_s + times[nearest][1]
        if alike(comp_s, comm_s):
            return tuple(bundle)
    return ()


def widths(groups: int, jobs_of: Callable[[int], int], most_jobs: int) -> Iterator[int]:
    """How many further groups to involve: none, one, two, … then in larger steps; as long as jobs are not too many."""
    width = 0
    while width <= groups:
        if width > 1 and jobs_of(width) > most_jobs:
            return
        yield width
        last = width
        width += 1 if width < 8 else width
    if groups > last and jobs_of(groups) <= most_jobs:
        yield groups


def overdue(view: JobView, now_s: float, patience_s: float) -> bool:
    """Has the job waited long enough?"""
    return view.waited_at(now_s) >= patience_s - _PUNCTUAL_S


def next_overdue_s(waiting: Sequence[JobView], now_s: float, patience_s: float) -> float | None:
    """When the patience of the next of those who wait is over; None if it is for all of them."""
    waited_s = [s for v in waiting if (s := v.waited_at(now_s)) < patience_s - _PUNCTUAL_S]
    return now_s + patience_s - max(waited_s) if waited_s else None


def budget_s(snapshot: Snapshot, share: float) -> float:
    """A share of all machine time, as far as it was not spent, saved up for so long at most."""
    rate = share * len(snapshot.nodes)
    since_s, left_s = snapshot.memo if snapshot.memo is not None else (snapshot.now_s, rate * _TO_BEGIN_WITH_S)
    return float(min(rate * _SAVED_UP_S, left_s + rate * (snapshot.now_s - since_s)))


def standing_still_s(
    old: Mapping[str, Sequence[JobView]],
    machines: Mapping[str, int],
    new: Sequence[Sequence[JobView]],
    on: Sequence[int],
) -> float:
    """Machine time that a regrouping takes: of whoever moves or pauses, the part of its machines that it has."""
    part: dict[str, float] = {}  # machines of each job that stays where it is, or moves
    stays: set[str] = set()
    for views, m, name in zip(new, on, names_for(new, old), strict=True):
        part.update({v.job.id: m / len(views) for v in views})
        if name is not None and machines[name] == m:
            stays.update(v.job.id for v in views if v in old[name])
    return sum(
        view.costs.restart_s(warm=False) * part.get(view.job.id, machines[pid] / len(views))
        for pid, views in old.items()
        for view in views
        if view.job.id not in stays
    )


def names_for(new: Sequence[Sequence[JobView]], old: Mapping[str, Sequence[JobView]]) -> list[str | None]:
    """For each new group the old one with which it has most jobs in common; each old one once."""
    where = {v.job.id: pid for pid, views in old.items() for v in views}
    shared: dict[tuple[int, str], int] = {}
    for i, views in enumerate(new):
        for view in views:
            if (pid := where.get(view.job.id)) is not None:
                shared[i, pid] = shared.get((i, pid), 0) + 1
    order = list(old)
    names: list[str | None] = [None] * len(new)
    taken: set[str] = set()
    for (i, pid), _count in sorted(shared.items(), key=lambda x: (-x[1], x[0][0], order.index(x[0][1]))):
        if names[i] is None and pid not in taken:
            names[i] = pid
            taken.add(pid)
    # Machines of the others stay together too.
    left = [pid for pid in order if pid not in taken]
    return [name if name is not None else (left.pop(0) if left else None) for name in names]
