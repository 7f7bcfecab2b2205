"""Jobs that take turns: their profiles, as beliefs have them, and what a group of them does (Harmony, (1) to (4)).

A COMP phase shrinks with the number of machines m that share it (2), a COMM phase does not. Jobs that take turns need
as long for one round as the busiest resource, or as the longest of them alone (1).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite, sqrt

from msgspec import Struct

from hocket.model.curve import Beliefs, Curve, Estimate

_95_PERCENT = 1.96  # deviations either side


class Profile(Struct, frozen=True, gc=False):
    """A job's phases, whatever the number of machines."""

    comp_machine_s: float  # of one iteration: COMP time on one machine
    comm_s: float
    comp_sd: float = 0.0
    comm_sd: float = 0.0

    def comp_s(self, machines: float) -> float:
        """COMP time of an iteration on so many machines (equation 2)."""
        return self.comp_machine_s / machines

    def iteration_s(self, machines: float) -> float:
        """One iteration alone."""
        return self.comp_machine_s / machines + self.comm_s


class Round(Struct, frozen=True, gc=False):
    """What a group is believed to do: the time in which each of its jobs iterates once, and what that uses."""

    iteration_s: Estimate
    cpu: float  # shares of the time
    net: float

    @property
    def interval_s(self) -> tuple[float, float]:
        """Where the time lies, 19 times of 20, as far as the profiles are right."""
        around = _95_PERCENT * self.iteration_s.sd
        return max(0.0, self.iteration_s.mean - around), self.iteration_s.mean + around


def predict(jobs: Sequence[Profile], machines: float) -> Round:
    """The round of a group on so many machines (equations 1 and 3); its deviation is that of what sets the pace."""
    cpu_s = sum(j.comp_machine_s for j in jobs) / machines
    net_s = sum(j.comm_s for j in jobs)
    longest = max(jobs, key=lambda j: j.iteration_s(machines))
    longest_s = longest.iteration_s(machines)
    round_s = max(cpu_s, net_s, longest_s)
    if round_s == longest_s:
        sd = sqrt((longest.comp_sd / machines) ** 2 + longest.comm_sd**2)
    elif round_s == cpu_s:
        sd = sqrt(sum(j.comp_sd**2 for j in jobs)) / machines
    else:
        sd = sqrt(sum(j.comm_sd**2 for j in jobs))
    return Round(Estimate(round_s, sd), cpu_s / round_s, net_s / round_s)


def cluster_use(rounds: Sequence[tuple[int, Round]], machines: int) -> tuple[float, float]:
    """Shares of CPU and network over all machines (equation 4); those of no group count as idle."""
    return (
        sum(m * r.cpu for m, r in rounds) / machines,
        sum(m * r.net for m, r in rounds) / machines,
    )


def profile_of(beliefs: Beliefs, least: int = 1) -> Profile | None:
    """The job's profile, once its phases were seen in `least` iterations or were told; None if not, or unsound."""
    comp, comm = beliefs.comp_s, beliefs.comm_s
    if comp is None or comm is None:
        return None
    comp_machine_s, comp_sd = _mean(comp, least, 1)
    comm_s, comm_sd = _mean(comm, least, 0)
    total_s = comp_machine_s + comm_s
    if not (0.0 < total_s < inf) or comp_machine_s < 0 or comm_s < 0:
        return None
    return Profile(comp_machine_s, comm_s, comp_sd, comm_sd)


def _mean(curve: Curve, least: int, power: int) -> tuple[float, float]:
    """Over all numbers of machines, by the iterations seen there; below 0 while those are too few."""
    points = curve.points
    if len(points) == 1:
        only = points[0]
        if only.seen and only.seen < least:
            return -inf, 0.0
        scale = only.x if power else 1.0
        return only.mean * scale, only.sd * scale
    seen = sum(p.seen for p in points)
    if seen and seen < least:
        return -inf, 0.0
    weights = [p.seen / seen if seen else 1 / len(points) for p in points]
    mean = sum(w * p.mean * p.x**power for w, p in zip(weights, points, strict=True))
    # Points that disagree are as telling as those that spread.
    square = sum(
        w * ((p.mean * p.x**power - mean) ** 2 + (p.sd * p.x**power) ** 2) for w, p in zip(weights, points, strict=True)
    )
    return mean, sqrt(square) if square > 0 else 0.0


def unsound(beliefs: Beliefs) -> str:
    """What is wrong with a profile that cannot be used, in words; empty where nothing is."""
    if beliefs.comp_s is None or beliefs.comm_s is None:
        return ""
    times = [p.mean for curve in (beliefs.comp_s, beliefs.comm_s) for p in curve.points]
    if any(not isfinite(t) or t < 0 for t in times):
        return f"its phases are said to take {', '.join(f'{t:g}' for t in times)} s"
    return "its phases are said to take no time" if not any(times) else ""
