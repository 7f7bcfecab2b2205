"""Which speeds a workload's jobs really have: `law:0.05`, `power:0.8`, `linear`, or `gavel:PATH`."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from hocket.workloads.errors import WorkloadError, did_you_mean, shown
from hocket.workloads.gavel import read_gavel
from hocket.workloads.options import split_options
from hocket.workloads.rules import TEXT
from hocket.workloads.scaling import ScalingLaw, parse_law
from hocket.workloads.truth import Submission, Workload


class Speeds(Protocol):
    """Gives every job of a workload its true speeds."""

    def apply(self, workload: Workload, seed: int = 0) -> Workload:
        """The same workload with these speeds, whatever it had before."""
        ...

    def words(self, seed: int = 0) -> str:
        """What is assumed, to be printed beside every result that rests on it."""
        ...


class LawSpeeds(Struct, frozen=True):
    """One scaling law for all jobs, on every kind of GPU."""

    law: ScalingLaw

    def apply(self, workload: Workload, seed: int = 0) -> Workload:  # noqa: ARG002
        """The law has no dice; the seed is for those that do."""
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
