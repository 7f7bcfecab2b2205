"""Which jobs may replace one that left a group, how many groups a regrouping involves, and what it may cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from hocket.model.phases import Profile, sent_share
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView

_PUNCTUAL_S = 1e-3  # a wake-up may come this much early
_LOOKED_AT = 200  # waiting jobs, for a bundle
_INITIAL_BUDGET_S = 1800.0  # the migration budget is that of so much time at first …
_LARGEST_BUDGET_S = 6 * 3600.0  # … and of so much at most


def substitutes(
    comp: float, comm: float, machines: int, waiting: Sequence[Profile], within: float, own_part: float = 0.0
) -> tuple[int, ...]:  # fmt: skip
    """Of the waiting jobs, one that is like the job that left, else a bundle that is; empty if there is none.

    Alike are the iteration time and the share of COMP in it, each within a share of the other's.
    """
    sent = sent_share(own_part, machines)
    comm *= sent
    wanted_s = comp / machines + comm
    if wanted_s <= 0:
        return ()
    wanted_share = comp / machines / wanted_s
    times = [(p.comp_machine_s / machines, p.comm_s * sent) for p in waiting]

    def alike(comp_s: float, comm_s: float) -> bool:
        total_s = comp_s + comm_s
        return abs(total_s - wanted_s) <= within * wanted_s and abs(comp_s / total_s - wanted_share) <= within * max(
            wanted_share, 1 - wanted_share
        )

    for i, (comp_s, comm_s) in enumerate(times):
        if alike(comp_s, comm_s):
            return (i,)
    small = [i for i, (c, n) in enumerate(times[:_LOOKED_AT]) if c + n < wanted_s]
    # A bundle grows from each in turn, by the job that then comes closest.
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
    """Has the job waited for its patience?"""
    return view.waited_at(now_s) >= patience_s - _PUNCTUAL_S


def next_overdue_s(waiting: Sequence[JobView], now_s: float, patience_s: float) -> float | None:
    """When the next waiting job is overdue; None if all are."""
    waited_s = [s for v in waiting if (s := v.waited_at(now_s)) < patience_s - _PUNCTUAL_S]
    return now_s + patience_s - max(waited_s) if waited_s else None


def budget_s(snapshot: Snapshot, share: float) -> float:
    """Machine time that migrations may take now: a share of all machine time, less what was spent."""
    rate = share * len(snapshot.nodes)
    since_s, left_s = snapshot.memo if snapshot.memo is not None else (snapshot.now_s, rate * _INITIAL_BUDGET_S)
    return float(min(rate * _LARGEST_BUDGET_S, left_s + rate * (snapshot.now_s - since_s)))


def migration_s(
    old: Mapping[str, Sequence[JobView]],
    machines: Mapping[str, int],
    new: Sequence[Sequence[JobView]],
    on: Sequence[int],
) -> float:
    """Machine time that a regrouping takes: each job that moves or pauses idles its part of its group's machines."""
    part: dict[str, float] = {}  # job → its part of the machines of its new group
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
    # Other new groups take over the machines of other old ones.
    left = [pid for pid in order if pid not in taken]
    return [name if name is not None else (left.pop(0) if left else None) for name in names]
