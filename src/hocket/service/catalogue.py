"""All jobs there ever were, by the journal's cycles: what became of each, and why, in words."""

from __future__ import annotations

from collections import deque
from typing import Any

from msgspec import Struct

from hocket.control.ports import Cycle
from hocket.model.event import (
    EpochEnded,
    Event,
    JobAsked,
    JobEnded,
    JobFailed,
    JobMoved,
    JobPaused,
    JobResized,
    JobStarted,
    JobSubmitted,
    NodeLost,
    ProgressReported,
)
from hocket.model.job import Job

_REMEMBERED = 100  # lines about one job


class Line(Struct, frozen=True, gc=False):
    """Something that happened to a job."""

    at_s: float
    what: str
    reason: str = ""


class Record(Struct, eq=False):
    """One job."""

    job: Job
    submitted_s: float
    started_s: float | None = None
    ended_s: float | None = None
    verdict: str = ""
    reason: str = ""
    attempts: int = 0
    epoch: int = 0
    metrics: dict[str, float] = {}
    ran_s: float = 0.0
    runs_since_s: float | None = None
    nodes: frozenset[str] = frozenset()  # where the plan last had it
    lines: deque[Line] = deque()

    def ran_at(self, now_s: float) -> float:
        """Seconds it has run."""
        return self.ran_s + (now_s - self.runs_since_s if self.runs_since_s is not None else 0.0)

    def waited_at(self, now_s: float) -> float:
        """Seconds it has not."""
        until_s = self.ended_s if self.ended_s is not None else now_s
        return max(0.0, until_s - self.submitted_s - self.ran_at(until_s))


class Catalogue:
    """The records by id, in the order of submission."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.queue_reason = ""  # what was last said to all who wait

    def see(self, cycle: Cycle) -> list[str]:
        """Take in a cycle; gives the jobs that it changed."""
        changed: dict[str, None] = {}
        for event in cycle.events:
            self._fold(event, cycle.at_s, changed)
        if cycle.plan is not None and not cycle.refused:
            self.queue_reason = cycle.plan.reasons.get("*", "")
            placed: set[str] = set()
            for partition in cycle.plan.put:
                for tenant in partition.tenants:
                    placed.add(tenant.job)
                    if (record := self.records.get(tenant.job)) is not None:
                        record.nodes = frozenset(part.node for part in partition.slices)
            for job_id, reason in cycle.plan.reasons.items():
                record = self.records.get(job_id)
                if record is not None and record.reason != reason:
                    record.reason = reason
                    self._note(record, cycle.at_s, "given a place" if job_id in placed else "decided", reason)
                    changed[job_id] = None
        return list(changed)

    def learn(self, job_id: str, reason: str) -> None:
        """Take over what the state says of a live job, such as why it is being ended."""
        record = self.records.get(job_id)
        if record is not None and reason:
            record.reason = reason

    def _fold(self, event: Event, at_s: float, changed: dict[str, None]) -> None:
        if isinstance(event, JobSubmitted):
            new = Record(event.job, at_s, lines=deque(maxlen=_REMEMBERED))
            self.records[event.job.id] = new
            self._note(new, at_s, "submitted")
            changed[event.job.id] = None
            return
        job_id = getattr(event, "job", None)
        record = self.records.get(job_id) if isinstance(job_id, str) else None
        if record is None:
            if isinstance(event, NodeLost):
                self._lose(event.node, at_s, changed)
            return
        changed[record.job.id] = None
        match event:
            case JobStarted() | JobResized() | JobMoved():
                self._stand_still(record, at_s)
                record.runs_since_s = at_s
                record.started_s = at_s if record.started_s is None else record.started_s
                record.attempts += 1
                self._note(record, at_s, type(event).__name__.removeprefix("Job").lower())
            case JobPaused():
                self._stand_still(record, at_s)
                self._note(record, at_s, "paused")
            case JobFailed(_, _, reason, final):
                self._stand_still(record, at_s)
                record.reason = reason
                self._note(record, at_s, "failed for good" if final else "failed", reason)
                if final:
                    record.ended_s, record.verdict = at_s, "failed"
            case JobEnded(_, _, verdict):
                self._stand_still(record, at_s)
                record.ended_s, record.verdict = at_s, verdict
                record.reason = record.reason if verdict != "finished" else "finished by itself"
                self._note(record, at_s, verdict)
            case JobAsked(_, _, wish, by):
                self._note(record, at_s, f"asked to {wish}", f"by {by}" if by else "")
            case EpochEnded(_, _, epoch, metrics) | ProgressReported(_, _, epoch, metrics):
                record.epoch = max(record.epoch, epoch)
                record.metrics = {**record.metrics, **metrics}

    def _lose(self, node: str, at_s: float, changed: dict[str, None]) -> None:
        """Whoever ran there runs no more."""
        for record in self.records.values():
            if record.runs_since_s is not None and node in record.nodes:
                self._stand_still(record, at_s)
                self._note(record, at_s, "lost its node", f"'{node}'")
                changed[record.job.id] = None

    def _stand_still(self, record: Record, at_s: float) -> None:
        if record.runs_since_s is not None:
            record.ran_s += at_s - record.runs_since_s
            record.runs_since_s = None

    def _note(self, record: Record, at_s: float, what: str, reason: str = "") -> None:
        record.lines.append(Line(at_s, what, reason))


def lines_of(record: Record) -> list[dict[str, Any]]:
    """What happened to a job, oldest first, as plain data."""
    return [{"at_s": line.at_s, "what": line.what, "reason": line.reason} for line in list(record.lines)]
