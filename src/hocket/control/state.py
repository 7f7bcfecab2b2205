"""The controller's state: facts, indices over them, and notes of the present cycle.

`fold.py` says what events change, `commit.py` what plans change; code for both is here. A snapshot is the value of
facts and indices at one time.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from operator import itemgetter
from typing import Any

from msgspec.structs import force_setattr, replace

from hocket.control.rank_shifts import RankShifts, Shifts
from hocket.model.capacity import Capacity, Shape, shape_of
from hocket.model.event import PolicySet
from hocket.model.job import Job, Owner
from hocket.model.partition import Holding, Partition, Sharing, Tenant
from hocket.model.past_job import PastJobs
from hocket.model.plan import ALWAYS, Wake
from hocket.model.reservation import NodeReservation, excluded_nodes, holding_at, next_change_s
from hocket.model.resources import Slice, gpu_ids, gpu_mask
from hocket.model.snapshot import NO_USE, History, Snapshot, Usage, demand_of, queues_of
from hocket.model.versioned import OpenMap, OpenQueue
from hocket.model.view import JobState, JobView, NodeView, SuspendedProcess, Tenancy

# A policy's order: (view, now) → what to sort by. Jobs of equal rank are in the order of submission.
Order = Callable[[JobView, float], tuple[Any, ...]]

# Enum members cost a look-up each time; this one is used on a hot path.
_ALONE = Sharing.ALONE


class Facts:
    """What is known from events and plans. After a restore each of these is equal to what it was."""

    now_s: float  # never goes back
    nodes: OpenMap[str, NodeView]  # all that ever joined; lost ones are not `up`
    owners: OpenMap[str, Owner]  # those for which a weight or quota was set
    jobs: OpenMap[str, JobView]  # live ones, in the order of submission
    partitions: OpenMap[str, Partition]  # as planned: disjoint, on nodes that are up, each with a live tenant
    unsettled: dict[tuple[str, str], None]  # tenants (job, task) whose plan may not be carried out yet, in order
    history: OpenMap[Any, History]  # run times of ended jobs, if beliefs are learned
    memo: Any  # of the last plan, and what wakes the policy after it
    wake: Wake
    seed: int
    decision: int  # how many plans were committed
    submissions: int  # how many jobs were admitted; the number of the next one
    arrived: dict[str, None]  # live jobs that began to wait since the last decision, in order
    due: tuple[
        str, ...
    ]  # live jobs whose review came, whose rank changed by time or whose protection ended since the last decision
    new_policy: PolicySet | None  # set by an event; makes the next decision
    reservations: tuple[NodeReservation, ...]  # that are not over, in the order in which they were made
    past_jobs: PastJobs  # what ended jobs have shown, if the policy asks for it, and what was given

    __slots__ = tuple(__annotations__)


class Indices(Facts):
    """What can be computed from the facts, kept to avoid searches.

    Each is equal to its value rebuilt from the facts (`testing/invariants.py` checks this), also after a restore.
    """

    waiting: OpenQueue[Shape]  # entries of jobs that have no partition and are not held, by rank
    placed: OpenQueue[bool]  # entries of jobs with a partition, by rank; elastic ones in a bucket of their own
    capacity: Capacity  # resources of nodes that are up and in no partition
    leaving: OpenMap[str, tuple[Slice, ...]]  # "job/task" → what the tenant holds but no longer has in the plan
    usage: OpenMap[str, Usage]  # by owner, what the plan gives its jobs; empty while `counts_usage` is False
    tasks_placed: dict[str, int]  # job → how many of its tasks have a place, while usage is counted
    followers: dict[str, list[str]]  # live job → jobs that are held until it ends; may still name ended ones
    holding: tuple[NodeReservation, ...]  # those of the reservations by which jobs have their `excluded_nodes`
    reservation_s: float | None  # when the next of them begins or ends; None: none does by itself

    __slots__ = tuple(__annotations__)


class CycleNotes:
    """What happened in the present cycle: decides whether the policy is called. Replaced in the next cycle.

    A restored controller is between two cycles, and has none of these.
    """

    freed: bool  # resources may have become free
    epoch_ended: bool  # a job reported progress
    alarm: bool  # something happened after which the policy is always called
    fell_to: tuple[Any, ...] | None  # the last rank to which time alone moved a placed job
    judged: list[str]  # jobs whose criterion or limit may be decided now
    timers: list[tuple[float, str]]  # (time, job): when a job must be looked at

    __slots__ = tuple(__annotations__)

    def __init__(self) -> None:
        self.freed = self.epoch_ended = self.alarm = False
        self.fell_to = None
        self.judged = []
        self.timers = []


class State(Indices):
    """Facts and indices, and the methods that change them; `snapshot()` is their present value.

    The fields of this class itself depend on the policy, or are caches, and may differ after a restore.
    """

    order: Order  # of the policy that decides
    learns: bool  # keep a history of run times, and estimate from it
    recalls: bool  # keep what ended jobs have shown, and estimate from it when jobs will complete
    counts_usage: bool  # keep owners' usage: the policy reads it, or an owner has a quota
    shifts: RankShifts | None  # None if ranks do not change with time
    # Partition → jobs that hold it or will, by their tenancies; None until it is first needed.
    jobs_by_partition: dict[str, set[str]] | None
    notes: CycleNotes

    __slots__ = tuple(__annotations__)

    def __init__(
        self,
        base: Snapshot,
        order: Order,
        learns: bool = True,
        shifts: Shifts | None = None,
        counts: bool = True,
        recalls: bool = False,
    ) -> None:
        self.now_s = base.now_s
        self.nodes = OpenMap.of(base.nodes)
        self.owners = OpenMap.of(base.owners)
        self.jobs = OpenMap.of(base.jobs)
        self.partitions = OpenMap.of(base.partitions)
        self.unsettled = dict.fromkeys(base.unsettled)
        self.history = OpenMap.of(base.history)
        self.memo = base.memo
        self.wake = base.wake
        self.seed = base.seed
        self.decision = base.decision
        self.submissions = base.submissions
        self.arrived = dict.fromkeys(base.arrived)
        self.due = base.due
        self.new_policy = None
        self.reservations = base.reservations
        self.past_jobs = base.past_jobs

        self.waiting = OpenQueue.of(base.waiting)
        self.placed = OpenQueue.of(base.placed)
        self.capacity = base.capacity
        self.leaving = OpenMap.of(base.leaving)
        self.usage = OpenMap.of(base.usage)
        self.tasks_placed = {}
        self.followers = {}
        self.holding = holding_at(base.reservations, base.now_s)
        self.reservation_s = next_change_s(base.reservations, base.now_s)

        self.order = order
        self.learns = learns
        self.recalls = recalls
        self.counts_usage = counts or bool(base.owners.data())
        self.shifts = RankShifts(shifts) if shifts is not None else None
        self.jobs_by_partition = None
        self.notes = CycleNotes()

        if self.counts_usage:
            for partition in self.partitions.live.values():
                for tenant in partition.tenants:
                    if tenant.task:
                        self.tasks_placed[tenant.job] = self.tasks_placed.get(tenant.job, 0) + 1
        for view in self.jobs.live.values():
            if view.held:
                self.add_follower(view.job)
            if view.size and self.shifts is not None:
                self.shifts.schedule(view, self.now_s)

    def advance_to(self, now_s: float) -> None:
        """Set the time, and update ranks that change with it."""
        self.now_s = now_s
        shifts = self.shifts
        if shifts is not None and shifts.heap and shifts.heap[0][0] <= now_s:
            self._apply_shifts(shifts)
        if self.reservation_s is not None and self.reservation_s <= now_s:
            self.apply_reservations()

    def snapshot(self) -> Snapshot:
        """The state at this moment, as a value."""
        nodes, owners, usage, leaving, history = self.nodes, self.owners, self.usage, self.leaving, self.history
        return Snapshot(  # Calling `seal` for those that rarely change would cost more than all the rest.
            self.now_s,
            nodes.seal() if nodes.undo else nodes.sealed,
            owners.seal() if owners.undo else owners.sealed,
            usage.seal() if usage.undo else usage.sealed,
            self.jobs.seal(), self.waiting.seal(), self.placed.seal(), self.partitions.seal(),
            leaving.seal() if leaving.undo else leaving.sealed,
            tuple(self.unsettled), self.capacity,
            history.seal() if history.undo else history.sealed,
            self.memo, self.wake, self.seed, self.decision, self.submissions, tuple(self.arrived), self.due,
            self.reservations, self.past_jobs,
        )  # fmt: skip

    # -- views and ranks ------------------------------------------------------------------------------------

    def put_view(self, old: JobView | None, new: JobView) -> None:
        """Replace a job's view, rank it, and put the job into its queue, by plan and rank.

        `new` must be in no snapshot yet, unless it is `old` itself: its rank is set in place.
        """
        job, now_s, before = new.job, self.now_s, new.rank
        job_id, shifts = job.id, self.shifts
        rank = self.order(new, now_s)
        if rank == before:
            rank = before  # So that queues compare it by identity.
        else:
            if new.size and new is not old and shifts is not None and self._time_moved(old, new, rank):
                self._note_fall(new, rank)  # An event came first, and `_apply_shifts` will find nothing changed.
            if new is old:
                new = replace(new, rank=rank)
            else:
                force_setattr(new, "rank", rank)  # Another copy would cost as much as the rest of this function.
        self.jobs.put(job_id, new)
        if self.jobs_by_partition is not None:
            self.index_holdings(job_id, old.tenancies if old is not None else (), new.tenancies)
        if old is None:
            if new.size and shifts is not None:
                shifts.schedule(new, now_s)
        else:
            before = old.rank
            same = before is rank or before == rank
            # Its GPUs may change twice at the same time, which `since_s` does not show.
            if new.size and shifts is not None and not (same and old.since_s == new.since_s and old.gpus == new.gpus):
                shifts.reschedule(new, now_s)
            if old.partitions:
                if same and new.partitions and old.held is new.held:
                    return
                self.placed.drop(len(job.sizes) > 1, (before, old.number, job_id))
            elif same and not new.partitions and old.held is new.held:
                return
            elif not old.held:
                self.waiting.drop(shape_of(job), (before, old.number, job_id))
        if new.partitions:
            self.placed.put(len(job.sizes) > 1, (rank, new.number, job_id))
        elif not new.held:
            self.waiting.put(shape_of(job), (rank, new.number, job_id))

    def _apply_shifts(self, shifts: RankShifts) -> None:
        """Update the ranks of running jobs that time alone has changed by now."""
        for job_id in shifts.due(self.now_s):
            view = self.jobs.live.get(job_id)
            if view is None or not view.size:
                continue
            self.put_view(view, view)
            rank = self.jobs.live[job_id].rank
            if rank != view.rank:
                self._note_fall(view, rank)

    def _time_moved(self, old: JobView | None, new: JobView, rank: tuple[Any, ...]) -> bool:
        """Has time alone changed a running job's rank? Its time has passed, or the rank changed early by rounding."""
        assert self.shifts is not None
        ran = old is not None and old.size and old.partitions == new.partitions
        return bool(ran and rank > new.rank) or self.shifts.is_past(new.job.id, self.now_s)

    def _note_fall(self, view: JobView, rank: tuple[Any, ...]) -> None:
        """Note that time alone has moved a running job to this rank."""
        self.due += (view.job.id,)
        notes = self.notes
        if view.partitions and (notes.fell_to is None or rank > notes.fell_to):
            notes.fell_to = rank

    def switch_policy(
        self, order: Order, learns: bool, shifts: Shifts | None, counts: bool, recalls: bool = False
    ) -> None:
        """Another policy decides from now on: all jobs get ranks by its order, and memos of the last one are dropped.

        Every waiting job counts as just submitted. Running jobs continue until the policy decides otherwise.
        """
        self.order, self.learns, self.recalls = order, learns, recalls
        self.shifts = RankShifts(shifts) if shifts is not None else None
        self.memo, self.wake, self.due, self.notes.fell_to = None, ALWAYS, (), None
        for job_id, old in self.jobs.items():
            new = replace(old, memo=None, review_s=None, rank=())
            force_setattr(new, "rank", order(new, self.now_s))  # It is in no snapshot yet.
            self.jobs.put(job_id, new)
            if new.size and self.shifts is not None:
                self.shifts.schedule(new, self.now_s)
        waiting, placed = queues_of(self.jobs.live.values())
        self.waiting, self.placed = OpenQueue.of(waiting), OpenQueue.of(placed)
        self.arrived = dict.fromkeys(entry[-1] for entry in sorted(waiting, key=itemgetter(1)))
        if counts:
            self._count_usage_from_now_on()

    def apply_reservations(self) -> None:
        """Let all jobs have the nodes that reservations leave them from now on; those that are over are dropped."""
        now_s = self.now_s
        self.reservations = tuple(r for r in self.reservations if not r.is_over_at(now_s))
        self.holding = holding_at(self.reservations, now_s)
        self.reservation_s = next_change_s(self.reservations, now_s)
        for view in list(self.jobs.live.values()):
            excluded = excluded_nodes(self.holding, view.job.owner)
            if excluded == view.job.excluded_nodes:
                continue
            waits, entry = not view.partitions and not view.held, (view.rank, view.number, view.job.id)
            if waits:
                self.waiting.drop(shape_of(view.job), entry)
            job = replace(view.job, excluded_nodes=excluded)
            self.jobs.put(job.id, replace(view, job=job))
            if waits:
                self.waiting.put(shape_of(job), entry)
        self.notes.alarm = self.notes.freed = True

    def accounted(self, view: JobView, tenancies: tuple[Tenancy, ...], state: JobState) -> JobView:
        """A new view with its times summed up to now, and what the job runs on from now on."""
        now_s = self.now_s
        past = now_s - view.since_s
        if past < 0:  # An event came late: keep the sums.
            past, now_s = 0.0, view.since_s
        size = gpus = 0
        for tenancy in tenancies:
            if (holding := tenancy.holding) is not None:
                size += holding.size
                gpus += holding.gpus
        beliefs, pace = view.beliefs, view.pace
        if size and (beliefs.kinds or beliefs.spread != 1.0):
            slices = next(t.holding.slices for t in tenancies if t.holding is not None)
            pace = beliefs.pace_on(self.nodes.live[slices[0].node].node.gpu_kind, len(slices))
        if view.size:
            return replace(
                view, since_s=now_s, size=size, gpus=gpus, tenancies=tenancies, state=state, pace=pace,
                ran_s=view.ran_s + past,
                attained_gpu_s=view.attained_gpu_s + view.gpus * past,
                done_s=view.done_s + past * beliefs.speed_at(view.size) * view.pace,
            )  # fmt: skip
        return replace(
            view, since_s=now_s, size=size, gpus=gpus, tenancies=tenancies, state=state, pace=pace,
            waited_s=view.waited_s + past,
        )  # fmt: skip

    def add_follower(self, job: Job) -> None:
        """The job starts after others: it is looked up when they end."""
        for first in job.predecessors:
            if first in self.jobs.live and first != job.id:
                self.followers.setdefault(first, []).append(job.id)

    # -- the plan and what is left to do for it ---------------------------------------------------------------

    def unsettle(self, key: tuple[str, str]) -> None:
        """Have the next diff look at a tenant (job, task)."""
        self.unsettled.setdefault(key)

    def settle(self, key: tuple[str, str]) -> None:
        """Nothing more is to be done for a tenant."""
        self.unsettled.pop(key, None)

    def is_tenant(self, job_id: str, pid: str, task: str | None = None) -> bool:
        """Is the job, or this task of it, a tenant of the partition in the plan?"""
        partition = self.partitions.live.get(pid)
        if partition is None:
            return False
        return any(t.job == job_id and (task is None or t.task == task) for t in partition.tenants)

    def vacate(self, view: JobView) -> None:
        """Take the job out of the partitions the plan has it in; a partition without tenants is dropped."""
        job_id = view.job.id
        for pid in view.partitions:
            partition = self.partitions.live[pid]
            tenants = partition.tenants
            others = tuple(t for t in tenants if t.job != job_id) if len(tenants) > 1 else ()
            self.change_tenants(partition, others)

    def change_tenants(self, partition: Partition, tenants: tuple[Tenant, ...]) -> None:
        """Leave a partition to these of its tenants; without any it is dropped."""
        self.count_usage(partition, -1)
        if tenants:
            changed = replace(partition, tenants=tenants)
            self.count_usage(changed, 1)
            self.partitions.put(partition.id, changed)
            return
        self.capacity = self.capacity.give(partition.slices)
        self.partitions.drop(partition.id)
        if partition.sharing is not _ALONE:
            self.update_leaving_of({partition.id})

    # -- owners' usage ----------------------------------------------------------------------------------------

    def count_usage(self, partition: Partition, sign: int) -> None:
        """Add (1) or subtract (-1) what the tenants have to or from the usage of their owners."""
        if not self.counts_usage:
            return
        for tenant in partition.tenants:
            job = self.jobs.live[tenant.job].job
            demand = demand_of(job, tenant.task) if tenant.task else job.demand
            jobs = self._count_task(tenant.job, sign) if tenant.task else sign
            used = self.usage.live.get(job.owner, NO_USE)
            self.usage.put(job.owner, used.plus(demand, sign * sum(tenant.replicas), jobs))

    def _count_task(self, job_id: str, sign: int) -> int:
        """By how many jobs the owner's count changes with this task: a job counts once, with its first task."""
        before = self.tasks_placed.get(job_id, 0)
        now = before + sign
        if now:
            self.tasks_placed[job_id] = now
        else:
            del self.tasks_placed[job_id]
        return bool(now) - bool(before)

    def set_owner(self, owner: Owner) -> None:
        """Give an owner a weight or quota. From the first on, usage is counted: quotas are checked against it."""
        self.owners.put(owner.id, owner)
        self._count_usage_from_now_on()

    def _count_usage_from_now_on(self) -> None:
        if not self.counts_usage:
            self.counts_usage = True
            for partition in self.partitions.live.values():
                self.count_usage(partition, 1)

    # -- what tenants hold beyond their plan ------------------------------------------------------------------

    def update_leaving(self, view: JobView) -> None:
        """Set what the job's tenants hold beyond what the plan gives them."""
        for tenancy in view.tenancies:
            key = f"{view.job.id}/{tenancy.task}"
            holding, coming = tenancy.holding, tenancy.coming
            left = self._beyond_plan(view, tenancy.task, holding) if holding is not None else ()
            if coming is not None:
                left += self._beyond_plan(view, tenancy.task, coming)
            if any(s.gpus or s.cores or s.mem_mib or s.net_mbps for s in left):  # Some jobs request no resources.
                self.leaving.put(key, left)
            elif self.leaving.live:
                self.leaving.drop(key)
        if view.suspended is not None and not view.tenancies:
            self._update_suspended(view, view.suspended)

    def _update_suspended(self, view: JobView, process: SuspendedProcess) -> None:
        """A suspended process keeps its memory, but for what the plan gives its job on that node."""
        key, mem_mib = f"{view.job.id}/", process.mem_mib
        for pid in view.partitions:
            if self.is_tenant(view.job.id, pid):
                planned = (part for part in self.partitions.live[pid].slices if part.node == process.node)
                mem_mib -= sum(part.mem_mib for part in planned)
        if mem_mib > 0:
            self.leaving.put(key, (Slice(process.node, mem_mib=mem_mib),))
        else:
            self.leaving.drop(key)

    def update_leaving_of(self, pids: Set[str]) -> None:
        """Shared partitions were dropped, moved or are not shared now: update `leaving` of all jobs that hold them."""
        if self.jobs_by_partition is None:
            self.jobs_by_partition = {}
            for view in self.jobs.live.values():
                self.index_holdings(view.job.id, (), view.tenancies)
        jobs = {job_id for pid in pids for job_id in self.jobs_by_partition.get(pid, ())}
        for view in sorted((self.jobs.live[job_id] for job_id in jobs), key=lambda v: v.number):
            self.update_leaving(view)

    def index_holdings(self, job_id: str, before: tuple[Tenancy, ...], now: tuple[Tenancy, ...]) -> None:
        """Update `jobs_by_partition` for a job whose tenancies change, if the index is in use."""
        index = self.jobs_by_partition
        if index is None or before is now:
            return
        for tenancy in before:
            for held in (tenancy.holding, tenancy.coming):
                if held is not None and (jobs := index.get(held.partition)) is not None:
                    jobs.discard(job_id)
                    if not jobs:
                        del index[held.partition]
        for tenancy in now:
            for held in (tenancy.holding, tenancy.coming):
                if held is not None:
                    index.setdefault(held.partition, set()).add(job_id)

    def _beyond_plan(self, view: JobView, task: str, held: Holding) -> tuple[Slice, ...]:
        """What the tenant holds and the plan no longer gives its partition."""
        partition = self.partitions.live.get(held.partition)
        if partition is None:
            return held.slices
        stays = self.is_tenant(view.job.id, held.partition, task)
        if not stays and partition.sharing is _ALONE:
            return held.slices  # Another tenant has the whole partition from now on.
        left: list[Slice] = []
        if partition.slices != held.slices:
            kept = {s.node: s for s in partition.slices}
            left += [rest for part in held.slices if (rest := _difference(part, kept.get(part.node))) is not None]
        if not stays:
            # Others still share the partition: only this tenant's memory blocks a new tenant.
            mem_mib = demand_of(view.job, task).mem_mib
            for part, replicas in zip(held.slices, held.replicas, strict=True):
                if mem_mib and replicas:
                    left.append(Slice(part.node, mem_mib=mem_mib * replicas))
        return tuple(left)


def _difference(part: Slice, kept: Slice | None) -> Slice | None:
    """What a slice has beyond another of the same node; None if nothing."""
    if kept is None:
        return part
    gpus = gpu_ids(gpu_mask(part.gpus) & ~gpu_mask(kept.gpus))
    cores = max(0.0, part.cores - kept.cores)
    mem_mib = max(0.0, part.mem_mib - kept.mem_mib)
    net_mbps = max(0.0, part.net_mbps - kept.net_mbps)
    return Slice(part.node, gpus, cores, mem_mib, net_mbps) if gpus or cores or mem_mib or net_mbps else None
