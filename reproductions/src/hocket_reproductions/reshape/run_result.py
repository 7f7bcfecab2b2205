"""The result of one run of Reshape's evaluation: which jobs wait, run and are resized when."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from hocket.control.ports import Cycle
from hocket.model.event import JobEnded, JobResized, JobStarted, JobSubmitted
from hocket.model.partition import Partition


class ReshapeMoment(Struct, frozen=True, array_like=True):
    """How things stand from this moment on, by plan."""

    at_s: float
    pending: int  # jobs without GPUs
    running: int
    gpus: int
    submitted: int = 0  # jobs that came in this moment


class Adjustment(Struct, frozen=True, array_like=True):
    """GPUs were added to a job, or removed."""

    at_s: float
    gpus: int  # below 0: removed
    took_s: float  # without training


class ReshapeRun(Struct, frozen=True):
    """One workload under one approach."""

    workload: int
    unfinished: int
    makespan_s: float
    jcts_s: tuple[float, ...]
    ran_s: float  # of all jobs together
    moments: tuple[ReshapeMoment, ...]
    adjustments: tuple[Adjustment, ...]

    @property
    def jct_mean_s(self) -> float:
        """Mean job completion time."""
        return sum(self.jcts_s) / len(self.jcts_s)

    @property
    def overhead(self) -> float:
        """Time spent on adding and removing GPUs, of all run time."""
        return sum(a.took_s for a in self.adjustments) / self.ran_s if self.ran_s else 0.0

    @property
    def added(self) -> int:
        """How often GPUs were added to a job."""
        return sum(a.gpus > 0 for a in self.adjustments)

    @property
    def removed(self) -> int:
        """How often GPUs were removed from a job."""
        return sum(a.gpus < 0 for a in self.adjustments)

    @property
    def pending_at_last(self) -> int:
        """Jobs without GPUs once the last submission was decided on."""
        last = max(m.at_s for m in self.moments if m.submitted)
        return next(m.pending for m in reversed(self.moments) if m.at_s == last)


def retold(cycles: Iterable[Cycle]) -> tuple[tuple[ReshapeMoment, ...], tuple[Adjustment, ...]]:
    """The run over time: jobs that wait and run by plan, on how many GPUs; and every resize with its cost."""
    live: dict[str, JobSubmitted] = {}
    planned: dict[str, Partition] = {}
    held: dict[str, Partition] = {}
    moments: list[ReshapeMoment] = []
    adjustments: list[Adjustment] = []
    for cycle in cycles:
        came = 0
        for event in cycle.events:
            match event:
                case JobSubmitted():
                    live[event.job.id] = event
                    came += 1
                case JobStarted(job=job):
                    held[job] = planned[job]
                case JobResized(job=job):
                    adjustments.append(_adjustment(event.at_s, live[job], held[job], planned[job]))
                    held[job] = planned[job]
                case JobEnded(job=job):
                    live.pop(job, None)
                    planned.pop(job, None)
                    held.pop(job, None)
                case _:
                    pass
        if cycle.plan is not None and not cycle.refused:
            for partition in cycle.plan.put:
                planned[partition.tenants[0].job] = partition
        gpus = sum(p.gpus for p in planned.values())
        now = ReshapeMoment(cycle.at_s, len(live) - len(planned), len(planned), gpus, came)
        if not moments or came or replace(moments[-1], at_s=now.at_s, submitted=0) != now:
            moments.append(now)
    return tuple(moments), tuple(adjustments)


def _adjustment(at_s: float, of: JobSubmitted, was: Partition, now: Partition) -> Adjustment:
    nodes = {part.node for part in was.slices}
    at_home = all(part.node in nodes for part in now.slices)
    return Adjustment(at_s, now.gpus - was.gpus, of.costs.restart_s(of.job.warm and at_home))
