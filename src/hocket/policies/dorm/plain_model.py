"""P2 as it is printed, container by container and server by server: exact, and for small questions only."""

from __future__ import annotations

from math import isfinite

from hocket.policies.dorm.problem import Allocation, Problem
from hocket.policies.dorm.solver import Effort, Program, Solved


def solve_plain(problem: Problem, effort: Effort, start: Allocation | None = None) -> tuple[Allocation | None, Solved]:
    """The best allocation there is, unless the effort ends before that is proven."""
    program = Program()
    counts: list[dict[int, int]] = []  # by application: server → column x_ij
    begin: list[float] = []  # the start's values, column by column
    losses: list[int] = []
    changes: list[tuple[int, float]] = []
    for i, application in enumerate(problem.applications):
        given = dict(start[i]) if start is not None else {}
        before = dict(application.before or ())
        most = application.sizes[-1]
        mine: dict[int, int] = {}
        for server, free in enumerate(problem.servers):
            room = min(problem.room(i, free), most) if application.servers >> server & 1 else 0
            if room:
                mine[server] = program.column(problem.gains[i], 0, room)
                begin.append(given.get(server, 0))
        counts.append(mine)
        size = sum(given.values())
        _allow_sizes(program, list(mine.values()), application.sizes, begin, size)
        if application.max_servers:
            _limit_spread(program, list(mine.values()), most, application.max_servers, begin)
        loss = program.column(0.0, 0.0, whole=False)  # (11), (12)
        begin.append(problem.loss(i, size))
        losses.append(loss)
        share, fair = problem.shares[i], problem.fair[i]
        program.row([(loss, 1.0), *((x, -share) for x in mine.values())], least=-fair)
        program.row([(loss, 1.0), *((x, share) for x in mine.values())], least=fair)
        if application.before is not None:  # (13), (14)
            change = program.column(0.0, 0, 1)
            begin.append(float(start is not None and start[i] != application.before))
            changes.append((change, 1.0))
            for server, x in mine.items():
                had = before.get(server, 0)
                program.row([(x, 1.0), (change, -float(most))], most=had)
                program.row([(x, 1.0), (change, float(most))], least=had)
    for server, free in enumerate(problem.servers):  # (6)
        for k, (has, total) in enumerate(zip(free, problem.totals, strict=True)):
            uses = [
                (mine[server], a.demand[k] / total)
                for mine, a in zip(counts, problem.applications, strict=True)
                if server in mine and a.demand[k]
            ]
            if uses:
                program.row(uses, most=has / total)
    program.row([(loss, 1.0) for loss in losses], most=problem.loss_limit)  # (15)
    if changes:
        program.row(changes, most=problem.change_limit)  # (16)
    for owner, quota in enumerate(problem.quotas):
        for k, limit in enumerate(quota):
            uses = [
                (x, a.demand[k])
                for mine, a in zip(counts, problem.applications, strict=True)
                if a.owner == owner and a.demand[k]
                for x in mine.values()
            ]
            if uses and isfinite(limit):
                program.row(uses, most=limit)
    solved = program.solve(effort, begin if start is not None else None)
    if solved.values is None:
        return None, solved
    values = solved.values
    return tuple(tuple((s, n) for s, x in mine.items() if (n := round(values[x]))) for mine in counts), solved


def _allow_sizes(program: Program, mine: list[int], sizes: tuple[int, ...], begin: list[float], size: int) -> None:
    """(7), (8), and where not every number in between is allowed, one of those that are."""
    if len(sizes) == sizes[-1] - sizes[0] + 1:
        program.row([(x, 1.0) for x in mine], sizes[0], sizes[-1])
        return
    chosen = [program.column(0.0, 0, 1) for _size in sizes]
    begin += [float(s == size) for s in sizes]
    program.row([(z, 1.0) for z in chosen], 1, 1)
    program.row([*((x, 1.0) for x in mine), *((z, -float(s)) for z, s in zip(chosen, sizes, strict=True))], 0, 0)


def _limit_spread(program: Program, mine: list[int], most: int, servers: int, begin: list[float]) -> None:
    """No more servers than it may span."""
    used = []
    for x in mine:
        used.append(program.column(0.0, 0, 1))
        begin.append(float(begin[x] > 0))
        program.row([(x, 1.0), (used[-1], -float(most))], most=0)
    program.row([(u, 1.0) for u in used], most=servers)
