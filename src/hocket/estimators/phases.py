"""The length of a job's phases: moving averages of measurements, for each number of machines.

Other work on the same machines only makes phases longer: what is much shorter than the average starts it anew.
`model/phases.py` computes from the averages how a group of jobs alternates.
"""

from __future__ import annotations

from math import sqrt

from msgspec.structs import replace

from hocket.model.curve import Beliefs, Curve, Point
from hocket.model.event import PhasesObserved
from hocket.model.phases import is_much_shorter, needs_less, profile_of

_FORGETS = 0.2  # the weight of a new observation among many
_UNLIKELY = 3.0  # deviations from the average


def observe(beliefs: Beliefs, seen: PhasesObserved) -> Beliefs:
    """Beliefs updated with the mean phases of some iterations on this number of machines, as a moving average."""
    return replace(
        beliefs,
        comp_s=_averaged(beliefs.comp_s, seen.machines, seen.comp_s, seen.iterations),
        comm_s=_averaged(beliefs.comm_s, seen.machines, seen.comm_s, seen.iterations),
        slowest=_averaged(beliefs.slowest, seen.machines, seen.slowest, seen.iterations),
        link=seen.link,
        meeting_s=seen.meeting_s,
        own_part=seen.own_part,
    )


def is_news(before: Beliefs, after: Beliefs) -> bool:
    """Did an observation tell of phases that were not known, or believed to be much longer?"""
    old, new = profile_of(before), profile_of(after)
    return old is None or (new is not None and needs_less(new, old))


def _averaged(curve: Curve | None, machines: int, seen_s: float, iterations: int) -> Curve:
    points = curve.points if curve is not None else ()
    old = next((p for p in points if p.x == machines), None)
    if old is None or not old.seen:  # Measurements replace what was known in advance.
        new = Point(float(machines), seen_s, 0.0, iterations)
    else:
        weight = max(iterations / (old.seen + iterations), _FORGETS)
        off = seen_s - old.mean
        if is_much_shorter(seen_s, old.mean) and abs(off) > _UNLIKELY * old.sd:
            new = Point(old.x, seen_s, abs(off) / 2, iterations)  # It is to be seen whether it stays so.
        else:
            sd = sqrt((1 - weight) * (old.sd**2 + weight * off * off))
            new = Point(old.x, old.mean + weight * off, sd, old.seen + iterations)
    others = [p for p in points if p.x != machines and p.seen]
    return Curve(tuple(sorted([*others, new], key=lambda p: p.x)))
