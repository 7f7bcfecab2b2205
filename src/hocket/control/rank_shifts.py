"""When the rank of a running job changes by time alone, as a policy's `shifts` says."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from heapq import heappop, heappush
from math import inf

from msgspec.structs import replace

from hocket.model.partition import Holding
from hocket.model.view import JobView

# (view, now) → when the job's rank changes next, if its resources stay the same.
Shifts = Callable[[JobView, float], float | None]


class RankShifts:
    """For each running job, the next time at which its rank changes."""

    __slots__ = ("_computed_for", "by_job", "heap", "of_policy")

    def __init__(self, shifts: Shifts) -> None:
        self.of_policy = shifts
        self.by_job: dict[str, float] = {}  # job → its next time; none for an ended job
        self.heap: list[tuple[float, str]] = []  # every (time, job) of `by_job`, and outdated ones
        # Job told to start → the (since_s, gpus) for which its time was computed; saves computing it again.
        self._computed_for: dict[str, tuple[float, int]] = {}

    def schedule(self, view: JobView, now_s: float) -> None:
        """Compute the job's next time."""
        at_s, job_id = self.of_policy(view, now_s), view.job.id
        if at_s is not None and self.by_job.get(job_id) != at_s:
            self.by_job[job_id] = at_s
            heappush(self.heap, (at_s, job_id))

    def schedule_start(self, view: JobView, to: Holding, now_s: float) -> None:
        """The job is told to start: if that takes no time, its rank may change before its start is reported."""
        gpus = to.gpus
        self.schedule(replace(view, size=to.size, gpus=gpus, since_s=now_s), now_s)
        self._computed_for[view.job.id] = (now_s, gpus)

    def reschedule(self, view: JobView, now_s: float) -> None:
        """Something about the running job changed: compute its next time, unless this start was expected."""
        if self._computed_for.pop(view.job.id, None) != (view.since_s, view.gpus):
            self.schedule(view, now_s)

    def memo_changed(self, job_id: str) -> None:
        """The time may depend on the job's memo: compute it again when the job starts."""
        self._computed_for.pop(job_id, None)

    def forget(self, job_id: str) -> None:
        """The job has ended."""
        self.by_job.pop(job_id, None)
        self._computed_for.pop(job_id, None)

    def is_past(self, job_id: str, now_s: float) -> bool:
        """Has the job's time come?"""
        return self.by_job.get(job_id, inf) <= now_s

    def next_s(self) -> float | None:
        """The earliest time of all jobs."""
        heap, current = self.heap, self.by_job
        while heap:
            at_s, job_id = heap[0]
            if current.get(job_id) == at_s:
                return at_s
            heappop(heap)  # Outdated: the job has ended, or something about it changed since.
        return None

    def due(self, now_s: float) -> Iterator[str]:
        """The jobs whose time has come; each is removed from the heap."""
        heap = self.heap
        while heap and heap[0][0] <= now_s:
            at_s, job_id = heappop(heap)
            if self.by_job.get(job_id) == at_s:
                del self.by_job[job_id]
                yield job_id

    def drop_ended(self, live: Container[str]) -> None:
        """Drop times of ended jobs: those far ahead would stay for long."""
        self.heap = sorted({moment for moment in self.heap if moment[1] in live})
