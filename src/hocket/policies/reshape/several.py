"""Beyond the paper: several running jobs give up GPUs for one newcomer."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from hocket.model.view import JobView
from hocket.policies.kit.remaining_time import shrunk_s, speed_ratio

Shrunk = tuple[JobView, int, float, float]  # a job, its smaller size, its end then, and its end as it is


def together(
    donors: Sequence[tuple[JobView, float]], missing: int, most: int, now_s: float, wait_s: float
) -> list[Shrunk]:
    """At most so many donors that give up the missing GPUs, a size at a time, each time the one that ends soonest then.

    Nothing if they do not suffice, or if one alone does it.
    """

    def step(donor: JobView, ends_s: float, size: int) -> tuple[float, int, JobView, int, float] | None:
        at = donor.job.sizes.index(size)
        if not at:
            return None
        less = donor.job.sizes[at - 1]
        then_s = shrunk_s(
            ends_s, speed_ratio(donor, donor.size, less), now_s, wait_s, donor.costs.restart_s(donor.job.warm)
        )
        return then_s, donor.number, donor, less, ends_s

    line = [found for donor, ends_s in donors if (found := step(donor, ends_s, donor.size)) is not None]
    heapify(line)
    taken: dict[int, Shrunk] = {}
    moved = 0
    while line and moved < missing:
        then_s, number, donor, less, ends_s = heappop(line)
        if number not in taken and len(taken) == most:
            continue
        before = taken[number][1] if number in taken else donor.size
        moved += (before - less) * donor.job.demand.gpus
        taken[number] = donor, less, then_s, ends_s
        if (further := step(donor, ends_s, less)) is not None:
            heappush(line, further)
    return list(taken.values()) if moved >= missing and len(taken) > 1 else []
