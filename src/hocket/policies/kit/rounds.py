"""The moments at which a policy that decides in rounds does so: the multiples of a length.

A simulated clock is there to a rounding. A live one wakes a policy a little late: so a round that was asked for is due
from its moment on, and what was asked for is kept in the memo.
"""

from __future__ import annotations

_ROUNDING_S = 1e-6


def round_at(now_s: float, round_s: float) -> int:
    """The number of the round that this moment is in."""
    return int((now_s + _ROUNDING_S) // round_s)


def is_round(now_s: float, round_s: float) -> bool:
    """Does a round begin at this moment?"""
    return round_at(now_s, round_s) * round_s >= now_s - _ROUNDING_S


def is_due(now_s: float, round_s: float, asked_s: float | None) -> bool:
    """Does a round begin at this moment, or has one begun that was asked for?"""
    return is_round(now_s, round_s) or (asked_s is not None and now_s >= asked_s)


def next_round_s(now_s: float, round_s: float) -> float:
    """When the next round begins, after this moment."""
    return (round_at(now_s, round_s) + 1) * round_s


def round_from(at_s: float, round_s: float) -> float:
    """The first moment from this one on at which a round begins."""
    return round_at(at_s, round_s) * round_s if is_round(at_s, round_s) else next_round_s(at_s, round_s)
