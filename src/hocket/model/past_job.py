"""Jobs that have ended, as far as estimates for other jobs rest on them."""

from __future__ import annotations

from math import inf, isfinite

from msgspec import Struct

from hocket.model.job import Job, Kind

MAX_PAST_JOBS = 512  # kept; the oldest are forgotten first
MAX_POINTS = 64  # of one job's curve


class PastJob(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """What an ended job has shown. A unit is an epoch of training, or all the data of a query."""

    kind: Kind = Kind.TRAINING  # what sort of work it was
    model: str = ""  # name of its model, or of its query; empty: it was not said
    traits: dict[str, float | str] = {}  # data set, optimiser, batch_size, learning_rate, parameters and others
    metric: str = ""  # name of the metric in `points`; empty: it reported none
    points: tuple[tuple[float, float], ...] = ()  # (units done, value of the metric), by ascending units
    unit_s: float = 0.0  # seconds of work of a unit, at its reference size; 0: unknown
    mem_mib: float = 0.0  # the most memory that it used, of a GPU or, without GPUs, of the machine; 0: unknown
    # For how often estimates hold: between which probabilities its truth lay, each time that it was foretold.
    foretold: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        name = f"past job '{self.model or '(no model)'}'"
        if len(self.points) > MAX_POINTS:
            raise ValueError(f"{name} has {len(self.points)} points, at most {MAX_POINTS} are kept")
        last = 0.0
        for units, value in self.points:
            if not last < units < inf:
                raise ValueError(f"{name}: units must be finite, positive and ascending, not {units:g} after {last:g}")
            if not isfinite(value):
                raise ValueError(f"{name}: the {self.metric or 'metric'} at {units:g} must be finite, not {value:g}")
            last = units
        if self.points and not self.metric:
            raise ValueError(f"{name} has points, and names no metric")
        for field in ("unit_s", "mem_mib"):
            if not 0 <= getattr(self, field) < inf:
                raise ValueError(f"{name}: {field} must be finite and at least 0, not {getattr(self, field):g}")
        for trait, number in self.traits.items():
            if isinstance(number, float | int) and not isfinite(number):
                raise ValueError(f"{name}: trait '{trait}' must be finite, not {number:g}")


class PastJobs(Struct, frozen=True, gc=False):
    """All that are kept, the oldest first, and how estimates that rest on them are to be corrected."""

    jobs: tuple[PastJob, ...] = ()  # at most MAX_PAST_JOBS
    correction: tuple[float, ...] = ()  # at equally spaced probabilities, how often they came true; empty: as they are


NO_PAST_JOBS = PastJobs()


def similarity(job: Job | PastJob, past: PastJob) -> float:
    """How alike two jobs are, from 0 to 1: the mean over model and traits; jobs of other kinds are not alike at all.

    Numbers are as alike as Rotary has it, 1 - |x - y| / max(x, y); categories are alike if they are the same. What only
    one of them states counts as different.
    """
    if job.kind is not past.kind:
        return 0.0
    found = [float(job.model == past.model)] if job.model or past.model else []
    for trait in job.traits.keys() | past.traits.keys():
        found.append(_alike(job.traits.get(trait), past.traits.get(trait)))
    return sum(found) / len(found) if found else 0.0


def _alike(x: float | str | None, y: float | str | None) -> float:
    if isinstance(x, float | int) and isinstance(y, float | int):
        most = max(abs(x), abs(y))
        return max(0.0, 1.0 - abs(x - y) / most) if most else 1.0
    return float(x is not None and x == y)


def most_similar(job: Job, past: tuple[PastJob, ...], most: int) -> list[tuple[float, PastJob]]:
    """So many past jobs that are most alike, each with its similarity; of equals the latest."""
    ranked = [(similarity(job, p), n, p) for n, p in enumerate(past)]
    ranked = sorted((r for r in ranked if r[0] > 0), key=lambda r: (-r[0], -r[1]))
    return [(alike, p) for alike, _n, p in ranked[:most]]
