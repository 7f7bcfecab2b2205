"""All that a policy may know at one moment. It is the controller's state itself: a value, shared, never copied."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.capacity import Capacity, Shape, shape_of
from hocket.model.job import Job, Owner
from hocket.model.partition import Partition
from hocket.model.past_job import NO_PAST_JOBS, PastJobs
from hocket.model.plan import ALWAYS, Plan, Wake
from hocket.model.reservation import NodeReservation
from hocket.model.resources import Demand, Node, Slice, Vector, gpu_mask
from hocket.model.versioned import Entry, OpenMap, VersionedMap, VersionedQueue, versioned
from hocket.model.view import JobView, NodeView

if TYPE_CHECKING:
    from random import Random


class Usage(Struct, frozen=True, gc=False):
    """What one owner's jobs have by plan."""

    gpus: int = 0  # number of GPUs
    cores: float = 0.0  # CPU cores
    mem_mib: float = 0.0  # memory in MiB
    jobs: int = 0  # jobs that have a place
    net_mbps: float = 0.0  # network in megabit per second

    @property
    def vector(self) -> Vector:
        """The amounts of all resources."""
        return self.gpus, self.cores, self.mem_mib, self.net_mbps

    def plus(self, demand: Demand, replicas: int, jobs: int = 0) -> Usage:
        """With so many more `replicas` of a `demand`, and more `jobs`; with fewer if negative."""
        if demand.gpus_only:
            gpus = self.gpus + replicas * demand.gpus
            return Usage(gpus, self.cores, self.mem_mib, self.jobs + jobs, self.net_mbps)
        return Usage(
            self.gpus + replicas * demand.gpus,
            self.cores + replicas * demand.cores,
            self.mem_mib + replicas * demand.mem_mib,
            self.jobs + jobs,
            self.net_mbps + replicas * demand.net_mbps,
        )


NO_USE = Usage()
_NOTHING = Slice("")


class History(Struct, frozen=True, gc=False):
    """Run times of ended jobs of one sort, as count, sum and sum of squares of their logarithms."""

    count: int = 0  # jobs that ended
    log_sum: float = 0.0  # sum of the logarithms of their run times in seconds
    log_squares: float = 0.0  # sum of the squares of these logarithms


class Snapshot(Struct, frozen=True):
    """Nodes, jobs and partitions at `now_s`."""

    now_s: float  # in seconds: simulated from 0 on, live since 1970
    nodes: VersionedMap[str, NodeView]  # all nodes by id; of lost ones `up` is false
    owners: VersionedMap[str, Owner]  # those with a weight or quota of their own, by id
    usage: VersionedMap[str, Usage]  # what each owner's jobs have by plan; empty if no quota and no policy needs it
    jobs: VersionedMap[str, JobView]  # all that have not ended, by id
    waiting: VersionedQueue[Shape]  # entries (rank, number, id) of jobs that the plan gives nothing and nothing holds
    placed: VersionedQueue[bool]  # likewise, of those it gives something; elastic jobs are in the bucket True
    partitions: VersionedMap[str, Partition]  # the present plan, by id; disjoint
    leaving: VersionedMap[str, tuple[Slice, ...]]  # "job/task" → what it still holds beyond its plan
    unsettled: tuple[tuple[str, str], ...]  # tenants (job, task) whose plan is not yet carried out
    capacity: Capacity  # what no partition has by plan
    history: VersionedMap[Any, History]  # run times of ended jobs, by size and owner
    memo: Any = None  # what the policy stored in its last plan; None at first
    wake: Wake = ALWAYS  # what the policy waits for, from its last plan
    seed: int = 0  # seed of all random numbers of the run
    decision: int = 0  # how many were made before this one
    submissions: int = 0  # jobs submitted so far, ended ones included
    arrived: tuple[str, ...] = ()  # jobs submitted since the last decision
    due: tuple[str, ...] = ()  # jobs whose review came, or that may be preempted, since the last decision
    reservations: tuple[NodeReservation, ...] = ()  # not over yet; by those that hold, jobs have `excluded_nodes`
    past_jobs: PastJobs = NO_PAST_JOBS  # ended jobs that beliefs rest on; kept for policies that ask for it

    def rng(self, view: JobView | None = None) -> Random:
        """The only random numbers a policy may use: the same whenever this decision is made again with the same seed.

        With a `view`, they depend on that job alone and are the same in every decision.
        """
        from random import Random  # Commands that only read or send jobs start without it.

        return Random(f"{self.seed}/{self.decision}" if view is None else f"{self.seed}/job/{view.number}")

    def short_of_quota(self, view: JobView) -> str:
        """Why the job of this `view` may not start, as its owner's quota stands; empty if it may, or has a place."""
        job = view.job
        owner = self.owners.get(job.owner)
        if owner is None or view.partitions or view.held is not None or view.verdict:
            return ""
        gpus, cores, mem_mib = job.least
        if limit := owner.beyond(gpus, cores, mem_mib):
            return f"waits: owner '{owner.id}' has a quota of {limit}, and the job alone needs more"
        used = self.usage.get(job.owner) or NO_USE
        limit = owner.beyond(used.gpus + gpus, used.cores + cores, used.mem_mib + mem_mib, used.jobs + 1)
        return f"waits: owner '{owner.id}' has a quota of {limit}, and others of its jobs use it" if limit else ""

    @property
    def reserved(self) -> list[str]:
        """A mark for a plan's memo: which nodes are reserved now, and for whom; empty if none is."""
        return [f"{r.node}: {', '.join(r.owners)}" for r in self.reservations if r.holds_at(self.now_s)]

    def without(self, job: str) -> Snapshot:
        """The same state as if the `job` of this id were not there."""
        view = self.jobs[job]
        capacity, partitions = self.capacity, self.partitions
        for pid in view.partitions:
            partition = partitions[pid]
            others = tuple(t for t in partition.tenants if t.job != job)
            if others:
                partitions = partitions.set(pid, replace(partition, tenants=others))
                continue
            partitions = partitions.without(pid)
            capacity = capacity.give(partition.slices)
        entry = (view.rank, view.number, job)
        waiting, placed = self.waiting, self.placed
        if view.partitions:
            placed = placed.remove(view.job.is_elastic, entry)
        elif not view.held:
            waiting = waiting.remove(shape_of(view.job), entry)
        return replace(
            self,
            jobs=self.jobs.without(job),
            partitions=partitions,
            capacity=capacity,
            waiting=waiting,
            placed=placed,
        )

    def partitions_of(self, plan: Plan) -> list[Partition]:
        """The whole desired state: present partitions with what the `plan` changes, in the order of their ids."""
        whole = dict(self.partitions.items())
        for pid in plan.drop:
            whole.pop(pid, None)
        for partition in plan.put:
            whole[partition.id] = partition
        return [whole[pid] for pid in sorted(whole)]

    def promised(self) -> dict[str, tuple[str, ...]]:
        """Changes under way: partition → the tenants ("job/task") that still hold some of its resources."""
        found: dict[str, tuple[str, ...]] = {}
        leaving = LeavingTenants(self)
        for job, task in self.unsettled:
            view = self.jobs.get(job)
            for pid in view.partitions if view is not None else ():
                partition = self.partitions[pid]
                if not any(t.job == job and t.task == task for t in partition.tenants):
                    continue
                if held_by := leaving.in_the_way(f"{job}/{task}", partition.slices):
                    found[pid] = held_by
        return found


def empty_snapshot(nodes: Iterable[Node] = (), seed: int = 0) -> Snapshot:
    """The snapshot of a cluster with these `nodes` before anything happened; `seed` is that of its random numbers."""
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


def entry_of(view: JobView) -> Entry:
    """A job's entry in a queue: by rank, then in the order of submission."""
    return (view.rank, view.number, view.job.id)


def queues_of(views: Iterable[JobView]) -> tuple[VersionedQueue[Shape], VersionedQueue[bool]]:
    """The queues of the waiting and of the placed jobs. Held jobs are in neither."""
    waiting: dict[Shape, list[Entry]] = {}
    placed: dict[bool, list[Entry]] = {}
    for view in views:
        if view.partitions:
            placed.setdefault(view.job.is_elastic, []).append(entry_of(view))
        elif not view.held:
            waiting.setdefault(shape_of(view.job), []).append(entry_of(view))
    for entries in (*waiting.values(), *placed.values()):
        entries.sort()
    return VersionedQueue(waiting, sum(map(len, waiting.values()))), VersionedQueue(
        placed, sum(map(len, placed.values()))
    )


class Standing(Protocol):
    """What is planned and what is held: a snapshot, or the state it is taken of."""

    @property
    def jobs(self) -> VersionedMap[str, JobView] | OpenMap[str, JobView]: ...
    @property
    def partitions(self) -> VersionedMap[str, Partition] | OpenMap[str, Partition]: ...
    @property
    def leaving(self) -> VersionedMap[str, tuple[Slice, ...]] | OpenMap[str, tuple[Slice, ...]]: ...
    @property
    def unsettled(self) -> Collection[tuple[str, str]]: ...
    @property
    def capacity(self) -> Capacity: ...
    @property
    def now_s(self) -> float: ...


class LeavingTenants:
    """The tenants that are leaving, and what each still holds, by node; as they stand when they are first asked for."""

    __slots__ = ("_by_node", "_standing")

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._by_node: dict[str, list[tuple[str, Slice]]] | None = None

    def in_the_way(self, tenant: str, slices: tuple[Slice, ...], held: tuple[Slice, ...] = ()) -> tuple[str, ...]:
        """Those ("job/task") that still hold what `tenant` needs of these `slices`, beside what it has (`held`).

        GPUs are told apart by name. Of other resources a node may have enough beside the tenants that leave.
        """
        by_node = self._by_node
        if by_node is None:
            by_node = self._by_node = {}
            for other, parts in self._standing.leaving.data().items():
                for part in parts:
                    by_node.setdefault(part.node, []).append((other, part))
        if not by_node:
            return ()
        found: dict[str, None] = {}
        for wanted in slices:
            there = by_node.get(wanted.node)
            if there is None:
                continue
            gpus = wanted.gpus
            for other, part in there:
                if gpus and other != tenant and (gpus is part.gpus or gpu_mask(gpus) & gpu_mask(part.gpus)):
                    found[other] = None
            if wanted.cores or wanted.mem_mib or wanted.net_mbps:
                found |= dict.fromkeys(self._beside(there, tenant, wanted, held))
        return tuple(found) if len(found) < 2 else tuple(sorted(found))

    def _beside(
        self, there: list[tuple[str, Slice]], tenant: str, wanted: Slice, held: tuple[Slice, ...]
    ) -> Iterable[str]:
        """Tenants leaving a node that has not enough cores, memory or network until they have left."""
        cores = mem_mib = net_mbps = 0.0
        others = set()
        for other, part in there:
            if other != tenant:
                cores += part.cores
                mem_mib += part.mem_mib
                net_mbps += part.net_mbps
                others.add(other)
        has = next((part for part in held if part.node == wanted.node), _NOTHING)
        free = self._standing.capacity[wanted.node]
        short = (
            (wanted.cores > has.cores and cores > free.cores)
            or (wanted.mem_mib > has.mem_mib and mem_mib > free.mem_mib)
            or (wanted.net_mbps > has.net_mbps and net_mbps > free.net_mbps)
        )
        return others if short else ()


def demand_of(job: Job, task: str) -> Demand:
    """What one replica of a tenant needs: its task's demand, or its job's."""
    if task and job.tasks is not None and (found := job.tasks.task(task)) is not None:
        return found.demand
    return job.demand


def usage_of(partitions: Iterable[Partition], jobs: VersionedMap[str, JobView]) -> dict[str, Usage]:
    """By owner, what its jobs have in these partitions; a job counts once, however many tasks it has."""
    usage: dict[str, Usage] = {}
    counted: set[str] = set()
    for partition in partitions:
        for tenant in partition.tenants:
            job = jobs[tenant.job].job
            used = usage.get(job.owner) or NO_USE
            jobs_more = job.id not in counted
            usage[job.owner] = used.plus(demand_of(job, tenant.task), sum(tenant.replicas), jobs_more)
            counted.add(job.id)
    return usage
