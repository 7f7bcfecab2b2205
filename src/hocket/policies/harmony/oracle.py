"""The best grouping there is, by looking at all of them: for small cases, to measure others by.

All subsets of the jobs, all ways to divide them into groups, and for each the best division of the machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from hocket.model.phases import Profile
from hocket.policies.harmony import search_kernel
from hocket.policies.harmony.schedule import NO_GROUPS, TERMS, Grouping, Terms

MOST_JOBS, MOST_MACHINES = 8, 12  # beyond, it takes minutes

_Best = tuple[float, int, tuple[tuple[int, int], ...]]  # value, minus the jobs in it, (members, machines) of each group


def exhaustive(
    jobs: Sequence[Profile], machines: int, terms: Terms = TERMS, least: Sequence[int] | None = None
) -> Grouping:
    """The grouping that uses the machines best; of equals the one with the fewest jobs."""
    n = len(jobs)
    if n > MOST_JOBS or machines > MOST_MACHINES:
        raise ValueError(
            f"the exhaustive search takes {MOST_JOBS} jobs and {MOST_MACHINES} machines at most, not {n} and {machines}"
        )
    comp, comm = [j.comp_machine_s for j in jobs], [j.comm_s for j in jobs]
    needs = least or [1] * n
    value: dict[tuple[int, int], float] = {}  # (members as a bit mask, machines) → value
    for mask in range(1, 1 << n):
        members = [j for j in range(n) if mask >> j & 1]
        for m in range(max(needs[j] for j in members), machines + 1):
            longest = max(jobs[j].iteration_s(m) for j in members)
            sums = sum(comp[j] for j in members), sum(comm[j] for j in members)
            value[mask, m] = search_kernel.value_of(*sums, longest, float(m), terms.weights)

    @cache
    def best(left: int, free: int) -> _Best:
        """Of the jobs in `left` on so many machines."""
        if not left or not free:
            return 0.0, 0, ()
        first = left & -left
        found = best(left ^ first, free)  # the first job waits
        rest = left ^ first
        others = rest
        while True:  # every group that the first job may be in
            group = first | others
            for m in range(1, free + 1):
                if (mine := value.get((group, m))) is not None:
                    after = best(left & ~group, free - m)
                    total = mine + after[0]
                    key = (total, after[1] - group.bit_count())
                    if total > found[0] + 1e-12 or (abs(total - found[0]) <= 1e-12 and key[1] > found[1]):
                        found = (*key, ((group, m), *after[2]))
            if not others:
                return found
            others = (others - 1) & rest

    total, _fewer, groups = best((1 << n) - 1, machines)
    if not groups:
        return NO_GROUPS
    chosen = tuple(tuple(j for j in range(n) if mask >> j & 1) for mask, _m in groups)
    return Grouping(chosen, tuple(m for _mask, m in groups), total / machines)
