"""A draft of a plan in which groups of jobs share whole machines."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import inf

from msgspec.structs import replace

from hocket.model.job import Job, Kind
from hocket.model.partition import STEP, Partition, Sharing, Tenant
from hocket.model.reservation import holding_at
from hocket.model.resources import Demand, Node, fits
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.protected_jobs import fixed_partitions

_OVERCOMMIT = 2.0  # how much of a machine stacked jobs may ask for together; memory is never overcommitted


class GroupDraft(Draft):
    """A draft that also forms groups: partitions of whole machines whose tenants share them in one way.

    Machines that are reserved for owners are in no group: jobs of these owners run alone there.
    """

    __slots__ = ("_grouped_machines", "_reserved", "_sharing", "freed")

    def __init__(self, snapshot: Snapshot, sharing: Sharing = Sharing.INTERLEAVED) -> None:
        super().__init__(snapshot)
        self._sharing = sharing
        holding = holding_at(snapshot.reservations, snapshot.now_s)
        self._reserved = {r.node: r.owners for r in holding if snapshot.nodes[r.node].is_open}
        self._grouped_machines = sum(len(p.slices) for p in self.groups())
        self.freed = False  # whether a group gave machines up, even if another has them by now

    def groups(self) -> list[Partition]:
        """The groups of the snapshot, but for those that must stay as they are."""
        snapshot = self.snapshot
        found = [p for p in snapshot.partitions.data().values() if p.sharing is self._sharing]
        fixed = fixed_partitions(snapshot, reserved=True)
        return [p for p in found if p.id not in fixed] if fixed else found

    def is_groupable(self, job: Job) -> bool:
        """Can the job share a group, on machines that groups may have?"""
        nodes = self.snapshot.nodes.data().values()
        return groupable(job, (v.node for v in nodes if v.is_open and v.node.id not in self._reserved))

    def start_on_reserved(self, view: JobView) -> bool:
        """Start the job alone on machines that are reserved for its owner; False if they are full, or none is."""
        if not any(view.job.owner in owners for owners in self._reserved.values()):
            return False
        others = [n.id for n in self.capacity.layout.nodes if view.job.owner not in self._reserved.get(n.id, ())]
        there = replace(view, job=replace(view.job, excluded_nodes=tuple(sorted(others))))
        return self.start(there, "starts alone: on a node that is reserved for its owner")

    def group(self, pid: str) -> Partition | None:
        """A group as the draft stands."""
        return self.partition(pid)

    def new_id(self) -> str:
        """An unused name for a group."""
        return self.new_partition_id("g")

    def free_machines(self) -> list[str]:
        """Machines that are entirely free and not reserved, in the order of the cluster."""
        if self.full:
            return []
        capacity, reserved = self.capacity, self._reserved
        up = capacity.up
        free = [n.id for i, (n, free) in enumerate(capacity) if up >> i & 1 and fits(n.vector, free.vector)]
        return [name for name in free if name not in reserved] if reserved else free

    @property
    def full(self) -> bool:
        """Do groups have every machine that they may have?"""
        return self._grouped_machines == self.snapshot.capacity.up.bit_count() - len(self._reserved)

    def dissolve(self, pid: str) -> Partition:
        """Dissolve a group; its machines are free in this draft."""
        partition = self.drop_partition(pid)
        for tenant in partition.tenants:
            self._book_tenant(tenant, -1)
        self._grouped_machines -= len(partition.slices)
        self.freed = True
        return partition

    def form(self, pid: str, nodes: Sequence[str], views: Iterable[JobView]) -> tuple[JobView, ...]:
        """Give whole machines to a group of those of these jobs that fit, which are returned; without any, no group."""
        machines = [self.snapshot.nodes[n].node for n in nodes]
        room = [_room(n, self._sharing) for n in machines]
        tenants: list[Tenant] = []
        placed: list[JobView] = []
        for view in views:
            replicas = _replicas(view.job, machines, room)
            if replicas is None or (self.has_quotas and not self.within_quota(view.job, sum(replicas))):
                continue
            tenant = Tenant(view.job.id, replicas, "", STEP)
            room = [r.minus(view.job.demand) if n else r for r, n in zip(room, replicas, strict=True)]
            self._book_tenant(tenant, 1)
            tenants.append(tenant)
            placed.append(view)
        if not tenants:
            return ()
        slices = tuple(n.whole() for n in machines)
        new = Partition(pid, slices, tuple(tenants), self._sharing)
        self._grouped_machines += len(slices)
        if self.snapshot.partitions.get(pid) == new:
            self.keep_partition(pid)
        else:
            self.set_partition(new)
        return tuple(placed)

    def _book_tenant(self, tenant: Tenant, sign: int) -> None:
        if self.has_quotas:
            job = self.snapshot.jobs[tenant.job].job
            self.charge(job.owner, job.demand, sign * sum(tenant.replicas), sign)


def _accepts(job: Job, node: Node) -> bool:
    """May one replica of the job have this machine?"""
    return (
        fits(job.demand.vector, node.vector)
        and node.gpu_mem_mib >= job.gpu_mem_mib
        and (not job.gpu_kinds or node.gpu_kind in job.gpu_kinds)
    )


def _room(node: Node, sharing: Sharing) -> Demand:
    """What the jobs on a machine may ask for together. Where their phases take turns, only memory is limited."""
    if sharing is not Sharing.STACKED:
        return Demand(1 << 30, inf, node.mem_mib, inf)
    return Demand(int(_OVERCOMMIT * node.gpus), _OVERCOMMIT * node.cores, node.mem_mib, _OVERCOMMIT * node.net_mbps)


def _replicas(job: Job, machines: Sequence[Node], room: Sequence[Demand]) -> tuple[int, ...] | None:
    """One replica on each machine that takes one, as many as the job's largest size that fits; None if none does."""
    places = [i for i, node in enumerate(machines) if _accepts(job, node) and fits(job.demand.vector, room[i].vector)]
    most = min(len(places), job.max_nodes) if job.max_nodes else len(places)
    at = bisect_right(job.sizes, most)
    if not at:
        return None
    taken = set(places[: job.sizes[at - 1]])
    return tuple(1 if i in taken else 0 for i in range(len(machines)))


def fitting(views: Iterable[JobView], machines: int, most: int = 1 << 30) -> list[JobView]:
    """The first of these jobs that fit so many machines together if each has its smallest size for itself."""
    chosen: list[JobView] = []
    for view in views:
        if len(chosen) < most and view.job.sizes[0] <= machines:
            chosen.append(view)
            machines -= view.job.sizes[0]
    return chosen


def groupable(job: Job, machines: Iterable[Node]) -> bool:
    """Can the job share a group: a parameter-server job with one replica a machine, on enough of these machines?"""
    if job.kind is not Kind.PARAMETER_SERVER or job.tasks is not None:
        return False
    if job.max_nodes and job.max_nodes < job.sizes[0]:
        return False
    missing = job.sizes[0]
    for node in machines:
        if _accepts(job, node):
            missing -= 1
            if not missing:
                return True
    return False
