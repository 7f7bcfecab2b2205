"""Which jobs held which GPUs lately, from when to when: the attempts of live jobs, and of those that ended last."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock

from msgspec import Struct
from msgspec.structs import replace

from hocket.service.record import AttemptRecord, Record
from hocket.service.tokens import Token
from hocket.service.visibility import sees_all_rows

_MOST = 5_000  # ended jobs that are remembered


class HeldGpus(Struct, frozen=True, gc=False):
    """One attempt of a job, and the GPUs that it had."""

    job: str
    owner: str
    attempt: int
    size: int
    gpus: list[str]
    from_s: float
    until_s: float | None  # None while it runs
    how: str  # how it ended


class GpuHistory:
    """Remembers ended jobs from when it is made on; `ended_before` gives records of earlier ones, and is asked once."""

    def __init__(self, ended_before: Callable[[int], Iterable[Record]]) -> None:
        """`ended_before` is given how many are wanted."""
        self._ended_before: Callable[[int], Iterable[Record]] | None = ended_before
        self._over: dict[str, list[HeldGpus]] = {}  # by job, the last that ended last
        self._lock = Lock()  # around changes of it

    def add_changes(self, changed: Iterable[Record]) -> None:
        """Take in jobs that have changed. For the controller's thread."""
        ended = [record for record in changed if record.ended_s is not None]
        if ended:
            with self._lock:
                self._over.update({record.job.id: held_by(record) for record in ended})
                self._forget()

    def since(self, since_s: float, live: Iterable[Record], token: Token) -> list[HeldGpus]:
        """What was held at some time after that, as the caller of this token may see it. For any thread."""
        if (ended_before := self._ended_before) is not None:
            before = {r.job.id: held_by(r) for r in ended_before(_MOST) if r.ended_s is not None}
            with self._lock:
                self._ended_before = None
                self._over = before | self._over
                self._forget()
        with self._lock:
            over = dict(self._over)
        by_job = over | {record.job.id: held_by(record) for record in live}
        found = [h for held in by_job.values() for h in held if h.until_s is None or h.until_s > since_s]
        if sees_all_rows(token):
            return found
        return [h if token.owns(h.owner) else replace(h, how="") for h in found]

    def _forget(self) -> None:
        for job_id in list(self._over)[: max(0, len(self._over) - _MOST)]:
            del self._over[job_id]


def held_by(record: Record) -> list[HeldGpus]:
    """The attempts of a job that ran on GPUs."""
    return [_held(record, attempt) for attempt in list(record.tries) if attempt.started_s is not None and attempt.gpus]


def _held(record: Record, attempt: AttemptRecord) -> HeldGpus:
    job, from_s = record.job, attempt.started_s or 0.0
    return HeldGpus(job.id, job.owner, attempt.number, attempt.size, attempt.gpus, from_s, attempt.ended_s, attempt.how)
