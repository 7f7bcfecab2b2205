"""P2 by trying everything that could be best: the reference that no solver has touched."""

from __future__ import annotations

from collections.abc import Iterator

from hocket.policies.dorm.problem import Allocation, Places, Problem, containers, fairness_loss, utilisation, violations


def placements(problem: Problem, i: int, free: list[list[float]]) -> Iterator[Places]:
    """All ways to put an allowed number of containers of one application on what is free."""
    application = problem.applications[i]

    def spread(server: int, left: int) -> Iterator[Places]:
        if server == len(problem.servers):
            if not left:
                yield ()
            return
        n = 0
        while n <= left and all(
            n * need <= has + 1e-9 for need, has in zip(application.demand, free[server], strict=True)
        ):
            for rest in spread(server + 1, left - n):
                yield ((server, n), *rest) if n else rest
            n += 1

    for size in reversed(application.sizes):  # What is worth most first, so that less need be tried.
        yield from spread(0, size)


def best_by_enumeration(problem: Problem) -> tuple[float, Allocation] | None:
    """The largest utilisation of any allocation that breaks nothing; None when all do."""
    best: list[tuple[float, Allocation]] = []
    most = [gain * max(a.sizes) for gain, a in zip(problem.gains, problem.applications, strict=True)]

    def fill(chosen: tuple[Places, ...], free: list[list[float]], worth_so_far: float) -> None:
        i = len(chosen)
        if best and worth_so_far + sum(most[i:]) < best[0][0] + 1e-9:
            return  # However the rest is placed, it is worth no more.
        changes = sum(a.before not in (None, p) for a, p in zip(problem.applications, chosen, strict=False))
        if changes > problem.change_limit or fairness_loss(problem, chosen) > problem.loss_limit + 1e-3:
            return  # The rest can only add to both.
        if i == len(problem.applications):
            worth = utilisation(problem, chosen)
            if (not best or worth > best[0][0]) and not any(violations(problem, chosen)):
                best[:] = [(worth, chosen)]
            return
        for places in placements(problem, i, free):
            after = [list(server) for server in free]
            for server, n in places:
                for k, need in enumerate(problem.applications[i].demand):
                    after[server][k] -= n * need
            fill((*chosen, places), after, worth_so_far + problem.gains[i] * containers(places))

    fill((), [list(server) for server in problem.servers], 0.0)
    return best[0] if best else None
