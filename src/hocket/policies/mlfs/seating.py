"""A plan being written that gives tasks their GPUs: a draft and the board, which change together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.capacity import Layout
from hocket.model.job import Job
from hocket.model.partition import Partition, Sharing, Tenant
from hocket.model.resources import Slice
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.mlfs.board import Board, Undo, board_of, empty_board
from hocket.policies.mlfs.ground import ground_of
from hocket.policies.mlfs.hosts import Hosts
from hocket.policies.mlfs.kept import Missing, measured_factor, missing_tasks
from hocket.policies.mlfs.shapes import Shape, shape

if TYPE_CHECKING:
    from hocket.policies.mlfs.shapes import Column

Places = dict[str, int]  # task → GPU
ALONE = "starts alone: it fits only where GPUs and servers are used beyond the limit"


class Tasks(Struct, frozen=True, eq=False):
    """The tasks of one job, as placing them needs them."""

    view: JobView
    names: tuple[str, ...]
    needs: Column  # [task]: GPU load as measured, cores, memory, network
    exchanges: dict[str, list[tuple[str, float]]]  # task → those it exchanges data with, and how much


def tasks_of(view: JobView, shape: Shape, traffic: bool = True) -> Tasks:
    """The tasks of a job, with what it was measured to use, and what they exchange if that shall count."""
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
    return Tasks(view, tuple(t.id for t in graph.tasks), needs, exchanges)


@lru_cache(maxsize=4096)
def all_fit(layout: Layout, servers: int, key: str, gamma: float) -> bool:
    """Would all tasks of such a job fit these servers, a mask of nodes, if nobody else were there?"""
    amounts, board = shape(key, gamma).amounts, empty_board(ground_of(layout), servers)
    for k in _largest_first(amounts):
        if (gpu := _fullest(board, board.fits(amounts[k]))) < 0:
            return False
        board.seat(gpu, amounts[k])
    return True


def _largest_first(amounts: Column) -> list[int]:
    return sorted(range(len(amounts)), key=lambda k: (*(-amounts[k]).tolist(), k))


def _fullest(board: Board, may: Any) -> int:
    """The GPU with the most load of those on which it may be; -1 if there is none."""
    import numpy as np

    return int(np.where(may, board.gpu_load, -1.0).argmax()) if may.any() else -1


Choose = Callable[[Tasks, int], int]  # the tasks of a job, one of them → a GPU, or -1 if it fits nowhere


class Seating(Draft):
    """Starts from the present plan. Jobs that are not partitioned are placed as every draft places them."""

    __slots__ = ("_hosts", "_lacked", "board", "changed", "places", "shapes", "wanted")

    def __init__(self, snapshot: Snapshot, limit: float) -> None:
        super().__init__(snapshot)
        held = board_of(snapshot, limit)
        self.board: Board = held.board
        self._hosts: dict[tuple[bytes, bytes | None], Hosts] = {}
        self.changed: set[str] = set()  # jobs of which a task came or went
        self.places: dict[str, Places] = held.places  # job → where the plan has its tasks
        self.shapes = held.shapes  # of those that were placed before this draft
        self._lacked = held.lacking  # those of which a task had no GPU before this draft
        self.wanted = held.wanted  # those tasks, by what they need beside a GPU

    # -- tasks ----------------------------------------------------------------------------------------------

    @property
    def short(self) -> set[str]:
        """Placed jobs of which a task has no GPU."""
        changed = {j for j in self.changed if j in self.places and self.lacks(j)}
        return (self._lacked.keys() - self.changed) | changed

    def lacks(self, job_id: str) -> Missing:
        """The tasks of a placed job that have no GPU."""
        if job_id not in self.changed:
            return self._lacked.get(job_id, ())
        return missing_tasks(self.snapshot.jobs[job_id], self.places[job_id])

    def traffic_mib(self, tasks: Tasks, task: str, places: Places) -> dict[int, float]:
        """Server → what the task exchanges with those that are there."""
        found: dict[int, float] = {}
        for other, mib in tasks.exchanges.get(task, ()):
            gpu = places.get(other)
            if gpu is not None:
                server = int(self.board.ground.server_of[gpu])
                found[server] = found.get(server, 0.0) + mib
        return found

    def place_all(self, tasks: Tasks, order: Sequence[int], choose: Choose | None = None) -> bool:
        """Give every task that has no GPU one, in this order; nothing changes if one of them fits nowhere.

        `choose` gives the GPU of a task; without it, it is one of the server nearest to the ideal host.
        """
        board, job = self.board, tasks.view.job
        places = dict(self.places.get(job.id, {}))
        missing = [k for k in order if tasks.names[k] not in places]
        if self.has_quotas and not self.quota_has_room(job, missing):
            self.over_quota += 1
            return False
        accepts = self._accepting(job)
        done: list[tuple[int, Undo]] = []
        for k in missing:
            name, needs = tasks.names[k], tasks.needs[k]
            if choose is not None:
                gpu = choose(tasks, k)
            elif not board.may_take(float(needs[0])):
                gpu = -1
            else:
                gpu = self._hosts_of(needs, accepts).best_gpu(self.traffic_mib(tasks, name, places))
            if gpu < 0:
                for _k, step in reversed(done):
                    board.undo(step)
                return False
            done.append((k, board.seat(gpu, needs)))
            places[name] = gpu
        for k, step in done:
            self._write(job, tasks.names[k], step.gpu, step.part)
            self.places[job.id] = places  # From its first task on, the job is one that its owner has.
        return True

    def start_alone(self, view: JobView, shape: Shape) -> bool:
        """Start a job where nobody else is: GPUs and servers may be used in full, as its admission took them to be.

        The largest tasks go first, each to the fullest GPU that has room, for it must fit rather than run well. What
        they were measured to take does not count: nobody is in their way.
        """
        board, asked = self.board, replace(tasks_of(view, shape, traffic=False), needs=shape.amounts)
        order = _largest_first(shape.amounts)
        limit, board.limit = board.limit, 1.0
        started = self.place_all(asked, order, self._fullest)
        board.limit = limit
        return started

    def _fullest(self, tasks: Tasks, k: int) -> int:
        return _fullest(self.board, self.open_to(tasks, tasks.needs[k]))

    def open_to(self, tasks: Tasks, needs: Column) -> Any:
        """[GPU]: could a task that needs so much be there, with nothing overloaded?"""
        gpus = self.board.fits(needs)
        accepts = self._accepting(tasks.view.job)
        if accepts is not None:
            gpus &= accepts[self.board.ground.server_of]
        return gpus

    def place_one(self, tasks: Tasks, k: int, stays: int = -1, degradation: float = 0.0, name: str = "") -> bool:
        """Give one task, or a copy of it under another name, a GPU."""
        job, name = tasks.view.job, name or tasks.names[k]
        if self.has_quotas and not self.quota_has_room(job, [k]):
            self.over_quota += 1
            return False
        if not self.board.may_take(float(tasks.needs[k][0])):
            return False
        traffic_mib = self.traffic_mib(tasks, tasks.names[k], self.places.get(job.id, {}))
        accepts = self._accepting(job)
        if name != tasks.names[k]:
            copies = [gpu for task, gpu in self.places[job.id].items() if task.partition("#")[0] == tasks.names[k]]
            accepts = self._elsewhere(accepts, copies)
        gpu = self._hosts_of(tasks.needs[k], accepts).best_gpu(traffic_mib, stays, degradation)
        if gpu < 0:
            return False
        self.put_on(tasks, k, gpu, name)
        return True

    def put_on(self, tasks: Tasks, k: int, gpu: int, name: str = "") -> None:
        """Give a task this very GPU."""
        job, name = tasks.view.job, name or tasks.names[k]
        self._write(job, name, gpu, self.board.seat(gpu, tasks.needs[k]).part)
        self.places[job.id] = {**self.places.get(job.id, {}), name: gpu}

    def take_off(self, tasks: Tasks, task: str) -> int:
        """Take a task off its GPU, which it tells."""
        job, name = tasks.view.job, task.partition("#")[0]
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
        self.board.leave(gpu, tasks.needs[k], back)
        if self.has_quotas:
            self._book_task(job, k, -1, job.id not in self.places)
        return gpu

    def _write(self, job: Job, task: str, gpu: int, part: Slice | None) -> None:
        """Make it a tenant of the GPU's partition, or of a new one with that part of the server."""
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
            name = task.partition("#")[0]
            k = next(k for k, t in enumerate(job.tasks.tasks) if t.id == name)
            self._book_task(job, k, 1, job.id not in self.places)

    def tenants_of(self, gpu: int) -> tuple[Tenant, ...]:
        """Who is on a GPU that runs tasks, as the draft stands."""
        partition = self._partition(gpu)[1]
        return () if partition is None else partition.tenants

    def _partition(self, gpu: int) -> tuple[str, Partition | None]:
        pid = self.board.ground.pid_of(gpu)
        return pid, self.partition(pid)

    # -- jobs that are not partitioned ----------------------------------------------------------------------

    def start_plain(self, view: JobView, reason: str) -> bool:
        """Start a job in a partition of its own."""
        if not self.start(view, reason):
            return False
        self.board.take(self.slices_of(view))
        return True

    def _hosts_of(self, needs: Column, accepts: Any) -> Hosts:
        """Tasks with equal needs have the same candidates."""
        key = (needs.tobytes(), None if accepts is None else accepts.tobytes())
        found = self._hosts.get(key)
        if found is None:
            found = self._hosts[key] = Hosts(self.board, needs, accepts)
        return found

    # -- who may have what ----------------------------------------------------------------------------------

    def _accepting(self, job: Job) -> Any:
        """[server]: those whose GPUs the job accepts, and that are there; None for all."""
        capacity = self.snapshot.capacity
        layout, up = capacity.layout, capacity.up
        mask = up & layout.eligible(job) if job.gpu_kinds or job.gpu_mem_mib else up
        if mask == layout.all:
            return None
        import numpy as np

        return np.array([bool(mask >> i & 1) for i in self.board.ground.servers])

    def _elsewhere(self, accepts: Any, gpus: list[int]) -> Any:
        import numpy as np

        ground = self.board.ground
        others = ~np.isin(np.arange(len(ground.names)), ground.server_of[gpus])
        return others if accepts is None else others & accepts

    def quota_has_room(self, job: Job, tasks: Sequence[int]) -> bool:
        """Would the job's owner stay within its quota with these tasks of it?"""
        owner = self.snapshot.owners.get(job.owner)
        if owner is None or not tasks:
            return True
        assert job.tasks is not None
        used = self.usage(job.owner)
        demands = [job.tasks.tasks[k].demand for k in tasks]
        return not owner.beyond(
            used.gpus + sum(d.gpus for d in demands),
            used.cores + sum(d.cores for d in demands),
            used.mem_mib + sum(d.mem_mib for d in demands),
            used.jobs + (job.id not in self.places),
        )

    def _book_task(self, job: Job, k: int, sign: int, jobs: int) -> None:
        assert job.tasks is not None
        self.charge(job.owner, job.tasks.tasks[k].demand, sign, sign * jobs)
