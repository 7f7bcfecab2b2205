"""Algorithm 1 as the paper prints it, for comparison with ours.

Jobs are added one by one while utilisation rises, and the grouping that failed to raise it is returned, as line 14
says; with one job it forms that job's own group, where the printed loop would form none.
"""

from __future__ import annotations

from collections.abc import Sequence

from hocket.model.phases import Profile
from hocket.policies.harmony.schedule import NO_GROUPS, TERMS, Grouping, Terms, use_of

_Group = list[int]


def as_printed(
    jobs: Sequence[Profile], machines: int, terms: Terms = TERMS, least: Sequence[int] | None = None
) -> Grouping:
    """Lines 1 to 14. What a job needs at least is no part of it: groups below that are widened where they can be."""
    if not jobs or machines < 1:
        return NO_GROUPS
    best, found = 0.0, NO_GROUPS
    for n in range(min(2, len(jobs)), len(jobs) + 1):
        chosen = list(range(n))
        groups = _assign(jobs, chosen, _number_of_groups(jobs, chosen, machines), machines)
        counts = _allocate(jobs, groups, machines, least)
        found = Grouping(tuple(map(tuple, groups)), tuple(counts), 0.0)
        use = use_of(jobs, found, machines, terms.weights)
        found = Grouping(found.groups, found.machines, use)
        if use <= best:
            break
        best = use
    return found


def _number_of_groups(jobs: Sequence[Profile], chosen: _Group, machines: int) -> int:
    """Line 6: the number at which COMP and COMM of each job differ least in all, with machines dealt equally."""
    most = min(len(chosen), machines)

    def off(groups: int) -> float:
        return sum(abs(jobs[j].comp_s(machines / groups) - jobs[j].comm_s) for j in chosen)

    return min(range(1, most + 1), key=off)


def _assign(jobs: Sequence[Profile], chosen: _Group, count: int, machines: int) -> list[_Group]:
    """Line 7: by iteration time, evenly, each group filled to balance; then swaps until none helps."""
    share = machines / count
    lean = {j: jobs[j].comp_s(share) - jobs[j].comm_s for j in chosen}
    line = sorted(chosen, key=lambda j: -jobs[j].iteration_s(share))
    groups: list[_Group] = []
    for g in range(count):
        size = len(chosen) * (g + 1) // count - len(chosen) * g // count
        group, off = [], 0.0
        for _ in range(size):
            # Of the next few, whose iterations are alike, the one that balances best.
            j = min(line[: max(2, size)], key=lambda j: abs(off + lean[j]))
            line.remove(j)
            group.append(j)
            off += lean[j]
        groups.append(group)
    _swap(groups, lean)
    return groups


def _swap(groups: list[_Group], lean: dict[int, float]) -> None:
    """Swaps between the most imbalanced group and the one that complements it most."""
    if len(groups) < 2:
        return
    off = [sum(lean[j] for j in g) for g in groups]
    while True:
        a = max(range(len(groups)), key=lambda g: abs(off[g]))
        others = [g for g in range(len(groups)) if g != a]
        b = min(others, key=lambda g: off[g] if off[a] > 0 else -off[g])
        now = abs(off[a]) + abs(off[b])
        best = min(
            ((abs(off[a] - lean[i] + lean[k]) + abs(off[b] + lean[i] - lean[k]), i, k)
             for i in groups[a] for k in groups[b]),
            default=(now, -1, -1),
        )  # fmt: skip
        if best[0] >= now - 1e-12:
            return
        _off, i, k = best
        groups[a][groups[a].index(i)], groups[b][groups[b].index(k)] = k, i
        off[a] += lean[k] - lean[i]
        off[b] += lean[i] - lean[k]


def _allocate(jobs: Sequence[Profile], groups: list[_Group], machines: int, least: Sequence[int] | None) -> list[int]:
    """Line 8: one machine each, then one by one to the group that needs it most, the most computation-bound."""
    counts = [max(least[j] for j in g) if least is not None else 1 for g in groups]
    if sum(counts) > machines:
        counts = [1] * len(groups)
    comp = [sum(jobs[j].comp_machine_s for j in g) for g in groups]
    comm = [sum(jobs[j].comm_s for j in g) for g in groups]
    for _ in range(machines - sum(counts)):
        g = max(range(len(groups)), key=lambda g: comp[g] / counts[g] - comm[g])
        counts[g] += 1
    return counts
