"""Who may take the place of a job that left a group, and how far a regrouping should reach.

Pure choices over profiles; the plan is written elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import sqrt
from typing import NamedTuple

from hocket.model.phases import Profile
from hocket.policies.harmony.schedule import Grouping

_LOOKED_AT = 200  # jobs that wait, for a bundle

Search = Callable[[Sequence[Profile], int, Sequence[int]], Grouping]  # jobs, machines, least machines


def substitutes(comp: float, comm: float, machines: int, waiting: Sequence[Profile], within: float) -> tuple[int, ...]:
    """Of those who wait, one that is like whoever left, else a bundle that is; empty if there is none.

    Alike are the iteration time and the share of COMP in it, each within a share of the other's.
    """
    wanted_s = comp / machines + comm
    if wanted_s <= 0:
        return ()
    wanted_share = comp / machines / wanted_s
    times = [(p.comp_machine_s / machines, p.comm_s) for p in waiting]

    def alike(comp_s: float, comm_s: float) -> bool:
        total_s = comp_s + comm_s
        return abs(total_s - wanted_s) <= within * wanted_s and abs(comp_s / total_s - wanted_share) <= within * max(
            wanted_share, 1 - wanted_share
        )

    for i, (comp_s, comm_s) in enumerate(times):
        if alike(comp_s, comm_s):
            return (i,)
    small = [i for i, (c, n) in enumerate(times[:_LOOKED_AT]) if c + n < wanted_s]
    # A bundle grows from each in turn, by whoever then comes closest.
    for first in small:
        bundle, comp_s, comm_s = [first], *times[first]
        while comp_s + comm_s < wanted_s * (1 - within):
            rest = [i for i in small if i not in bundle and comp_s + comm_s + sum(times[i]) <= wanted_s * (1 + within)]
            if not rest:
                break
            aim_comp, aim_comm = wanted_s * wanted_share - comp_s, wanted_s * (1 - wanted_share) - comm_s
            nearest = min(rest, key=lambda i: abs(times[i][0] - aim_comp) + abs(times[i][1] - aim_comm))
            bundle.append(nearest)
            comp_s, comm_s = comp_s + times[nearest][0], comm_s + times[nearest][1]
        if alike(comp_s, comm_s):
            return tuple(bundle)
    return ()


def widths(groups: int, jobs_of: Callable[[int], int], most_jobs: int) -> Iterator[int]:
    """How many further groups to involve: none, one, two, … then in larger steps; as long as jobs are not too many."""
    width = 0
    while width <= groups:
        if width > 1 and jobs_of(width) > most_jobs:
            return
        yield width
        width += 1 if width < 8 else width // 2
    if groups > 8 and jobs_of(groups) <= most_jobs:
        yield groups


class Worth(NamedTuple):
    """What a grouping comes to: machines in use, and processors and links in use whatever their machines."""

    value: float = 0.0
    progress: float = 0.0

    def __add__(self, other: tuple[float, ...]) -> Worth:  # type: ignore[override]
        return Worth(self.value + other[0], self.progress + other[1])

    def beats(self, other: Worth, rule: float) -> bool:
        """Better by a share. Use counts in full and progress by its root, so that no two groupings beat each other."""
        return self.value > 0 and self.value * sqrt(self.progress) >= (1 + rule) * other.value * sqrt(other.progress)
