"""Dorm's problem P2 as a value, what a solution of it is worth, and what is wrong with one: no solver in here.

Maximise Σ_k u_k (10), where every server holds what is put on it (6), every application has an allowed number of
containers (7, 8, 9), Σ_i |s_i - ŝ_i| is at most ⌈θ1·2m⌉ (11, 12, 15), and at most ⌈θ2·|A_t ∩ A_t-1|⌉ of those that run
already change in any way (13, 14, 16).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import ceil

from msgspec import Struct

from hocket.policies.kit.dominant_shares import fair_shares

Vector = tuple[float, ...]  # one number a resource
Places = tuple[tuple[int, int], ...]  # (server, containers there), in the order of servers, none empty
Allocation = tuple[Places, ...]  # one for each application, in their order

TOLERANCE = 1e-9  # capacities and shares are sums of floats


class Application(Struct, frozen=True):
    """What one application wants and has."""

    demand: Vector  # of one container
    sizes: tuple[int, ...]  # allowed numbers of containers, ascending: from n_min to n_max in the paper
    weight: float = 1.0
    before: Places | None = None  # what it has; None for a newcomer
    servers: int = -1  # bit mask of those it accepts
    max_servers: int = 0  # it may be spread over; 0 for any number
    owner: int = -1  # whose quota counts; none below 0


class Problem(Struct, frozen=True, dict=True):
    """One decision: servers, applications and both limits."""

    servers: tuple[Vector, ...]  # what each has for these applications
    totals: Vector  # of the cluster, by resource, above 0; what shares are counted in
    applications: tuple[Application, ...]
    theta1: float = 0.1
    theta2: float = 0.1
    quotas: tuple[Vector, ...] = ()  # by owner: the most that all of its applications may have

    @property
    def loss_limit(self) -> int:
        """The most that all fairness losses may add up to (15)."""
        return ceil(self.theta1 * 2 * len(self.totals) - TOLERANCE)

    @cached_property
    def running(self) -> int:
        """How many applications have something already."""
        return sum(a.before is not None for a in self.applications)

    @property
    def change_limit(self) -> int:
        """How many of them may change (16)."""
        return ceil(self.theta2 * self.running - TOLERANCE)

    @cached_property
    def fair(self) -> Vector:
        """ŝ: each application's share by weighted DRF."""
        return fair_shares(self.totals, [(a.demand, a.weight, a.sizes[-1]) for a in self.applications])

    @cached_property
    def shares(self) -> Vector:
        """The dominant share of one container of each application."""
        return tuple(max(self._fractions[a.demand]) for a in self.applications)

    @cached_property
    def gains(self) -> Vector:
        """What one container of each application adds to the utilisation."""
        return tuple(sum(self._fractions[a.demand]) for a in self.applications)

    @cached_property
    def _fractions(self) -> dict[Vector, Vector]:
        """What a demand is of the cluster, resource by resource."""
        demands = dict.fromkeys(a.demand for a in self.applications)
        return {demand: tuple(d / t for d, t in zip(demand, self.totals, strict=True)) for demand in demands}

    def loss(self, i: int, containers: int) -> float:
        """|s_i - ŝ_i| with so many containers."""
        return abs(self.shares[i] * containers - self.fair[i])

    def room(self, i: int, free: Sequence[float]) -> int:
        """How many containers of an application fit into what is free somewhere."""
        return min(
            (int((f + TOLERANCE) / d) for f, d in zip(free, self.applications[i].demand, strict=True) if d > 0),
            default=1 << 30,
        )


def standing(problem: Problem) -> Allocation:
    """What there is; newcomers have nothing."""
    return tuple(application.before or () for application in problem.applications)


def containers(places: Places) -> int:
    """How many there are in all."""
    return sum(n for _server, n in places)


def utilisation(problem: Problem, allocation: Allocation) -> float:
    """Σ_k u_k: the objective (10)."""
    return sum(gain * containers(places) for gain, places in zip(problem.gains, allocation, strict=True))


def fairness_loss(problem: Problem, allocation: Allocation) -> float:
    """Σ_i |s_i - ŝ_i| (2)."""
    return sum(problem.loss(i, containers(places)) for i, places in enumerate(allocation))


def changed(problem: Problem, allocation: Allocation) -> list[int]:
    """The applications that have something already and would have something else (3)."""
    return [
        i
        for i, (application, places) in enumerate(zip(problem.applications, allocation, strict=True))
        if application.before is not None and application.before != places
    ]


def left_over(problem: Problem, allocation: Allocation) -> list[list[float]]:
    """What each server has left."""
    free = [list(server) for server in problem.servers]
    for application, places in zip(problem.applications, allocation, strict=True):
        for server, n in places:
            for k, need in enumerate(application.demand):
                free[server][k] -= n * need
    return free


def violations(problem: Problem, allocation: Allocation) -> Iterator[str]:
    """All constraints of P2 that an allocation breaks, and those that are ours (kinds of servers, spread, quotas)."""
    for i, (application, places) in enumerate(zip(problem.applications, allocation, strict=True)):
        if containers(places) not in application.sizes:
            yield f"application {i} may have {application.sizes} containers, and has {containers(places)}"
        if any(n < 1 for _server, n in places) or len({s for s, _n in places}) < len(places):
            yield f"application {i} has places {places}"
        if any(not application.servers >> server & 1 for server, _n in places):
            yield f"application {i} is on a server that it does not accept: {places}"
        if application.max_servers and len(places) > application.max_servers:
            yield f"application {i} may span {application.max_servers} servers, and spans {len(places)}"
    for server, free in enumerate(left_over(problem, allocation)):
        if any(f < -TOLERANCE for f in free):
            yield f"server {server} lacks {[-f for f in free]}"
    if (loss := fairness_loss(problem, allocation)) > problem.loss_limit + TOLERANCE:
        yield f"the fairness loss is {loss}, the limit {problem.loss_limit}"
    if (changes := len(changed(problem, allocation))) > problem.change_limit:
        yield f"{changes} applications change, the limit is {problem.change_limit}"
    for owner, quota in enumerate(problem.quotas):
        for k, limit in enumerate(quota):
            used = sum(
                a.demand[k] * containers(p)
                for a, p in zip(problem.applications, allocation, strict=True)
                if a.owner == owner
            )
            if used > limit + TOLERANCE * max(limit, 1.0):
                yield f"owner {owner} may have {limit} of resource {k}, and has {used}"
