"""The options of all traces: which jobs are taken, and how dense they arrive.

    first=N              the first N of the jobs that the other options select
    vc=A;B               jobs of these owners (`owner=` for files with that name)
    from=T & to=T        jobs that arrive from one time until before another; times are then relative to `from`
    scale-arrivals=X     multiplies every gap between arrivals by X: 0.5 doubles the load
    elastic=yes          every power of two up to twice a job's size is allowed too, at speeds of law:0.05

They are applied in this order: owners, window, first, arrivals.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from hocket.workloads.errors import WorkloadError, did_you_mean, plain, shown
from hocket.workloads.fields import TEXT, Fields, Number, Seconds, Whole
from hocket.workloads.speed import USUAL_LAW
from hocket.workloads.truth import Submission, Workload


class Selection(Struct, frozen=True):
    """The selected jobs of a trace."""

    first: int | None = None
    owners: tuple[str, ...] | None = None  # None for all; an owner may be ""
    owner_option: str = "owner"  # what the owner is called in this trace
    from_s: float = 0.0
    to_s: float | None = None
    scale_arrivals: float = 1.0
    elastic: bool = False

    @property
    def rows(self) -> int | None:
        """How many rows of the file are enough, if that is known before reading them."""
        whole = self.owners is None and not self.from_s and self.to_s is None
        return self.first if whole else None

    def of(self, submissions: Sequence[Submission], path: str) -> tuple[Submission, ...]:
        """The selected jobs in the order of time; an error if there are none."""
        left = list(submissions)
        if self.owners is not None:
            left = self._of_owners(left, path)
        if self.from_s or self.to_s is not None:
            end_s = self.to_s if self.to_s is not None else float("inf")
            left = [s for s in left if self.from_s <= s.at_s < end_s]
            if not left:
                last_s = max(s.at_s for s in submissions)
                raise WorkloadError(
                    f"{plain(path)}: from and to must keep at least one job, and none arrives from {self.from_s:g} "
                    f"until before {end_s:g} s (the last at {last_s:g} s)"
                )
        left = left[: self.first]
        if self.from_s or self.scale_arrivals != 1.0:
            left = [replace(s, at_s=(s.at_s - self.from_s) * self.scale_arrivals) for s in left]
        if self.elastic:
            left = [stretch(s) for s in left]
        left.sort(key=_time)
        return tuple(left)

    def _of_owners(self, submissions: list[Submission], path: str) -> list[Submission]:
        known = {s.job.owner for s in submissions}
        for owner in self.owners or ():
            if owner not in known:
                raise WorkloadError(
                    f"{plain(path)}: {self.owner_option} must be one that the file has, "
                    f"not {shown(owner)}{did_you_mean(owner, sorted(known)[:50])}"
                )
        wanted = frozenset(self.owners or ())
        return [s for s in submissions if s.job.owner in wanted]


def read_selection(options: Fields, owner_option: str = "") -> Selection:
    """The selection that these options state. Does not call `finish`: a trace may have options of its own."""
    selection = Selection(
        first=options.maybe("first", Whole(low=1, high=10**9)),
        owners=options.many(owner_option, TEXT) if owner_option and owner_option in options else None,
        owner_option=owner_option,
        from_s=options.read("from", Seconds(), 0.0),
        to_s=options.maybe("to", Seconds(above=True)),
        scale_arrivals=options.read("scale-arrivals", Number(high=1000.0), 1.0),
        elastic=options.flag("elastic"),
    )
    if selection.to_s is not None and selection.to_s <= selection.from_s:
        options.fail("to", f"must be after from, which is {selection.from_s:g}, not {selection.to_s:g}")
    return selection


def stretch(submission: Submission) -> Submission:
    """The same job, elastic: all powers of two up to twice its size, at the usual law's speeds."""
    job, truth = submission.job, submission.truth
    sizes = elastic_sizes(truth.reference_size)
    speed = USUAL_LAW.curve(sizes, truth.reference_size)
    return Submission(submission.at_s, replace(job, sizes=sizes), replace(truth, speed=speed))


@cache
def elastic_sizes(size: int) -> tuple[int, ...]:
    """Every power of two up to twice a size, and the size itself."""
    powers = {1 << n for n in range((2 * size).bit_length())}
    return tuple(sorted({*powers, size}))


def at_load(workload: Workload, gpus: int, load: float) -> Workload:
    """The same jobs, with arrivals so dense that the work until the last arrival fills this share of the GPUs' time."""
    last_s = max((s.at_s for s in workload.submissions), default=0.0)
    work_s = sum(s.truth.run_s * s.truth.reference_size * s.job.demand.gpus for s in workload.submissions)
    if not (last_s and work_s and gpus > 0 and load > 0):
        raise WorkloadError(
            f"workload {workload.name!r}: load must be above 0, on GPUs, of work that comes over time; "
            f"not {load:g} on {gpus} GPUs of {work_s:g} GPU-seconds over {last_s:g} s"
        )
    factor = work_s / (gpus * last_s * load)
    return replace(workload, submissions=tuple(replace(s, at_s=s.at_s * factor) for s in workload.submissions))


def _time(submission: Submission) -> float:
    return submission.at_s
