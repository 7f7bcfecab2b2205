"""The fold: state from events, from plans and from the actions that were sent out.

A snapshot is edited field by field in an `Edit`, which one cycle makes and drops; what it leaves is a value again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
from hocket.model.partition import Holding, Partition
from hocket.model.plan import Plan
from hocket.model.resources import Node, Slice, gpu_ids, gpu_mask
from hocket.model.snapshot import NO_USE, Snapshot, Usage, demand_of
from hocket.model.versioned import VersionedMap, VersionedQueue
from hocket.model.view import RECENT_OBSERVATIONS, Doing, JobState, JobView, NodeView, Observation, Tenancy

# A policy's order: (view, now) → what to sort by. Jobs of equal rank stand in the order of their submission.
Order = Callable[[JobView, float], tuple[Any, ...]]

# Members of an enum cost a look-up each time; these stand on hot paths.
_WAITING, _STARTING, _RUNNING = JobState.WAITING, JobState.STARTING, JobState.RUNNING
_PAUSING, _PAUSED = JobState.PAUSING, JobState.PAUSED
_NOTHING = Doing.NOTHING


def empty(nodes: Iterable[Node] = (), seed: int = 0) -> Snapshot:
    """The state before anything happened."""
    nodes = tuple(nodes)
    return Snapshot(
        now_s=0.0,
        nodes=VersionedMap((n.id, NodeView(n)) for n in nodes),
        owners=VersionedMap(),
        usage=VersionedMap(),
        jobs=VersionedMap(),
        waiting=VersionedQueue(),
        placed=VersionedQueue(),
        partitions=VersionedMap(),
        leaving=VersionedMap(),
        unsettled=VersionedMap(),
        capacity=Capacity.of(nodes),
        history=VersionedMap(),
        seed=seed,
    )


class Edit:
    """A snapshot being edited; `snapshot()` is the result."""

    __slots__ = (
        "alarm", "arrived", "base", "capacity", "decision", "due", "epoch_ended", "freed", "history", "jobs", "judged",
        "leaving", "memo", "nodes", "now_s", "order", "owners", "partitions", "placed", "submissions", "unsettled",
        "usage", "waiting", "wake",
    )  # fmt: skip

    def __init__(self, base: Snapshot, now_s: float, order: Order) -> None:
        self.base = base
        self.now_s = now_s
        self.order = order
        self.nodes = base.nodes
        self.owners = base.owners
        self.usage = base.usage
        self.jobs = base.jobs
        self.waiting = base.waiting
        self.placed = base.placed
        self.partitions = base.partitions
        self.leaving = base.leaving
        self.unsettled = base.unsettled
        self.capacity = base.capacity
        self.history = base.history
        self.memo = base.memo
        self.wake = base.wake
        self.decision = base.decision
        self.submissions = base.submissions
        # What happened, for the question whether the policy wants to be asked.
        self.arrived = self.freed = self.epoch_ended = self.alarm = False
        self.due: tuple[str, ...] = ()
        self.judged: list[str] = []  # jobs whose criterion may have been decided

    def snapshot(self) -> Snapshot:
        """The edited snapshot, a value again."""
        return Snapshot(
            self.now_s, self.nodes, self.owners, self.usage, self.jobs, self.waiting, self.placed, self.partitions,
            self.leaving, self.unsettled, self.capacity, self.history, self.memo, self.wake, self.base.seed,
            self.decision, self.submissions, self.due,
        )  # fmt: skip

    # -- events ---------------------------------------------------------------------------------------------

    def fold(self, event: Event) -> None:
        """Take one fact in. The commonest come first."""
        match event:
            case JobStarted(_, job, task):
                self._settled(job, task, _RUNNING)
            case JobEnded(_, job, _):
                self._over(job)
            case JobSubmitted():
                self._submitted(event)
            case JobPaused(_, job, task, tier):
                self._left(job, task, tier)
            case TimePassed(_, jobs):
                self._due(jobs)
            case EpochEnded(at_s, job, epoch, metrics) | ProgressReported(at_s, job, epoch, metrics):
                self._observed(event, Observation(at_s, epoch, metrics))
            case JobResized(_, job, task) | JobMoved(_, job, task):
                self._settled(job, task, _RUNNING)
            case JobPrepared(_, job):
                if (view := self.jobs.get(job)) is not None:
                    self._put(view, replace(view, prepared=True, preparing=False))
            case JobCheckpointed(_, job, tier) | StateStored(_, job, tier):
                if (view := self.jobs.get(job)) is not None:
                    self._put(view, replace(view, tier=tier))
            case JobFailed(_, job, reason, final):
                self._failed(job, reason, final)
            case NodeLost(_, node, reason):
                self._node_lost(node, reason)
            case NodeJoined(_, node):
                self._node_joined(node)
            case OwnerSet(_, owner):
                self.owners = self.owners.set(owner.id, owner)
                self.alarm = True
            case JobRefused():
                pass
            case _:
                assert_never(event)

    def _put(self, old: JobView | None, new: JobView) -> None:
        """Replace a view, and stand the job where its rank and its plan put it."""
        rank = self.order(new, self.now_s)
        if rank != new.rank:
            new = replace(new, rank=rank)
        job_id = new.job.id
        self.jobs = self.jobs.set(job_id, new)
        if old is not None:
            if old.rank == rank and bool(old.partitions) == bool(new.partitions):
                return
            self._unqueue(old)
        entry = (rank, new.number, job_id)
        if new.partitions:
            self.placed = self.placed.add(0, entry)
        else:
            self.waiting = self.waiting.add(shape_of(new.job), entry)

    def _unqueue(self, view: JobView) -> None:
        entry = (view.rank, view.number, view.job.id)
        if view.partitions:
            self.placed = self.placed.remove(0, entry)
        else:
            self.waiting = self.waiting.remove(shape_of(view.job), entry)

    def _submitted(self, event: JobSubmitted) -> None:
        job, at_s = event.job, event.at_s
        beliefs = event.beliefs
        if beliefs.run_s is None:
            beliefs = run_time.believe(self.history, job, beliefs)
        view = JobView(
            job, self.submissions, at_s, since_s=at_s, beliefs=beliefs, costs=event.costs
        )
        self.submissions += 1
        self.arrived = True
        self._put(None, view)
        if job.criterion is not None:
            self.judged.append(job.id)

    def _settled(self, job_id: str, task: str, state: JobState) -> None:
        """A start, resize or move is done: what was coming is held."""
        view = self.jobs.get(job_id)
        if view is None:
            return
        tenancies = view.tenancies
        if len(tenancies) == 1 and tenancies[0].task == task:
            tenancy = tenancies[0]
            now = Tenancy(task, tenancy.coming or tenancy.holding)
            tenancies = (now,)
        else:
            found = next((t for t in tenancies if t.task == task), None)
            if found is None:
                return
            tenancy = found
            now = Tenancy(task, tenancy.coming or tenancy.holding)
            tenancies = tuple(now if t.task == task else t for t in tenancies)
        if self.leaving.data():
            self.leaving = self.leaving.without(f"{job_id}/{task}")
        started = tenancy.doing is Doing.STARTING
        self._put(
            view,
            self._accounted(
                view,
                tenancies,
                state=state,
                started_s=self.now_s if view.started_s is None else view.started_s,
                starts=view.starts + started,
                prepared=False,
            ),
        )
        if view.job.criterion is not None:
            self.judged.append(job_id)
        if not self._as_planned(job_id, task, now.holding):
            self.unsettled = self.unsettled.set((job_id, task), True)

    def _as_planned(self, job_id: str, task: str, holding: Holding | None) -> bool:
        if holding is None:
            return False
        partition = self.partitions.get(holding.partition)
        if partition is None or partition.slices != holding.slices:
            return False
        for t in partition.tenants:
            if t.job == job_id and t.task == task:
                return t.replicas == holding.replicas and t.boundary == holding.boundary
        return False

    def _accounted(self, view: JobView, tenancies: tuple[Tenancy, ...], **changes: Any) -> JobView:
        """The view with its times summed up to now and what it runs on from now on."""
        past = self.now_s - view.since_s
        if len(tenancies) == 1:
            holding = tenancies[0].holding
            size = holding.size if holding is not None else 0
            gpus = holding.gpus if holding is not None else 0
        else:
            held = [t.holding for t in tenancies if t.holding is not None]
            size, gpus = sum(h.size for h in held), sum(h.gpus for h in held)
        if view.size:
            changes["ran_s"] = view.ran_s + past
            changes["attained_gpu_s"] = view.attained_gpu_s + view.gpus * past
            changes["done_s"] = view.done_s + past * view.beliefs.speed_at(view.size)
        else:
            changes["waited_s"] = view.waited_s + past
        return replace(view, since_s=self.now_s, size=size, gpus=gpus, tenancies=tenancies, **changes)

    def _left(self, job_id: str, task: str, tier: Any) -> None:
        view = self.jobs.get(job_id)
        if view is None:
            return
        tenancies = tuple(t for t in view.tenancies if t.task != task)
        self.leaving = self.leaving.without(f"{job_id}/{task}")
        self._put(view, self._accounted(view, tenancies, tier=tier, state=view.state if tenancies else _PAUSED))
        if any(t.job == job_id and t.task == task for p in view.partitions for t in self.partitions[p].tenants):
            self.unsettled = self.unsettled.set((job_id, task), True)
        self.freed = True

    def _over(self, job_id: str) -> None:
        """The job is in no snapshot from now on."""
        view = self.jobs.get(job_id)
        if view is None:
            return
        self._vacate(view)
        self._unqueue(view)
        self._forget_tenants(view)
        self.jobs = self.jobs.without(job_id)
        if view.size:
            self.history = run_time.learn(self.history, view.job, view.ran_at(self.now_s))
        self.freed = True

    def _failed(self, job_id: str, reason: str, final: bool) -> None:
        view = self.jobs.get(job_id)
        if view is None:
            return
        self.alarm = self.freed = True
        if final:
            self._over(job_id)
            return
        self._vacate(view)
        self._forget_tenants(view)
        now = self._accounted(
            view,
            (),
            state=_WAITING if view.tier.value == "none" else _PAUSED,
            failures=view.failures + 1,
            partitions=(),
            prepared=False,
            preparing=False,
            reason=f"failed: {reason}",
        )
        self._put(view, now)

    def _forget_tenants(self, view: JobView) -> None:
        job_id = view.job.id
        if not view.tenancies and not self.unsettled.data():
            return
        for tenancy in view.tenancies:
            if self.leaving.data():
                self.leaving = self.leaving.without(f"{job_id}/{tenancy.task}")
            if self.unsettled.data():
                self.unsettled = self.unsettled.without((job_id, tenancy.task))
        if self.unsettled.data():
            for key in [k for k in self.unsettled if k[0] == job_id]:
                self.unsettled = self.unsettled.without(key)

    def _vacate(self, view: JobView) -> None:
        """Take the job out of the partitions the plan has it in; a partition without tenants is no more."""
        job_id = view.job.id
        for pid in view.partitions:
            partition = self.partitions[pid]
            others = tuple(t for t in partition.tenants if t.job != job_id)
            if others:
                self._change_partition(partition, replace(partition, tenants=others))
            else:
                self._change_partition(partition, None)

    def _change_partition(self, old: Partition | None, new: Partition | None) -> None:
        """Replace a partition: capacity and owners' usage follow."""
        if old is not None and (new is None or old.slices != new.slices):
            for part in old.slices:
                self.capacity = self.capacity.give(part)
        if old is not None:
            self._count(old, -1)
        if new is None:
            assert old is not None
            self.partitions = self.partitions.without(old.id)
            return
        if old is None or old.slices != new.slices:
            for part in new.slices:
                self.capacity = self.capacity.take(part)
        self._count(new, 1)
        self.partitions = self.partitions.set(new.id, new)

    def _count(self, partition: Partition, sign: int) -> None:
        """Book what the tenants use to their owners."""
        for tenant in partition.tenants:
            view = self.jobs[tenant.job]
            demand = demand_of(view, tenant.task) if tenant.task else view.job.demand
            replicas = sum(tenant.replicas) if len(tenant.replicas) != 1 else tenant.replicas[0]
            owner = view.job.owner
            used = self.usage.get(owner) or NO_USE
            self.usage = self.usage.set(
                owner,
                Usage(
                    used.gpus + sign * replicas * demand.gpus,
                    used.cores + sign * replicas * demand.cores,
                    used.mem_mib + sign * replicas * demand.mem_mib,
                    used.jobs + sign,
                ),
            )

    def _due(self, jobs: tuple[str, ...]) -> None:
        for job_id in jobs:
            view = self.jobs.get(job_id)
            if view is None:
                continue
            if view.review_s is not None and view.review_s <= self.now_s:
                self.alarm = True
                self.due += (job_id,)
                self._put(view, replace(view, review_s=None))
            if view.job.criterion is not None:
                self.judged.append(job_id)

    def _observed(self, event: EpochEnded | ProgressReported, seen: Observation) -> None:
        view = self.jobs.get(event.job)
        if view is None:
            return
        recent = (*view.observations, seen)[-RECENT_OBSERVATIONS:]
        use = event.use if isinstance(event, ProgressReported) and event.use is not None else view.use
        self._put(view, replace(view, epoch=max(view.epoch, seen.epoch), observations=recent, use=use))
        self.epoch_ended = True
        if view.job.criterion is not None:
            self.judged.append(event.job)

    def _node_lost(self, node: str, reason: str) -> None:
        known = self.nodes.get(node)
        if known is None or not known.up:
            return
        self.alarm = True
        why = f"node '{node}' was lost" + (f": {reason}" if reason else "")
        hit = [p for p in self.partitions.values() if any(s.node == node for s in p.slices)]
        tenants = {(t.job, t.task) for p in hit for t in p.tenants}
        tenants |= {
            (v.job.id, t.task)
            for v in self.jobs.values()
            for t in v.tenancies
            for h in (t.holding, t.coming)
            if h is not None and any(s.node == node for s in h.slices)
        }
        for job_id, task in sorted(tenants):
            self._evict(job_id, task, why)
        for who, slices in self.leaving.items():
            if any(s.node == node for s in slices):
                self.leaving = self.leaving.without(who)
        self.nodes = self.nodes.set(node, replace(known, up=False, use=None))
        self.capacity = self.capacity.lose(node)

    def _evict(self, job_id: str, task: str, why: str) -> None:
        """A tenant is gone. A job whose other tasks still run goes on; else it waits again."""
        view = self.jobs.get(job_id)
        if view is None:
            return
        if not any(t.task != task for t in view.tenancies):
            self._failed(job_id, why, False)
            return
        for pid in view.partitions:
            partition = self.partitions[pid]
            others = tuple(t for t in partition.tenants if (t.job, t.task) != (job_id, task))
            if len(others) < len(partition.tenants):
                new = replace(partition, tenants=others) if others else None
                self._change_partition(partition, new)
        view = self.jobs[job_id]
        left = tuple(p for p in view.partitions if self._is_tenant(p, job_id))
        tenancies = tuple(t for t in view.tenancies if t.task != task)
        self.leaving = self.leaving.without(f"{job_id}/{task}")
        self.unsettled = self.unsettled.without((job_id, task))
        self._put(view, self._accounted(view, tenancies, partitions=left, failures=view.failures + 1, reason=why))

    def _is_tenant(self, pid: str, job_id: str) -> bool:
        partition = self.partitions.get(pid)
        return partition is not None and any(t.job == job_id for t in partition.tenants)

    def _node_joined(self, node: Node) -> None:
        self.alarm = self.freed = True
        known = self.nodes.get(node.id)
        if known is not None and known.node == node:
            if not known.up:
                self.capacity = self.capacity.regain(node.id)
            self.nodes = self.nodes.set(node.id, NodeView(node))
            return
        if known is not None and known.up:
            self._node_lost(node.id, "it came back with another capacity")
        self.nodes = self.nodes.set(node.id, NodeView(node))
        capacity = Capacity.of(v.node for v in self.nodes.values())
        for view in self.nodes.values():
            if not view.up:
                capacity = capacity.lose(view.node.id)
        for partition in self.partitions.values():
            for part in partition.slices:
                capacity = capacity.take(part)
        self.capacity = capacity

    # -- plans ----------------------------------------------------------------------------------------------

    def adopt(self, plan: Plan) -> None:
        """Make a checked plan the plan. What it changes is unsettled until it is carried out."""
        changed: dict[str, list[str]] = {}  # job → partitions of the plan that it is in
        for pid in plan.drop:
            old = self.partitions[pid]
            for t in old.tenants:
                changed.setdefault(t.job, [])
                self.unsettled = self.unsettled.set((t.job, t.task), True)
            self._change_partition(old, None)
        # What shrinks gives back before what grows takes.
        for new in plan.put:
            before = self.partitions.get(new.id)
            if before is not None and before.slices != new.slices:
                for part in before.slices:
                    self.capacity = self.capacity.give(part)
        for new in plan.put:
            before = self.partitions.get(new.id)
            if before is not None:
                for t in before.tenants:
                    changed.setdefault(t.job, [])
                    self.unsettled = self.unsettled.set((t.job, t.task), True)
                self._count(before, -1)
            if before is None or before.slices != new.slices:
                for part in new.slices:
                    self.capacity = self.capacity.take(part)
            for t in new.tenants:
                changed.setdefault(t.job, []).append(new.id)
                self.unsettled = self.unsettled.set((t.job, t.task), True)
            self._count(new, 1)
            self.partitions = self.partitions.set(new.id, new)
        touched = {*plan.drop, *(p.id for p in plan.put)} if changed else frozenset()
        for job_id in changed.keys() | plan.reasons.keys() | plan.memos.keys() | plan.reviews.keys():
            view = self.jobs.get(job_id)
            if view is None:
                continue
            changes: dict[str, Any] = {}
            if job_id in changed:
                kept = [p for p in view.partitions if p not in touched]
                changes["partitions"] = tuple(dict.fromkeys(kept + changed[job_id]))
            if job_id in plan.reasons:
                changes["reason"] = plan.reasons[job_id]
            if job_id in plan.memos:
                changes["memo"] = plan.memos[job_id]
            if job_id in plan.reviews:
                changes["review_s"] = plan.reviews[job_id]
            self._put(view, replace(view, **changes))
            if job_id in changed and view.tenancies:
                self._note_leaving(view)
        for job_id, verdict in plan.ends.items():
            self.end(job_id, verdict, plan.reasons.get(job_id, ""))
        for job_id, tier in plan.tiers.items():
            view = self.jobs[job_id]
            self._put(view, replace(view, keep=tier))
            self.unsettled = self.unsettled.set((job_id, ""), True)
        self.memo = plan.memo
        self.wake = plan.wake
        self.decision += 1

    def end(self, job_id: str, verdict: str, reason: str) -> None:
        """The job shall be over; its resources are promised to nobody until it is."""
        view = self.jobs[job_id]
        tasks = {t.task for p in view.partitions for t in self.partitions[p].tenants if t.job == job_id}
        self._vacate(view)
        self._put(view, replace(view, partitions=(), verdict=str(verdict), reason=reason or view.reason))
        self._note_leaving(view)
        for task in sorted(tasks | {t.task for t in view.tenancies}) or [""]:
            self.unsettled = self.unsettled.set((job_id, task), True)

    def _note_leaving(self, view: JobView) -> None:
        """Write down what the job's tenants hold in fact beyond what the plan gives them."""
        for tenancy in view.tenancies:
            who = f"{view.job.id}/{tenancy.task}"
            left: tuple[Slice, ...] = ()
            for held in (tenancy.holding, tenancy.coming):
                if held is not None:
                    left += self._left_behind(view, tenancy.task, held)
            if left:
                self.leaving = self.leaving.set(who, left)
            elif self.leaving.data():
                self.leaving = self.leaving.without(who)

    # -- actions that were sent out -------------------------------------------------------------------------

    def issue(self, actions: Iterable[Action]) -> None:
        """Write down that an executor was told."""
        for action in actions:
            view = self.jobs[action.job]
            match action:
                case Start(_, task, to, _) | Resume(_, task, to, _):
                    tenancy = Tenancy(task, None, Doing.STARTING, to)
                    self._doing(view, task, tenancy, _RUNNING if view.size else _STARTING)
                case Pause(_, task, _, _):
                    self._goes(view, task, Doing.PAUSING, None, _PAUSING)
                case End():
                    for tenancy in view.tenancies:
                        self._goes(self.jobs[action.job], tenancy.task, Doing.ENDING, None, _PAUSING)
                    self.unsettled = self.unsettled.without((action.job, ""))
                case Resize(_, task, to, _):
                    self._goes(view, task, Doing.RESIZING, to, view.state)
                case Move(_, task, to, _):
                    self._goes(view, task, Doing.MOVING, to, view.state)
                case Prepare():
                    self._put(view, replace(view, preparing=True))
                case Checkpoint() | Store():
                    pass
                case _:
                    assert_never(action)

    def _goes(self, view: JobView, task: str, doing: Doing, to: Holding | None, state: JobState) -> None:
        tenancy = next(t for t in view.tenancies if t.task == task)
        others = any(t.task != task and t.doing is _NOTHING for t in view.tenancies)
        self._doing(view, task, Tenancy(task, tenancy.holding, doing, to), view.state if others else state)

    def _left_behind(self, view: JobView, task: str, held: Holding) -> tuple[Slice, ...]:
        """What the tenant holds and the plan no longer gives its partition."""
        partition = self.partitions.get(held.partition)
        left = []
        if partition is None or partition.slices != held.slices:
            kept = {s.node: s for s in partition.slices} if partition is not None else {}
            for part in held.slices:
                if rest := _less(part, kept.get(part.node)):
                    left.append(rest)
        elif not any((t.job, t.task) == (view.job.id, task) for t in partition.tenants):
            # The partition stays, shared by others: only the leaver's memory is in a newcomer's way.
            mem_mib = demand_of(view, task).mem_mib
            for part, replicas in zip(held.slices, held.replicas, strict=True):
                if mem_mib and replicas:
                    left.append(Slice(part.node, mem_mib=mem_mib * replicas))
        return tuple(left)

    def _doing(self, view: JobView, task: str, tenancy: Tenancy, state: JobState) -> None:
        others = view.tenancies
        if others:
            others = tuple(t for t in others if t.task != task)
        self._put(view, replace(view, tenancies=(*others, tenancy), state=state))
        self.unsettled = self.unsettled.without((view.job.id, task))


def _less(part: Slice, kept: Slice | None) -> Slice | None:
    """What of a slice is left over by another of the same node."""
    if kept is None:
        return part
    gpus = gpu_ids(gpu_mask(part.gpus) & ~gpu_mask(kept.gpus))
    cores = max(0.0, part.cores - kept.cores)
    mem_mib = max(0.0, part.mem_mib - kept.mem_mib)
    net_mbps = max(0.0, part.net_mbps - kept.net_mbps)
    return Slice(part.node, gpus, cores, mem_mib, net_mbps) if gpus or cores or mem_mib or net_mbps else None
