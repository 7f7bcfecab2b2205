"""What the controller knows: values, and which of them hold now.

Each field of `State` is open to change; a snapshot is their values at one moment. `fold.py` says what events change,
`adopt.py` what decisions do; what both need is here.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from heapq import heappop, heappush
from math import inf
from operator import itemgetter
from typing import Any

from msgspec.structs import force_setattr, replace

from hocket.model.capacity import shape_of
from hocket.model.event import PolicySet
from hocket.model.job import ONE_GPU, Job, Owner
from hocket.model.partition import Holding, Partition, Sharing, Tenant
from hocket.model.plan import ALWAYS
from hocket.model.resources import Slice, gpu_ids, gpu_mask
from hocket.model.snapshot import NO_USE, Snapshot, Usage, demand_of, queues_of
from hocket.model.versioned import OpenMap, OpenQueue
from hocket.model.view import JobState, JobView, Tenancy

# A policy's order: (view, now) → what to sort by. Jobs of equal rank stand in the order of their submission.
Order = Callable[[JobView, float], tuple[Any, ...]]
# (view, now) → when that changes next, if the job goes on as it does.
Shifts = Callable[[JobView, float], float | None]

# A member of an enum costs a look-up each time; this one stands on a hot path.
_ALONE = Sharing.ALONE
_NO_EDITS: dict[Any, Any] = {}


class State:
    """What the controller knows, as it changes; `snapshot()` is its value at this moment."""

    __slots__ = (
        "alarm",
        "arrived",
        "capacity",
        "counts",
        "decision",
        "due",
        "epoch_ended",
        "fell_to",
        "followers",
        "foreseen",
        "freed",
        "history",
        "holders",
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
        "ruling",
        "seed",
        "shift_s",
        "shifting",
        "shifts",
        "submissions",
        "tasks_placed",
        "timers",
        "unsettled",
        "usage",
        "waiting",
        "wake",
    )  # fmt: skip

    def __init__(
        self,
        base: Snapshot,
        order: Order,
        learns: bool = True,
        shifts: Shifts | None = None,
        counts: bool = True,
    ) -> None:
        self.learns = learns  # keep a history of run times, and believe from it
        self.counts = counts or bool(base.owners.data())  # keep owners' usage: somebody reads it
        self.now_s = base.now_s
        self.order = order
        self.shifts = shifts
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
        self.tasks_placed: dict[str, int] = {}  # job → how many of its tasks have a place; kept while usage is counted
        if self.counts:
            for partition in self.partitions.live.values():
                for tenant in partition.tenants:
                    if tenant.task:
                        self.tasks_placed[tenant.job] = self.tasks_placed.get(tenant.job, 0) + 1
        self.memo = base.memo
        self.wake = base.wake
        self.seed = base.seed
        self.decision = base.decision
        self.submissions = base.submissions
        self.arrived = list(base.arrived)
        self.due = base.due
        self.ruling: PolicySet | None = None  # to be followed before the next decision
        self.followers: dict[str, list[str]] = {}  # job → those held until it is over
        for view in self.jobs.live.values():
            if view.held:
                self.note_follower(view.job)
        self.holders: dict[str, set[str]] | None = None  # partition → jobs that hold it or will; kept once asked for
        self.shifting: list[tuple[float, str]] = []  # (when, job) whose rank changes then; stale ones are passed over
        self.shift_s: dict[str, float] = {}  # the last of them by job
        self.foreseen: dict[str, tuple[float, int]] = {}  # job → (since when, on how many GPUs) that one was reckoned
        if shifts is not None:
            for view in self.jobs.live.values():
                if view.size:
                    self.await_shift(view)
        self.begin()

    def begin(self) -> None:
        """A new cycle: nothing has happened in it yet."""
        # What happened, for the question whether the policy wants to be asked.
        self.freed = self.epoch_ended = self.alarm = False
        self.fell_to: tuple[Any, ...] | None = None  # the last rank to which time alone moved a placed job
        self.judged: list[str] = []  # jobs whose criterion or limit may have been decided
        self.timers: list[tuple[float, str]] = []  # (when, job): moments that the facts ask for

    def snapshot(self) -> Snapshot:
        """The state at this moment, as a value."""
        nodes, owners, usage, leaving, history = self.nodes, self.owners, self.usage, self.leaving, self.history
        return Snapshot(  # Those that are hardly ever touched are not sealed each time.
            self.now_s,
            nodes.sealed if nodes.undo == _NO_EDITS else nodes.seal(),
            owners.sealed if owners.undo == _NO_EDITS else owners.seal(),
            usage.sealed if usage.undo == _NO_EDITS else usage.seal(),
            self.jobs.seal(), self.waiting.seal(), self.placed.seal(), self.partitions.seal(),
            leaving.sealed if leaving.undo == _NO_EDITS else leaving.seal(),
            self.unsettled, self.capacity,
            history.sealed if history.undo == _NO_EDITS else history.seal(),
            self.memo, self.wake, self.seed, self.decision, self.submissions, tuple(self.arrived), self.due,
        )  # fmt: skip

    def put_view(self, old: JobView | None, new: JobView) -> None:
        """Replace a view by one that nobody has seen yet, and stand the job where its rank and its plan put it."""
        job, now_s, before = new.job, self.now_s, new.rank
        job_id = job.id
        rank = self.order(new, now_s)
        if rank == before:
            rank = before  # So that queues compare it by identity.
        else:
            if new.size and new is not old and self.shifts is not None and self._fell(old, new, rank):
                self._note_fall(new, rank)  # An event came first, and `shift` will find nothing changed.
            if new is old:
                new = replace(new, rank=rank)
            else:
                force_setattr(new, "rank", rank)  # Another copy would cost as much as all else here.
        self.jobs.put(job_id, new)
        if self.holders is not None:
            self.note_holder(job_id, old.tenancies if old is not None else (), new.tenancies)
        if old is None:
            if new.size and self.shifts is not None:
                self.await_shift(new)
        else:
            before = old.rank
            same = before is rank or before == rank
            if (
                new.size
                and self.shifts is not None
                # Its GPUs may change twice in an instant, which `since_s` does not tell.
                and not (same and old.since_s == new.since_s and old.gpus == new.gpus)
                and self.foreseen.pop(job_id, None) != (new.since_s, new.gpus)
            ):
                self.await_shift(new)
            if old.partitions:
                if same and new.partitions and old.held is new.held:
                    return
                self.placed.drop(0, (before, old.number, job_id))
            elif same and not new.partitions and old.held is new.held:
                return
            elif not old.held:
                self.waiting.drop(shape_of(job), (before, old.number, job_id))
        if new.partitions:
            self.placed.put(0, (rank, new.number, job_id))
        elif not new.held:
            self.waiting.put(shape_of(job), (rank, new.number, job_id))

    def await_shift(self, view: JobView) -> None:
        """Look at a running job again when its rank changes."""
        assert self.shifts is not None
        at_s, job_id = self.shifts(view, self.now_s), view.job.id
        if at_s is not None and self.shift_s.get(job_id) != at_s:
            self.shift_s[job_id] = at_s
            heappush(self.shifting, (at_s, job_id))

    def foresee_start(self, view: JobView, to: Holding) -> None:
        """A job is told to start: if that takes no time, its rank may change before anybody says that it runs."""
        if self.shifts is not None:
            since_s, gpus = self.now_s, to.gpus
            self.await_shift(replace(view, size=to.size, gpus=gpus, since_s=since_s))
            self.foreseen[view.job.id] = (since_s, gpus)

    def next_shift_s(self) -> float | None:
        """When time alone moves a running job next."""
        shifting, current = self.shifting, self.shift_s
        while shifting:
            at_s, job_id = shifting[0]
            if current.get(job_id) == at_s:
                return at_s
            heappop(shifting)  # The job is over, or goes on otherwise since; two in three wait for nothing.
        return None

    def shift(self) -> None:
        """Stand running jobs where time alone has moved them."""
        shifting, now_s = self.shifting, self.now_s
        while shifting and shifting[0][0] <= now_s:
            at_s, job_id = heappop(shifting)
            if self.shift_s.get(job_id) != at_s:
                continue  # Whether a stale one is still here, the asking for moments decides: it must mean nothing.
            del self.shift_s[job_id]
            view = self.jobs.live.get(job_id)
            if view is None or not view.size:
                continue
            self.put_view(view, view)
            rank = self.jobs.live[job_id].rank
            if rank == view.rank:
                continue
            self._note_fall(view, rank)

    def _fell(self, old: JobView | None, new: JobView, rank: tuple[Any, ...]) -> bool:
        """Has time alone moved a running job? Its moment has passed, or a rank counts a rounding early."""
        ran = old is not None and old.size and old.partitions == new.partitions
        return bool(ran and rank > new.rank) or self.shift_s.get(new.job.id, inf) <= self.now_s

    def _note_fall(self, view: JobView, rank: tuple[Any, ...]) -> None:
        """Time alone has moved a running job to this rank."""
        self.due += (view.job.id,)
        if view.partitions and (self.fell_to is None or rank > self.fell_to):
            self.fell_to = rank

    def accounted(self, view: JobView, tenancies: tuple[Tenancy, ...], state: JobState) -> JobView:
        """A new view with its times summed up to now, and what it runs on from now on."""
        now_s = self.now_s
        past = now_s - view.since_s
        if past < 0:  # An event that came late: what was summed up stays.
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

    def note_follower(self, job: Job) -> None:
        """Remember whom a job waits for."""
        for first in job.after:
            if first in self.jobs.live and first != job.id:
                self.followers.setdefault(first, []).append(job.id)

    def unsettle(self, key: tuple[str, str]) -> None:
        """Have the next diff look at a tenant (job, task)."""
        if key not in self.unsettled:
            self.unsettled = (*self.unsettled, key)

    def settle(self, key: tuple[str, str]) -> None:
        """Nothing is to be done for a tenant any more."""
        if key in self.unsettled:
            self.unsettled = tuple(k for k in self.unsettled if k != key)

    def vacate(self, view: JobView) -> None:
        """Take the job out of the partitions the plan has it in; a partition without tenants is no more."""
        job_id = view.job.id
        for pid in view.partitions:
            partition = self.partitions.live[pid]
            tenants = partition.tenants
            others = tuple(t for t in tenants if t.job != job_id) if len(tenants) > 1 else ()
            self.change_tenants(partition, others)

    def change_tenants(self, partition: Partition, tenants: tuple[Tenant, ...]) -> None:
        """Leave a partition to these of its tenants; without any it is no more."""
        if self.counts:
            self.count(partition, -1)
        if tenants:
            changed = replace(partition, tenants=tenants)
            self.count(changed, 1)
            self.partitions.put(partition.id, changed)
            return
        self.capacity = self.capacity.give(partition.slices)
        self.partitions.drop(partition.id)
        if partition.sharing is not _ALONE:
            self.note_leavers({partition.id})

    def count(self, partition: Partition, sign: int) -> None:
        """Book what the tenants use to their owners."""
        if not self.counts:
            return
        for tenant in partition.tenants:
            job = self.jobs.live[tenant.job].job
            demand = demand_of(job, tenant.task) if tenant.task else job.demand
            replicas = sign * sum(tenant.replicas)
            used = self.usage.live.get(job.owner, NO_USE)
            gpus = used.gpus + replicas * demand.gpus
            jobs = used.jobs + (self._count_task(tenant.job, sign) if tenant.task else sign)
            if demand is ONE_GPU:
                now = Usage(gpus, used.cores, used.mem_mib, jobs, used.net_mbps)
            else:
                cores, mem_mib = used.cores + replicas * demand.cores, used.mem_mib + replicas * demand.mem_mib
                net_mbps = used.net_mbps + replicas * demand.net_mbps
                now = Usage(gpus, cores, mem_mib, jobs, net_mbps)
            self.usage.put(job.owner, now)

    def _count_task(self, job_id: str, sign: int) -> int:
        """How many jobs more, or less, its owner has with this task: a job counts once, with the first of its tasks."""
        before = self.tasks_placed.get(job_id, 0)
        now = before + sign
        if now:
            self.tasks_placed[job_id] = now
        else:
            del self.tasks_placed[job_id]
        return bool(now) - bool(before)

    def set_owner(self, owner: Owner) -> None:
        """Give an owner a weight or quota. From the first on, usage is counted: quotas are held against it."""
        self.owners.put(owner.id, owner)
        self._count_from_now_on()

    def _count_from_now_on(self) -> None:
        if not self.counts:
            self.counts = True
            for partition in self.partitions.live.values():
                self.count(partition, 1)

    def follow(self, order: Order, learns: bool, shifts: Shifts | None, counts: bool) -> None:
        """Another policy decides from now on: all jobs stand in its order, and what the last one noted is forgotten.

        Whoever waits is as new to it as if just submitted. Who runs goes on until the policy says otherwise.
        """
        self.order, self.learns, self.shifts = order, learns, shifts
        self.memo, self.wake, self.due, self.fell_to = None, ALWAYS, (), None
        self.shifting, self.shift_s, self.foreseen = [], {}, {}
        for job_id, old in self.jobs.items():
            new = replace(old, memo=None, review_s=None, rank=())
            force_setattr(new, "rank", order(new, self.now_s))  # Nobody has seen it yet.
            self.jobs.put(job_id, new)
            if new.size and shifts is not None:
                self.await_shift(new)
        waiting, placed = queues_of(self.jobs.live.values())
        self.waiting, self.placed = OpenQueue.of(waiting), OpenQueue.of(placed)
        self.arrived = [entry[-1] for entry in sorted(waiting, key=itemgetter(1))]
        if counts:
            self._count_from_now_on()

    def note_leaving(self, view: JobView) -> None:
        """Write down what the job's tenants hold in fact beyond what the plan gives them."""
        for tenancy in view.tenancies:
            who = f"{view.job.id}/{tenancy.task}"
            holding, coming = tenancy.holding, tenancy.coming
            left = self.left_behind(view, tenancy.task, holding) if holding is not None else ()
            if coming is not None:
                left += self.left_behind(view, tenancy.task, coming)
            if any(s.gpus or s.cores or s.mem_mib or s.net_mbps for s in left):  # Some jobs ask for nothing.
                self.leaving.put(who, left)
            elif self.leaving.live:
                self.leaving.drop(who)

    def note_leavers(self, pids: Set[str]) -> None:
        """Partitions that several shared are gone, or one's alone, or elsewhere: who was on its way out leaves more."""
        if self.holders is None:
            self.holders = {}
            for view in self.jobs.live.values():
                self.note_holder(view.job.id, (), view.tenancies)
        jobs = {job_id for pid in pids for job_id in self.holders.get(pid, ())}
        for view in sorted((self.jobs.live[job_id] for job_id in jobs), key=lambda v: v.number):
            self.note_leaving(view)

    def note_holder(self, job_id: str, before: tuple[Tenancy, ...], now: tuple[Tenancy, ...]) -> None:
        """Keep track of which partitions a job holds, or will hold; there is somebody who asks."""
        if self.holders is None or before is now:
            return
        for tenancy in before:
            for held in (tenancy.holding, tenancy.coming):
                if held is not None and (jobs := self.holders.get(held.partition)) is not None:
                    jobs.discard(job_id)
                    if not jobs:
                        del self.holders[held.partition]
        for tenancy in now:
            for held in (tenancy.holding, tenancy.coming):
                if held is not None:
                    self.holders.setdefault(held.partition, set()).add(job_id)

    def left_behind(self, view: JobView, task: str, held: Holding) -> tuple[Slice, ...]:
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


def _less(part: Slice, kept: Slice | None) -> Slice | None:
    """What of a slice is left over by another of the same node."""
    if kept is None:
        return part
    gpus = gpu_ids(gpu_mask(part.gpus) & ~gpu_mask(kept.gpus))
    cores = max(0.0, part.cores - kept.cores)
    mem_mib = max(0.0, part.mem_mib - kept.mem_mib)
    net_mbps = max(0.0, part.net_mbps - kept.net_mbps)
    return Slice(part.node, gpus, cores, mem_mib, net_mbps) if gpus or cores or mem_mib or net_mbps else None
