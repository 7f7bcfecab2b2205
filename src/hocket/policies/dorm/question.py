"""A snapshot as a problem: who takes part, what they have, and what there is for them."""

from __future__ import annotations

from hashlib import blake2b
from math import inf

from msgspec import Struct

from hocket.model.capacity import Shape, shape_of
from hocket.model.job import Job
from hocket.model.partition import Partition, Sharing
from hocket.model.resources import RESOURCES, Demand, Node, Slice
from hocket.model.snapshot import NO_USE, Snapshot
from hocket.model.view import JobView
from hocket.policies.dorm.problem import TOLERANCE, Application, Places, Problem, Vector
from hocket.policies.kit.draft import Draft

_CLOSE = 1e-6


class Question(Struct, frozen=True):
    """What is asked of the optimiser, and whose application is which."""

    problem: Problem
    views: tuple[JobView, ...]  # of the applications
    nodes: tuple[int, ...]  # of the servers: their numbers in the layout
    without_a_place: tuple[JobView, ...]  # waiting jobs that no nodes that are up could hold
    left_out: bool  # are there others that wait, for which there is not enough beside everybody's smallest size?


def question_of(snapshot: Snapshot, theta1: float, theta2: float) -> Question:
    """All nodes that are up, all jobs that this policy can place, and as many that wait as there could be room for.

    Those that wait come in the order of submission; smaller ones may pass one that there is not enough for.
    """
    layout, up = snapshot.capacity.layout, snapshot.capacity.up
    nodes = tuple(i for i in range(len(layout.nodes)) if up >> i & 1)
    server_of = {layout.nodes[i].id: server for server, i in enumerate(nodes)}
    whole = [_amounts(layout.nodes[i]) for i in nodes]
    sums = [sum(column) for column in zip(*whole, strict=True)] or [0.0] * len(RESOURCES)
    there = [k for k, total in enumerate(sums) if total > 0]

    def vector(amounts: tuple[float, ...]) -> Vector:
        return tuple(amounts[k] for k in there)

    ours, outside = _placed(snapshot)
    free = [list(vector(amounts)) for amounts in whole]
    for partition in outside:
        for part in partition.slices:
            taken = vector((float(len(part.gpus)), part.cores, part.mem_mib, part.net_mbps))
            free[server_of[part.node]] = [f - t for f, t in zip(free[server_of[part.node]], taken, strict=True)]
    owners = {o: n for n, o in enumerate(sorted(snapshot.owners.data()))}

    def application(view: JobView, before: Places | None) -> Application:
        job = view.job
        accepts = -1
        if job.gpu_kinds or job.gpu_mem_mib:
            mask = layout.eligible(job)
            accepts = sum(1 << server for server, i in enumerate(nodes) if mask >> i & 1)
        demand = vector(_amounts(job.demand))
        return Application(demand, job.sizes, job.weight, before, accepts, job.max_nodes, owners.get(job.owner, -1))

    applications, views = [], []
    for view, partition in ours:
        replicas = partition.tenants[0].replicas
        before = tuple(sorted((server_of[s.node], n) for s, n in zip(partition.slices, replicas, strict=True) if n))
        applications.append(application(view, before))
        views.append(view)
    nowhere = []
    empty = Problem(tuple(map(tuple, free)), vector(tuple(sums)), ())
    spare = [sum(column) for column in zip(*empty.servers, strict=True)] or [0.0] * len(there)
    for a in applications:
        spare = [s - a.sizes[0] * d for s, d in zip(spare, a.demand, strict=True)]
    gate = Draft(snapshot)
    alone: dict[Shape, bool] = {}  # does it fit with nobody else there?
    left_out = False
    for view in gate.candidates():
        amounts = _amounts(view.job.demand)
        newcomer, shape = application(view, None), shape_of(view.job)
        if shape not in alone:
            alone[shape] = _fits_alone(empty, newcomer, amounts, there)
        rest = [s - newcomer.sizes[0] * d for s, d in zip(spare, newcomer.demand, strict=True)]
        if not alone[shape]:
            nowhere.append(view)
        elif any(r < -TOLERANCE * t for r, t in zip(rest, empty.totals, strict=True)):
            left_out = True
            gate.pass_over(view)  # What comes later finds no more than this.
        elif gate.reserve(view):
            spare = rest
            applications.append(newcomer)
            views.append(view)
    quotas = tuple(_quota(snapshot, owner, ours, there) for owner in owners)
    problem = Problem(empty.servers, empty.totals, tuple(applications), theta1, theta2, quotas)
    return Question(problem, tuple(views), nodes, tuple(nowhere), left_out)


def _amounts(of: Node | Demand) -> tuple[float, float, float, float]:
    return float(of.gpus), of.cores, of.mem_mib, of.net_mbps


def _placed(snapshot: Snapshot) -> tuple[list[tuple[JobView, Partition]], list[Partition]]:
    """Jobs that have a partition for themselves with what they need and no more; and all other partitions."""
    ours: list[tuple[JobView, Partition]] = []
    outside: list[Partition] = []
    for partition in snapshot.partitions.values():
        view = snapshot.jobs.get(partition.tenants[0].job)
        if view is not None and not view.verdict and view.job.tasks is None and _is_plain(view, partition):
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
            _is_exact(view.job, part, n)
            for part, n in zip(partition.slices, partition.tenants[0].replicas, strict=True)
        )
    )


def _is_exact(job: Job, part: Slice, replicas: int) -> bool:
    has = (float(len(part.gpus)), part.cores, part.mem_mib, part.net_mbps)
    return all(abs(h - replicas * d) <= _CLOSE for h, d in zip(has, _amounts(job.demand), strict=True))


def _fits_alone(empty: Problem, application: Application, amounts: tuple[float, ...], there: list[int]) -> bool:
    """Could its smallest size stand on these servers if nobody else did?"""
    if any(amount and k not in there for k, amount in enumerate(amounts)):
        return False
    alone = Problem(empty.servers, empty.totals, (application,))
    rooms = [alone.room(0, s) if application.servers >> j & 1 else 0 for j, s in enumerate(empty.servers)]
    if application.max_servers:
        rooms = sorted(rooms, reverse=True)[: application.max_servers]
    return sum(rooms) >= application.sizes[0]


def _quota(snapshot: Snapshot, owner: str, ours: list[tuple[JobView, Partition]], there: list[int]) -> Vector:
    """The most that an owner's applications may have: its quota, or what it has already if that is more."""
    limits = snapshot.owners[owner]
    used = snapshot.usage.get(owner) or NO_USE
    mine = [0.0] * len(RESOURCES)
    for view, partition in ours:
        if view.job.owner == owner:
            size = partition.size_of(view.job.id)
            mine = [m + size * d for m, d in zip(mine, _amounts(view.job.demand), strict=True)]
    rows = ((limits.max_gpus, used.gpus), (limits.max_cores, used.cores), (limits.max_mem_mib, used.mem_mib), (0, 0.0))
    allowed = [max(limit, has) - (has - m) if limit else inf for (limit, has), m in zip(rows, mine, strict=True)]
    return tuple(allowed[k] for k in there)


def signature(snapshot: Snapshot, placed: set[int], waiting: set[int]) -> str:
    """What a decision rests on, in short: while it stays the same there is nothing to decide."""
    owners = sorted((o.id, o.max_gpus, o.max_cores, o.max_mem_mib, o.max_jobs) for o in snapshot.owners.values())
    text = repr((sorted(placed), sorted(waiting), snapshot.capacity.up, owners))
    return blake2b(text.encode(), digest_size=8).hexdigest()
