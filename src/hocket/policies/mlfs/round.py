"""One round of MLF-H: overloaded servers are relieved, then tasks are placed in the order of their priorities."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from hocket.model.capacity import Capacity
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.mlfs.kept import Needs, measured_factor
from hocket.policies.mlfs.movers import OnServer, next_mover
from hocket.policies.mlfs.queue import Queue, in_order, priority_at_most, queue_of, task_priorities
from hocket.policies.mlfs.seating import ALONE, Seating, Tasks, all_fit, tasks_of
from hocket.policies.mlfs.shapes import ONE_TASK, Shape, is_light, shape, shape_key
from hocket.policies.mlfs.singles import Single, Singles

if TYPE_CHECKING:
    from hocket.policies.mlfs.mlf_h import MlfH
    from hocket.policies.mlfs.shapes import Column

_CROWD = 5000  # jobs: to rank so many costs more than to look closely at what they need
_FULL = "waits: no server has room for all of its tasks without being overloaded"


class Round:
    """A plan being made; its methods are the steps."""

    def __init__(self, snapshot: Snapshot, params: MlfH) -> None:
        self.snapshot, self.params, self.weights = snapshot, params, params.weights
        self.draft = Seating(snapshot, params.h_r)
        self.started: list[str] = []
        self.waits = False  # somebody would take what becomes free
        self._tasks: dict[str, Tasks] = {}
        self._priorities: dict[str, Column] = {}
        self._moved: list[Single] = []
        self._shapes: dict[str, Shape] = {}
        self._first: int | None = None  # the row of the queue for which all that is free is kept, once it was asked for
        self._wants: tuple[Any, Column, Any] | None = None  # seats by shape of the queue; GPU loads; by shape, of which
        self._no_room: set[tuple[object, ...]] = set()  # what did not fit, and will not: there is ever less room

    # -- overload -------------------------------------------------------------------------------------------

    def relieve(self, heavier: list[JobView]) -> None:
        """Take tasks off overloaded servers on which these jobs are, as far as it takes."""
        ground = self.draft.board.ground
        servers = {int(ground.server_of[g]) for v in heavier for g in self.draft.places.get(v.id, {}).values()}
        for server in sorted(servers):
            there = self._on(server)
            while (mover := next_mover(self.draft.board, server, there, self.params.p_s)) is not None:
                there.remove(mover)
                tasks = self._known(mover.job)
                load = float(self.draft.board.gpu_load[mover.gpu])
                gpu = self.draft.take_off(tasks, mover.task)
                k = tasks.names.index(mover.task.partition("#")[0])
                if "#" not in mover.task:  # A copy is not needed elsewhere.
                    needs = tuple(tasks.needs[k].tolist())
                    self._moved.append(Single(mover.priority, tasks.view, k, needs, gpu, load))
                self.draft.reasons[mover.job] = f"task '{mover.task}' leaves '{ground.names[server]}': overloaded"

    def _on(self, server: int) -> list[OnServer]:
        """The tasks on a server."""
        found, draft = [], self.draft
        begins, ends = draft.board.ground.begins[server : server + 2]
        for gpu in range(begins, ends):
            for tenant in draft.tenants_of(gpu):
                tasks, priority = self._known(tenant.job), self._priority(tenant.job)
                k = tasks.names.index(tenant.task.partition("#")[0])
                places = draft.places[tenant.job]
                data = draft.traffic_mib(tasks, tasks.names[k], places).get(server, 0.0)
                number = tasks.view.number
                found.append(OnServer(tenant.job, tenant.task, gpu, tasks.needs[k], float(priority[k]), data, number))
        return sorted(found, key=lambda t: (t.number, t.task))

    # -- placement ------------------------------------------------------------------------------------------

    def place(self) -> None:
        """Serve the queue: single tasks and waiting jobs, highest priority first."""
        singles, leaving = Singles(self._ranked), Singles(self._ranked)
        for single in self._moved:  # If those may stay they are served first, or others would take their room.
            (singles if self.params.evict else leaving).add(single, True)
        for single in self._short_tasks():
            singles.add(single, False)
        self._place_singles(leaving)
        if self.snapshot.waiting.count:
            patience_s = self.params.patience_s
            with queue_of(self.snapshot, self.weights, self._may_fit, self._kept_for, patience_s) as queue:
                if queue.later is None and len(queue.order) < len(queue.entries):
                    self._somebody_waits()
                if self._serve(queue, queue.order, singles) and queue.later is not None:
                    self._serve(queue, queue.rank(self._still(queue, queue.later())), singles)
        self._place_singles(singles)

    def _serve(self, queue: Queue, line: Any, singles: Singles) -> bool:
        """Try waiting jobs in this order, and single tasks where it is their turn; False if that is enough."""
        at = 0
        while at < len(line):
            n, at, started = int(line[at]), at + 1, len(self.started)
            self._place_singles(singles, float(queue.priority[n]))
            if not self._start(queue, n):
                return False
            if len(self.started) > started:
                line, at = self._still(queue, line[at:]), 0
        return True

    def _still(self, queue: Queue, rows: Any) -> Any:
        """Those of these rows for which there may still be room."""
        left = self._may_fit(queue, rows)
        if len(left) < len(rows):
            self._somebody_waits()
        return left

    def _may_fit(self, queue: Queue, among: Any) -> Any:
        """The rows for which there may be room, among these or all. Whom nobody may overtake is tried in any case."""
        import numpy as np

        if self._wants is None:
            seats, load = zip(*map(self._largest, queue.shapes), strict=True)
            self._wants = (np.array(seats), *np.unique(load, return_inverse=True))
        wanted, loads, which = self._wants
        first, fits = self._kept_for(queue), wanted <= self.draft.board.seats_of(loads)[which]  # [shape]
        if among is None:
            may = fits[queue.shape]
            if first >= 0:
                may[first] = True
            rows = np.flatnonzero(may)
        else:
            rows = among[fits[queue.shape[among]] | (among == first)]
        if len(rows) > _CROWD and self.params.whole and not self.draft.has_quotas:
            rows = rows[self._tasks_may_fit(queue, fits, rows) | (rows == first)]
        needs = queue.needs[rows]
        may = needs <= (self.draft.board.headroom if self.params.whole else inf)
        if queue.plain is not None:  # Of those that are not partitioned, a shape says nothing.
            may &= (queue.shape[rows] != queue.plain) | (needs <= self.draft.free_gpus)
        return rows[may | (rows == first)]

    def _tasks_may_fit(self, queue: Queue, fits: Any, rows: Any) -> Any:
        """[row]: may all of its tasks fit, each sort by itself? Dearer to find out than to count GPUs; for crowds."""
        import numpy as np

        gamma = self.weights.gamma
        may = [
            bool(f) and (is_light(key) or self._each_has_room(shape(key, gamma), 1.0))
            for f, key in zip(fits, queue.shapes, strict=True)
        ]
        return np.array(may)[queue.shape[rows]]

    def _kept_for(self, queue: Queue) -> int:
        """The row of the job that nobody of lower priority overtakes; -1 if there is none.

        It is the one that has waited longest, and long, of those that neither a quota nor the cluster's size holds up.
        """
        if self._first is None:
            jobs = self.snapshot.jobs
            rows = (n for n in queue.longest if self._could_start(jobs[queue.entries[n][-1]]))
            self._first = next(rows, -1)
        return self._first

    def _somebody_waits(self) -> None:
        self.waits = True
        self.draft.reasons.setdefault("*", _FULL)

    def _start(self, queue: Queue, n: int) -> bool:
        """Try to start a job; False if all that is free is kept for it."""
        draft, view = self.draft, self.snapshot.jobs[queue.entries[n][-1]]
        over_quota = draft.over_quota
        if view.verdict:
            return True
        if view.job.tasks is None:
            if draft.is_passed_over(view):
                started = False
            else:
                started = draft.admits(view) and draft.start_plain(view, f"starts: priority {queue.priority[n]:.3g}")
        else:
            started = self._start_tasks(queue, n, view)
        if started:
            return True
        self._somebody_waits()
        if n != self._kept_for(queue) or draft.over_quota > over_quota:
            return True
        draft.reasons["*"] = f"waits: '{view.id}' has waited long enough, and all that is free is kept for it"
        return False

    def _start_tasks(self, queue: Queue, n: int, view: JobView) -> bool:
        """Place all tasks of a waiting job, or as many as fit if it may start in parts."""
        draft, job, whole = self.draft, view.job, self.params.whole
        key = queue.shapes[queue.shape[n]]
        like = (key, job.gpu_kinds, job.gpu_mem_mib)
        if view.use is None and (like in self._no_room or not self._seats_for(key)):
            return False
        known = self._shape(view, key)
        crowded = self._no_room and whole and not draft.has_quotas  # Else it would be in vain to look twice.
        if crowded and not self._each_has_room(known, measured_factor(view)):
            if view.use is None:
                self._no_room.add(like)
            return False
        tasks, over_quota = self._known(view.id), draft.over_quota
        order = in_order(known.structure, self._priority(view.id))
        if draft.place_all(tasks, order):
            draft.reasons[view.id] = f"starts: priority {queue.priority[n]:.3g}"
            self.started.append(view.id)
            return True
        if whole or not self._could_run(view):
            if view.use is None and draft.over_quota == over_quota:
                self._no_room.add(like)
            return False
        placed = [tasks.names[k] for k in order if draft.place_one(tasks, k)]
        if placed:
            draft.reasons[view.id] = f"starts {len(placed)} of {len(order)} tasks: the others fit nowhere"
            self.started.append(view.id)
        return False

    def _each_has_room(self, known: Shape, factor: float) -> bool:
        """Is there room for the tasks of each sort, if not for all?"""
        most = self.draft.board.takes_at_most
        return all(n <= most((load * factor, *rest)) for (load, *rest), n in known.sorts)

    def _seats_for(self, key: str) -> bool:
        """Are there enough GPUs for the largest tasks of a job, or for one where it may start in parts?"""
        wanted, load = self._largest(key)
        return wanted <= self.draft.board.seats(load)

    def _largest(self, key: str) -> tuple[int, float]:
        """How many seats of which GPU load a job must have, if what it asks for says anything of that."""
        if key == ONE_TASK or is_light(key):
            return 0, 0.0
        known = shape(key, self.weights.gamma)
        return known.as_large if self.params.whole else 1, known.most

    def _place_singles(self, singles: Singles, least: float = -inf) -> None:
        """Place single tasks in their order, down to this priority."""
        while (single := singles.next(least)) is not None:
            self._place_single(single)

    def _ranked(self, single: Single) -> float | None:
        """The priority of a task that its job lacks; None if it fits nowhere any more: there is ever less room."""
        if not self.draft.board.takes(single.needs):
            self.waits = True
            return None
        return float(self._priority(single.view.id)[single.k])

    def _place_single(self, single: Single) -> None:
        draft, view, k = self.draft, single.view, single.k
        tasks = self._known(view.id)
        name = tasks.names[k]
        stays, degradation = -1, 0.0
        if single.gpu >= 0:
            stays = int(draft.board.ground.server_of[single.gpu])
            degradation = self._degradation(view)
        if draft.place_one(tasks, k, stays, degradation):
            verb = "moves" if single.gpu >= 0 else "has room again"
            draft.reasons[view.id] = f"task '{name}' {verb}: priority {single.priority:.3g}"
            return
        may_stay = single.gpu >= 0 and draft.board.has_room(single.gpu, tasks.needs[k], single.load)
        if may_stay and not (self.params.evict and self._others_are_whole(view.id)):
            draft.put_on(tasks, k, single.gpu)
            draft.reasons[view.id] = f"task '{name}' stays: no other server has room for it"
            return
        self.waits = True
        if single.gpu >= 0:
            draft.reasons[view.id] = f"task '{name}' waits: its server is overloaded, and no other has room for it"

    def _degradation(self, view: JobView) -> float:
        """What moving costs the job, of what it still has to run."""
        left_s = view.remaining_s(self.snapshot.now_s)
        return min(1.0, view.costs.restart_s(warm=False) / left_s) if left_s else 0.0

    # -- jobs without all their tasks -----------------------------------------------------------------------

    def _short_tasks(self) -> list[Single]:
        """The tasks that placed jobs lack and that did not just leave a server, if a server has room for them."""
        draft, moved = self.draft, {(m.view.id, m.k) for m in self._moved}
        jobs, takes = self.snapshot.jobs.data(), draft.board.takes
        wanted: list[tuple[Needs, Sequence[tuple[float, str, int]]]] = list(draft.wanted.items())
        if draft.changed:
            wanted = [(rest, [t for t in line if t[1] not in draft.changed]) for rest, line in wanted]
        for job_id in draft.changed & draft.places.keys():
            lacks = [(k, needs) for k, needs in draft.lacks(job_id) if (job_id, k) not in moved]
            wanted += [(needs[1:], [(needs[0], job_id, k)]) for k, needs in lacks]
        found = []
        for rest, line in wanted:
            for n, (load, job_id, k) in enumerate(line):
                needs = (load, *rest)
                if not takes(needs):  # Nor those that come after it, for they need no less.
                    self.waits |= any(not jobs[j].verdict for _load, j, _k in line[n:])
                    break
                view = jobs[job_id]
                if not view.verdict:
                    structure = self._shape(view).structure
                    bound = priority_at_most(view, structure, self.snapshot.now_s, self.weights)
                    found.append(Single(bound, view, k, needs))
        return found

    def untie(self) -> None:
        """If every placed job lacks a task, the lowest give theirs up until one has all of them.

        Else they would wait for each other: a job of which a task waits stands still, and keeps its GPUs.
        """
        draft = self.draft
        while len(short := draft.short) > 1 and len(short) == len(draft.places) and not self._plain_runs():
            lowest = min(short, key=lambda j: (self._priority(j).max(), -self._known(j).view.number))
            tasks = self._known(lowest)
            for task in sorted(draft.places[lowest]):
                draft.take_off(tasks, task)
            draft.reasons[lowest] = "waits: others with higher priority lack GPUs for their tasks, too"
            self.waits = True
            if lowest in self.started:
                self.started.remove(lowest)
                if not self.snapshot.jobs[lowest].partitions:
                    del draft.reasons[lowest]
            left = sorted(draft.short, key=lambda j: (-self._priority(j).max(), self._known(j).view.number))
            for job_id in left:
                tasks = self._known(job_id)
                for k in in_order(self._shape(tasks.view).structure, self._priority(job_id)):
                    if tasks.names[k] not in draft.places[job_id] and draft.place_one(tasks, k):
                        draft.reasons[job_id] = f"task '{tasks.names[k]}' has room again"

    def alone(self) -> None:
        """If no job runs that way, let one have GPUs and servers beyond the limit: it would wait for ever."""
        import numpy as np

        draft, jobs = self.draft, self.snapshot.jobs
        if not self.waits or any(not draft.lacks(j) for j in draft.places) or self._plain_runs():
            return
        torn = sorted(draft.short, key=lambda j: jobs[j].number)
        for job_id in torn:
            for task in sorted(draft.places[job_id]):
                draft.take_off(self._known(job_id), task)
            draft.reasons.pop(job_id, None)
            if jobs[job_id].partitions:
                draft.reasons[job_id] = "waits: tasks that it lacks fit nowhere, and without them it stands still"
        self.started = []
        line: list[str] = []
        if self.snapshot.waiting.count:
            with queue_of(self.snapshot, self.weights, lambda q, _among: np.arange(len(q.entries))) as queue:
                line = [queue.entries[n][-1] for n in queue.order.tolist()]
        for view in (jobs[job_id] for job_id in (*torn, *line)):
            if view.job.tasks is None or view.verdict or not draft.start_alone(view, self._shape(view)):
                continue
            draft.reasons[view.id] = ALONE
            self.started = [view.id]
            return

    def note_waiting(self) -> None:
        """Write down since when each task of a placed job has waited: (4) counts it, and nobody else knows."""
        draft, now_s, jobs = self.draft, self.snapshot.now_s, self.snapshot.jobs.data()
        for job_id in draft.short | (draft.changed & draft.places.keys()):
            view = jobs[job_id]
            memo = draft.memos.get(job_id) or view.memo or {}
            known: dict[str, float] = memo.get("waits", {})
            lacks, graph = draft.lacks(job_id), view.job.tasks
            if len(lacks) == len(known) and job_id not in draft.changed:
                continue  # Of so many, most have waited for long.
            assert graph is not None
            waits = {name: known.get(name, now_s) for name in [graph.tasks[k].id for k, _needs in lacks]}
            if waits != known:
                others = {name: value for name, value in memo.items() if name != "waits"}
                draft.memos[job_id] = others | {"waits": waits} if waits else others

    def copy(self) -> None:
        """Where nobody waits, give the first task of jobs that start copies on other servers."""
        if self.waits or not self.params.copies:
            return
        for job_id in self.started:
            tasks = self._known(job_id)
            first = int(self._priority(job_id).argmax())
            for n in range(self.params.copies):
                self.draft.place_one(tasks, first, name=f"{tasks.names[first]}#{n + 2}")

    def _plain_runs(self) -> bool:
        there = (*self.snapshot.partitions.data().values(), *map(self.draft.partition, self.draft.changed_partitions))
        return any(p is not None and not p.tenants[0].task for p in there)

    def _others_are_whole(self, but: str) -> bool:
        return any(not self.draft.lacks(j) for j in self.draft.places if j != but)

    def _could_start(self, view: JobView) -> bool:
        """Is there nothing in its way but others on its GPUs?"""
        job = view.job
        if view.verdict or not self._could_run(view):
            return False
        if job.tasks is None:
            return self.draft.within_quota(job, job.sizes[0])
        return self.draft.quota_has_room(job, range(len(job.tasks.tasks)))

    def _could_run(self, view: JobView) -> bool:
        """Would the job fit if nobody else were there?"""
        if view.job.tasks is None:
            nodes = [v.node for v in self.snapshot.nodes.data().values() if v.up]
            return Capacity.of(nodes).place(view.job, view.job.sizes[0]) is not None
        layout = self.snapshot.capacity.layout
        servers = self.snapshot.capacity.up & layout.eligible(view.job)
        key = view.rank[-1] if view.rank else shape_key(view.job.tasks)
        return all_fit(layout, servers, key, self.weights.gamma)

    # -- what is known of a job -----------------------------------------------------------------------------

    def _shape(self, view: JobView, key: str | None = None) -> Shape:
        found = self._shapes.get(view.id)
        if found is None:
            key = key or self.draft.shapes.get(view.id) or shape_key(view.job.tasks)
            found = shape(key, self.weights.gamma)
            self._shapes[view.id] = found
        return found

    def _known(self, job_id: str) -> Tasks:
        found = self._tasks.get(job_id)
        if found is None:
            view = self.snapshot.jobs[job_id]
            found = self._tasks[job_id] = tasks_of(view, self._shape(view), self.params.traffic)
        return found

    def _priority(self, job_id: str) -> Column:
        found = self._priorities.get(job_id)
        if found is None:
            view = self.snapshot.jobs[job_id]
            known, metric = self._shape(view).structure, self.params.metric
            found = task_priorities(view, known, self.snapshot.now_s, self.weights, metric)
            self._priorities[job_id] = found
        return found
