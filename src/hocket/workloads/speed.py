"""Which speeds a workload's jobs really have: `law:0.05`, `power:0.8`, `linear`, or `gavel:PATH`.

    law:c      speed(n) = n / (1 + c (n - 1))   each further replica adds a share c to a step
    power:p    speed(n) = n ** p
    linear     speed(n) = n                     the same as law:0 and power:1

Speeds are relative to one replica; a curve is relative to the job's reference size.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.curve import Curve, Point
from hocket.workloads.errors import WorkloadError, did_you_mean, shown
from hocket.workloads.fields import TEXT, BrokenRuleError, Number, split_options
from hocket.workloads.gavel import read_gavel
from hocket.workloads.truth import Submission, Workload


class ScalingLaw(Struct, frozen=True):
    """Speed by size."""

    shape: Literal["law", "power", "linear"] = "law"
    parameter: float = 0.0  # from 0 to 1; `linear` has none

    def speed(self, size: int) -> float:
        """Relative to one replica."""
        if self.shape == "law":
            return size / (1 + self.parameter * (size - 1))
        return float(size**self.parameter) if self.shape == "power" else float(size)

    def curve(self, sizes: Iterable[int], reference_size: int) -> Curve:
        """Speed at each size, 1 at the reference size. Equal jobs share one curve."""
        return _curve(self, tuple(sizes), reference_size)

    def __str__(self) -> str:
        return self.shape if self.shape == "linear" else f"{self.shape}:{self.parameter:g}"


# What elastic jobs of generators and traces follow by default: 1.9 at 2, 3.5 at 4, 5.9 at 8.
USUAL_LAW = ScalingLaw("law", 0.05)


def parse_law(text: str) -> ScalingLaw:
    """`law:0.05`, `power:0.8` or `linear`."""
    shape, colon, parameter = text.partition(":")
    if shape == "linear" and not colon:
        return ScalingLaw("linear")
    if shape not in ("law", "power"):
        raise WorkloadError(f"speeds must be law:C, power:P or linear, not {shown(text)}")
    try:
        value = Number(high=1.0).of_text(parameter)
    except BrokenRuleError:
        raise WorkloadError(
            f"speeds {shown(text)}: {shape} must have a number from 0 to 1, not {shown(parameter)}"
        ) from None
    return ScalingLaw("law" if shape == "law" else "power", value)


@lru_cache(maxsize=4096)
def _curve(law: ScalingLaw, sizes: tuple[int, ...], reference_size: int) -> Curve:
    unit = law.speed(reference_size)
    return Curve(tuple(Point(float(n), law.speed(n) / unit) for n in sorted({*sizes, reference_size})))


class Speeds(Protocol):
    """Sets the true speeds of all jobs of a workload."""

    def apply(self, workload: Workload, seed: int = 0) -> Workload:
        """The same workload with these speeds instead of its own."""
        ...

    def words(self, seed: int = 0) -> str:
        """The assumptions, printed with every result that depends on them."""
        ...


class LawSpeeds(Struct, frozen=True):
    """One scaling law for all jobs, on every kind of GPU."""

    law: ScalingLaw

    def apply(self, workload: Workload, seed: int = 0) -> Workload:  # noqa: ARG002
        """A law does not use the seed."""
        return replace(workload, submissions=tuple(self._one(s) for s in workload.submissions))

    def words(self, seed: int = 0) -> str:  # noqa: ARG002
        """The law in words."""
        return f"speeds by the scaling law {self.law}, the same for every job"

    def __str__(self) -> str:
        return str(self.law)

    def _one(self, submission: Submission) -> Submission:
        job, truth = submission.job, submission.truth
        if job.sizes == (truth.reference_size,) and truth.speed is None:
            return submission  # It has one size, and so one speed.
        return replace(submission, truth=replace(truth, speed=self.law.curve(job.sizes, truth.reference_size)))


def parse_speeds(text: str) -> Speeds:
    """`law:C`, `power:P`, `linear`, or `gavel:PATH`, with `?reference=p100` if run times are of that kind."""
    kind, _, rest = text.partition(":")
    if kind == "gavel":
        path, options = split_options(rest, f"speeds {shown(text)}")
        if not path:
            raise WorkloadError(f"speeds {shown(text)}: gavel must be followed by a path, as gavel:PATH")
        reference = options.read("reference", TEXT, "v100")
        options.finish()
        return read_gavel(path, reference)
    if kind not in ("law", "power", "linear"):
        hint = did_you_mean(kind, ("law", "power", "linear", "gavel"))
        raise WorkloadError(f"speeds must be law:C, power:P, linear or gavel:PATH, not {shown(text)}{hint}")
    return LawSpeeds(parse_law(text))
