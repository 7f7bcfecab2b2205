"""A snapshot as a problem: the jobs that take part, what they have, and what there is for them."""

from __future__ import annotations

from hashlib import blake2b
from math import inf

from msgspec import Struct

from hocket.model.capacity import Shape, shape_of
from hocket.model.partition import Partition, Sharing
from hocket.model.resources import total
from hocket.model.snapshot import NO_USE, Snapshot
from hocket.model.view import JobView
from hocket.policies.dorm.problem import TOLERANCE, Application, Places, Problem, Vector
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.protected_jobs import fixed_partitions

_CLOSE = 1e-6
Placed = list[tuple[JobView, Partition]]


class SnapshotProblem(Struct, frozen=True):
    """The problem that a snapshot poses, and which job each application is."""

    problem: Problem
    views: tuple[JobView, ...]  # of the applications
    nodes: tuple[int, ...]  # of the servers: their numbers in the layout
    without_a_place: tuple[JobView, ...]  # waiting jobs that no nodes that are up could hold
    left_out: bool  # are there others that wait, for which there is not enough beside the smallest sizes of all?


def problem_of(snapshot: Snapshot, theta1: float, theta2: float) -> SnapshotProblem:
    """All nodes that are up, all jobs that this policy can place, and as many that wait as there could be room for.

    Those that wait come in the order of submission; smaller ones may pass one that there is not enough for.
    """
    cluster = _Cluster(snapshot)
    ours, others = _placed(snapshot)
    servers, totals = cluster.free_beside(others), cluster.present(cluster.totals)
    running = [cluster.application(view, cluster.places_of(partition)) for view, partition in ours]
    newcomers, waiting, nowhere, left_out = _newcomers(cluster, Problem(servers, totals, tuple(running)))
    quotas = tuple(cluster.present(_quota(snapshot, owner, ours)) for owner in cluster.owners)
    problem = Problem(servers, totals, (*running, *newcomers), theta1, theta2, quotas)
    views = (*(view for view, _partition in ours), *waiting)
    return SnapshotProblem(problem, views, cluster.nodes, tuple(nowhere), left_out)


class _Cluster:
    """Nodes that are up as servers, in the resources that they have."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot, self.layout = snapshot, snapshot.capacity.layout
        up = snapshot.capacity.up
        self.nodes = tuple(i for i in range(len(self.layout.nodes)) if up >> i & 1)
        self.servers = {self.layout.nodes[i].id: server for server, i in enumerate(self.nodes)}
        self.totals = total(self.layout.nodes[i].vector for i in self.nodes)
        self.owners = {owner: n for n, owner in enumerate(sorted(snapshot.owners.data()))}
        self._there = [k for k, amount in enumerate(self.totals) if amount > 0]

    def present(self, amounts: Vector) -> Vector:
        """The amounts of those resources that there are."""
        return tuple(amounts[k] for k in self._there)

    def has_all(self, amounts: Vector) -> bool:
        """Is there some of every resource of which this is an amount?"""
        return all(k in self._there for k, amount in enumerate(amounts) if amount)

    def free_beside(self, partitions: list[Partition]) -> tuple[Vector, ...]:
        """What each server has beside these partitions."""
        free = [self.present(self.layout.nodes[i].vector) for i in self.nodes]
        for part in (part for partition in partitions for part in partition.slices):
            if (server := self.servers.get(part.node)) is None:
                continue  # It is drained.
            free[server] = tuple(f - t for f, t in zip(free[server], self.present(part.vector), strict=True))
        return tuple(free)

    def places_of(self, partition: Partition) -> Places:
        """The servers that a partition's only tenant is on."""
        replicas = zip(partition.slices, partition.tenants[0].replicas, strict=True)
        return tuple(sorted((self.servers[part.node], n) for part, n in replicas if n))

    def application(self, view: JobView, before: Places | None = None) -> Application:
        """A job as an application, with what it has."""
        job, accepts = view.job, -1
        if not job.accepts_any_node:
            mask = self.layout.eligible(job)
            accepts = sum(1 << server for server, i in enumerate(self.nodes) if mask >> i & 1)
        demand, owner = self.present(job.demand.vector), self.owners.get(job.owner, -1)
        return Application(demand, job.sizes, job.weight, before, accepts, job.max_nodes, owner)


def _placed(snapshot: Snapshot) -> tuple[Placed, list[Partition]]:
    """Jobs that have a partition for themselves with what they need and no more; and all other partitions.

    Jobs that may not be preempted are no part of the problem, nor are jobs on drained nodes or on nodes reserved for
    other owners: what they have is not there for others.
    """
    ours: Placed = []
    outside: list[Partition] = []
    fixed = fixed_partitions(snapshot)
    for partition in snapshot.partitions.values():
        view = snapshot.jobs.get(partition.tenants[0].job)
        may_change = view is not None and not view.verdict and not view.protected_at(snapshot.now_s)
        may_change = may_change and partition.id not in fixed
        if view is not None and may_change and view.job.tasks is None and _is_plain(view, partition):
            ours.append((view, partition))
        else:
            outside.append(partition)
    ours.sort(key=lambda one: one[0].number)
    return ours, outside


def _is_plain(view: JobView, partition: Partition) -> bool:
    return (
        len(partition.tenants) == 1
        and partition.sharing is Sharing.ALONE
        and len(view.partitions) == 1
        and all(
            abs(has - needs) <= _CLOSE
            for part, n in zip(partition.slices, partition.tenants[0].replicas, strict=True)
            for has, needs in zip(part.vector, view.job.demand.times(n).vector, strict=True)
        )
    )


def _newcomers(cluster: _Cluster, running: Problem) -> tuple[list[Application], list[JobView], list[JobView], bool]:
    """Waiting jobs that take part, also as views, those that fit nowhere, and whether others are left out."""
    applications, views, nowhere, left_out = list[Application](), list[JobView](), list[JobView](), False
    spare = [sum(column) for column in zip(*running.servers, strict=True)] or [0.0] * len(running.totals)
    for a in running.applications:
        spare = [s - a.sizes[0] * d for s, d in zip(spare, a.demand, strict=True)]
    draft = Draft(cluster.snapshot)
    fits_alone: dict[Shape, bool] = {}
    for view in draft.candidates():
        newcomer, shape = cluster.application(view), shape_of(view.job)
        if shape not in fits_alone:
            fits_alone[shape] = cluster.has_all(view.job.demand.vector) and _fits_alone(running, newcomer)
        rest = [s - newcomer.sizes[0] * d for s, d in zip(spare, newcomer.demand, strict=True)]
        if not fits_alone[shape]:
            nowhere.append(view)
        elif any(r < -TOLERANCE * t for r, t in zip(rest, running.totals, strict=True)):
            left_out = True
            draft.pass_over(view)  # What comes later finds no more than this.
        elif draft.reserve(view):
            spare = rest
            applications.append(newcomer)
            views.append(view)
    return applications, views, nowhere, left_out


def _fits_alone(problem: Problem, application: Application) -> bool:
    """Could its smallest size stand on the servers if it were the only application?"""
    alone = Problem(problem.servers, problem.totals, (application,))
    rooms = [alone.room(0, s) if application.servers >> j & 1 else 0 for j, s in enumerate(problem.servers)]
    if application.max_servers:
        rooms = sorted(rooms, reverse=True)[: application.max_servers]
    return sum(rooms) >= application.sizes[0]


def _quota(snapshot: Snapshot, owner: str, ours: Placed) -> Vector:
    """The most that an owner's applications may have: its quota, or what it has already if that is more."""
    quota, used = snapshot.owners[owner], (snapshot.usage.get(owner) or NO_USE).vector
    mine = total(v.job.demand.times(p.size_of(v.job.id)).vector for v, p in ours if v.job.owner == owner)
    limits = (quota.max_gpus, quota.max_cores, quota.max_mem_mib, 0)
    columns = zip(limits, used, mine, strict=True)
    return tuple(max(limit, has) - (has - m) if limit else inf for limit, has, m in columns)


def signature(snapshot: Snapshot, placed: set[int], waiting: set[int]) -> str:
    """What a decision rests on, in short: while it stays the same there is nothing to decide."""
    owners = sorted((o.id, o.max_gpus, o.max_cores, o.max_mem_mib, o.max_jobs) for o in snapshot.owners.values())
    text = repr((sorted(placed), sorted(waiting), snapshot.capacity.up, owners, *snapshot.reserved))
    return blake2b(text.encode(), digest_size=8).hexdigest()
