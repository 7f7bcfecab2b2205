"""The fold: state from events, from plans and from the actions that were sent out.

Each field of `State` is a value; what changes is which values it holds. A snapshot is those values at one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, assert_never

from msgspec.structs import replace

from hocket.estimators import run_time
from hocket.model.action import (
    Action,
    Checkpoint,
    End,
    Move,
    Pause,
    Prepare,
    Resize,
    Resume,
    Start,
    Store,
)
from hocket.model.capacity import Capacity, shape_of
from hocket.model.event import (
    EpochEnded,
    Event,
    JobCheckpointed,
    JobEnded,
    JobFailed,
    JobMoved,
    JobPaused,
    JobPrepared,
    JobRefused,
    JobResized,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    OwnerSet,
    ProgressReported,
    StateStored,
    TimePassed,
)
from hocket.model.job import ONE_GPU
from hocket.model.partition import Holding, Partition, Sharing, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Node, Slice, gpu_ids, gpu_mask
from hocket.model.snapshot import NO_USE, Snapshot, Usage, demand_of
from hocket.model.versioned import OpenMap, OpenQueue, VersionedQueue, versioned
from hocket.model.view import RECENT_OBSERVATIONS, Doing, JobState, JobView, NodeView, Observation, Tenancy, Tier

# A policy's order: (view, now) → what to sort by. Jobs of equal rank stand in the order of their submission.
Order = Callable[[JobView, float], tuple[Any, ...]]

# Members of an enum cost a look-up each time; these stand on hot paths.
_WAITING, _STARTING, _RUNNING = JobState.WAITING, JobState.STARTING, JobState.RUNNING
_PAUSING, _PAUSED = JobState.PAUSING, JobState.PAUSED
_NOTHING, _IS_STARTING, _NONE = Doing.NOTHING, Doing.STARTING, Tier.NONE
_ALONE = Sharing.ALONE


def empty(nodes: Iterable[Node] = (), seed: int = 0) -> Snapshot:
    """The state before anything happened."""
    nodes = tuple(nodes)
    return Snapshot(
        now_s=0.0,
        nodes=versioned((n.id, NodeView(n)) for n in nodes),
        owners=versioned(),
        usage=versioned(),
        jobs=versioned(),
        waiting=VersionedQueue({}),
        placed=VersionedQueue({}),
        partitions=versioned(),
        leaving=versioned(),
        unsettled=(),
        capacity=Capacity.of(nodes),
        history=versioned(),
        seed=seed,
    )


class State:
    """What the controller knows, as it changes; `snapshot()` is its value at this moment."""

    __slots__ = (
        "alarm",
        "arrived",
        "capacity",
        "decision",
        "due",
        "epoch_ended",
        "freed",
        "history",
        "jobs",
        "judged",
        "learns",
        "leaving",
        "memo",
        "nodes",
        "now_s",
        "order",
        "owners",
        "partitions",
        "placed",
        "seed",
        "submissions",
        "unsettled",
        "usage",
        "waiting",
        "wake",
    )  # fmt: skip

    def __init__(self, base: Snapshot, order: Order, learns: bool = True) -> None:
        self.learns = learns  # keep a history of run times, and believe from it
        self.now_s = base.now_s
        self.order = order
        self.nodes = OpenMap.of(base.nodes)
        self.owners = OpenMap.of(base.owners)
        self.usage = OpenMap.of(base.usage)
        self.jobs = OpenMap.of(base.jobs)
        self.waiting = OpenQueue.of(base.waiting)
        self.placed = OpenQueue.of(base.placed)
        self.partitions = OpenMap.of(base.partitions)
        self.leaving = OpenMap.of(base.leaving)
        self.unsettled = base.unsettled
        self.capacity = base.capacity
        self.history = OpenMap.of(base.history)
        self.memo = base.memo
        self.wake = base.wake
        self.seed = base.seed
        self.decision = base.decision
        self.submissions = base.submissions
        self.arrived = base.arrived
        self.due = base.due
        self.begin()

    def begin(self) -> None:
        """A new cycle: nothing has happened in it yet."""
        # What happened, for the question whether the policy wants to be asked.
        self.freed = self.epoch_ended = self.alarm = False
        self.judged: list[str] = []  # jobs whose criterion may have been decided

    def snapshot(self) -> Snapshot:
        """The state at this moment, as a value."""
        return Snapshot(
            self.now_s, self.nodes.seal(), self.owners.seal(), self.usage.seal(), self.jobs.seal(),
            self.waiting.seal(), self.placed.seal(), self.partitions.seal(), self.leaving.seal(), self.unsettled,
            self.capacity, self.history.seal(), self.memo, self.wake, self.seed, self.decision, self.submissions,
            self.arrived, self.due,
        )  # fmt: skip

    # -- events ---------------------------------------------------------------------------------------------

    def fold(self, event: Event) -> None:
        """Take one fact in, at its own time."""
        if event.at_s > self.now_s:
            self.now_s = event.at_s
        _FOLDS[type(event)](self, event)

    def _put(self, old: JobView | None, new: JobView) -> None:
        """Replace a view, and stand the job where its rank and its plan put it."""
        rank = self.order(new, self.now_s)
        if rank != new.rank:
            new = replace(new, rank=rank)
        job = new.job
        self.jobs.put(job.id, new)
        if old is not None:
            was_placed = bool(old.partitions)
            if was_placed == bool(new.partitions) and old.rank == rank:
                return
            entry = (old.rank, old.number, job.id)
            if was_placed:
                self.placed.drop(0, entry)
            else:
                self.waiting.drop(shape_of(job), entry)
        entry = (rank, new.number, job.id)
        if new.partitions:
            self.placed.put(0, entry)
        else:
            self.waiting.put(shape_of(job), entry)

    def _submitted(self, event: JobSubmitted) -> None:
        job, at_s, beliefs = event.job, event.at_s, event.beliefs
        if self.learns and beliefs.run_s is None:
            beliefs = run_time.believe(self.history, job, beliefs)
        view = JobView(job, self.submissions, at_s, _WAITING, at_s, beliefs=beliefs, costs=event.costs)
        self.submissions += 1
        self.arrived += (job.id,)
        self._put(None, view)
        if job.criterion is not None:
            self.judged.append(job.id)

    def _settled(self, event: JobStarted | JobResized | JobMoved) -> None:
        """A start, resize or move is done: what was coming is held."""
        job_id, task = event.job, event.task
        view = self.jobs.live.get(job_id)
        if view is None:
            return
        others = view.tenancies
        for tenancy in others:
            if tenancy.task == task:
                break
        else:
            return
        holding = tenancy.coming or tenancy.holding
        now = Tenancy(task, holding)
        tenancies = (now,) if len(others) == 1 else tuple(now if t is tenancy else t for t in others)
        leaves = bool(self.leaving.live) and f"{job_id}/{task}" in self.leaving
        started_s = view.started_s
        settled = self._accounted(
            view,
            tenancies,
            _RUNNING,
            started_s=self.now_s if started_s is None else started_s,
            starts=view.starts + (tenancy.doing is _IS_STARTING),
            prepared=False,
        )
        self._put(view, settled)
        if leaves:
            self._note_leaving(settled)  # The plan may have changed again since.
        if view.job.criterion is not None:
            self.judged.append(job_id)
        if not self._as_planned(job_id, task, holding):
            self._unsettle((job_id, task))

    def _as_planned(self, job_id: str, task: str, holding: Holding | None) -> bool:
        if holding is None:
            return False
        partition = self.partitions.live.get(holding.partition)
        if partition is None or (partition.slices is not holding.slices and partition.slices != holding.slices):
            return False
        for t in partition.tenants:
            if t.job == job_id and t.task == task:
                return t.replicas == holding.replicas and t.boundary == holding.boundary
        return False

    def _accounted(self, view: JobView, tenancies: tuple[Tenancy, ...], state: JobState, **changes: Any) -> JobView:
        """The view with its times summed up to now, and what it runs on from now on."""
        now_s = self.now_s
        past = now_s - view.since_s
        if past < 0:  # An event that came late: what was summed up stays.
            past, now_s = 0.0, view.since_s
        size = gpus = 0
        for tenancy in tenancies:
            holding = tenancy.holding
            if holding is not None:
                size += sum(holding.replicas)
                for part in holding.slices:
                    gpus += len(part.gpus)
        if view.size:
            return replace(
                view, since_s=now_s, size=size, gpus=gpus, tenancies=tenancies, state=state,
                ran_s=view.ran_s + past,
                attained_gpu_s=view.attained_gpu_s + view.gpus * past,
                done_s=view.done_s + past * view.beliefs.speed_at(view.size),
                **changes,
            )  # fmt: skip
        return replace(
            view, since_s=now_s, size=size, gpus=gpus, tenancies=tenancies, state=state,
            waited_s=view.waited_s + past,
            **changes,
        )  # fmt: skip

    def _left(self, event: JobPaused) -> None:
        job_id, task = event.job, event.task
        view = self.jobs.live.get(job_id)
        if view is None:
            return
        tenancies = tuple(t for t in view.tenancies if t.task != task)
        self.leaving.drop(f"{job_id}/{task}")
        self._put(view, self._accounted(view, tenancies, view.state if tenancies else _PAUSED, tier=event.tier))
        if view.partitions and any(
            t.job == job_id and t.task == task for p in view.partitions for t in self.partitions.live[p].tenants
        ):
            self._unsettle((job_id, task))

    def _over(self, event: JobEnded | JobFailed) -> None:
        """The job is in no snapshot from now on."""
        job_id = event.job
        view = self.jobs.live.get(job_id)
        if view is None:
            return
        entry = (view.rank, view.number, job_id)
        if view.partitions:
            self._vacate(view)
            self.placed.drop(0, entry)
        else:
            self.waiting.drop(shape_of(view.job), entry)
        if self.unsettled or self.leaving.live:
            self._forget_tenants(view)
        self.jobs.drop(job_id)
        if view.size and self.learns:
            run_time.learn(self.history, view.job, view.ran_at(self.now_s))
        self.freed = True

    def _failed(self, event: JobFailed) -> None:
        self.alarm = True
        if event.final:
            self._over(event)
        else:
            self._fail(event.job, event.reason)

    def _fail(self, job_id: str, reason: str) -> None:
        """The job's run is lost; it waits again."""
        view = self.jobs.live.get(job_id)
        if view is None:
            return
        self.alarm = self.freed = True
        self._vacate(view)
        self._forget_tenants(view)
        now = self._accounted(
            view,
            (),
            _WAITING if view.tier is Tier.NONE else _PAUSED,
            failures=view.failures + 1,
            partitions=(),
            prepared=False,
            preparing=False,
            reason=f"failed: {reason}",
        )
        self._put(view, now)

    def _forget_tenants(self, view: JobView) -> None:
        job_id = view.job.id
        if self.leaving.live:
            for tenancy in view.tenancies:
                self.leaving.drop(f"{job_id}/{tenancy.task}")
        if self.unsettled:
            self.unsettled = tuple(key for key in self.unsettled if key[0] != job_id)

    def _unsettle(self, key: tuple[str, str]) -> None:
        if key not in self.unsettled:
            self.unsettled = (*self.unsettled, key)

    def _settle(self, key: tuple[str, str]) -> None:
        if key in self.unsettled:
            self.unsettled = tuple(k for k in self.unsettled if k != key)

    def _vacate(self, view: JobView) -> None:
        """Take the job out of the partitions the plan has it in; a partition without tenants is no more."""
        job_id = view.job.id
        for pid in view.partitions:
            partition = self.partitions.live[pid]
            tenants = partition.tenants
            others = tuple(t for t in tenants if t.job != job_id) if len(tenants) > 1 else ()
            self._change_tenants(partition, others)

    def _change_tenants(self, partition: Partition, tenants: tuple[Tenant, ...]) -> None:
        self._count(partition, -1)
        if tenants:
            changed = replace(partition, tenants=tenants)
            self._count(changed, 1)
            self.partitions.put(partition.id, changed)
            return
        self.capacity = self.capacity.give(partition.slices)
        self.partitions.drop(partition.id)

    def _count(self, partition: Partition, sign: int) -> None:
        """Book what the tenants use to their owners."""
        for tenant in partition.tenants:
            job = self.jobs.live[tenant.job].job
            demand = demand_of(job, tenant.task) if tenant.task else job.demand
            replicas = sign * sum(tenant.replicas)
            used = self.usage.live.get(job.owner, NO_USE)
            gpus = used.gpus + replicas * demand.gpus
            if demand is ONE_GPU:
                now = Usage(gpus, used.cores, used.mem_mib, used.jobs + sign, used.net_mbps)
            else:
                cores, mem_mib = used.cores + replicas * demand.cores, used.mem_mib + replicas * demand.mem_mib
                net_mbps = used.net_mbps + replicas * demand.net_mbps
                now = Usage(gpus, cores, mem_mib, used.jobs + sign, net_mbps)
            self.usage.put(job.owner, now)

    def _time_passed(self, event: TimePassed) -> None:
        for job_id in event.jobs:
            view = self.jobs.live.get(job_id)
            if view is None:
                continue
            if view.review_s is not None and view.review_s <= self.now_s:
                self.alarm = True
                self.due += (job_id,)
                self._put(view, replace(view, review_s=None))
            if view.job.criterion is not None:
                self.judged.append(job_id)

    def _observed(self, event: EpochEnded | ProgressReported) -> None:
        view = self.jobs.live.get(event.job)
        if view is None:
            return
        seen = Observation(event.at_s, event.epoch, event.metrics)
        recent = (*view.observations, seen)[-RECENT_OBSERVATIONS:]
        use = event.use if isinstance(event, ProgressReported) and event.use is not None else view.use
        self._put(view, replace(view, epoch=max(view.epoch, seen.epoch), observations=recent, use=use))
        self.epoch_ended = True
        if view.job.criterion is not None:
            self.judged.append(event.job)

    def _prepared(self, event: JobPrepared) -> None:
        if (view := self.jobs.live.get(event.job)) is not None:
            self._put(view, replace(view, prepared=True, preparing=False))

    def _saved(self, event: JobCheckpointed | StateStored) -> None:
        if (view := self.jobs.live.get(event.job)) is not None:
            self._put(view, replace(view, tier=event.tier))

    def _owner_set(self, event: OwnerSet) -> None:
        self.owners.put(event.owner.id, event.owner)
        self.alarm = True

    def _refused(self, _event: JobRefused) -> None:
        pass  # It never became a job; the journal knows.

    def _node_gone(self, event: NodeLost) -> None:
        self._node_lost(event.node, event.reason)

    def _node_lost(self, node: str, reason: str) -> None:
        known = self.nodes.live.get(node)
        if known is None or not known.up:
            return
        self.alarm = True
        why = f"node '{node}' was lost" + (f": {reason}" if reason else "")
        reached = {
            (v.job.id, t.task)
            for v in self.jobs.values()
            for t in v.tenancies
            for h in (t.holding, t.coming)
            if h is not None and any(s.node == node for s in h.slices)
        }
        for job_id, task in sorted(reached):
            self._evict(job_id, task, why)
        for partition in [p for p in self.partitions.values() if any(s.node == node for s in p.slices)]:
            for tenant in partition.tenants:
                self._fall_back(tenant, partition.id, why)
        for who, slices in self.leaving.items():
            if any(s.node == node for s in slices):
                self.leaving.drop(who)
        self.nodes.put(node, replace(known, up=False, use=None))
        self.capacity = self.capacity.lose(node)

    def _evict(self, job_id: str, task: str, why: str) -> None:
        """A tenant is gone. A job whose other tasks still run goes on; else it waits again."""
        view = self.jobs.live.get(job_id)
        if view is None:
            return
        if not any(t.task != task for t in view.tenancies):
            self._fail(job_id, why)
            return
        for pid in view.partitions:
            partition = self.partitions.live[pid]
            others = tuple(t for t in partition.tenants if (t.job, t.task) != (job_id, task))
            if len(others) < len(partition.tenants):
                self._change_tenants(partition, others)
        view = self.jobs.live[job_id]
        left = tuple(p for p in view.partitions if self._is_tenant(p, job_id))
        tenancies = tuple(t for t in view.tenancies if t.task != task)
        self.leaving.drop(f"{job_id}/{task}")
        self._settle((job_id, task))
        self._put(
            view,
            self._accounted(view, tenancies, view.state, partitions=left, failures=view.failures + 1, reason=why),
        )

    def _fall_back(self, tenant: Tenant, pid: str, why: str) -> None:
        """A tenant shall go where it cannot go any more: it stays where it is, if that is promised to nobody else."""
        job_id, task = tenant.job, tenant.task
        partition = self.partitions.live[pid]
        self._change_tenants(partition, tuple(t for t in partition.tenants if (t.job, t.task) != (job_id, task)))
        view = self.jobs.live[job_id]
        left = tuple(p for p in view.partitions if self._is_tenant(p, job_id))
        held = next((t.coming or t.holding for t in view.tenancies if t.task == task), None)
        if held is not None and held.partition not in self.partitions:
            taken: list[str] = []
            capacity = self.capacity.exchange((), held.slices, taken)
            if not taken:
                back = Partition(held.partition, held.slices, (Tenant(job_id, held.replicas, task, held.boundary),))
                self.capacity = capacity
                self.partitions.put(back.id, back)
                self._count(back, 1)
                left = (*left, back.id)
        self._put(view, replace(view, partitions=left, reason=why))
        self._note_leaving(view)
        self._unsettle((job_id, task))

    def _is_tenant(self, pid: str, job_id: str) -> bool:
        partition = self.partitions.live.get(pid)
        return partition is not None and any(t.job == job_id for t in partition.tenants)

    def _node_joined(self, event: NodeJoined) -> None:
        node = event.node
        self.alarm = self.freed = True
        known = self.nodes.live.get(node.id)
        if known is not None and known.node == node:
            if not known.up:
                self.capacity = self.capacity.regain(node.id)
            self.nodes.put(node.id, NodeView(node))
            return
        if known is not None and known.up:
            self._node_lost(node.id, "it came back with another capacity")
        self.nodes.put(node.id, NodeView(node))
        capacity = Capacity.of(v.node for v in self.nodes.values())
        for view in self.nodes.values():
            if not view.up:
                capacity = capacity.lose(view.node.id)
        for partition in self.partitions.values():
            capacity = capacity.take(partition.slices)
        self.capacity = capacity

    # -- plans ----------------------------------------------------------------------------------------------

    def adopt(self, plan: Plan, capacity: Capacity) -> None:
        """Make a checked plan the plan, and what the check found to be free then. What changes is unsettled."""
        self.memo = plan.memo
        self.wake = plan.wake
        self.decision += 1
        self.arrived = self.due = ()
        self.capacity = capacity
        tenants: dict[tuple[str, str], None] = {}
        places: dict[str, list[str]] = {}  # job → partitions of the plan that it is in
        for pid in plan.drop:
            old = self.partitions.live[pid]
            self._count(old, -1)
            self.partitions.drop(pid)
            for t in old.tenants:
                places.setdefault(t.job, [])
                tenants[t.job, t.task] = None
        for new in plan.put:
            before = self.partitions.live.get(new.id)
            if before is not None:
                self._count(before, -1)
                for t in before.tenants:
                    places.setdefault(t.job, [])
                    tenants[t.job, t.task] = None
            self._count(new, 1)
            self.partitions.put(new.id, new)
            for t in new.tenants:
                pids = places.setdefault(t.job, [])
                if new.id not in pids:  # Several tasks of a job may share a partition.
                    pids.append(new.id)
                tenants[t.job, t.task] = None
        if tenants:
            self.unsettled = tuple(dict.fromkeys(self.unsettled) | tenants) if self.unsettled else tuple(tenants)
            self._stand(plan, places)
        self._take_notes(plan, places)
        if plan.ends:
            for job_id, verdict in plan.ends.items():
                self.end(job_id, verdict, plan.reasons.get(job_id, ""))
        if plan.tiers:
            for job_id, tier in plan.tiers.items():
                view = self.jobs.live[job_id]
                self._put(view, replace(view, keep=tier))
                self._unsettle((job_id, ""))

    def start_all(self, plan: Plan, capacity: Capacity) -> list[Action] | None:
        """Adopt a plan that only gives waiting jobs something, and begin all of it; None if this is no such plan.

        Most plans are. It does what `adopt`, `diff` and `issue` do one after another, with one new view a job.
        """
        if plan.drop or plan.ends or plan.tiers or plan.checkpoints or self.unsettled or self.leaving.live:
            return None
        starts = []
        for new in plan.put:
            if len(new.tenants) != 1 or new.id in self.partitions:
                return None  # Someone else may have it still.
            view = self.jobs.live[new.tenants[0].job]
            if view.partitions or view.tenancies or view.preparing or new.tenants[0].task:
                return None
            starts.append((new, view))
        self.memo = plan.memo
        self.wake = plan.wake
        self.decision += 1
        self.arrived = self.due = ()
        self.capacity = capacity
        actions: list[Action] = []
        for new, view in starts:
            tenant = new.tenants[0]
            to = Holding(new.id, new.slices, tenant.replicas, tenant.boundary)
            self.partitions.put(new.id, new)
            self._count(new, 1)
            noted = replace(
                view, partitions=(new.id,), tenancies=(Tenancy("", None, _IS_STARTING, to),), state=_STARTING,
                **_noted(plan, tenant.job),
            )  # fmt: skip
            self._put(view, noted)
            actions.append((Start if view.tier is _NONE else Resume)(tenant.job, "", to, new))
        started = {action.job for action in actions}
        if plan.memos or plan.reasons.keys() != started or not plan.reviews.keys() <= started:
            self._take_notes(plan, started)
        return actions

    def _take_notes(self, plan: Plan, done: Container[str]) -> None:
        """Keep what the plan says about jobs that it leaves where they are."""
        taken: set[str] = set()
        for notes in (plan.memos, plan.reasons, plan.reviews):
            for job_id in notes:
                if job_id in done or job_id in taken or (view := self.jobs.live.get(job_id)) is None:
                    continue
                taken.add(job_id)
                noted = replace(view, **_noted(plan, job_id))
                if notes is plan.memos:
                    self._put(view, noted)  # Its rank may rest on its memo.
                else:
                    self.jobs.put(job_id, noted)

    def _stand(self, plan: Plan, places: dict[str, list[str]]) -> None:
        """Stand each job where the plan has it."""
        touched: set[str] | None = None
        for job_id, pids in places.items():
            view = self.jobs.live[job_id]
            if view.partitions:
                touched = touched or {*plan.drop, *(p.id for p in plan.put)}
                pids = list(dict.fromkeys([*(p for p in view.partitions if p not in touched), *pids]))
            self._put(view, replace(view, partitions=tuple(pids), **_noted(plan, job_id)))
            if view.tenancies:
                self._note_leaving(view)

    def end(self, job_id: str, verdict: str, reason: str) -> None:
        """The job shall be over; its resources are promised to nobody until it is."""
        view = self.jobs.live[job_id]
        tasks = {t.task for p in view.partitions for t in self.partitions.live[p].tenants if t.job == job_id}
        self._vacate(view)
        self._put(view, replace(view, partitions=(), verdict=str(verdict), reason=reason or view.reason))
        self._note_leaving(view)
        for task in sorted(tasks | {t.task for t in view.tenancies}) or [""]:
            self._unsettle((job_id, task))

    def _note_leaving(self, view: JobView) -> None:
        """Write down what the job's tenants hold in fact beyond what the plan gives them."""
        for tenancy in view.tenancies:
            who = f"{view.job.id}/{tenancy.task}"
            holding, coming = tenancy.holding, tenancy.coming
            left = self._left_behind(view, tenancy.task, holding) if holding is not None else ()
            if coming is not None:
                left += self._left_behind(view, tenancy.task, coming)
            if any(s.gpus or s.cores or s.mem_mib or s.net_mbps for s in left):  # Some jobs ask for nothing.
                self.leaving.put(who, left)
            elif self.leaving.live:
                self.leaving.drop(who)

    # -- actions that were sent out -------------------------------------------------------------------------

    def issue(self, actions: Iterable[Action], settled: Iterable[tuple[str, str]] = ()) -> None:
        """Write down what an executor was told, and who turned out to be as planned."""
        done = set(settled)
        for action in actions:
            view = self.jobs.live[action.job]
            match action:
                case Start(_, task, to, _) | Resume(_, task, to, _):
                    tenancy = Tenancy(task, None, _IS_STARTING, to)
                    self._doing(view, task, tenancy, _RUNNING if view.size else _STARTING)
                    done.add((action.job, task))
                case Pause(_, task, _, _):
                    self._goes(view, task, Doing.PAUSING, None, _PAUSING)
                    done.add((action.job, task))
                case End():
                    for tenancy in view.tenancies:
                        self._goes(self.jobs.live[action.job], tenancy.task, Doing.ENDING, None, _PAUSING)
                case Resize(_, task, to, _):
                    self._goes(view, task, Doing.RESIZING, to, view.state)
                    done.add((action.job, task))
                case Move(_, task, to, _):
                    self._goes(view, task, Doing.MOVING, to, view.state)
                    done.add((action.job, task))
                case Prepare():
                    self.jobs.put(action.job, replace(view, preparing=True))
                case Checkpoint() | Store():
                    pass
                case _:
                    assert_never(action)
        if done:
            self.unsettled = tuple(key for key in self.unsettled if key not in done)

    def _goes(self, view: JobView, task: str, doing: Doing, to: Holding | None, state: JobState) -> None:
        tenancy = next(t for t in view.tenancies if t.task == task)
        others = any(t.task != task and t.doing is _NOTHING for t in view.tenancies)
        self._doing(view, task, Tenancy(task, tenancy.holding, doing, to), view.state if others else state)

    def _left_behind(self, view: JobView, task: str, held: Holding) -> tuple[Slice, ...]:
        """What the tenant holds and the plan no longer gives its partition."""
        partition = self.partitions.live.get(held.partition)
        if partition is None:
            return held.slices
        stays = any(t.job == view.job.id and t.task == task for t in partition.tenants)
        if not stays and partition.sharing is _ALONE:
            return held.slices  # Another has it from now on, and alone.
        left: list[Slice] = []
        if partition.slices != held.slices:
            kept = {s.node: s for s in partition.slices}
            left += [rest for part in held.slices if (rest := _less(part, kept.get(part.node))) is not None]
        if not stays:
            # The partition goes on, shared by others: of what it keeps only the leaver's memory is in a newcomer's way.
            mem_mib = demand_of(view.job, task).mem_mib
            for part, replicas in zip(held.slices, held.replicas, strict=True):
                if mem_mib and replicas:
                    left.append(Slice(part.node, mem_mib=mem_mib * replicas))
        return tuple(left)

    def _doing(self, view: JobView, task: str, tenancy: Tenancy, state: JobState) -> None:
        others = view.tenancies
        if others:
            others = tuple(t for t in others if t.task != task)
        self.jobs.put(view.job.id, replace(view, tenancies=(*others, tenancy), state=state))


_FOLDS: dict[type, Callable[[State, Any], None]] = {
    JobSubmitted: State._submitted,
    JobRefused: State._refused,
    JobPrepared: State._prepared,
    JobStarted: State._settled,
    JobResized: State._settled,
    JobMoved: State._settled,
    JobCheckpointed: State._saved,
    JobPaused: State._left,
    StateStored: State._saved,
    ProgressReported: State._observed,
    EpochEnded: State._observed,
    JobEnded: State._over,
    JobFailed: State._failed,
    NodeJoined: State._node_joined,
    NodeLost: State._node_gone,
    OwnerSet: State._owner_set,
    TimePassed: State._time_passed,
}


def _noted(plan: Plan, job_id: str) -> dict[str, Any]:
    """What the plan says about one job, as fields of its view."""
    noted: dict[str, Any] = {}
    if (reason := plan.reasons.get(job_id)) is not None:
        noted["reason"] = reason
    if (review_s := plan.reviews.get(job_id)) is not None:
        noted["review_s"] = review_s
    if plan.memos and job_id in plan.memos:
        noted["memo"] = plan.memos[job_id]
    return noted


def _less(part: Slice, kept: Slice | None) -> Slice | None:
    """What of a slice is left over by another of the same node."""
    if kept is None:
        return part
    gpus = gpu_ids(gpu_mask(part.gpus) & ~gpu_mask(kept.gpus))
    cores = max(0.0, part.cores - kept.cores)
    mem_mib = max(0.0, part.mem_mib - kept.mem_mib)
    net_mbps = max(0.0, part.net_mbps - kept.net_mbps)
    return Slice(part.node, gpus, cores, mem_mib, net_mbps) if gpus or cores or mem_mib or net_mbps else None
