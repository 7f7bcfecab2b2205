"""A plan for groups being written: whole machines, and jobs that are seated on them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import inf

from hocket.model.capacity import Free
from hocket.model.job import Job, Kind
from hocket.model.partition import STEP, Partition, Sharing, Tenant
from hocket.model.resources import Demand, Node
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft

_CLOSE = 1e-6
_MORE = 2.0  # how much of a machine stacked tenants may ask for together; memory: never


class Hall(Draft):
    """A draft that also forms groups: partitions of whole machines whose tenants share them in one way."""

    __slots__ = ("_formed", "_in_groups", "_sharing", "freed")

    def __init__(self, snapshot: Snapshot, sharing: Sharing = Sharing.INTERLEAVED) -> None:
        super().__init__(snapshot)
        self._sharing = sharing
        self._formed = 0
        self._in_groups = sum(
            len(p.slices) for p in snapshot.partitions.data().values() if p.sharing is sharing
        )  # machines, as the draft stands
        self.freed = False  # somebody else may want what a group gave up

    def node(self, node_id: str) -> Node:
        """A machine by its name."""
        return self.snapshot.nodes[node_id].node

    def group(self, pid: str) -> Partition | None:
        """A group as the draft stands."""
        if pid in self._drop:
            return None
        return self._put.get(pid) or self.snapshot.partitions.get(pid)

    def new_id(self) -> str:
        """A name for a group that nothing has had before."""
        while True:
            self._formed += 1
            name = f"g{self.snapshot.decision}.{self._formed}"
            if name not in self.snapshot.partitions and name not in self._put and name not in self.snapshot.jobs:
                return name

    def free_machines(self) -> list[str]:
        """Machines of which nobody has anything, in the order of the cluster."""
        if self.full:
            return []
        capacity = self.capacity
        up = capacity.up
        return [n.id for i, (n, free) in enumerate(capacity) if up >> i & 1 and _whole(n, free)]

    @property
    def full(self) -> bool:
        """Do groups have every machine there is?"""
        return self._in_groups == self.snapshot.capacity.up.bit_count()

    def dissolve(self, pid: str) -> Partition:
        """Take a group apart; its machines are free in this draft."""
        partition = self.group(pid)
        assert partition is not None
        for tenant in partition.tenants:
            self._note(tenant, -1)
        self.capacity = self.capacity.give(partition.slices)
        self._put.pop(pid, None)
        if pid in self.snapshot.partitions:
            self._drop[pid] = None
        self._in_groups -= len(partition.slices)
        self.freed = True
        return partition

    def form(
        self, pid: str, nodes: Sequence[str], views: Iterable[JobView], most: int = 1 << 30
    ) -> tuple[JobView, ...]:
        """Give machines to a group of these jobs; those who can be seated on them, so many at most, perhaps nobody."""
        machines = [self.node(n) for n in nodes]
        room = [rooms(n, self._sharing) for n in machines]
        tenants: list[Tenant] = []
        seated: list[JobView] = []
        for view in views:
            if len(seated) == most:
                break
            replicas = seats(view.job, machines, room)
            if replicas is None or (self._limited and not self.within_quota(view.job, sum(replicas))):
                continue
            tenant = Tenant(view.job.id, replicas, "", STEP)
            room = [less(r, view.job.demand) if n else r for r, n in zip(room, replicas, strict=True)]
            self._note(tenant, 1)
            tenants.append(tenant)
            seated.append(view)
        if not tenants:
            return ()
        slices = tuple(n.whole() for n in machines)
        new = Partition(pid, slices, tuple(tenants), self._sharing)
        self.capacity = self.capacity.take(slices)
        self._in_groups += len(slices)
        self._drop.pop(pid, None)
        if self.snapshot.partitions.get(pid) == new:
            self._put.pop(pid, None)
        else:
            self._put[pid] = new
        return tuple(seated)

    def changes(self, pid: str) -> bool:
        """Does the draft change this group?"""
        return pid in self._put or pid in self._drop

    def _note(self, tenant: Tenant, sign: int) -> None:
        if self._limited:
            self._book(self.snapshot.jobs[tenant.job].job, sum(tenant.replicas), sign)


def _whole(node: Node, free: Free) -> bool:
    return (
        free.gpus == (1 << node.gpus) - 1
        and free.cores >= node.cores - _CLOSE
        and free.mem_mib >= node.mem_mib - _CLOSE
        and free.net_mbps >= node.net_mbps - _CLOSE
    )


def accepts(job: Job, node: Node) -> bool:
    """May one replica of the job have this machine?"""
    demand = job.demand
    return (
        demand.gpus <= node.gpus
        and demand.cores <= node.cores + _CLOSE
        and demand.mem_mib <= node.mem_mib + _CLOSE
        and demand.net_mbps <= node.net_mbps + _CLOSE
        and node.gpu_mem_mib >= job.gpu_mem_mib
        and (not job.gpu_kinds or node.gpu_kind in job.gpu_kinds)
    )


def rooms(node: Node, sharing: Sharing) -> Demand:
    """What the tenants of a machine may ask for together: memory always, the rest where nobody coordinates them."""
    if sharing is not Sharing.STACKED:
        return Demand(1 << 30, inf, node.mem_mib, inf)
    return Demand(int(_MORE * node.gpus), _MORE * node.cores, node.mem_mib, _MORE * node.net_mbps)


def less(room: Demand, demand: Demand) -> Demand:
    """What is left of it beside one replica more."""
    return Demand(
        room.gpus - demand.gpus, room.cores - demand.cores, room.mem_mib - demand.mem_mib,
        room.net_mbps - demand.net_mbps,
    )  # fmt: skip


def _within(demand: Demand, room: Demand) -> bool:
    return (
        demand.gpus <= room.gpus
        and demand.cores <= room.cores + _CLOSE
        and demand.mem_mib <= room.mem_mib + _CLOSE
        and demand.net_mbps <= room.net_mbps + _CLOSE
    )


def seats(job: Job, machines: Sequence[Node], room: Sequence[Demand]) -> tuple[int, ...] | None:
    """One replica on each machine that takes one, as many as the job's largest size that fits; None if none does."""
    places = [i for i, node in enumerate(machines) if accepts(job, node) and _within(job.demand, room[i])]
    most = min(len(places), job.max_nodes) if job.max_nodes else len(places)
    at = bisect_right(job.sizes, most)
    if not at:
        return None
    taken = set(places[: job.sizes[at - 1]])
    return tuple(1 if i in taken else 0 for i in range(len(machines)))


def fitting(views: Iterable[JobView], machines: int, most: int = 1 << 30) -> list[JobView]:
    """Those, in turn, whose data has room on so many machines beside that of the others, by what each needs alone."""
    chosen: list[JobView] = []
    for view in views:
        if len(chosen) < most and view.job.sizes[0] <= machines:
            chosen.append(view)
            machines -= view.job.sizes[0]
    return chosen


def groupable(job: Job, machines: Iterable[Node]) -> bool:
    """Can the job spread one replica on each of as many machines as it needs at least? Others run alone."""
    if job.kind is not Kind.PARAMETER_SERVER or job.tasks is not None:
        return False
    if job.max_nodes and job.max_nodes < job.sizes[0]:
        return False
    missing = job.sizes[0]
    for node in machines:
        if accepts(job, node):
            missing -= 1
            if not missing:
                return True
    return False
