"""MLF-H, the heuristic scheduler of MLFS (CoNEXT'20, section 3.3).

Every round, tasks leave overloaded servers (3.3.3). Then tasks are taken from the queue by priority, equations 2 to 6
(3.3.1), and each goes to the server nearest to its ideal virtual host (3.3.2).

The equations are in `priority.py`, the ideal host and the ideal task to migrate in `ideal.py`. Ours are the rules for
jobs that lack tasks, in `stalled.py`, and when running jobs are looked at again, in `reviews.py`. What makes it fast is
behind `queue.py` (which jobs are worth a try, in order) and the `TaskDraft` (the loads of servers and GPUs as the plan
stands).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nextafter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from hocket.model.capacity import Capacity
from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.load_table import keep_for_next_decision
from hocket.policies.kit.rounds import is_due
from hocket.policies.kit.task_draft import JobTasks, Places, TaskDraft, all_fit, original, tasks_of
from hocket.policies.kit.task_shapes import TaskShape, shape_key, task_shape
from hocket.policies.mlfs import stalled
from hocket.policies.mlfs.ideal import HostCandidates, RunningTask, next_to_migrate
from hocket.policies.mlfs.priority import PriorityWeights
from hocket.policies.mlfs.queue import (
    RoomFilter,
    Score,
    SingleTask,
    SingleTaskQueue,
    WaitingQueue,
    in_order,
    priority_at_most,
    queue_of,
    queue_rank,
    task_priorities,
)
from hocket.policies.mlfs.reviews import next_review_s, reviewed
from hocket.policies.mlfs.round_memo import between_rounds, nothing_missing
from hocket.policies.registry import Params, policy

if TYPE_CHECKING:
    from hocket.policies.kit.task_shapes import Column

_LEAST_FLOOR_S = 1.0


class MlfH(Params, frozen=True):
    alpha: Annotated[float, Meta(ge=0, le=1, description="weight of the ML part of a priority (6)")] = 0.3
    gamma: Annotated[float, Meta(gt=0, lt=1, description="what a dependant's priority counts (3), (5)")] = 0.8
    gamma_d: Annotated[float, Meta(ge=0, description="weight of a near deadline (4)")] = 0.3
    gamma_r: Annotated[float, Meta(ge=0, description="weight of a short remaining time (4)")] = 0.3
    gamma_w: Annotated[float, Meta(ge=0, description="weight of the waiting time (4)")] = 0.35
    h_r: Annotated[float, Meta(gt=0, le=1, description="use of a resource above which a server is overloaded")] = 0.9
    p_s: Annotated[float, Meta(gt=0, le=1, description="share of the lowest priorities that may leave a GPU")] = 0.1
    unit_s: Annotated[float, Meta(gt=0, description="the unit of times in (4); in hours waiting weighs little")] = (
        3600.0
    )
    round_s: Annotated[float, Meta(ge=0, description="it decides at multiples of this; 0: at once")] = 60.0
    longest_deadline_s: Annotated[float, Meta(gt=0, description="deadline of jobs that state none")] = 86400.0
    metric: Annotated[str, Meta(description="the name under which jobs report their loss")] = "loss"
    whole: Annotated[bool, Meta(description="a job starts with all its tasks; false: with those that fit")] = True
    task_by_task: Annotated[
        bool, Meta(description="with whole=false, tasks of all jobs go in one order; false: job by job")
    ] = True
    patience_s: Annotated[float, Meta(gt=0, description="no lower priority overtakes a job that waited this long")] = (
        604800.0
    )
    evict: Annotated[bool, Meta(description="a task that must leave and fits nowhere waits; false: it stays")] = True
    urgency: Annotated[bool, Meta(description="whether a job's urgency counts (2)")] = True
    traffic: Annotated[bool, Meta(description="whether tasks go to those that they exchange data with")] = True
    relieve: Annotated[bool, Meta(description="whether tasks leave overloaded servers")] = True
    copies: Annotated[int, Meta(ge=0, le=8, description="of each job's first task, against stragglers")] = 0
    before: ClassVar[dict[str, Any]] = {"task_by_task": False}

    @property
    def weights(self) -> PriorityWeights:
        """The constants of the equations."""
        floor_s = max(self.round_s, _LEAST_FLOOR_S)
        return PriorityWeights(
            self.alpha, self.gamma, self.gamma_d, self.gamma_r, self.gamma_w, self.unit_s, floor_s,
            self.longest_deadline_s, self.urgency,
        )  # fmt: skip


def rank(view: JobView, now_s: float, params: MlfH) -> tuple[Any, ...]:
    """What the queue's columns need of the job."""
    return queue_rank(view, now_s, params.weights, params.metric)


@policy("mlf_h", params=MlfH, order=rank, paper="MLFS, CoNEXT'20", reads=("urgency", "deadline_s"))
def decide(snapshot: Snapshot, params: MlfH) -> Plan:
    """Tasks by what they bring and how urgent they are, each to the server nearest to its ideal host.

    Priorities rest on urgency, iteration, loss reduction, model part, dependants, deadline, remaining and waiting time.
    Where tasks turn out to take more than they asked for, those nearest to the ideal task to migrate leave overloaded
    servers.
    """
    return decide_round(snapshot, params, SchedulingRound)


def decide_round(snapshot: Snapshot, params: MlfH, begin: Callable[[Snapshot, Any], SchedulingRound]) -> Plan:
    """One round, if one is due; `begin` makes what it is decided by."""
    now_s = snapshot.now_s
    asked_s = (snapshot.memo or {}).get("asked_s")
    if params.round_s and not snapshot.due and not is_due(now_s, params.round_s, asked_s):  # Reviews are in rounds too.
        return between_rounds(snapshot, params.round_s)
    memos, reviews, heavier = reviewed(snapshot, params)
    if snapshot.due and not heavier and not snapshot.waiting.count and snapshot.memo == nothing_missing(snapshot):
        return Plan(memo=snapshot.memo, memos=memos, reviews=reviews, wake=Wake(freed_gpus=None, epoch=False))
    scheduling = begin(snapshot, params)
    draft = scheduling.draft
    draft.memos.update(memos)
    draft.reviews.update(reviews)
    scheduling.relieve_overloaded_servers(heavier)
    scheduling.place_by_priority()
    stalled.break_deadlock(scheduling)
    stalled.start_one_beyond_the_limit(scheduling)
    stalled.note_since_when_tasks_wait(scheduling)
    scheduling.place_copies()
    for job_id in scheduling.started:
        draft.reviews[job_id] = next_review_s(now_s, 0.0, params)
    keep_for_next_decision(draft.table)
    memo = nothing_missing(snapshot) if not draft.incomplete else None
    return draft.plan(Wake(freed_gpus=1 if scheduling.waits else None, epoch=False), memo=memo)


class SchedulingRound:
    """One round: the draft of its plan, and what was computed on the way."""

    score: Score | None = None  # that takes the place of the equations

    def __init__(self, snapshot: Snapshot, params: MlfH) -> None:
        self.snapshot, self.params, self.weights = snapshot, params, params.weights
        self.draft = TaskDraft(snapshot, params.h_r)
        self.started: list[str] = []
        self.waits = False  # a job or a task waits that would take what becomes free
        self._migrating: list[SingleTask] = []
        self._serves_tasks = params.task_by_task and not params.whole
        self._room = RoomFilter(self.draft, params.whole, params.gamma, self._serves_tasks)
        self._reserved: int | None = None  # the row that `_reserved_row` found
        self._hosts: dict[tuple[bytes, bytes | None], HostCandidates] = {}  # by what a task needs and accepts
        self._shapes: dict[str, TaskShape] = {}
        self._tasks: dict[str, JobTasks] = {}
        self._priorities: dict[str, Column] = {}

    # -- 3.3.1: priorities ----------------------------------------------------------------------------------

    def priorities(self, job_id: str) -> Column:
        """[task]: equation 6, of the tasks of a job."""
        found = self._priorities.get(job_id)
        if found is None:
            view = self.snapshot.jobs[job_id]
            structure, metric = self.shape(view).structure, self.params.metric
            found = task_priorities(view, structure, self.snapshot.now_s, self.weights, metric)
            self._priorities[job_id] = found
        return found

    def task_order(self, view: JobView) -> list[int]:
        """The job's tasks by priority, its parameter server first."""
        return in_order(self.shape(view).structure, self.priorities(view.id))

    def shape(self, view: JobView, key: str = "") -> TaskShape:
        """What the job's task graph asks for."""
        found = self._shapes.get(view.id)
        if found is None:
            key = key or self.draft.shapes.get(view.id) or shape_key(view.job.tasks)
            found = self._shapes[view.id] = task_shape(key, self.weights.gamma)
        return found

    def tasks(self, job_id: str) -> JobTasks:
        """The tasks of a job, as placing them needs them."""
        found = self._tasks.get(job_id)
        if found is None:
            view = self.snapshot.jobs[job_id]
            found = self._tasks[job_id] = tasks_of(view, self.shape(view), self.params.traffic)
        return found

    # -- 3.3.3: overloaded servers --------------------------------------------------------------------------

    def relieve_overloaded_servers(self, heavier: list[JobView]) -> None:
        """Of servers on which these jobs are: while one is overloaded, the task nearest to the ideal one leaves it."""
        draft, table = self.draft, self.draft.table
        servers = {int(table.index.server_of[g]) for v in heavier for g in draft.places.get(v.id, {}).values()}
        for server in sorted(servers):
            running = self._running_on(server)
            while (task := next_to_migrate(table, server, running, self.params.p_s)) is not None:
                running.remove(task)
                tasks, gpu_load = self.tasks(task.job), float(table.gpu_load[task.gpu])
                draft.take_off(tasks, task.task)
                if original(task.task) == task.task:  # A copy is not needed elsewhere.
                    k = tasks.names.index(task.task)
                    needs = tuple(tasks.needs[k].tolist())
                    self._migrating.append(SingleTask(task.priority, tasks.view, k, needs, task.gpu, gpu_load))
                name = table.index.names[server]
                draft.reasons[task.job] = f"task '{task.task}' leaves '{name}', which is overloaded"

    def _running_on(self, server: int) -> list[RunningTask]:
        found, draft = [], self.draft
        begins, ends = draft.table.index.begins[server : server + 2]
        for gpu in range(begins, ends):
            for tenant in draft.tenants_of(gpu):
                tasks = self.tasks(tenant.job)
                k, number = tasks.names.index(original(tenant.task)), tasks.view.number
                priority = float(self.priorities(tenant.job)[k])
                data_mib = draft.traffic_mib(tasks, tasks.names[k], draft.places[tenant.job]).get(server, 0.0)
                found.append(RunningTask(tenant.job, tenant.task, gpu, tasks.needs[k], priority, data_mib, number))
        return sorted(found, key=lambda t: (t.number, t.task))

    # -- 3.3.2: the queue -----------------------------------------------------------------------------------

    def place_by_priority(self) -> None:
        """Take jobs and single tasks from the queue, the highest priority first, and place them on servers."""
        singles, leaving = SingleTaskQueue(self._exact_priority), SingleTaskQueue(self._exact_priority)
        for task in self._migrating:  # Those that may stay go first, before others take their room.
            (singles if self.evicts(task) else leaving).add(task, is_exact=True)
        for task in self._missing_tasks():
            singles.add(task, is_exact=False)
        self._place_singles(leaving)
        if self.snapshot.waiting.count:
            patience_s = self.params.patience_s
            with queue_of(
                self.snapshot, self.weights, self._may_fit, self._reserved_row, patience_s, self.score
            ) as queue:
                if queue.later is None and len(queue.order) < len(queue.entries):
                    self._note_waiting()
                if self._start_jobs(queue, queue.order, singles) and queue.later is not None:
                    self._start_jobs(queue, queue.rank(self._still_fitting(queue, queue.later())), singles)
        self._place_singles(singles)
        if self._serves_tasks:
            for job_id in self.started:
                self.draft.reasons[job_id] = self._why_started(job_id)

    def _start_jobs(self, queue: WaitingQueue, rows: Any, singles: SingleTaskQueue) -> bool:
        """Try jobs in this order, and single tasks between them; False once what is free is reserved for a job."""
        at = 0
        while at < len(rows):
            row, at, started = int(rows[at]), at + 1, len(self.started)
            self._place_singles(singles, float(queue.priority[row]))
            if not self._try_to_start(queue, row, singles):
                return False
            if len(self.started) > started:
                rows, at = self._still_fitting(queue, rows[at:]), 0
        return True

    def _try_to_start(self, queue: WaitingQueue, row: int, singles: SingleTaskQueue) -> bool:
        """Start the job if it fits; False if it does not, and what is free is reserved for it."""
        draft, view = self.draft, self.snapshot.jobs[queue.entries[row][-1]]
        over_quota = draft.over_quota
        if view.verdict:
            return True
        if view.job.tasks is not None:
            # What is free is kept for the reserved job as a whole: it does not wait for lower priorities again.
            if self._serves_tasks and row != self._reserved_row(queue):
                self._queue_tasks(view, queue.shapes[queue.shape[row]], singles)
                return True
            started = self._start_tasks(queue, row, view)
        elif draft.is_passed_over(view):
            started = False
        else:
            started = draft.admits(view) and draft.start_plain(view, f"starts: priority {queue.priority[row]:.3g}")
        if started:
            return True
        self._note_waiting()
        if row != self._reserved_row(queue) or draft.over_quota > over_quota:
            return True
        draft.reasons["*"] = f"waits: what is free is reserved for '{view.id}', which has waited long"
        return False

    def _start_tasks(self, queue: WaitingQueue, row: int, view: JobView) -> bool:
        """Place all tasks of a waiting job, or as many as fit if it may start in parts."""
        draft, key = self.draft, queue.shapes[queue.shape[row]]
        if not self._room.may_start(view, key):
            return False
        self.shape(view, key)
        tasks, order, over_quota = self.tasks(view.id), self.task_order(view), draft.over_quota
        if draft.place_all(tasks, order, self._nearest_to_ideal(draft.places.get(view.id, {}))):
            draft.reasons[view.id] = f"starts: priority {queue.priority[row]:.3g}"
            self.started.append(view.id)
            return True
        if self.params.whole or not self._could_run(view):
            if draft.over_quota == over_quota:
                self._room.note_failed(view, key)
            return False
        placed = [tasks.names[k] for k in order if self.place_task(tasks, k)]
        if placed:
            draft.reasons[view.id] = f"starts {len(placed)} of {len(order)} tasks: the others fit nowhere"
            self.started.append(view.id)
        return False

    def _queue_tasks(self, view: JobView, key: str, singles: SingleTaskQueue) -> None:
        """Let each task of a waiting job wait for its own turn, among those of all others."""
        draft, graph = self.draft, view.job.tasks
        assert graph is not None
        has_quota = draft.quota_has_room(view.job, range(len(graph.tasks)))
        draft.over_quota += not has_quota
        if not has_quota or not self._room.may_start(view, key) or not self._could_run(view):
            self._note_waiting()
            return
        structure, priority = self.shape(view, key).structure, self.priorities(view.id)
        first = nextafter(float(priority.max()), inf)  # Its parameter server goes before its other tasks.
        for k, needs in enumerate(self.tasks(view.id).needs.tolist()):
            own = first if structure.servers[k] else float(priority[k])
            singles.add(SingleTask(own, view, k, tuple(needs)), is_exact=True)

    def _why_started(self, job_id: str) -> str:
        all_tasks, missing = len(self.tasks(job_id).names), len(self.draft.missing(job_id))
        if missing:
            return f"starts {all_tasks - missing} of {all_tasks} tasks: the others fit nowhere"
        return f"starts: priority {self.priorities(job_id).max():.3g}"

    def _nearest_to_ideal(self, places: Places) -> Any:
        """The choice of a GPU for each of a job's tasks in turn, which knows where the ones before it went."""
        places = dict(places)

        def choose(tasks: JobTasks, k: int) -> int:
            places[tasks.names[k]] = gpu = self._best_gpu(tasks, k, places)
            return gpu

        return choose

    def place_task(self, tasks: JobTasks, k: int, stays: int = -1, degradation: float = 0.0, copy: str = "") -> bool:
        """Give one task, or a copy of it under another name, a GPU of the server nearest to the ideal host."""
        draft, job = self.draft, tasks.view.job
        if not draft.quota_has_room(job, [k]):
            draft.over_quota += 1
            return False
        places = draft.places.get(job.id, {})
        taken = [gpu for name, gpu in places.items() if original(name) == tasks.names[k]] if copy else []
        gpu = self._best_gpu(tasks, k, places, stays, degradation, taken)
        if gpu < 0:
            return False
        draft.put_on(tasks, k, gpu, copy)
        return True

    def _best_gpu(
        self, tasks: JobTasks, k: int, places: Places, stays: int = -1, degradation: float = 0.0,
        taken: Sequence[int] = (),
    ) -> int:  # fmt: skip
        """The least loaded GPU of the server nearest to the ideal host, not on the servers of `taken`; -1: none."""
        needs = tasks.needs[k]
        if not self.draft.table.has_gpu_for(float(needs[0])):
            return -1
        accepts = self.draft.accepting_servers(tasks.view.job, taken)
        key = (needs.tobytes(), None if accepts is None else accepts.tobytes())
        hosts = self._hosts.get(key)
        if hosts is None:
            hosts = self._hosts[key] = self.candidates(needs, accepts)
        return hosts.best_gpu(self.draft.traffic_mib(tasks, tasks.names[k], places), stays, degradation)

    def candidates(self, needs: Column, accepts: Any) -> HostCandidates:
        """The servers that could host such a task."""
        return HostCandidates(self.draft.table, needs, accepts)

    def evicts(self, _task: SingleTask) -> bool:
        """Shall a task that must leave its server, and fits on no other, go to the queue?"""
        return self.params.evict

    # -- single tasks: migrating, missing in a job that is placed, or of a job that starts task by task -------

    def _place_singles(self, singles: SingleTaskQueue, least: float = -inf) -> None:
        """Place single tasks by priority, down to this one."""
        while (task := singles.next(least)) is not None:
            self._place_single(task)

    def _place_single(self, task: SingleTask) -> None:
        draft, view, k = self.draft, task.view, task.k
        tasks = self.tasks(view.id)
        name, is_migrating = tasks.names[k], task.gpu >= 0
        stays, degradation = -1, 0.0
        if is_migrating:
            stays = int(draft.table.index.server_of[task.gpu])
            left_s = view.remaining_s(self.snapshot.now_s)
            degradation = min(1.0, view.costs.restart_s(warm=False) / left_s) if left_s else 0.0
        if self.place_task(tasks, k, stays, degradation):
            if not view.partitions:
                if len(draft.places[view.id]) == 1:
                    self.started.append(view.id)
                return
            verb = "moves" if is_migrating else "has room again"
            draft.reasons[view.id] = f"task '{name}' {verb}: priority {task.priority:.3g}"
            return
        may_stay = is_migrating and draft.table.has_room(task.gpu, tasks.needs[k], task.gpu_load)
        if may_stay and not (self.evicts(task) and self._another_job_is_complete(view.id)):
            draft.put_on(tasks, k, task.gpu)
            draft.reasons[view.id] = f"task '{name}' stays: no other server has room for it"
            return
        self.waits = True
        if not view.partitions:
            self._note_waiting()
        if is_migrating:
            draft.reasons[view.id] = f"task '{name}' waits: its server is overloaded, and no other has room for it"

    def _another_job_is_complete(self, but: str) -> bool:
        return any(not self.draft.missing(j) for j in self.draft.places if j != but)

    def _missing_tasks(self) -> list[SingleTask]:
        """The tasks that placed jobs lack and that did not just leave a server, if a server has room for them."""
        migrating = {(m.view.id, m.k) for m in self._migrating}
        jobs, fits_somewhere, found = self.snapshot.jobs.data(), self.draft.table.fits_somewhere, []
        for rest, line in self.draft.missing_by_needs(migrating):
            for n, (load, job_id, k) in enumerate(line):
                needs = (load, *rest)
                if not fits_somewhere(needs):  # Nor do those after it, which need no less.
                    self.waits |= any(not jobs[j].verdict for _load, j, _k in line[n:])
                    break
                view = jobs[job_id]
                if not view.verdict:
                    bound = priority_at_most(view, self.shape(view).structure, self.snapshot.now_s, self.weights)
                    found.append(SingleTask(bound, view, k, needs))
        return found

    def _exact_priority(self, task: SingleTask) -> float | None:
        """The priority of a task that its job lacks; None if it fits nowhere any more."""
        if not self.draft.table.fits_somewhere(task.needs):
            self.waits = True
            return None
        return float(self.priorities(task.view.id)[task.k])

    # -- jobs that wait -------------------------------------------------------------------------------------

    def _note_waiting(self) -> None:
        self.waits = True
        what = "any" if self._serves_tasks else "all"
        self.draft.reasons.setdefault(
            "*", f"waits: no server has room for {what} of its tasks without being overloaded"
        )

    def _may_fit(self, queue: WaitingQueue, among: Any) -> Any:
        return self._room.rows(queue, self._reserved_row(queue), among)

    def _still_fitting(self, queue: WaitingQueue, rows: Any) -> Any:
        """Those of these rows for which there may still be room."""
        left = self._may_fit(queue, rows)
        if len(left) < len(rows):
            self._note_waiting()
        return left

    def _reserved_row(self, queue: WaitingQueue) -> int:
        """The row of the job that no lower priority overtakes; -1 if there is none.

        Of the jobs that have waited for `patience_s`, and that no quota, no reservation and not the cluster's size
        holds up, it is the one that has waited longest.
        """
        if self._reserved is None:
            jobs = self.snapshot.jobs
            rows = (n for n in queue.longest if self._could_start(jobs[queue.entries[n][-1]]))
            self._reserved = next(rows, -1)
        return self._reserved

    def _could_start(self, view: JobView) -> bool:
        """Would the job start if all GPUs were free?"""
        job = view.job
        if view.verdict or not self._could_run(view):
            return False
        if job.excluded_nodes:
            return False  # It must not hold up owners for which a node is reserved that it cannot have.
        if job.tasks is None:
            return self.draft.within_quota(job, job.sizes[0])
        return self.draft.quota_has_room(job, range(len(job.tasks.tasks)))

    def _could_run(self, view: JobView) -> bool:
        """Would the job fit an empty cluster?"""
        capacity = self.snapshot.capacity
        if view.job.tasks is None:
            nodes = [v.node for v in self.snapshot.nodes.data().values() if v.is_open]
            return Capacity.of(nodes).place(view.job, view.job.sizes[0]) is not None
        key = view.rank[-1] if view.rank else shape_key(view.job.tasks)
        servers = capacity.up & capacity.layout.eligible(view.job)
        return all_fit(capacity.layout, servers, key, self.weights.gamma)

    # -- copies ---------------------------------------------------------------------------------------------

    def place_copies(self) -> None:
        """If no job waits, give the first task of jobs that start copies on other servers."""
        if self.waits or not self.params.copies:
            return
        for job_id in self.started:
            tasks = self.tasks(job_id)
            first = int(self.priorities(job_id).argmax())
            for n in range(self.params.copies):
                self.place_task(tasks, first, copy=f"{tasks.names[first]}#{n + 2}")
