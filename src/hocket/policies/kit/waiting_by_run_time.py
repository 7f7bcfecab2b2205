"""Waiting jobs by how long they are believed to need: those that are brief are found without a look at all others.

Kept from one decision to the next (`decision_cache.py`): only jobs that changed since are looked at.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from math import inf

from hocket.model.capacity import Shape, shape_of
from hocket.model.snapshot import Snapshot
from hocket.model.versioned import VersionedMap
from hocket.model.view import JobView
from hocket.policies.kit.decision_cache import borrow
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.remaining_time import cold_start_s, depends_on_place, left_s

_Entry = tuple[float, int, str]  # what it needs, number, job
_FEW = 200  # jobs of a shape that are put back in line one by one
_ROUNDING_S = 1e-3


class WaitingByRunTime:
    """The waiting jobs of each shape, the briefest first."""

    __slots__ = ("_by_shape", "_entries", "_jobs")

    def __init__(self) -> None:
        self._jobs: VersionedMap[str, JobView] | None = None  # whose order this is
        self._entries: dict[str, tuple[Shape, _Entry]] = {}
        self._by_shape: dict[Shape, list[_Entry]] = {}

    def follow(self, snapshot: Snapshot) -> None:
        """Be the order of this snapshot's waiting jobs."""
        jobs = snapshot.jobs
        if jobs is self._jobs:
            return
        changed: Iterable[str] | None = jobs.changed_since(self._jobs) if self._jobs is not None else None
        self._jobs, views = jobs, jobs.data()
        if changed is None:
            self._entries, self._by_shape, changed = {}, {}, views
        for job_id in changed:
            before = self._entries.pop(job_id, None)
            if before is not None:
                shape, entry = before
                entries = self._by_shape[shape]
                del entries[bisect_left(entries, entry)]
            view = views.get(job_id)
            if view is not None and not view.partitions and not view.held:
                shape, entry = shape_of(view.job), (needs_s(view), view.number, job_id)
                self._entries[job_id] = (shape, entry)
                insort(self._by_shape.setdefault(shape, []), entry)

    def within(self, shape: Shape, most_s: float, most: int) -> list[_Entry] | None:
        """Those of a shape that need no longer than that; None if there are more than so many."""
        entries = self._by_shape.get(shape, [])
        end = bisect_right(entries, (most_s, inf))
        return entries[:end] if end <= most else None


def needs_s(view: JobView) -> float:
    """The least that a waiting job is believed to need from now on, whenever that is: to start, and to its end.

    None of it if that depends on where it will be, or if it still runs and gets on meanwhile.
    """
    if view.size or depends_on_place(view):
        return 0.0
    least_s = min(left_s(view, 0.0, size, 1.0) for size in view.job.sizes)
    return cold_start_s(view) + least_s


def keep_brief_in_line(draft: Draft, view: JobView, within_s: float) -> None:
    """Of the jobs behind this one, and of its shape, leave only those in line that need no longer than that.

    To find them one by one would take as long as the line is; so would putting them back, if they are many.
    """
    snapshot = draft.snapshot
    with borrow((WaitingByRunTime, snapshot.capacity.layout), WaitingByRunTime) as waiting:
        waiting.follow(snapshot)
        found = waiting.within(shape_of(view.job), within_s + _ROUNDING_S, _FEW)
    if found is not None:
        draft.pass_over(view)
        for _needs_s, number, job_id in found:
            other = snapshot.jobs[job_id]
            if (other.rank, number) > (view.rank, view.number):
                draft.requeue(other)
