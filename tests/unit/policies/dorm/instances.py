"""Random questions for P2, and ways to ask them."""

from __future__ import annotations

from random import Random

from hocket.policies.dorm.problem import Application, Places, Problem
from hocket.workloads.dorm import TYPES, dorm_cluster


def small(seed: int) -> Problem:
    """Up to 5 applications, 4 servers and 3 resources; most run already, somewhere."""
    dice = Random(seed)
    resources = dice.randint(1, 3)
    alike = dice.random() < 0.5
    first = [dice.randint(2, 6) for _ in range(resources)]
    servers = [
        tuple(first if alike else [dice.randint(1, 6) for _ in range(resources)]) for _ in range(dice.randint(1, 4))
    ]
    totals = tuple(float(sum(s[k] for s in servers)) for k in range(resources))
    free = [list(s) for s in servers]
    applications = []
    for _ in range(dice.randint(1, 5)):
        demand = tuple(dice.choice((0, 1, 1, 2)) for _ in range(resources))
        if not any(demand):
            demand = (1,) * resources
        least = dice.randint(1, 2)
        sizes = tuple(range(least, least + dice.randint(1, 3)))
        if dice.random() < 0.2:
            sizes = sizes[:1] + sizes[2:]
        before = None
        if dice.random() < 0.6:
            before = somewhere(dice, demand, dice.choice(sizes), free)
        applications.append(
            Application(
                tuple(map(float, demand)), sizes, dice.choice((1.0, 1.0, 2.0, 4.0)), before,
                max_servers=dice.choice((0, 0, 0, 0, 1, 2)) if before is None else 0,
            )
        )  # fmt: skip
    theta1, theta2 = dice.choice((0.0, 0.05, 0.1, 0.2, 0.4, 1.0)), dice.choice((0.0, 0.1, 0.3, 0.6, 1.0))
    return Problem(tuple(tuple(map(float, s)) for s in servers), totals, tuple(applications), theta1, theta2)


def lopsided(seed: int) -> Problem:
    """One application fills the cluster best and has little weight, the others need one resource: limits bind."""
    dice = Random(f"{seed}/lopsided")
    servers = [tuple(dice.randint(4, 7) for _ in range(3)) for _ in range(dice.randint(1, 2))]
    totals = tuple(float(sum(column)) for column in zip(*servers, strict=True))
    free = [list(server) for server in servers]
    demands = [tuple(dice.randint(1, 2) for _ in range(3))]
    demands += [tuple(dice.randint(2, 3) * (k == one) for k in range(3)) for one in range(dice.randint(2, 3))]
    applications = []
    for n, demand in enumerate(demands):
        before = somewhere(dice, demand, dice.randint(1, 2), free) if dice.random() < 0.8 else None
        sizes = tuple(range(1, 4 if n else 6))
        applications.append(Application(tuple(map(float, demand)), sizes, 8.0 if n else 1.0, before))
    theta1, theta2 = dice.choice((0.05, 0.1, 1 / 6)), dice.choice((0.0, 0.3, 0.6, 1.0))
    return Problem(tuple(tuple(map(float, s)) for s in servers), totals, tuple(applications), theta1, theta2)


def somewhere(dice: Random, demand: tuple[int, ...], size: int, free: list[list[int]]) -> Places | None:
    """Places for so many containers on what is free, which they take; None when there is no room."""
    found: dict[int, int] = {}
    after = [list(server) for server in free]
    for _ in range(size):
        fits = [j for j, has in enumerate(after) if all(h >= d for h, d in zip(has, demand, strict=True))]
        if not fits:
            return None
        server = dice.choice(fits)
        found[server] = found.get(server, 0) + 1
        after[server] = [h - d for h, d in zip(after[server], demand, strict=True)]
    free[:] = after
    return tuple(sorted(found.items()))


def at_scale(applications: int, servers: int, seed: int) -> Problem:
    """Newcomers of Table II on servers like the paper's."""
    dice = Random(f"{seed}/scale")
    chosen = dice.choices(TYPES, [t.number for t in TYPES], k=applications)
    nodes = dorm_cluster(servers)
    amounts = tuple((n.cores, float(n.gpus), n.mem_mib) for n in nodes)
    totals = tuple(sum(column) for column in zip(*amounts, strict=True))
    applications_wanted = tuple(
        Application((t.demand.cores, float(t.demand.gpus), t.demand.mem_mib), t.sizes, float(t.weight)) for t in chosen
    )
    return Problem(amounts, totals, applications_wanted, 0.2, 0.1)


def unlike(applications: int, servers: int, seed: int) -> Problem:
    """Newcomers of which no two demand the same, on mixed servers."""
    dice = Random(f"{seed}/unlike")
    amounts = tuple((8.0 + 8 * (j % 4), float(j % 5 // 3), 32.0 * (1 + j % 3)) for j in range(servers))
    totals = tuple(sum(column) for column in zip(*amounts, strict=True))
    applications_wanted = tuple(
        Application(
            (round(dice.uniform(0.5, 4.0), 2), float(dice.random() < 0.05), round(dice.uniform(0.5, 6.0), 2)),
            tuple(range(1, dice.choice((4, 8, 16)) + 1)),
            dice.choice((1.0, 2.0)),
        )
        for _ in range(applications)
    )
    return Problem(amounts, totals, applications_wanted, 0.5, 0.1)
