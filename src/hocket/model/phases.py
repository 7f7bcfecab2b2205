"""Jobs that take turns: their profiles, as beliefs have them, and what a group of them does (Harmony, (1) to (4)).

A COMP phase shrinks with the number of machines m that share it (2), a COMM phase does not, but for the part of the
model that each machine keeps itself (`own_part`). Jobs that take turns need as long for one round as the busiest
resource, or as the longest of them alone (1); which phases wait for which is played in `executors/simulated/phases.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite, log, sqrt

from msgspec import Struct

from hocket.model.curve import Beliefs, Curve, Estimate, Point

_95_PERCENT = 1.96  # deviations either side
# Of the time of the primary COMM: a second one that takes at most so long need not give way (`phase_token_rules.py`).
SHORT_COMM = 0.35
_SHORTER = 0.75  # times what was believed: when that was measured, other work was in the way
LEAST_COMM = 0.05  # of what it takes on very many machines: on one, it is copied all the same


class Profile(Struct, frozen=True, gc=False):
    """A job's phases, whatever the number of machines."""

    comp_machine_s: float  # of one iteration: COMP time on one machine
    comm_s: float  # of one iteration, on very many machines
    comp_sd: float = 0.0
    comm_sd: float = 0.0
    barrier: float = 0.0  # a phase ends on its slowest machine: so much later, for each e-fold of machines
    link: float = 1.0  # share of COMM in which it keeps the link busy
    meeting_s: float = 0.0  # of one iteration: its machines go on together after each phase, with nothing held
    own_part: float = 0.0  # of m machines each keeps the mth part of the model, 1: and need not send it; 0: sends all

    def comp_s(self, machines: float) -> float:
        """COMP time of an iteration on so many machines (equation 2)."""
        return self.comp_machine_s / machines

    def comm_on(self, machines: float) -> float:
        """COMM time of an iteration on so many machines."""
        return self.comm_s * sent_share(self.own_part, machines)

    def iteration_s(self, machines: float) -> float:
        """One iteration alone."""
        return self.comp_machine_s / machines + self.comm_on(machines)


def sent_share(own_part: float, machines: float) -> float:
    """What COMM takes on so many machines, as a share of what it would on very many."""
    return max(LEAST_COMM, 1.0 - own_part / machines)


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
    net_s = sum(j.comm_on(machines) for j in jobs)
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


def profile_of(beliefs: Beliefs, least: int = 1) -> Profile | None:
    """The job's profile, once its phases were seen in `least` iterations or were told; None if not, or unsound."""
    comp, comm = beliefs.comp_s, beliefs.comm_s
    if comp is None or comm is None:
        return None
    own_part, comms = beliefs.own_part, comm.points
    if own_part:  # One machine alone only copies: that says nothing of what several have to send.
        comms = tuple(p for p in comms if p.x > 1)
        if not comms:
            own_part, comms = 0.0, comm.points
    comp_machine_s, comp_sd = _mean(comp.points, least, None)
    comm_s, comm_sd = _mean(comms, least, own_part)
    total_s = comp_machine_s + comm_s
    if not (0.0 < total_s < inf) or comp_machine_s < 0 or comm_s < 0:
        return None
    barrier = _barrier(beliefs.slowest)
    return Profile(comp_machine_s, comm_s, comp_sd, comm_sd, barrier, beliefs.link, beliefs.meeting_s, own_part)


def _barrier(slowest: Curve | None) -> float:
    """By how much a phase is longer for each e-fold of machines, from where that was seen."""
    points = [p for p in slowest.points if p.x > 1 and p.mean >= 1] if slowest is not None else []
    return sum((p.mean - 1) / log(p.x) for p in points) / len(points) if points else 0.0


def _mean(points: Sequence[Point], least: int, own_part: float | None) -> tuple[float, float]:
    """COMP on one machine, or COMM on very many if `own_part` is told; over all numbers of machines, by the iterations
    seen there. Below 0 while those are too few."""
    if len(points) == 1:
        only = points[0]
        if only.seen and only.seen < least:
            return -inf, 0.0
        scale = _scale(only.x, own_part)
        return only.mean * scale, only.sd * scale
    seen = sum(p.seen for p in points)
    if seen and seen < least:
        return -inf, 0.0
    weights = [p.seen / seen if seen else 1 / len(points) for p in points]
    scales = [_scale(p.x, own_part) for p in points]
    mean = sum(w * p.mean * s for w, p, s in zip(weights, points, scales, strict=True))
    # Points that disagree are as telling as those that spread.
    square = sum(
        w * ((p.mean * s - mean) ** 2 + (p.sd * s) ** 2) for w, p, s in zip(weights, points, scales, strict=True)
    )
    return mean, sqrt(square) if square > 0 else 0.0


def _scale(machines: float, own_part: float | None) -> float:
    return machines if own_part is None else 1.0 / sent_share(own_part, machines)


def is_much_shorter(now: float, before: float) -> bool:
    """Is a time too short to be a measurement of the same as before?"""
    return now < _SHORTER * before


def needs_less(new: Profile, old: Profile) -> bool:
    """Does a job need much less of a resource than was believed?"""
    return is_much_shorter(new.comp_machine_s, old.comp_machine_s) or is_much_shorter(new.comm_s, old.comm_s)


def unsound(beliefs: Beliefs) -> str:
    """What is wrong with a profile that cannot be used, in words; empty where nothing is."""
    if beliefs.comp_s is None or beliefs.comm_s is None:
        return ""
    times = [p.mean for curve in (beliefs.comp_s, beliefs.comm_s) for p in curve.points]
    if any(not isfinite(t) or t < 0 for t in times):
        return f"its phases are said to take {', '.join(f'{t:g}' for t in times)} s"
    return "its phases are said to take no time" if not any(times) else ""
