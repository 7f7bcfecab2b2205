"""Waiting jobs by how long they are believed to need: who is brief enough is found without looking at all others.

Kept from one decision to the next (`spare.py`): only jobs that changed since are looked at.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from math import inf

from hocket.model.capacity import Shape, shape_of
from hocket.model.snapshot import Snapshot
from hocket.model.versioned import VersionedMap
from hocket.model.view import JobView
from hocket.policies.kit.believed import depends_on_place, left_s

_Entry = tuple[float, int, str]  # what it needs, number, job


class Brief:
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
        """Those of a shape that need no longer; None if there are more than so many."""
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
    return view.costs.prepare_s + view.costs.start_s + least_s
