"""Gandiva: first come, first served; jobs of one size on the same servers; tasks move off GPUs that are overloaded."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from hocket.model.capacity import Places
from hocket.model.job import Job
from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import Doing, JobView
from hocket.policies.kit.servers_by_size import servers_with, size_in_gpus
from hocket.policies.registry import Params, policy

if TYPE_CHECKING:
    from hocket.policies.kit.task_draft import JobTasks
    from hocket.policies.kit.task_gangs import TaskGangs
    from hocket.policies.kit.task_shapes import Column

_ROUNDING = 1e-6


class Gandiva(Params, frozen=True):
    load: Annotated[
        float, Meta(gt=0, le=1, description="up to which tasks share a GPU, and above which one leaves")
    ] = 0.9
    look_s: Annotated[
        float,
        Meta(gt=0, description="when a job's measured use is first looked at; then after twice as long each time"),
    ] = 600.0


@policy("gandiva", params=Gandiva, paper="Gandiva, OSDI'18", reads=())
def decide(snapshot: Snapshot, params: Gandiva) -> Plan:
    """First come, first served; jobs that need as many GPUs share servers; overloaded GPUs lose their lightest task.

    No job overtakes another. A job goes to one server if one has room for all of it, first of all to one that has jobs
    of its size. Where the tasks on a GPU turn out to use more than they may, the one that uses least moves to the GPU
    that is used least.
    """
    from hocket.policies.kit.task_gangs import TaskGangs  # It needs NumPy, which no start-up shall pay for.

    draft = TaskGangs(snapshot, params.load)
    affinity = _Affinity(draft)
    waits = draft.replace_lost_tasks(lambda view: range(size_in_gpus(view.job)), affinity.choose)
    blocked = _start_in_order(draft, affinity, params)
    _move_off_overloaded(draft, params)
    if blocked is not None:
        draft.reasons["*"] = f"waits: '{blocked.job.id}' came first, and does not fit yet"
    waits = waits or blocked is not None or draft.over_quota > 0
    return draft.plan(Wake(freed_gpus=1 if waits else None, epoch=False))


def _start_in_order(draft: TaskGangs, affinity: _Affinity, params: Gandiva) -> JobView | None:
    """Start jobs up to the first that does not fit, which it returns; jobs over their owner's quota block none.

    Nor do jobs block those of owners for which a node is reserved that they cannot have.
    """
    line = draft.waiting()
    for view in line:
        over_quota = draft.over_quota
        if _start(draft, affinity, view):
            if view.job.tasks is not None:
                draft.reviews[view.job.id] = draft.snapshot.now_s + params.look_s
        elif draft.over_quota == over_quota:
            plain = (other for other in line if other.job.tasks is None)
            draft.start_beyond(view, plain, lambda other: _start(draft, affinity, other))
            return view
    return None


def _start(draft: TaskGangs, affinity: _Affinity, view: JobView) -> bool:
    job, first = view.job, "starts: no job came before it"
    if job.tasks is not None:
        choose = partial(affinity.choose, home=affinity.home(draft.known(view)))
        if not (draft.start_all(view, range(size_in_gpus(job)), choose, first) or draft.alone(view)):
            return False
        index = draft.table.index
        nodes = [index.names[index.server_of[gpu]] for gpu in draft.places[job.id].values()]
    else:
        if not draft.admits(view):
            return False
        if len(job.sizes) == 1 and job.demand.gpus and (places := affinity.places(job)) is not None:
            draft.put(view, places, "starts: beside jobs of its size")
        elif not draft.start(view, first):
            return False
        slices = draft.slices_of(view)
        draft.table.take_slices(slices)
        nodes = [part.node for part in slices]
    affinity.add(job, nodes)
    return True


def _move_off_overloaded(draft: TaskGangs, params: Gandiva) -> None:
    """Of jobs whose review is due, move the lightest task off each overloaded GPU to the least loaded with room."""
    snapshot = draft.snapshot
    for job_id in snapshot.due:
        view = snapshot.jobs[job_id]
        if job_id in draft.places and not view.verdict:
            for gpu in sorted(set(draft.places[job_id].values())):
                if draft.table.gpu_load[gpu] > params.load + 1e-9 and draft.table.gpu_tenants[gpu] >= 2:
                    _move_lightest_off(draft, gpu)
            started_s = snapshot.now_s if view.started_s is None else view.started_s
            draft.reviews[job_id] = snapshot.now_s + max(params.look_s, snapshot.now_s - started_s)


def _move_lightest_off(draft: TaskGangs, gpu: int) -> None:
    import numpy as np

    table, jobs = draft.table, draft.snapshot.jobs
    there = []
    for job_id, places in draft.places.items():
        for task, at in places.items():
            if at == gpu and _settled(jobs[job_id], task):
                tasks = draft.known(jobs[job_id])
                k = tasks.names.index(task)
                there.append((float(tasks.needs[k][0]), tasks.view.number, task, tasks, k))
    if not there:
        return
    uses, _number, task, tasks, k = min(there, key=lambda t: t[:3])
    may = draft.open_to(tasks, tasks.needs[k])
    may[gpu] = False
    if not may.any():
        return
    draft.take_off(tasks, task)
    draft.put_on(tasks, k, int(np.where(may, table.gpu_load, np.inf).argmin()))
    node = table.index.names[table.index.server_of[gpu]]
    why = f"its GPU on '{node}' is overloaded, of which it uses {uses:.0%}"
    draft.reasons[tasks.view.job.id] = f"task '{task}' moves: {why}"


def _settled(view: JobView, task: str) -> bool:
    """Does the task run, and nothing changes for it?"""
    return not view.verdict and any(t.task == task and t.doing is Doing.NOTHING and t.holding for t in view.tenancies)


class _Affinity:
    """Which servers have jobs of the same size, as the draft stands, and where such a job or its tasks go."""

    def __init__(self, draft: TaskGangs) -> None:
        self.draft = draft
        self._columns: dict[int, Any] = {}  # size → [GPU]: has its server such jobs?
        self._new: dict[int, set[str]] = {}  # size → servers to which the draft brings such jobs

    def add(self, job: Job, nodes: Iterable[str]) -> None:
        """The job is on these servers."""
        size = size_in_gpus(job)
        self._new.setdefault(size, set()).update(nodes)
        self._columns.pop(size, None)

    def _servers(self, size: int) -> set[str]:
        """Those with jobs of this size."""
        return servers_with(self.draft.snapshot, size) | self._new.get(size, set())

    def _column(self, size: int) -> Any:
        """[GPU]: has its server jobs of this size?"""
        import numpy as np

        found = self._columns.get(size)
        if found is None:
            index = self.draft.table.index
            has = np.zeros(len(index.names), dtype=bool)
            has[[index.server_by_name[name] for name in self._servers(size) if name in index.server_by_name]] = True
            found = self._columns[size] = has[index.server_of]
        return found

    def choose(self, tasks: JobTasks, k: int, home: int = -1) -> int:
        """For a task, the least loaded GPU of a server with jobs of that size, else of any; or of its job's home."""
        loads = self._loads(tasks, k)
        if home >= 0:
            index = self.draft.table.index
            loads[: index.begins[home]] = loads[index.begins[home + 1] :] = inf
        return int(loads.argmin()) if (loads < inf).any() else -1

    def home(self, tasks: JobTasks) -> int:
        """The server that takes all tasks of a job, one with jobs of that size before others; -1 if there is none."""
        import numpy as np

        table, loads = self.draft.table, self._loads(tasks, 0)
        if not (loads < inf).any():
            return -1
        begins = table.index.begins[:-1]
        room = np.where(table.free | table.open, table.limit - table.gpu_load, 0.0).clip(0.0)
        enough = np.add.reduceat(room, begins) >= tasks.needs[:, 0].sum() - _ROUNDING
        best = np.where(enough, np.minimum.reduceat(loads, begins), inf)  # by server, where the first task would be
        for server in best.argsort(kind="stable").tolist():
            if best[server] == inf:
                break
            if self._takes_all(tasks, server):
                return int(server)
        return -1

    def _takes_all(self, tasks: JobTasks, server: int) -> bool:
        table, done = self.draft.table, []
        for k, needs in enumerate(tasks.needs):
            if (gpu := self.choose(tasks, k, server)) < 0:
                break
            done.append(table.add_task(gpu, needs))
        for step in reversed(done):
            table.undo(step)
        return len(done) == len(tasks.needs)

    def _loads(self, tasks: JobTasks, k: int) -> Column:
        """[GPU]: its load if the task may be there, less beside jobs of that size, else infinite."""
        import numpy as np

        may, loads = self.draft.open_to(tasks, tasks.needs[k]), self.draft.table.gpu_load
        return np.where(may, loads - 10.0 * self._column(len(tasks.names)), inf)

    def places(self, job: Job) -> Places | None:
        """For a job without tasks, the fullest server with jobs of its size that has room for all of it."""
        capacity = self.draft.capacity
        index_of, wanted = capacity.layout.index_of, job.sizes[0]
        eligible = capacity.up & (-1 if job.accepts_any_node else capacity.layout.eligible(job))
        rooms = [
            (capacity[name].gpus.bit_count(), index_of(name))
            for name in self._servers(size_in_gpus(job))
            if eligible >> index_of(name) & 1 and capacity[name].room(job.demand) >= wanted
        ]
        return ((min(rooms)[1], wanted),) if rooms else None
