"""Columns that are updated from one decision to the next by what changed: of the queue, and of the tasks on every GPU.

Contract: whatever snapshot is followed, and whatever was followed before, the columns are those of that snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from hocket.model.capacity import Capacity, Layout
from hocket.model.job import TaskGraph
from hocket.model.measured import measured_share
from hocket.model.partition import Partition
from hocket.model.snapshot import Snapshot, demand_of
from hocket.model.versioned import Entry, VersionedMap, VersionedQueue
from hocket.model.view import JobView, Use
from hocket.policies.kit.decision_cache import borrow
from hocket.policies.kit.gpu_index import gpu_index_of, is_task_gpu
from hocket.policies.kit.task_shapes import shape_key

if TYPE_CHECKING:
    from typing import Any

    from hocket.policies.kit.task_shapes import Column

LEAST_USE = 0.5  # of what is asked for, however little was measured; what is asked for on a GPU stays below 2 then
_SPARE = 1024  # rows, to begin with


def measured_factor(view: JobView) -> float:
    """How much more or less GPU time than asked for its tasks take, as far as that was measured."""
    share = measured_share(view)
    return 1.0 if share is None else max(LEAST_USE, share)


Needs = tuple[float, ...]  # of a task: GPU load, cores, memory, network
Missing = tuple[tuple[int, Needs], ...]  # tasks of a job that have no GPU, by number, and what they need
MissingLine = tuple[
    tuple[float, str, int], ...
]  # such tasks of many jobs, alike but for their GPU load, the least first


def missing_tasks(view: JobView, places: dict[str, int]) -> Missing:
    """The tasks of a placed job that have no GPU."""
    graph = view.job.tasks
    assert graph is not None
    if len(places) >= len(graph.tasks) and all(t.id in places for t in graph.tasks):
        return ()
    factor, found = measured_factor(view), []
    for k, task in enumerate(graph.tasks):
        if task.id not in places:
            gpu_load, *rest = task.demand.load
            found.append((k, (gpu_load * factor, *rest)))
    return tuple(found)


class QueueColumns:
    """The numbers at the head of waiting jobs' ranks, and the text that follows them, as columns: a row each.

    From one decision to the next only rows of jobs that came or went are touched, so the order of rows says nothing.
    """

    __slots__ = ("_filled", "_last", "_number", "_row", "_table", "_text", "_unused", "entries", "since_s", "texts")

    def __init__(self, numbers: int) -> None:
        import numpy as np

        self.entries: list[Entry] = []  # by row
        self.texts: list[str] = []  # by number; also some that no row has any more
        self._filled: list[int] = []  # by number: how many rows have this text
        self._number: dict[str, int] = {}
        self._unused: list[int] = []  # numbers of texts that no row has, to be given to others
        self._row: dict[str, int] = {}  # job → its row
        self._table: Any = np.empty((numbers + 1, _SPARE))  # the last is that of the submission
        self._text: Any = np.empty(_SPARE, dtype=int)
        self._last: VersionedQueue[Any] | None = None  # the queue that these rows are of
        self.since_s = inf  # when the longest waiting jobs began to wait; a hint for the next search for them

    def follow(self, queue: VersionedQueue[Any]) -> None:
        """Be the rows of this queue."""
        edits = queue.edits_since(self._last) if self._last is not None else None
        self._last = queue
        if edits is None:
            self._clear()
            for entries in queue.buckets().values():
                for entry in entries:
                    self._put(entry)
            return
        for _bucket, entry, is_new in edits:
            if is_new:
                self._put(entry)
            else:
                self._drop(entry[-1])

    def columns(self) -> tuple[Column, Any]:
        """[number, row], and [row] the number of the text. Neither to keep nor to change."""
        n = len(self.entries)
        return self._table[:, :n], self._text[:n]

    def number_of(self, text: str) -> int | None:
        """The number of a text; None if no row has it."""
        return self._number.get(text)

    def present(self) -> Iterable[str]:
        """The texts that there are."""
        return self._number.keys()

    def _clear(self) -> None:
        self.entries, self._row = [], {}
        self.texts, self._filled, self._number, self._unused = [], [], {}, []

    def _put(self, entry: Entry) -> None:
        row = len(self.entries)
        if row == len(self._text):
            self._grow()
        rank, submission, job_id = entry
        *numbers, text = rank
        number = self._number.get(text)
        if number is None:
            number = self._number[text] = self._next_number()
            self.texts[number] = text
        self._filled[number] += 1
        self._table[:, row] = (*numbers, submission)
        self._text[row] = number
        self._row[job_id] = row
        self.entries.append(entry)

    def _next_number(self) -> int:
        if self._unused:
            return self._unused.pop()
        self.texts.append("")
        self._filled.append(0)
        return len(self.texts) - 1

    def _grow(self) -> None:
        import numpy as np

        self._table = np.concatenate([self._table, np.empty_like(self._table)], axis=1)
        self._text = np.concatenate([self._text, np.empty_like(self._text)])

    def _drop(self, job_id: str) -> None:
        """The last row takes its place, so that there is no gap."""
        row, last = self._row.pop(job_id), self.entries.pop()
        number = int(self._text[row])
        self._filled[number] -= 1
        if not self._filled[number]:
            del self._number[self.texts[number]]
            self._unused.append(number)
        if row < len(self.entries):
            self.entries[row] = last
            self._row[last[-1]] = row
            self._table[:, row] = self._table[:, len(self.entries)]
            self._text[row] = self._text[len(self.entries)]


class GpuColumns:
    """Columns by GPU of the tasks that the plan places, and the tasks that placed jobs lack."""

    __slots__ = (
        "_capacity",
        "_graphs",
        "_index",
        "_jobs",
        "_left",
        "_partitions",
        "_plain",
        "_seen",
        "_uses",
        "amounts",
        "last_table",
        "missing",
        "missing_by_rest",
        "places",
        "room",
        "shapes",
        "tenants",
    )  # fmt: skip

    def __init__(self, layout: Layout) -> None:
        import numpy as np

        self._index = gpu_index_of(layout)
        gpus = len(self._index.server_of)
        self._capacity: Capacity | None = None  # that was followed last
        self._partitions: VersionedMap[str, Partition] | None = None  # those that were followed last
        self._jobs: VersionedMap[str, JobView] | None = None
        self.last_table: Any = None  # the table at the end of the last decision
        self._seen: dict[str, Partition] = {}
        self._uses: dict[str, Use | None] = {}  # job → what was measured of it
        self._plain: dict[str, Partition] = {}  # not of tasks
        self.places: dict[str, dict[str, int]] = {}  # job → task → GPU
        self.shapes: dict[str, str] = {}  # of these jobs
        self._graphs: dict[str, TaskGraph | None] = {}  # that those are of
        self.missing: dict[str, Missing] = {}  # of these jobs, those that lack a task
        self.missing_by_rest: dict[Needs, MissingLine] = {}  # those tasks, by what they need beside a GPU
        self.amounts: Column = np.zeros((gpus, 4))  # GPU load, cores, memory, network
        self.room: Column = np.zeros((gpus, 3))
        self._left: Column = np.zeros((len(layout.nodes), 3))  # [node]: cores, memory, network that no partition has
        self.tenants: Any = np.zeros(gpus, dtype=int)

    def follow(self, snapshot: Snapshot) -> None:
        """Be the columns of this snapshot."""
        self._follow_partitions(snapshot.partitions, snapshot.jobs)
        for node, amounts in snapshot.capacity.amounts(since=self._capacity).items():
            self._left[node] = amounts
        self._capacity = snapshot.capacity

    @property
    def left(self) -> Column:
        """[server]: cores, memory and network that no partition has."""
        return self._left[list(self._index.servers)]

    def _follow_partitions(self, partitions: VersionedMap[str, Partition], views: VersionedMap[str, JobView]) -> None:
        seen, present, jobs = self._seen, partitions.data(), views.data()
        changed = partitions.changed_since(self._partitions) if self._partitions is not None else None
        moved = [(seen.get(p), present.get(p)) for p in sorted({*seen, *present} if changed is None else changed)]
        gone = [old for old, now in moved if old is not now and old is not None]
        new = [now for old, now in moved if old is not now and now is not None]
        touched_jobs = views.changed_since(self._jobs) if self._jobs is not None else None
        uses = self._uses if touched_jobs is None else touched_jobs & self._uses.keys()
        measured = {j for j in uses if (view := jobs.get(j)) is not None and view.use is not self._uses[j]}
        self._partitions, self._jobs = partitions, views
        if gone or new:
            fresh: dict[str, dict[str, int]] = {}  # Copies, as decisions may still hold the old ones.
            for old in gone:
                self._remove(old, fresh)
            for now in new:
                self._add(now, fresh)
            for job_id, places in fresh.items():
                self._update_job(job_id, places, jobs)
        touched = {self._gpu(p): p for p in new if is_task_gpu(p)}
        for job_id in measured:
            for gpu in self.places.get(job_id, {}).values():
                touched[gpu] = self._seen[self._index.partition_of(gpu)]
        for gpu, partition in touched.items():
            self._sum_up(gpu, partition, jobs)
        for job_id in measured | {t.job for p in touched.values() for t in p.tenants}:
            self._uses[job_id] = jobs[job_id].use
        for job_id in measured & self.missing.keys():
            self._note_missing(job_id, missing_tasks(jobs[job_id], self.places[job_id]))
        for old in gone:
            for tenant in old.tenants:
                if tenant.job not in self.places:
                    self._uses.pop(tenant.job, None)

    def others(self) -> list[Partition]:
        """Partitions of jobs that are not cut into tasks, by what they hold: sums of floats depend on their order."""
        return sorted(self._plain.values(), key=lambda p: [(s.node, s.gpus, s.cores, s.mem_mib) for s in p.slices])

    def _gpu(self, partition: Partition) -> int:
        part = partition.slices[0]
        return self._index.begins[self._index.server_by_name[part.node]] + part.gpus[0]

    def _copied(self, job_id: str, fresh: dict[str, dict[str, int]]) -> dict[str, int]:
        found = fresh.get(job_id)
        if found is None:
            found = fresh[job_id] = dict(self.places.get(job_id, {}))
        return found

    def _remove(self, partition: Partition, fresh: dict[str, dict[str, int]]) -> None:
        del self._seen[partition.id]
        if not is_task_gpu(partition):
            del self._plain[partition.id]
            return
        gpu = self._gpu(partition)
        self.amounts[gpu], self.room[gpu], self.tenants[gpu] = 0.0, 0.0, 0
        for tenant in partition.tenants:
            places = self._copied(tenant.job, fresh)
            if places.get(tenant.task) == gpu:
                del places[tenant.task]

    def _add(self, partition: Partition, fresh: dict[str, dict[str, int]]) -> None:
        self._seen[partition.id] = partition
        if not is_task_gpu(partition):
            self._plain[partition.id] = partition
            return
        gpu = self._gpu(partition)
        for tenant in partition.tenants:
            self._copied(tenant.job, fresh)[tenant.task] = gpu

    def _update_job(self, job_id: str, places: dict[str, int], jobs: dict[str, JobView]) -> None:
        if not places:
            self._note_missing(job_id, ())
            self.places.pop(job_id, None)
            self.shapes.pop(job_id, None)
            self._graphs.pop(job_id, None)
            return
        view = jobs[job_id]
        graph = view.job.tasks
        self.places[job_id] = places
        if job_id not in self._graphs or self._graphs[job_id] is not graph:
            self.shapes[job_id], self._graphs[job_id] = shape_key(graph), graph
        self._note_missing(job_id, missing_tasks(view, places))

    def _note_missing(self, job_id: str, missing: Missing) -> None:
        """These tasks of the job have no GPU."""
        for rest in {needs[1:] for _k, needs in self.missing.pop(job_id, ())}:
            line = tuple(task for task in self.missing_by_rest[rest] if task[1] != job_id)
            if line:
                self.missing_by_rest[rest] = line
            else:
                del self.missing_by_rest[rest]
        if missing:
            self.missing[job_id] = missing
        for k, (load, *others) in missing:
            rest = tuple(others)
            self.missing_by_rest[rest] = tuple(sorted((*self.missing_by_rest.get(rest, ()), (load, job_id, k))))

    def _sum_up(self, gpu: int, partition: Partition, jobs: dict[str, JobView]) -> None:
        part = partition.slices[0]
        load = cores = mem_mib = net_mbps = 0.0
        for tenant in partition.tenants:
            view = jobs[tenant.job]
            demand = demand_of(view.job, tenant.task)
            load += demand.gpu_load * measured_factor(view)
            cores += demand.cores
            mem_mib += demand.mem_mib
            net_mbps += demand.net_mbps
        self.amounts[gpu] = (load, cores, mem_mib, net_mbps)
        self.room[gpu] = (part.cores - cores, part.mem_mib - mem_mib, part.net_mbps - net_mbps)
        self.tenants[gpu] = len(partition.tenants)


def gpu_columns(layout: Layout) -> AbstractContextManager[GpuColumns]:
    """The GPU columns of a cluster, for one decision at a time."""
    return borrow((GpuColumns, layout), partial(GpuColumns, layout))


def queue_columns(numbers: int) -> AbstractContextManager[QueueColumns]:
    """The columns of a queue, for one decision at a time."""
    return borrow((QueueColumns, numbers), partial(QueueColumns, numbers))
