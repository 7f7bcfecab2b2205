"""Gandiva: first come, first served; jobs of one size on the same servers; tasks move off GPUs that are overloaded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from hocket.model.capacity import Places
from hocket.model.job import Job
from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import Doing, JobView
from hocket.policies.registry import Params, policy

if TYPE_CHECKING:
    from hocket.policies.mlfs.seating import Tasks
    from hocket.policies.task_gangs import TaskGangs


class Gandiva(Params, frozen=True):
    load: Annotated[
        float, Meta(gt=0, le=1, description="up to which tasks share a GPU, and above which one leaves")
    ] = 0.9
    look_s: Annotated[
        float,
        Meta(gt=0, description="when a job's measured use is first looked at; then after twice as long each time"),
    ] = 600.0


@policy("gandiva", params=Gandiva, paper="Gandiva, OSDI'18")
def decide(snapshot: Snapshot, params: Gandiva) -> Plan:
    """Who came first starts first; jobs that need as many GPUs share servers; overloaded GPUs lose their lightest task.

    Nobody overtakes. A job goes to a server that has jobs of its size, if one has room. Where the tasks on a GPU turn
    out to use more than they may, the one that uses least moves to the GPU that is used least.
    """
    from hocket.policies.task_gangs import (
        TaskGangs,
        mended,
        waiting,
    )  # They need NumPy, which no start-up shall pay for.

    draft = TaskGangs(snapshot, params.load)
    kin = _Kin(draft)
    waits = mended(draft, lambda view: range(size(view.job)), kin.choose)
    blocked: JobView | None = None
    for view in waiting(snapshot):
        over_quota = draft.over_quota
        if _start(draft, kin, view):
            if view.job.tasks is not None:
                draft.reviews[view.job.id] = snapshot.now_s + params.look_s
        elif draft.over_quota == over_quota:  # Who is over his owner's quota is passed over, and holds up nobody.
            blocked = view
            break
    for job_id in snapshot.due:
        view = snapshot.jobs[job_id]
        if job_id in draft.places and not view.verdict:
            _relieve(draft, view, params.load)
            started_s = snapshot.now_s if view.started_s is None else view.started_s
            draft.reviews[job_id] = snapshot.now_s + max(params.look_s, snapshot.now_s - started_s)
    if blocked is not None:
        draft.reasons["*"] = f"waits: '{blocked.job.id}' came first, and does not fit yet"
    waits = waits or blocked is not None or draft.over_quota > 0
    return draft.plan(Wake(freed_gpus=1 if waits else None, epoch=False))


def size(job: Job) -> int:
    """How many GPUs a job needs, or how many tasks it has: those alike in that have an affinity."""
    return len(job.tasks.tasks) if job.tasks is not None else job.sizes[0] * job.demand.gpus


class _Kin:
    """Which servers have jobs of which size."""

    def __init__(self, draft: TaskGangs) -> None:
        self.draft = draft
        self.servers: dict[int, set[str]] = {}
        for partition in draft.snapshot.partitions.data().values():
            for tenant in partition.tenants:
                self.add(draft.snapshot.jobs[tenant.job].job, (part.node for part in partition.slices))

    def add(self, job: Job, nodes: Iterable[str]) -> None:
        """The job is on these servers."""
        self.servers.setdefault(size(job), set()).update(nodes)

    def choose(self, tasks: Tasks, k: int) -> int:
        """For a task, the least loaded GPU of a server with kin, else of any."""
        import numpy as np

        board = self.draft.board
        may = self.draft.open_to(tasks, tasks.needs[k])
        if not may.any():
            return -1
        kin = self.servers.get(len(tasks.names), set())
        has_kin = np.array([name in kin for name in board.ground.names])[board.ground.server_of]
        return int(np.where(may, board.gpu_load - 10.0 * has_kin, np.inf).argmin())

    def places(self, job: Job) -> Places | None:
        """For a job without tasks, the fullest server with kin that has room for all of it."""
        capacity = self.draft.capacity
        index, wanted = capacity.layout.index, job.sizes[0]
        eligible = capacity.up & (capacity.layout.eligible(job) if job.gpu_kinds or job.gpu_mem_mib else -1)
        rooms = [
            (capacity[name].gpus.bit_count(), index[name])
            for name in self.servers.get(size(job), ())
            if eligible >> index[name] & 1 and capacity[name].room(job.demand) >= wanted
        ]
        return ((min(rooms)[1], wanted),) if rooms else None


def _start(draft: TaskGangs, kin: _Kin, view: JobView) -> bool:
    job = view.job
    if job.tasks is not None:
        first = "starts: nobody came before it"
        if not (draft.start_all(view, range(size(job)), kin.choose, first) or draft.alone(view)):
            return False
        ground = draft.board.ground
        nodes = [ground.names[ground.server_of[gpu]] for gpu in draft.places[job.id].values()]
    else:
        if not draft.admits(view):
            return False
        if len(job.sizes) == 1 and job.demand.gpus and (places := kin.places(job)) is not None:
            draft.put(view, places, "starts: beside jobs of its size")
        elif not draft.start(view, "starts: nobody came before it"):
            return False
        slices = draft.slices_of(view)
        draft.board.take(slices)
        nodes = [part.node for part in slices]
    kin.add(job, nodes)
    return True


def _relieve(draft: TaskGangs, view: JobView, load: float) -> None:
    """Move the lightest task off each GPU of the job that is overloaded, if another GPU has room for it."""
    import numpy as np

    board, jobs = draft.board, draft.snapshot.jobs
    for gpu in sorted(set(draft.places[view.job.id].values())):
        if board.gpu_load[gpu] <= load + 1e-9 or board.gpu_tenants[gpu] < 2:
            continue
        there = []
        for job_id, places in draft.places.items():
            for task, at in places.items():
                if at == gpu and _settled(jobs[job_id], task):
                    tasks = draft.known(jobs[job_id])
                    k = tasks.names.index(task)
                    there.append((float(tasks.needs[k][0]), tasks.view.number, task, tasks, k))
        if not there:
            continue
        uses, _number, task, tasks, k = min(there, key=lambda t: t[:3])
        may = draft.open_to(tasks, tasks.needs[k])
        may[gpu] = False
        if not may.any():
            continue
        to = int(np.where(may, board.gpu_load, np.inf).argmin())
        draft.take_off(tasks, task)
        draft.put_on(tasks, k, to)
        node = board.ground.names[board.ground.server_of[gpu]]
        why = f"its GPU on '{node}' is overloaded, of which it uses {uses:.0%}"
        draft.reasons[tasks.view.job.id] = f"task '{task}' moves: {why}"


def _settled(view: JobView, task: str) -> bool:
    """Does the task run, and nothing changes for it?"""
    return not view.verdict and any(t.task == task and t.doing is Doing.NOTHING and t.holding for t in view.tenancies)
