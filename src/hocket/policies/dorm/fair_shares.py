"""ŝ: the share that weighted dominant resource fairness would give each application.

Progressive filling over the pooled cluster: all dominant shares rise together, each as fast as its weight, until an
application has all it can use, or something it needs is used up. Containers are divisible here, and nobody's n_min
counts: as in the paper, which takes the algorithm of Ghodsi et al., NSDI'11.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

_USED_UP = 1e-12


def fair_shares(totals: Sequence[float], wishes: Sequence[tuple[tuple[float, ...], float, int]]) -> tuple[float, ...]:
    """The dominant share of each application, given as (demand of a container, weight, most containers)."""
    kinds = dict.fromkeys(wishes, 0)
    for wish in wishes:
        kinds[wish] += 1
    share: dict[tuple[tuple[float, ...], float, int], float] = {}
    left = [1.0] * len(totals)
    active = {}  # kind → (use of each resource as its level rises by one, level at which it has all)
    for wish, count in kinds.items():
        demand, weight, most = wish
        fractions = [d / t for d, t in zip(demand, totals, strict=True)]
        dominant = max(fractions)
        active[wish] = ([count * weight * f / dominant for f in fractions], most * dominant / weight)
    level = 0.0
    while active:
        speeds = [sum(column) for column in zip(*(use for use, _full in active.values()), strict=True)]
        to_empty = [room / speed if speed > 0 else inf for room, speed in zip(left, speeds, strict=True)]
        to_full = min(full for _use, full in active.values()) - level
        step = max(min(*to_empty, to_full), 0.0)
        level += step
        left = [room - speed * step for room, speed in zip(left, speeds, strict=True)]
        gone = {k for k, room in enumerate(left) if room <= _USED_UP}
        for wish, (use, full) in list(active.items()):
            if full <= level * (1 + _USED_UP) or any(use[k] > 0 for k in gone):
                share[wish] = min(level, full) * wish[1]
                del active[wish]
    return tuple(share[wish] for wish in wishes)
