"""Containers on servers: what counts want, made true server by server.

Those that stay keep what they have. Of the rest the demands that fit the fewest servers go first, each to the servers
that it fills best. What finds no place is let go, down to an allowed size. At the end applications with too much give
some back until fairness holds, and what is left over is given away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hocket.policies.dorm.kinds import ApplicationKind
from hocket.policies.dorm.problem import (
    TOLERANCE,
    Allocation,
    Problem,
    Vector,
    changed,
    containers,
    fairness_loss,
    left_over,
    standing,
)
from hocket.policies.dorm.relaxation import Counts


def place(
    problem: Problem, kinds: Sequence[ApplicationKind], counts: Counts, *, in_place: bool, least_first: bool = False
) -> tuple[Allocation | None, tuple[int, ...]]:
    """An allocation close to the counts, None if the smallest sizes find no place; and those that got too little.

    If `in_place`, those that grow keep what they have and get some beside it.
    If `least_first`, all have their smallest size before any has more: that fills servers worse, but fails less.
    """
    board = _Board(problem)
    alike = Counter(problem.servers)
    wanted: list[tuple[tuple[int, float], int, int, int]] = []  # (rarity, kind, -containers, application)
    for number, kind in enumerate(kinds):
        rarity = sum(n * problem.room(kind.like, server) for server, n in alike.items()), -problem.gains[kind.like]
        going = list(kind.newcomers)
        for group, n in zip(kind.groups, counts.moving[number], strict=True):
            going += group.members[len(group.members) - n :]
        wanted += ((rarity, number, -n, i) for i, n in zip(going, counts.sizes[number], strict=True))
    wanted.sort()
    for _rarity, _number, size, i in wanted:
        before = problem.applications[i].before
        if before is not None and not (in_place and containers(before) <= -size):
            board.clear(i)
    short: list[int] = []
    for _rarity, _number, _size, i in wanted if least_first else ():
        if not board.put(i, max(problem.applications[i].sizes[0], board.size(i))):
            return None, (i,)
    for _rarity, _number, size, i in wanted:
        if not board.put(i, -size):
            return None, (*short, i)
        if board.size(i) < -size:
            short.append(i)
    board.restore_fairness()
    board.top_up()
    return board.allocation(), tuple(short)


class _Board:
    """Servers being filled."""

    def __init__(self, problem: Problem) -> None:
        import numpy as np

        self.problem = problem
        self._demands: dict[Vector, Any] = {a.demand: np.array(a.demand) for a in problem.applications}
        self._worth = 1 / np.array(problem.totals)
        self._has: list[dict[int, int]] = [{} for _ in problem.applications]
        self._used = [[0.0] * len(problem.totals) for _ in problem.quotas]
        self._free = np.array(left_over(problem, standing(problem)))
        for i, application in enumerate(problem.applications):
            self._has[i] = dict(application.before or ())
            self._count(i, self.size(i))

    def allocation(self) -> Allocation:
        """What each application has now."""
        return tuple(tuple(sorted(has.items())) for has in self._has)

    def size(self, i: int) -> int:
        """How many containers an application has now."""
        return sum(self._has[i].values())

    def _add(self, i: int, server: int, n: int) -> None:
        application, has = self.problem.applications[i], self._has[i]
        self._free[server] -= n * self._demands[application.demand]
        self._count(i, n)
        has[server] = has.get(server, 0) + n
        if not has[server]:
            del has[server]

    def _count(self, i: int, n: int) -> None:
        """So many containers more, or less, against its owner's quota."""
        application = self.problem.applications[i]
        if application.owner >= 0:
            used = self._used[application.owner]
            for k, need in enumerate(application.demand):
                used[k] += n * need

    def clear(self, i: int) -> None:
        """Take all that an application has."""
        for server, n in list(self._has[i].items()):
            self._add(i, server, -n)

    def put(self, i: int, size: int) -> bool:
        """Give it so many containers in all, or the most of its sizes that finds places; False if none does."""
        application = self.problem.applications[i]
        self._fill(i, size - self.size(i))
        if application.max_servers and self.size(i) < size:  # Begin again, with the roomiest servers.
            self.clear(i)
            room = self._rooms(i)[0].tolist()
            for server in sorted(range(len(room)), key=lambda s: -room[s])[: application.max_servers]:
                if n := min(room[server], size - self.size(i)):
                    self._add(i, server, n)
        return self._shrink(i, self.size(i))

    def _shrink(self, i: int, most: int) -> bool:
        """Let go down to an allowed size, from where it has least; False if there is none."""
        allowed = [s for s in self.problem.applications[i].sizes if s <= most]
        if not allowed:
            return False
        for server in sorted(self._has[i], key=lambda s: (self._has[i][s], s)):
            if less := min(self._has[i][server], self.size(i) - allowed[-1]):
                self._add(i, server, -less)
        return True

    def _rooms(self, i: int) -> tuple[Any, Any]:
        """The room for an application on each server, and what is left there when that is filled."""
        import numpy as np

        application = self.problem.applications[i]
        demand = np.array(application.demand)
        needed = demand > 0
        room = ((self._free[:, needed] + TOLERANCE) / demand[needed]).min(axis=1).astype(np.int64)
        if application.servers != -1:
            room *= np.array([application.servers >> j & 1 for j in range(len(room))])
        return room, (self._free - room[:, None] * demand) @ self._worth

    def _fill(self, i: int, wanted: int) -> None:
        """Put up to so many containers on the servers that they fill best."""
        import numpy as np

        if wanted <= 0:
            return
        room, rest = self._rooms(i)
        spread = self.problem.applications[i].max_servers or len(room)
        with_room = np.flatnonzero(room)
        for server in with_room[np.lexsort((room[with_room], rest[with_room].round(9)))].tolist():
            if server in self._has[i] or len(self._has[i]) < spread:
                n = min(int(room[server]), wanted)
                self._add(i, server, n)
                wanted -= n
                if not wanted:
                    return

    def _may_change(self) -> list[int]:
        """Applications that may have something else than before: as many as the limit allows."""
        problem, now = self.problem, self.allocation()
        moved = changed(problem, now)
        left = problem.change_limit - len(moved)
        fixed = [i for i, a in enumerate(problem.applications) if a.before is not None and a.before == now[i]]
        newcomers = [i for i, a in enumerate(problem.applications) if a.before is None]
        return newcomers + moved + (fixed if left >= len(fixed) else [])

    def restore_fairness(self) -> None:
        """Take back from those above their share, most share for least utilisation first, until the loss is allowed."""
        problem = self.problem
        excess = fairness_loss(problem, self.allocation()) - problem.loss_limit
        if excess <= 0:
            return
        for i in sorted(self._may_change(), key=lambda i: (-problem.shares[i] / problem.gains[i], i)):
            sizes = problem.applications[i].sizes
            while excess > 0:
                size = self.size(i)
                less = max((s for s in sizes if s < size), default=0)
                gain = problem.loss(i, size) - problem.loss(i, less)
                if not less or gain <= 0:
                    break
                self._shrink(i, less)
                excess -= gain

    def top_up(self) -> None:
        """Give away what is left, as far as fairness, quotas and the number of changes go."""
        problem = self.problem
        budget = problem.loss_limit - fairness_loss(problem, self.allocation())
        now = self.allocation()
        moved = set(changed(problem, now))
        changes = problem.change_limit - len(moved)
        full: set[tuple[Vector, int]] = set()  # nothing of these fits anywhere
        for i in sorted(range(len(now)), key=lambda i: (-problem.gains[i], i)):
            application, had = problem.applications[i], self.size(i)
            shape = application.demand, application.servers
            is_new = application.before is None or i in moved
            if had == application.sizes[-1] or application.max_servers or shape in full or not (is_new or changes > 0):
                continue
            room = int(self._rooms(i)[0].sum())
            if not room:
                full.add(shape)
            for size in reversed(application.sizes) if room else ():
                cost = problem.loss(i, size) - problem.loss(i, had)
                if size > had and size - had <= room and cost <= budget and self._within_quota(i, size - had):
                    self._fill(i, size - had)
                    budget -= cost
                    changes -= not is_new
                    break

    def _within_quota(self, i: int, more: int) -> bool:
        application = self.problem.applications[i]
        if application.owner < 0:
            return True
        used, quota = self._used[application.owner], self.problem.quotas[application.owner]
        return all(u + d * more <= q for u, d, q in zip(used, application.demand, quota, strict=True))
