"""A draft of a plan that gives tasks their GPUs: a `Draft` and its load table, which change together."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.capacity import Layout
from hocket.model.job import Job
from hocket.model.partition import Partition, Sharing, Tenant
from hocket.model.resources import Slice, total
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.gpu_index import gpu_index_of
from hocket.policies.kit.incremental_columns import Missing, Needs, measured_factor, missing_tasks
from hocket.policies.kit.load_table import LoadTable, Undo, empty_table, placements_of
from hocket.policies.kit.task_shapes import TaskShape, task_shape

if TYPE_CHECKING:
    from hocket.policies.kit.task_shapes import Column

Places = dict[str, int]  # task → GPU
MissingByNeeds = tuple[Needs, Sequence[tuple[float, str, int]]]  # needs beside a GPU; (GPU load, job, task)
STARTS_ALONE = "starts alone: it fits only with GPUs and servers used beyond the limit"


class JobTasks(Struct, frozen=True, eq=False):
    """The tasks of one job, as placing them needs them."""

    view: JobView
    names: tuple[str, ...]
    needs: Column  # [task]: GPU load as measured, cores, memory, network
    exchanges: dict[str, list[tuple[str, float]]]  # task → those it exchanges data with, and how much


def tasks_of(view: JobView, shape: TaskShape, traffic: bool = True) -> JobTasks:
    """The tasks of a job, with what they were measured to use, and what they exchange if `traffic` counts."""
    graph = view.job.tasks
    assert graph is not None
    needs, factor = shape.amounts, measured_factor(view)
    if factor != 1.0:
        needs = needs.copy()
        needs[:, 0] *= factor
    exchanges: dict[str, list[tuple[str, float]]] = {}
    for edge in graph.edges if traffic else ():
        if edge.mib:
            exchanges.setdefault(edge.source, []).append((edge.target, edge.mib))
            exchanges.setdefault(edge.target, []).append((edge.source, edge.mib))
    return JobTasks(view, tuple(t.id for t in graph.tasks), needs, exchanges)


@lru_cache(maxsize=4096)
def all_fit(layout: Layout, servers: int, key: str, gamma: float) -> bool:
    """Would all tasks of such a job fit these servers, a mask of nodes, if they were empty?"""
    amounts, table = task_shape(key, gamma).amounts, empty_table(gpu_index_of(layout), servers)
    for k in _largest_first(amounts):
        if (gpu := _fullest(table, table.fitting_gpus(amounts[k]))) < 0:
            return False
        table.add_task(gpu, amounts[k])
    return True


def _largest_first(amounts: Column) -> list[int]:
    return sorted(range(len(amounts)), key=lambda k: (*(-amounts[k]).tolist(), k))


def _fullest(table: LoadTable, may: Any) -> int:
    """The GPU with the most load of these; -1 if there is none."""
    import numpy as np

    return int(np.where(may, table.gpu_load, -1.0).argmax()) if may.any() else -1


Choose = Callable[[JobTasks, int], int]  # the tasks of a job, one of them → a GPU, or -1 if it fits nowhere


def original(task: str) -> str:
    """The task of which this is a copy, or the task itself: a copy of 'w' is called 'w#2'."""
    return task.partition("#")[0]


class TaskDraft(Draft):
    """Starts from the present plan. Jobs without tasks are placed as every draft places them."""

    __slots__ = ("_missing_before", "_missing_by_rest", "changed", "places", "shapes", "table")

    def __init__(self, snapshot: Snapshot, limit: float) -> None:
        super().__init__(snapshot)
        before = placements_of(snapshot, limit)
        self.table: LoadTable = before.table
        self.changed: set[str] = set()  # jobs of which a task came or went
        self.places: dict[str, Places] = before.places  # job → where the plan has its tasks
        self.shapes = before.shapes  # of jobs that were placed before this draft
        self._missing_before = before.missing
        self._missing_by_rest = before.missing_by_rest

    @property
    def runs_plain_jobs(self) -> bool:
        """Does a job without tasks run, before this draft or as it stands?"""
        partitions = (*self.snapshot.partitions.data().values(), *map(self.partition, self.changed_partitions))
        return any(p is not None and not p.tenants[0].task for p in partitions)

    # -- tasks ----------------------------------------------------------------------------------------------

    @property
    def incomplete(self) -> set[str]:
        """Placed jobs that lack a task."""
        changed = {j for j in self.changed if j in self.places and self.missing(j)}
        return (self._missing_before.keys() - self.changed) | changed

    def missing(self, job_id: str) -> Missing:
        """The tasks of a placed job that have no GPU."""
        if job_id not in self.changed:
            return self._missing_before.get(job_id, ())
        return missing_tasks(self.snapshot.jobs[job_id], self.places[job_id])

    def missing_by_needs(self, but: Container[tuple[str, int]]) -> list[MissingByNeeds]:
        """The tasks that placed jobs lack, but not these, by what they need."""
        found: list[MissingByNeeds] = list(self._missing_by_rest.items())
        if self.changed:
            found = [(rest, [t for t in line if t[1] not in self.changed]) for rest, line in found]
        for job_id in self.changed & self.places.keys():
            missing = [(k, needs) for k, needs in self.missing(job_id) if (job_id, k) not in but]
            found += [(needs[1:], [(needs[0], job_id, k)]) for k, needs in missing]
        return found

    def traffic_mib(self, tasks: JobTasks, task: str, places: Places) -> dict[int, float]:
        """Server → data that the task exchanges with the tasks there."""
        found: dict[int, float] = {}
        for other, mib in tasks.exchanges.get(task, ()):
            gpu = places.get(other)
            if gpu is not None:
                server = int(self.table.index.server_of[gpu])
                found[server] = found.get(server, 0.0) + mib
        return found

    def place_all(self, tasks: JobTasks, order: Sequence[int], choose: Choose) -> bool:
        """Give every task that has no GPU one, in this order; nothing changes if one of them fits nowhere."""
        table, job = self.table, tasks.view.job
        places = dict(self.places.get(job.id, {}))
        missing = [k for k in order if tasks.names[k] not in places]
        if not self.quota_has_room(job, missing):
            self.over_quota += 1
            return False
        done: list[tuple[int, Undo]] = []
        for k in missing:
            gpu = choose(tasks, k)
            if gpu < 0:
                for _k, step in reversed(done):
                    table.undo(step)
                return False
            done.append((k, table.add_task(gpu, tasks.needs[k])))
            places[tasks.names[k]] = gpu
        for k, step in done:
            self._write(job, tasks.names[k], step.gpu, step.part)
            self.places[job.id] = places  # From its first task on, the job counts for its owner's quota.
        return True

    def start_alone(self, view: JobView, shape: TaskShape) -> bool:
        """Start a job on an empty cluster, with GPUs and servers used in full, as its admission assumed.

        The largest tasks go first, each to the fullest GPU that has room, as it must fit rather than run well. What
        they were measured to use does not count, as they disturb no other job.
        """
        table, asked = self.table, replace(tasks_of(view, shape, traffic=False), needs=shape.amounts)
        order = _largest_first(shape.amounts)
        limit, table.limit = table.limit, 1.0
        started = self.place_all(asked, order, self._fullest)
        table.limit = limit
        return started

    def _fullest(self, tasks: JobTasks, k: int) -> int:
        return _fullest(self.table, self.open_to(tasks, tasks.needs[k]))

    def open_to(self, tasks: JobTasks, needs: Column) -> Any:
        """[GPU]: could a task that needs so much be there, with nothing overloaded?"""
        gpus = self.table.fitting_gpus(needs)
        accepts = self.accepting_servers(tasks.view.job)
        if accepts is not None:
            gpus &= accepts[self.table.index.server_of]
        return gpus

    def put_on(self, tasks: JobTasks, k: int, gpu: int, name: str = "") -> None:
        """Give a task this very GPU."""
        job, name = tasks.view.job, name or tasks.names[k]
        self._write(job, name, gpu, self.table.add_task(gpu, tasks.needs[k]).part)
        self.places[job.id] = {**self.places.get(job.id, {}), name: gpu}

    def take_off(self, tasks: JobTasks, task: str) -> int:
        """Take a task off its GPU; returns that GPU."""
        job, name = tasks.view.job, original(task)
        gpu = self.places[job.id][task]
        left = {name: at for name, at in self.places[job.id].items() if name != task}
        self.places[job.id] = left
        if not left:
            del self.places[job.id]
        self.changed.add(job.id)
        pid, old = self._partition(gpu)
        assert old is not None
        others = tuple(t for t in old.tenants if (t.job, t.task) != (job.id, task))
        back = None
        if others:
            self.set_partition(Partition(pid, old.slices, others, Sharing.STACKED))
        else:
            back = self.drop_partition(pid).slices[0]
        k = tasks.names.index(name)
        self.table.remove_task(gpu, tasks.needs[k], back)
        if self.has_quotas:
            self._book_task(job, k, -1, job.id not in self.places)
        return gpu

    def _write(self, job: Job, task: str, gpu: int, part: Slice | None) -> None:
        """Add the task to the GPU's partition, or to a new one with this part of the server."""
        pid, old = self._partition(gpu)
        tenant = Tenant(job.id, (1,), task)
        if part is None:
            assert old is not None
            self.set_partition(Partition(pid, old.slices, (*old.tenants, tenant), Sharing.STACKED))
        else:
            self.set_partition(Partition(pid, (part,), (tenant,), Sharing.STACKED))
        self.changed.add(job.id)
        if self.has_quotas:
            assert job.tasks is not None
            name = original(task)
            k = next(k for k, t in enumerate(job.tasks.tasks) if t.id == name)
            self._book_task(job, k, 1, job.id not in self.places)

    def tenants_of(self, gpu: int) -> tuple[Tenant, ...]:
        """The tasks on a GPU, as the draft stands."""
        partition = self._partition(gpu)[1]
        return () if partition is None else partition.tenants

    def _partition(self, gpu: int) -> tuple[str, Partition | None]:
        pid = self.table.index.partition_of(gpu)
        return pid, self.partition(pid)

    # -- jobs without tasks ---------------------------------------------------------------------------------

    def start_plain(self, view: JobView, reason: str) -> bool:
        """Start a job in a partition of its own."""
        if not self.start(view, reason):
            return False
        self.table.take_slices(self.slices_of(view))
        return True

    # -- servers and quotas ---------------------------------------------------------------------------------

    def accepting_servers(self, job: Job, taken: Sequence[int] = ()) -> Any:
        """[server]: those that are up, whose GPUs the job accepts, and that have none of `taken`; None for all."""
        capacity, index = self.snapshot.capacity, self.table.index
        layout, up = capacity.layout, capacity.up
        mask = up if job.accepts_any_node else up & layout.eligible(job)
        if mask == layout.all and not taken:
            return None
        import numpy as np

        accepts = np.array([bool(mask >> i & 1) for i in index.servers])
        accepts[index.server_of[list(taken)]] = False
        return accepts

    def quota_has_room(self, job: Job, tasks: Sequence[int]) -> bool:
        """Would the job's owner stay within its quota with these tasks of it?"""
        owner = self.snapshot.owners.get(job.owner)
        if owner is None or not tasks:
            return True
        assert job.tasks is not None
        used = self.usage(job.owner)
        gpus, cores, mem_mib, _net = total((used.vector, *(job.tasks.tasks[k].demand.vector for k in tasks)))
        return not owner.beyond(gpus, cores, mem_mib, used.jobs + (job.id not in self.places))

    def _book_task(self, job: Job, k: int, sign: int, jobs: int) -> None:
        assert job.tasks is not None
        self.charge(job.owner, job.tasks.tasks[k].demand, sign, sign * jobs)
