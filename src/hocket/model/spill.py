"""How much of a job's input to keep on disk: Harmony's α, found by hill climbing (§IV-C).

Pure, and the same live and simulated: `climb` gets the time of an iteration, measured or simulated.
"""

from __future__ import annotations

from msgspec import Struct

COMFORT = 0.8  # share of the memory; input beyond it determines the first α
_FIRST_STEP = 0.1
_LAST_STEP = 0.02


class Climb(Struct, frozen=True, gc=False):
    """The state of the search for one job's α."""

    alpha: float  # share of its blocks on disk
    step: float = _FIRST_STEP  # towards more of them, or fewer if below 0
    best_alpha: float = 0.0
    best_s: float | None = None  # the shortest round so far, None before the first

    @property
    def done(self) -> bool:
        """Is the step too small to matter?"""
        return abs(self.step) < _LAST_STEP


def first_alpha(input_mib: float, model_mib: float, capacity_mib: float) -> float:
    """The first α, by the sizes of input and model: as much as fits into the memory limit stays in memory."""
    beyond_mib = input_mib + model_mib - COMFORT * capacity_mib
    return min(1.0, max(0.0, beyond_mib / input_mib)) if input_mib > 0 else 0.0


def climb(at: Climb, round_s: float, least: float = 0.0) -> Climb:
    """The next α after a round: continue if it was shorter than before, else go back, and the other way by half.

    With less than `least` on disk, memory does not suffice.
    """
    if at.best_s is None or round_s < at.best_s:
        best_alpha, best_s, step = at.alpha, round_s, at.step
    else:
        best_alpha, best_s, step = at.best_alpha, at.best_s, -at.step / 2
    wanted = best_alpha + step
    if not least <= wanted <= 1.0:  # It is at the end of the range: the other way.
        wanted, step = min(1.0, max(least, wanted)), -step / 2
        if wanted == best_alpha:
            wanted = min(1.0, max(least, best_alpha + step))
    return Climb(wanted, step, best_alpha, best_s)
