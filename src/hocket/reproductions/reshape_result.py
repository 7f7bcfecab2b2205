"""What one run of Reshape's evaluation leaves behind: enough for its tables and figures, and small."""

from __future__ import annotations

from msgspec import Struct


class Moment(Struct, frozen=True, array_like=True):
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


class Played(Struct, frozen=True):
    """One workload under one approach."""

    workload: int
    unfinished: int
    makespan_s: float
    jcts_s: tuple[float, ...]
    ran_s: float  # of all jobs together
    moments: tuple[Moment, ...]
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
