"""What users are told about their jobs: how they ended, attempts that failed and are repeated, pauses by the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum

import msgspec
from msgspec import Struct

from hocket.control.ports import Cycle
from hocket.model.event import Event, JobEnded, JobFailed, JobPaused, NodeLost
from hocket.service.names import name_and_number
from hocket.service.record import Record


class NotifyEvent(StrEnum):
    """What users are told of."""

    END = "end"  # the job is over
    RETRY = "retry"  # an attempt failed or lost its node, and another one will follow
    PAUSE = "pause"  # the policy paused the job, or its node is drained


class Notification(Struct, frozen=True):
    """One thing that happened to a job, as it is sent."""

    id: str  # the same if it is sent again, so that a receiver can tell
    job: str  # id of the job
    name: str
    owner: str
    event: NotifyEvent
    state: str  # the verdict of a job that is over; else waiting or paused
    reason: str  # in words
    text: str  # all of it in one sentence; what webhooks of chats show
    exit_code: int | None  # of its process, as a shell has it; None if not known
    attempt: int  # number of its last attempt, as in `hocket show`
    epoch: int
    step: int
    metrics: dict[str, float]  # the last value of each
    nodes: list[str]  # on which it was placed last
    at_s: float  # when it happened, in seconds since 1970, as all times here
    submitted_s: float
    started_s: float | None  # first start; None if it never ran
    ended_s: float | None  # None while it is live
    ran_s: float  # seconds that it has run

    def environment(self) -> dict[str, str]:
        """The notification as environment variables of a command."""
        return {
            "HOCKET_NOTIFICATION": self.id,
            "HOCKET_JOB": self.job,
            "HOCKET_NAME": self.name,
            "HOCKET_OWNER": self.owner,
            "HOCKET_EVENT": str(self.event),
            "HOCKET_STATE": self.state,
            "HOCKET_REASON": self.reason,
            "HOCKET_TEXT": self.text,
            "HOCKET_EXIT_CODE": "" if self.exit_code is None else str(self.exit_code),
            "HOCKET_ATTEMPT": str(self.attempt),
            "HOCKET_METRICS": msgspec.json.encode(self.metrics).decode(),
        }


def notifications(
    number: int, cycle: Cycle, records: dict[str, Record], find: Callable[[str], Record | None]
) -> Iterator[tuple[Record, Notification]]:
    """What a cycle, already taken in by the catalogue, means to users; `records` are those of live jobs.

    `find` gives the record of any job. `number` is the cycle's in the journal.
    """
    for index, event in enumerate(cycle.events):
        if isinstance(event, NodeLost):
            how = f"lost its node '{event.node}'"
            for lost in list(records.values()):
                if any(t.how == how and t.ended_s == cycle.at_s for t in lost.tries):
                    name = f"{number}.{index}.{lost.number}"
                    yield lost, _notification(name, lost, NotifyEvent.RETRY, "waiting", how, cycle.at_s)
        elif isinstance(event, JobEnded | JobFailed | JobPaused) and (record := find(event.job)) is not None:
            told = _of_event(f"{number}.{index}", event, record, cycle.at_s)
            if told is not None:
                yield record, told


def _of_event(name: str, event: Event, record: Record, at_s: float) -> Notification | None:
    match event:
        case JobEnded(_, _, verdict, reason, at_exit):
            code = 0 if verdict == "finished" or at_exit else None
            return _notification(name, record, NotifyEvent.END, verdict, reason or record.reason, at_s, code)
        case JobFailed(_, _, reason, True, _, code):
            return _notification(name, record, NotifyEvent.END, "failed", reason, at_s, code)
        case JobFailed(_, _, reason, False, _, code):
            return _notification(name, record, NotifyEvent.RETRY, "waiting", reason, at_s, code)
        case JobPaused() if record.held is None or not record.held.is_paused:
            return _notification(name, record, NotifyEvent.PAUSE, "paused", _pause_reason(record, at_s), at_s)
    return None


def _pause_reason(record: Record, at_s: float) -> str:
    """Why the policy paused it; the same cycle may have given it a place again, for another reason."""
    lines = list(record.lines)
    paused = max((n for n, line in enumerate(lines) if line.what == "paused" and line.at_s == at_s), default=None)
    for line in reversed(lines[:paused] if paused is not None else ()):
        if line.what == "decided":
            return line.reason
        if line.what in ("given a place", "started"):
            break
    return record.reason


def _notification(
    name: str, record: Record, event: NotifyEvent, state: str, reason: str, at_s: float, code: int | None = None
) -> Notification:
    job = record.job
    said = {NotifyEvent.END: state, NotifyEvent.RETRY: "failed and is tried again", NotifyEvent.PAUSE: "is paused"}
    text = f"job '{job.id}'{f' of {job.owner}' if job.owner else ''}: {said[event]}"
    why = reason.removeprefix(f"{state}: ")
    return Notification(
        name, job.id, name_and_number(job.id)[0], job.owner, event, state, reason,
        f"{text} ({why})" if why and why != state else text,
        code, record.attempts, record.epoch, record.step, record.metrics, record.nodes,
        at_s, record.submitted_s, record.started_s, at_s if event is NotifyEvent.END else None,
        round(record.ran_at(at_s), 3),
    )  # fmt: skip
