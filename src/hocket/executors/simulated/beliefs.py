"""What a simulated job's submission tells the policies beforehand: nothing, the truth, or the truth with an error."""

from __future__ import annotations

from math import exp, sqrt
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.curve import NO_BELIEFS, Beliefs, Curve, Estimate, Point
from hocket.model.job import Kind
from hocket.workloads.truth import Submission

MAX_ERROR = 10  # of `noisy`: a thousand per cent; the spread of what is believed grows with the exponent of its square


class BeliefMode(Struct, frozen=True):
    """learned, oracle, or noisy with a relative error."""

    mode: str = "learned"
    error: float = 0.0

    def __str__(self) -> str:
        return f"noisy:{self.error:g}" if self.mode == "noisy" else self.mode


def parse_beliefs(text: str) -> BeliefMode:
    """`learned`, `oracle` or `noisy:0.3`."""
    mode, _, error = text.partition(":")
    if mode in ("learned", "oracle") and not error:
        return BeliefMode(mode)
    if mode == "noisy":
        try:
            value = float(error)
        except ValueError:
            value = -1.0
        if 0 <= value <= MAX_ERROR:
            return BeliefMode("noisy", value)
        rule = f"noisy takes a relative error from 0 to {MAX_ERROR}, such as noisy:0.3"
        raise ValueError(f"beliefs '{text}': {rule}, not '{error}'")
    raise ValueError(f"beliefs must be learned, oracle or noisy:X, not '{text}'")


def beliefs_of(submission: Submission, mode: BeliefMode, seed: int) -> Beliefs:
    """What is believed of a job when it comes. The error of one job is the same under every policy."""
    if submission.beliefs is not None:
        return submission.beliefs
    if mode.mode == "learned":
        return NO_BELIEFS
    truth = submission.truth
    run_s, sd = truth.run_s, 0.0
    if mode.mode == "noisy" and mode.error:
        sigma = mode.error
        factor = exp(Random(f"{seed}/belief/{submission.job.id}").gauss(-sigma * sigma / 2, sigma))
        run_s *= factor
        sd = run_s * sqrt(exp(sigma * sigma) - 1)
    known = Beliefs(Estimate(run_s, sd), truth.reference_size, truth.speed, truth.kinds, truth.spread)
    if submission.job.kind is not Kind.PARAMETER_SERVER:
        return known
    comp_off, comm_off = phase_errors(submission.job.id, mode, seed)
    machines = float(truth.reference_size)
    return replace(
        known,
        comp_s=Curve((Point(machines, truth.comp_s * comp_off, truth.comp_s * mode.error),)),
        comm_s=Curve((Point(machines, truth.comm_s * comm_off, truth.comm_s * mode.error),)),
        own_part=truth.own_part,
    )


def phase_errors(job: str, mode: BeliefMode, seed: int) -> tuple[float, float]:
    """The factors by which COMP and COMM of a job are mistaken, told or measured: the same all along."""
    if mode.mode != "noisy" or not mode.error:
        return 1.0, 1.0
    rng, sigma = Random(f"{seed}/phases/{job}"), mode.error
    return exp(rng.gauss(-sigma * sigma / 2, sigma)), exp(rng.gauss(-sigma * sigma / 2, sigma))
