"""The share that weighted dominant resource fairness would give each application: ŝ in Dorm, and in its fairness loss.

Progressive filling over the pooled cluster: all dominant shares rise together, each as fast as its weight, until an
application has all it can use, or something it needs is used up. Containers are divisible here, and no n_min
counts: as in the paper, which takes the algorithm of Ghodsi et al., NSDI'11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

_USED_UP = 1e-12
Wanted = tuple[tuple[float, ...], float, int]  # demand of a container, weight, most containers


def fair_shares(totals: Sequence[float], applications: Sequence[Wanted]) -> tuple[float, ...]:
    """The dominant share of each application."""
    kinds = dict.fromkeys(applications, 0)
    for application in applications:
        kinds[application] += 1
    share = shares_by_kind(totals, kinds)
    return tuple(share[application] for application in applications)


def shares_by_kind(totals: Sequence[float], kinds: Mapping[Wanted, int]) -> dict[Wanted, float]:
    """The same, where there are so many applications of each kind. Each asks for something, and totals are above 0."""
    share: dict[Wanted, float] = {}
    left = [1.0] * len(totals)
    active = {}  # kind → (use of each resource as its level rises by one, level at which it has all)
    for kind, count in kinds.items():
        demand, weight, most = kind
        fractions = [d / t for d, t in zip(demand, totals, strict=True)]
        dominant = max(fractions)
        active[kind] = ([count * weight * f / dominant for f in fractions], most * dominant / weight)
    level = 0.0
    while active:
        speeds = [sum(column) for column in zip(*(use for use, _full in active.values()), strict=True)]
        to_empty = [room / speed if speed > 0 else inf for room, speed in zip(left, speeds, strict=True)]
        to_full = min(full for _use, full in active.values()) - level
        step = max(min(*to_empty, to_full), 0.0)
        level += step
        left = [room - speed * step for room, speed in zip(left, speeds, strict=True)]
        gone = {k for k, room in enumerate(left) if room <= _USED_UP}
        for kind, (use, full) in list(active.items()):
            if full <= level * (1 + _USED_UP) or any(use[k] > 0 for k in gone):
                share[kind] = min(level, full) * kind[1]
                del active[kind]
    return share
