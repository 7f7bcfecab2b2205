"""Algorithm 1, improved: which jobs run, in which groups, on how many machines; as printed it is in `algorithm_1.py`.

Jobs come in a list, and a prefix of it, or some of that, runs: of groupings that are worth as much as the best, give
or take `fewer`, the one with the fewest jobs. For each prefix that is looked at, several numbers of groups are tried,
each with a local search that also drops jobs and exchanges them for others that wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from msgspec import Struct

from hocket.model.phases import Profile, sent_share
from hocket.policies.harmony import search_kernel
from hocket.policies.harmony.search_kernel import Groups, Jobs, ResourceWeights

_SMALL = 8  # jobs up to which every prefix and every number of groups is tried
_AROUND = (1.0, 0.9)  # of the number of groups at which COMP and COMM balance
_WIDER = (1.2, 0.75, 1.5, 0.5)
_FEW = 200  # jobs up to which more numbers, and more rounds, cost little
_LESS = 0.85  # of the groups, where so many do not fit
_CLOSE = 0.002  # utilisation that another number of groups may bring
_MANY = 2000  # jobs from which on it is enough that half of them would be too few
_PARTS = (1, 2, 4)  # of the list, as prefixes, where no grouping is known to be as good as can be
_THOROUGH_GROUPS = 24  # up to which every pair of groups is looked at


class Grouping(Struct, frozen=True):
    """Jobs by their place in the list, in groups with their machines; jobs of no group wait."""

    groups: tuple[tuple[int, ...], ...]
    machines: tuple[int, ...]
    use: float  # the weighted utilisation of all machines, or what is worth as much


NO_GROUPS = Grouping((), (), 0.0)


class Terms(Struct, frozen=True):
    """What counts as better."""

    weights: ResourceWeights = ResourceWeights(0.6, 0.4)
    fewer: float = 0.003  # of the utilisation, given up for fewer jobs at once

    @property
    def bounded(self) -> bool:
        """Is a grouping worth 1 at most? Where links have a price of their own, more groups are worth more."""
        return not self.weights.price


TERMS = Terms()


def schedule(
    jobs: Sequence[Profile],
    machines: int,
    terms: Terms = TERMS,
    least: Sequence[int] | None = None,
    wanted: float = 0.0,
) -> Grouping:
    """The grouping of a prefix of the jobs, or some of it, that uses the machines best.

    Where nothing is worth what is wanted, any grouping may be the answer, or none.
    """
    import numpy as np

    usable = [i for i in range(len(jobs)) if least is None or least[i] <= machines]
    if not usable or machines < 1:
        return NO_GROUPS
    search = _Search(
        Jobs(
            # Whole numbers would be of another type, for which numba would compile everything once more.
            np.array([jobs[i].comp_machine_s for i in usable], dtype=np.float64),
            np.array([jobs[i].comm_s for i in usable], dtype=np.float64),
            np.array([least[i] if least is not None else 1 for i in usable], dtype=np.int64),
        ),
        machines,
        terms,
        wanted,
    )
    found = search.small() if len(usable) <= _SMALL else search.large()
    first = search.firsts(found) if len(usable) <= _FEW else {}
    named = tuple(tuple(usable[first.get(j, j)] for j in g) for g in found.groups)
    return Grouping(named, found.machines, found.use)


class _Search:
    """One call: the jobs, and room for the kernel to work in."""

    def __init__(self, jobs: Jobs, machines: int, terms: Terms, wanted: float) -> None:
        import numpy as np

        self.jobs, self.machines, self.terms, self.wanted = jobs, machines, terms, wanted
        self.kernel = search_kernel.compiled()
        n, most = len(jobs.comp), max(1, min(len(jobs.comp), machines))
        by_job = [np.full(n, -1, dtype=np.int64) for _ in range(3)]
        by_group = [np.zeros(most, dtype=np.int64 if i < 5 else np.float64) for i in range(8)]
        by_pair = [np.zeros(_THOROUGH_GROUPS**2, dtype=np.int64)]
        self.room = Groups(*by_job, *by_group, *by_pair)

    def small(self) -> Grouping:
        """Every prefix, of the list and of the jobs by what they lack, and every number of groups."""
        import numpy as np

        jobs = self.jobs
        listed = np.arange(len(jobs.comp))
        by_ratio = np.argsort(jobs.comp - jobs.comm * (jobs.comp.sum() / max(jobs.comm.sum(), 1e-12)), kind="stable")
        return self._chosen(
            self._group(line[:prefix], groups, 30, drops=True)
            for line in (listed, by_ratio, by_ratio[::-1])
            for prefix in range(1, len(listed) + 1)
            for groups in range(1, min(prefix, self.machines) + 1)
        )

    def large(self) -> Grouping:
        """Ever longer prefixes until utilisation is as good as it can be; then shorter ones that are as good."""
        n, good = len(self.jobs.comp), 1 - self.terms.fewer
        if not self.terms.bounded:
            return self._chosen(self._by_work(n // part for part in (_PARTS if n <= _FEW else _PARTS[:2])))
        # Below two jobs a group, most groups wait for their longest job.
        prefix = min(n, max(_SMALL, round(2 * self._balanced(n))))
        found = [self._around(prefix)]
        while prefix < n and found[-1].use < good:
            prefix = min(n, 2 * prefix)
            found.append(self._around(prefix))
        low, high = prefix // 2, prefix
        while found[-1].use >= good and high <= _MANY and high - low > max(1, high // 8):
            middle = (low + high) // 2
            shorter = self._around(middle)
            if shorter.use >= good:
                found.append(shorter)
            low, high = (low, middle) if shorter.use >= good else (middle, high)
        return self._chosen(found)

    def firsts(self, found: Grouping) -> dict[int, int]:
        """For each job that was chosen, one that is alike and stands as early in the list as can be."""
        alike: dict[tuple[float, ...], list[int]] = {}
        for j, key in enumerate(zip(*(column.tolist() for column in self.jobs), strict=True)):
            alike.setdefault(key, []).append(j)
        chosen = {j for group in found.groups for j in group}
        return {j: at for jobs in alike.values() for j, at in zip((j for j in jobs if j in chosen), jobs, strict=False)}

    def _by_work(self, prefixes: Iterable[int]) -> Iterable[Grouping]:
        """The best for each prefix: many groups first, until fewer cannot be worth as much."""
        best = {0: NO_GROUPS}
        trials = [(-groups, prefix) for prefix in prefixes if prefix >= _SMALL for groups in self._numbers(prefix)]
        heapify(trials)
        tried = set(trials)
        good = self.wanted
        while trials:
            less, prefix = heappop(trials)
            if self._most(-less) < good:
                break
            found = self._group_first(prefix, -less)
            fewer = (-max(1, int(-less * _LESS)), prefix)
            if found.groups:
                best[prefix] = max(best.get(prefix, NO_GROUPS), found, key=lambda g: g.use)
                if (use := max(g.use for g in best.values())) >= self.wanted:
                    good = use * (1 - self.terms.fewer)
            elif fewer not in tried:  # What they need at least is more than there is: fewer groups need less.
                tried.add(fewer)
                heappush(trials, fewer)
        return best.values()

    def _most(self, groups: int) -> float:
        """What so many groups are worth at most: all machines compute, and all links are busy."""
        weights = self.terms.weights
        links = groups / sent_share(weights.own_part, self.machines / groups)  # counted as on very many machines
        return weights.cpu + weights.net * weights.price * links / self.machines

    def _around(self, prefix: int) -> Grouping:
        """The best of some numbers of groups, by utilisation."""
        best, tried = NO_GROUPS, set[int]()
        few, good = prefix <= _FEW, 1 - self.terms.fewer
        for groups in self._numbers(prefix):
            while groups not in tried:
                tried.add(groups)
                found = self._group_first(prefix, groups)
                best = max(best, found, key=lambda g: g.use)
                if not found.groups:  # What they need at least is more than there is: fewer groups need less.
                    groups = max(1, int(groups * _LESS))
            if (not few and best.use < good - _CLOSE) or best.use >= good:
                break  # Another number would hardly change it.
        return best

    def _numbers(self, prefix: int) -> list[int]:
        """Numbers of groups around that at which COMP and COMM balance when all have equally many machines."""
        most, balanced = min(prefix, self.machines), self._balanced(prefix)
        # Unbounded, there is no telling when to stop: few are tried.
        shares = _AROUND + _WIDER if prefix <= _FEW else _AROUND if self.terms.bounded else _AROUND[:1]
        return list(dict.fromkeys(min(most, max(1, round(balanced * share))) for share in shares))

    def _balanced(self, prefix: int) -> float:
        """The number of groups at which COMP and COMM of a prefix balance, with machines dealt equally."""
        comp, comm = float(self.jobs.comp[:prefix].sum()), float(self.jobs.comm[:prefix].sum())
        comp += self.terms.weights.own_part * comm
        return self.machines * comm / comp if comp > 0 else float(self.machines)

    def _chosen(self, found: Iterable[Grouping]) -> Grouping:
        """Of those as good as the best, the one with the fewest jobs."""
        tried = list(found)
        good = max(g.use for g in tried) * (1 - self.terms.fewer)
        return min((g for g in tried if g.use >= good), key=lambda g: (sum(map(len, g.groups)), -g.use))

    def _group_first(self, prefix: int, groups: int) -> Grouping:
        """The first jobs of the list in so many groups; where they are few, with some of them dropped or exchanged."""
        import numpy as np

        few = prefix <= _FEW
        return self._group(np.arange(prefix), groups, 8 if few else 3, drops=few)

    def _group(self, chosen: Any, groups: int, rounds: int, drops: bool) -> Grouping:
        import numpy as np

        jobs, room = self.jobs, self.room
        order = chosen[np.argsort(-(jobs.comp[chosen] * (groups / self.machines) + jobs.comm[chosen]), kind="stable")]
        near = groups if groups <= _THOROUGH_GROUPS else 8
        # Utilisation is at most 1, so what is nearly that need not be made better, but where that costs nothing.
        thorough = len(chosen) <= _SMALL or not self.terms.bounded
        enough = self.machines * (1e9 if thorough else 1 - self.terms.fewer / 2)
        value = self.kernel.group_jobs(
            jobs, order, groups, self.machines, rounds, near, enough, drops, room, self.terms.weights
        )
        return self._read(groups, value) if value > 0 else NO_GROUPS

    def _read(self, groups: int, value: float) -> Grouping:
        members: list[list[int]] = [[] for _ in range(groups)]
        where: list[int] = self.room.group.tolist()
        for j, g in enumerate(where):
            if g >= 0:
                members[g].append(j)
        machines: list[int] = self.room.machines.tolist()
        for g, mine in enumerate(members):  # A group that has too few machines for one of its jobs counts as none.
            if any(self.jobs.least[j] > machines[g] for j in mine):
                members[g] = []
        kept = [(tuple(jobs), machines[g]) for g, jobs in enumerate(members) if jobs]
        return Grouping(tuple(j for j, _m in kept), tuple(m for _j, m in kept), value / self.machines)


def use_of(
    jobs: Sequence[Profile], grouping: Grouping, machines: int, weights: ResourceWeights = TERMS.weights
) -> float:
    """The weighted utilisation of a grouping, counted from nothing but the equations."""
    total = 0.0
    for members, m in zip(grouping.groups, grouping.machines, strict=True):
        comp, comm = sum(jobs[j].comp_machine_s for j in members), sum(jobs[j].comm_s for j in members)
        longest: Any = max(jobs[j].iteration_s(m) for j in members)
        total += search_kernel.value_of(comp, comm, longest, float(m), weights)
    return total / machines
