"""The next run of a job, standing warm beside the present one, so that a change of its size or place takes no time.

A job that may be prepared and has several sizes always has one: it is prepared as soon as the present run has started,
takes over when that has saved and left, and stands without devices until then. How many workers it will be, and which
devices they get, is said at the hand-over. What is known here is only what was heard: an agent that is asked to prepare
what stands already says again that it does.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from hocket.agent.protocol import Report, RunKey
from hocket.model.view import JobView


class ResizeBy(StrEnum):
    """How a job changes its size or place."""

    EARLY = "early"  # its next run is prepared while the present one trains
    TERMINATE = "terminate"  # nothing is prepared: it is stopped, and started cold


def keeps_standby(view: JobView) -> bool:
    """Whether the job is worth a process that stands by: it can be prepared, and its size may change."""
    return view.job.warm and len(view.job.sizes) > 1


def was_let_go(gone: Report) -> bool:
    """Whether a run stood ready, and was asked to leave before it had begun: it has neither exit code nor signal."""
    fields = gone.fields
    left = gone.event == "exited" and bool(fields.get("asked"))
    return left and fields.get("code") is None and fields.get("signal") is None


class StandbyRuns:
    """What was heard of runs that are prepared, and which jobs wait for theirs before they leave."""

    def __init__(self) -> None:
        self.awaited: set[str] = set()  # jobs that shall leave their place, and train on until the next run is ready
        self._ready: dict[RunKey, set[str]] = {}  # by node
        self._left: set[RunKey] = set()  # runs that have left for the next one

    def prepared(self, run: RunKey, node: str) -> None:
        """A node's agent says that a run stands ready there, or has to be started cold."""
        self._ready.setdefault(run, set()).add(node)

    def is_ready(self, run: RunKey, nodes: Iterable[str]) -> bool:
        """Whether it is ready on all of these nodes."""
        return self._ready.get(run, set()).issuperset(nodes)

    def nodes(self, run: RunKey) -> list[str]:
        """Where it stands."""
        return sorted(self._ready.get(run, ()))

    def left(self, run: RunKey) -> None:
        """It is no more, so that the next one holds what the job has."""
        self._left.add(run)

    def has_left(self, run: RunKey) -> bool:
        """Whether the next run holds what the job has."""
        return run in self._left

    def forget(self, job_id: str) -> None:
        """The job is over, or its next run has another number now."""
        self.awaited.discard(job_id)
        self._left = {run for run in self._left if run.job != job_id}
        for run in [run for run in self._ready if run.job == job_id]:
            del self._ready[run]
