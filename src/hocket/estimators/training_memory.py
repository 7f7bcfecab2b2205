"""TME, Rotary's training-memory estimator: GPU memory over batch size, from the past models most alike in parameters.

A weighted linear regression over the batch size; the weight of a past job is its similarity. The estimate is padded by
5 %, since a model that runs out of memory has to begin again. That is not always enough: how far past jobs are from the
line is the estimate's uncertainty, and `sufficient` adds it. What a network computes for a batch does not grow faster
than its parameters: one with more than all that were measured may take as many times the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, sqrt

from hocket.estimators.quality import nonnegative
from hocket.model.curve import Estimate
from hocket.model.job import Job, Kind
from hocket.model.past_job import PastJob

MOST_ALIKE = 5  # models that an estimate rests on
PAD = 0.05
_Z95 = 1.645  # 95 % of a normal distribution lie below
BATCH, PARAMETERS, DATASET = "batch_size", "parameters", "dataset"  # the traits that count here


def memory_mib(job: Job, past: Sequence[PastJob], pad: float = PAD) -> Estimate | None:
    """The memory of a training job; None if its size is not known, or no past job of its data set was measured."""
    batch, parameters = job.traits.get(BATCH), job.traits.get(PARAMETERS)
    if job.kind is not Kind.TRAINING or not _positive(batch) or not _positive(parameters):
        return None
    dataset = job.traits.get(DATASET)
    rows = [
        (1.0 - abs(parameters - p.traits[PARAMETERS]) / max(parameters, p.traits[PARAMETERS]), p)  # type: ignore[operator, type-var]
        for p in past
        if p.kind is Kind.TRAINING and p.mem_mib and p.traits.get(DATASET) == dataset
        and _positive(p.traits.get(BATCH)) and _positive(p.traits.get(PARAMETERS))
    ]  # fmt: skip
    models = _most_alike_models(rows)
    measured = [(alike, float(p.traits[BATCH]), p.mem_mib) for alike, p in rows if alike in models]
    if not measured or not sum(alike for alike, _b, _m in measured):
        return None
    slope, base = _line(measured)
    mean = base + slope * float(batch)  # type: ignore[arg-type]
    squares = sum(alike * (m - base - slope * b) ** 2 for alike, b, m in measured)
    weight = sum(alike for alike, _b, _m in measured)
    spread = sqrt(squares / weight * len(measured) / max(len(measured) - 2, 1))
    largest = max(float(p.traits[PARAMETERS]) for alike, p in rows if alike in models)
    beyond = mean * max(0.0, float(parameters) / largest - 1.0) / _Z95  # type: ignore[arg-type]
    return Estimate(mean * (1.0 + pad), hypot(spread, beyond) * (1.0 + pad))


def sufficient(estimate: Estimate) -> float:
    """The memory that is enough for 95 % of such jobs."""
    return estimate.mean + _Z95 * estimate.sd


def _most_alike_models(rows: Sequence[tuple[float, PastJob]]) -> set[float]:
    """The similarities of the models most alike: several batch sizes of one model count as one."""
    return set(sorted({alike for alike, _p in rows}, reverse=True)[:MOST_ALIKE])


def _line(measured: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Memory by batch size, weighted by similarity; neither may be negative."""
    aa = sum(w * b * b for w, b, _m in measured)
    ab = sum(w * b for w, b, _m in measured)
    bb = sum(w for w, _b, _m in measured)
    return nonnegative(aa, ab, bb, sum(w * b * m for w, b, m in measured), sum(w * m for w, _b, m in measured))


def _positive(value: float | str | None) -> bool:
    return isinstance(value, float | int) and value > 0
