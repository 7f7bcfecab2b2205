"""P2 as it is printed, container by container and server by server: exact, and for small questions only."""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite

from hocket.policies.dorm.problem import Allocation, Places, Problem, containers, left_over
from hocket.policies.dorm.solver import Effort, Program, Solved


def solve_plain(
    problem: Problem, effort: Effort, start: Allocation | None = None, among: Collection[int] | None = None
) -> tuple[Allocation | None, Solved]:
    """The best allocation there is, unless the effort ends before that is proven; or the best near a start.

    With a start, only those `among` may have something else than there, and the bound is one on such allocations.
    """
    program = Program()
    begin: list[float] = []  # the start's values, column by column
    free = [list(server) for server in problem.servers]
    fixed: dict[int, Places] = {}
    if start is not None and among is not None:
        fixed = {i: places for i, places in enumerate(start) if i not in among}
        free = left_over(problem, tuple(fixed.get(i, ()) for i in range(len(start))))
    counts: dict[int, dict[int, int]] = {}  # by application: server → column x_ij
    losses: list[int] = []
    changes: list[tuple[int, float]] = []
    change_limit = problem.change_limit - sum(
        p != b for i, p in fixed.items() if (b := problem.applications[i].before) is not None
    )
    running = sum(a.before is not None for i, a in enumerate(problem.applications) if i not in fixed)
    for i, application in enumerate(problem.applications):
        if i in fixed:
            continue
        given = dict(start[i]) if start is not None else {}
        before = dict(application.before or ())
        most = application.sizes[-1]
        mine: dict[int, int] = {}
        for server, has in enumerate(free):
            room = min(problem.room(i, has), most) if application.servers >> server & 1 else 0
            if room > 0:
                mine[server] = program.column(problem.gains[i], 0, room)
                begin.append(given.get(server, 0))
        counts[i] = mine
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
        if application.before is not None and running > change_limit:  # (13), (14)
            change = program.column(0.0, 0, 1)
            begin.append(float(start is not None and start[i] != application.before))
            changes.append((change, 1.0))
            for server, x in mine.items():
                had = before.get(server, 0)
                program.row([(x, 1.0), (change, -float(most))], most=had)
                program.row([(x, 1.0), (change, float(most))], least=had)
    for server, row in enumerate(free):  # (6)
        for k, (left, total) in enumerate(zip(row, problem.totals, strict=True)):
            uses = [
                (mine[server], problem.applications[i].demand[k] / total)
                for i, mine in counts.items()
                if server in mine and problem.applications[i].demand[k]
            ]
            if uses:
                program.row(uses, most=left / total)
    spent = sum(problem.loss(i, containers(places)) for i, places in fixed.items())
    program.row([(loss, 1.0) for loss in losses], most=problem.loss_limit - spent)  # (15)
    if changes:
        program.row(changes, most=change_limit)  # (16)
    for owner, quota in enumerate(problem.quotas):
        for k, limit in enumerate(quota):
            needs = {i: a.demand[k] for i, a in enumerate(problem.applications) if a.owner == owner and a.demand[k]}
            uses = [(x, need) for i, need in needs.items() if i in counts for x in counts[i].values()]
            if uses and isfinite(limit):
                taken = sum(need * containers(fixed[i]) for i, need in needs.items() if i in fixed)
                program.row(uses, most=limit - taken)
    solved = program.solve(effort, begin if start is not None else None)
    if solved.values is None:
        return None, solved
    values = solved.values
    return tuple(
        fixed[i] if i in fixed else tuple((s, n) for s, x in counts[i].items() if (n := round(values[x])))
        for i in range(len(problem.applications))
    ), solved


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
