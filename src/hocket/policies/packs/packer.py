"""A plan for packs being written: devices, and models that share one of them step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

from msgspec import Meta

from hocket.model.job import Job, Kind
from hocket.model.partition import STEP, Partition, Sharing, Tenant
from hocket.model.plan import Plan, Wake
from hocket.model.resources import Demand, Node, Slice, fits
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.registry import Params

_CLOSE = 1e-6


class PackParams(Params, frozen=True):
    """What all of them have in common."""

    most: Annotated[int, Meta(ge=1, description="models in a pack, at most")] = 32
    enter: Annotated[bool, Meta(description="whether models enter a pack that has begun and has room")] = False


# Of the jobs that wait, those to pack with the ones that are in a pack already, if any: the first before the others.
Choice = Callable[[Sequence[JobView], Sequence[JobView]], Sequence[JobView]]


def packed(snapshot: Snapshot, params: PackParams, choose: Choice, why: str) -> Plan:
    """One pack after another, as `choose` says, as long as there are devices; what is no model runs alone."""
    packer = Packer(snapshot, params.most)
    line = packer.line()
    if params.enter:
        for partition in packer.packs():
            there = [snapshot.jobs[t.job] for t in partition.tenants]
            line = _rest(line, packer.enter(partition, choose(line, there) if line else (), f"enters: {why}"))
    left: list[JobView] = []
    while line and packer.has_device_for(line):  # Else the choice makes no difference, and choosing is dear.
        chosen = choose(line, ())
        seated = packer.form(chosen, f"starts: {why}")
        if not seated:
            left.append(chosen[0])
        line = _rest(line, seated or chosen[:1])
    for view in (*left, *line):
        packer.reasons[view.job.id] = "waits: no device is free for a pack with it"
    return packer.plan(Wake(freed_gpus=1, epoch=False))


def _rest(line: list[JobView], seated: Sequence[JobView]) -> list[JobView]:
    gone = {v.job.id for v in seated}
    return [v for v in line if v.job.id not in gone] if gone else line


class Packer(Draft):
    """A draft that forms packs: each on one GPU and that GPU's share of its node, or on a node without GPUs."""

    __slots__ = ("_most",)

    def __init__(self, snapshot: Snapshot, most: int) -> None:
        super().__init__(snapshot)
        self._most = most

    def line(self) -> list[JobView]:
        """Models that wait, in the order of submission; whatever else waits is started alone if there is room."""
        nodes = [v.node for v in self.snapshot.nodes.values()]
        models: list[JobView] = []
        for view in self.candidates():
            if packable(view.job) and any(_fits(view.job, _share(n, view.job.demand), n) for n in nodes):
                models.append(view)
            elif not self.start(view, "starts: alone, for it is no model for a pack"):
                self.pass_over(view)
                self.reasons["*"] = "waits: there is no room for it"
        return models

    def packs(self) -> list[Partition]:
        """Those that models may enter, the oldest first: not those on a node that gets no new jobs."""
        jobs, nodes = self.snapshot.jobs, self.snapshot.nodes
        packs = (p for p in self.snapshot.partitions.data().values() if p.sharing is Sharing.PACKED)
        there = [p for p in packs if nodes[p.slices[0].node].is_open]
        return sorted(there, key=lambda p: min(jobs[t.job].number for t in p.tenants))

    def has_device_for(self, views: Sequence[JobView]) -> bool:
        """Whether a device is free for a pack with one of these."""
        return any(any(self._devices(job)) for job in {_wanted(v.job): v.job for v in views}.values())

    def form(self, views: Sequence[JobView], why: str) -> list[JobView]:
        """A pack on a device that the first of these may have; those for which there is room in it, perhaps none."""
        for device, node in self._devices(views[0].job):
            seated, tenants = self._seated(views, device, node, device.mem_mib, self._most)
            if not tenants:
                continue
            self.set_partition(Partition(self.new_partition_id("pack"), (device,), tuple(tenants), Sharing.PACKED))
            self.reasons |= dict.fromkeys((v.job.id for v in seated), why)
            return seated
        return []

    def enter(self, pack: Partition, views: Sequence[JobView], why: str) -> list[JobView]:
        """Those for which there is room in a pack that has begun."""
        jobs, device = self.snapshot.jobs, pack.slices[0]
        mem_mib = device.mem_mib - sum(jobs[t.job].job.demand.mem_mib for t in pack.tenants)
        node = self.snapshot.nodes[device.node].node
        seated, tenants = self._seated(views, device, node, mem_mib, self._most - len(pack.tenants))
        if tenants:
            self.set_partition(Partition(pack.id, pack.slices, (*pack.tenants, *tenants), Sharing.PACKED))
            self.reasons |= dict.fromkeys((v.job.id for v in seated), why)
        return seated

    def _seated(
        self, views: Sequence[JobView], device: Slice, node: Node, mem_mib: float, most: int
    ) -> tuple[list[JobView], list[Tenant]]:
        """As many as fit together, one after another."""
        seated: list[JobView] = []
        for view in views:
            job = view.job
            if len(seated) >= most:
                break
            if not _fits(job, device, node) or job.demand.mem_mib > mem_mib + _CLOSE:
                continue
            if self.has_quotas:
                if not self.within_quota(job, 1):
                    self.over_quota += 1
                    continue
                self.charge(job.owner, job.demand, 1, 1)
            mem_mib -= job.demand.mem_mib
            seated.append(view)
        return seated, [Tenant(v.job.id, (1,), "", STEP) for v in seated]

    def _devices(self, job: Job) -> Iterator[tuple[Slice, Node]]:
        """One free device of each node that the job may have."""
        capacity = self.capacity
        for i, (node, free) in enumerate(capacity):
            if not capacity.up >> i & 1 or (job.demand.gpus and not free.gpus):
                continue
            share = _share(node, job.demand)
            there = free.slice_of(node.id)
            amounts = map(min, share.vector[1:], there.vector[1:])
            device = Slice(node.id, there.gpus[:1] if share.gpus else (), *amounts)
            if _fits(job, device, node):
                yield device, node


def packable(job: Job) -> bool:
    """Can it be trained with others in one step? It is a model, of one replica, on one device."""
    return job.kind is Kind.MODEL and job.sizes[0] == 1 and job.demand.gpus <= 1 and job.tasks is None


def _wanted(job: Job) -> tuple[Demand, float, tuple[str, ...], tuple[str, ...]]:
    """What decides whether it may have a device: jobs that want the same may have the same."""
    return job.demand, job.gpu_mem_mib, job.gpu_kinds, job.excluded_nodes


def _share(node: Node, demand: Demand) -> Slice:
    """One device of an empty node and its share of all else; nothing where the node has no such device."""
    if demand.gpus > node.gpus or (node.gpus and not demand.gpus):
        return Slice(node.id, (), -1.0)
    devices = max(node.gpus, 1)
    return Slice(node.id, (0,) if node.gpus else (), *(amount / devices for amount in node.vector[1:]))


def _fits(job: Job, device: Slice, node: Node) -> bool:
    """May the job have this device, alone?"""
    accepts_kind = not job.gpu_kinds or node.gpu_kind in job.gpu_kinds
    if node.id in job.excluded_nodes:
        return False
    return fits(job.demand.vector, device.vector) and node.gpu_mem_mib >= job.gpu_mem_mib and accepts_kind
