"""P2 in counts: how many applications of each kind change, and to how many containers; as few columns at any size.

Applications of one kind are alike, servers of one class too, and a class's capacity is pooled. So this is a relaxation:
its optimum, adjustment limit and all, is a bound that nothing can exceed, and what it says is then placed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from msgspec import Struct

from hocket.policies.dorm.kinds import ApplicationKind, Classes, Group, Tight
from hocket.policies.dorm.problem import Application, Problem
from hocket.policies.dorm.solver import Effort, Program

MANY = 25  # kinds of applications
_WHOLE = 200  # demands times classes; with more of them containers are divisible here, which only widens the bound
Entries = list[tuple[int, float]]  # (column, factor)


class Counts(Struct, frozen=True):
    """What the relaxation wants: for each kind, how many may change, and the sizes of those and the newcomers."""

    moving: tuple[tuple[int, ...], ...]  # by kind: how many of each group
    sizes: tuple[tuple[int, ...], ...]  # by kind: of newcomers and those moving, largest first


class Relaxed(Struct, frozen=True):
    """What the relaxation came to."""

    counts: Counts | None
    bound: float
    infeasible: bool
    cut_off: bool


def relax(
    problem: Problem, classes: Classes, kinds: Sequence[ApplicationKind], effort: Effort, tight: Tight | None = None
) -> Relaxed:
    """The best counts, and a bound; with tight demands it is no longer one, for they may be counted too closely."""
    return _Relaxation(problem, classes, kinds, tight).solved(effort)


class _Relaxation:
    """The program being written: a column says how many applications, or containers."""

    def __init__(
        self, problem: Problem, classes: Classes, kinds: Sequence[ApplicationKind], tight: Tight | None
    ) -> None:
        self.problem, self.kinds = problem, kinds
        self._many = len(kinds) > MANY
        self._program = Program()
        self._losses: Entries = []
        self._kept_loss = 0.0  # of those that run, if none of them changes
        self._changes: Entries = []
        self._squeeze: Entries = []  # containers of tight demands, less the room that those moving make
        self._moves: list[list[int]] = []  # by kind: a column a group
        self._sizes: list[list[tuple[int, int]]] = []  # by kind: (size, column); of one alone (0, column of its size)
        self._needs: dict[tuple[object, ...], Entries] = {}  # demand and servers → less all of its containers
        self._like: dict[tuple[object, ...], int] = {}
        self._quotas: dict[tuple[int, int], Entries] = {}  # (owner, resource) → what changes there
        self._kept: dict[tuple[int, int], float] = {}
        count = max(classes, default=-1) + 1
        self._capacity = [[0.0] * len(problem.totals) for _ in range(count)]
        self._alike: list[dict[tuple[float, ...], int]] = [{} for _ in range(count)]  # servers of a class, by capacity
        self._masks = [0] * count
        for server, (c, has) in enumerate(zip(classes, problem.servers, strict=True)):
            self._capacity[c] = [a + b for a, b in zip(self._capacity[c], has, strict=True)]
            self._alike[c][has] = self._alike[c].get(has, 0) + 1
            self._masks[c] |= 1 << server
        self._used: list[list[Entries]] = [[[] for _ in problem.totals] for _ in range(count)]
        for kind in kinds:
            self._add(kind)
        self._spread({c for server, c in enumerate(classes) if tight and server not in tight.apart}, tight)
        self._limit(tight)

    def _add(self, kind: ApplicationKind) -> None:
        """How many of a kind change, and what those and the newcomers get."""
        i = kind.like
        application = self.problem.applications[i]
        these: Entries = []
        self._moves.append([self._leave(i, application, group, these) for group in kind.groups])
        key = (application.demand, application.servers)
        self._like.setdefault(key, i)
        need = self._needs.setdefault(key, [])
        those = sum(len(group.members) for group in kind.groups) + len(kind.newcomers)
        if self._many and those == 1 and len(application.sizes) == application.sizes[-1] - application.sizes[0] + 1:
            size = self._alone(i, application, these[0][0] if these else None)
            self._sizes.append([(0, size)])
            need.append((size, -1.0))
            self._count(application, size, 1)
            return
        sizes = []
        for size in application.sizes:
            take = self._program.column(self.problem.gains[i] * size, 0, those)
            sizes.append((size, take))
            self._losses.append((take, self.problem.loss(i, size)))
            these.append((take, 1.0))
            need.append((take, -float(size)))
            self._count(application, take, size)
        self._sizes.append(sizes)
        self._program.row(these, len(kind.newcomers), len(kind.newcomers))

    def _alone(self, i: int, application: Application, move: int | None) -> int:
        """The column of the size of an application like no other, 0 if it runs and does not change.

        Its loss is convex in its size, so that a column for every size would bound it no better. With few kinds such
        columns are searched faster all the same.
        """
        program, share, fair = self._program, self.problem.shares[i], self.problem.fair[i]
        least, most = application.sizes[0], application.sizes[-1]
        size = program.column(self.problem.gains[i], least if move is None else 0, most)
        loss = program.column(whole=False)
        self._losses.append((loss, 1.0))
        if move is None:
            program.row([(loss, 1.0), (size, -share)], least=-fair)
            program.row([(loss, 1.0), (size, share)], least=fair)
            return size
        program.row([(size, 1.0), (move, -float(most))], most=0)
        program.row([(size, 1.0), (move, -float(least))], least=0)
        program.row([(loss, 1.0), (size, -share), (move, fair)], least=0)
        program.row([(loss, 1.0), (size, share), (move, -fair)], least=0)
        return size

    def _leave(self, i: int, application: Application, group: Group, these: Entries) -> int:
        """The column of those of a group that change; what the others have stays taken."""
        program, problem = self._program, self.problem
        size, n = sum(group.by_class), len(group.members)
        loss, gain = problem.loss(i, size), problem.gains[i]
        program.offset += n * gain * size
        self._kept_loss += n * loss
        move = program.column(-gain * size, 0, n)
        self._losses.append((move, -loss))
        self._changes.append((move, 1.0))
        these.append((move, -1.0))
        if group.opens:
            self._squeeze.append((move, -float(group.opens)))
        for c, there in enumerate(group.by_class):
            for k, d in enumerate(application.demand):
                if there and d:
                    self._capacity[c][k] -= n * there * d
                    self._used[c][k].append((move, -there * d))
        self._count(application, move, -size)
        if application.owner >= 0:
            for k, d in enumerate(application.demand):
                key = application.owner, k
                self._kept[key] = self._kept.get(key, 0.0) + n * size * d
        return move

    def _count(self, application: Application, column: int, containers: int) -> None:
        """Count a column against its owner's quota."""
        if application.owner >= 0:
            for k, d in enumerate(application.demand):
                if d:
                    self._quotas.setdefault((application.owner, k), []).append((column, containers * d))

    def _spread(self, pooled: set[int], tight: Tight | None) -> None:
        """Over which classes the containers of each demand go."""
        applications = self.problem.applications
        whole = len(self._needs) * len(self._capacity) <= _WHOLE
        tights = {applications[i].demand for i in tight.like} if tight else set()
        for key, need in self._needs.items():
            i = self._like[key]
            demand, accepts = applications[i].demand, applications[i].servers
            for c, servers in enumerate(self._alike):
                room = sum(min(self.problem.room(i, has), 1 << 20) * n for has, n in servers.items())
                if not room or not accepts & self._masks[c]:
                    continue
                here = self._program.column(0.0, 0, room, whole=whole)
                need.append((here, 1.0))
                for k, d in enumerate(demand):
                    if d:
                        self._used[c][k].append((here, d))
                if c in pooled and demand in tights:
                    self._squeeze.append((here, 1.0))
            self._program.row(need, 0, 0)

    def _limit(self, tight: Tight | None) -> None:
        """Capacity, fairness, changes and quotas."""
        program, problem = self._program, self.problem
        for c, by_resource in enumerate(self._used):
            for k, uses in enumerate(by_resource):
                if uses:
                    total = problem.totals[k]
                    program.row([(column, d / total) for column, d in uses], most=self._capacity[c][k] / total)
        program.row(self._losses, most=problem.loss_limit - self._kept_loss)
        if self._changes:
            program.row(self._changes, most=problem.change_limit)
        if tight:
            program.row(self._squeeze, most=tight.room)
        for (owner, k), entries in self._quotas.items():
            if isfinite(limit := problem.quotas[owner][k]):
                program.row(entries, most=limit - self._kept.get((owner, k), 0.0))

    def solved(self, effort: Effort) -> Relaxed:
        """The counts, as far as the effort goes."""
        solved = self._program.solve(effort)
        if solved.values is None:
            return Relaxed(None, solved.bound, solved.infeasible, solved.cut_off)
        values = [round(v) for v in solved.values]
        moving = tuple(tuple(values[m] for m in columns) for columns in self._moves)
        sizes = tuple(
            tuple(size for size, column in reversed(columns) for _ in range(values[column]))
            if columns[0][0]
            else tuple(values[column] for _size, column in columns if values[column])
            for columns in self._sizes
        )
        return Relaxed(Counts(moving, sizes), solved.bound, False, solved.cut_off)
