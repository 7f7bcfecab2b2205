"""The snapshot that a document describes: what it leaves out is filled in, its indexes are built, its rules checked."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import inf, nan
from typing import Any, TypeAlias

import msgspec

from hocket.model.capacity import Capacity, Shape
from hocket.model.criterion import CriterionError, Goal, parse
from hocket.model.curve import Beliefs, Curve
from hocket.model.entries import Document, JobEntry, SubmittedEntry
from hocket.model.job import Job, Owner
from hocket.model.partition import Holding, Partition, Sharing
from hocket.model.reservation import excluded_nodes, holding_at
from hocket.model.resources import Node, Slice
from hocket.model.snapshot import History, Snapshot, queues_of, usage_of
from hocket.model.validation import shown
from hocket.model.versioned import VersionedMap, VersionedQueue, versioned
from hocket.model.view import JobState, JobView, NodeView, Observation, Tenancy, Tier

Order: TypeAlias = Callable[[JobView, float], tuple[Any, ...]]
INFINITIES = {"∞": inf, "-∞": -inf}  # as they stand in ranks


class DocumentError(ValueError):
    """A document that is no snapshot: the field, the rule and the value, in one line."""


# Fields of a view that a document has as they are.
SAME = (
    "submitted_s", "waited_s", "ran_s", "attained_gpu_s", "done_s", "pace", "started_s", "starts", "failures",
    "prepared", "preparing", "crashes", "held", "held_until_s", "tier", "keep", "suspended", "storing", "epoch", "use",
    "beliefs", "costs", "memo", "review_s", "verdict", "reason", "saved_s", "saved_epoch", "step",
    "saved_step",
)  # fmt: skip


def planned(job_id: str, partitions: list[Partition]) -> list[Tenancy]:
    """What the job holds once it is all as planned."""
    return [
        Tenancy(t.task, Holding(p.id, p.slices, t.replicas, t.boundary))
        for p in partitions
        for t in p.tenants
        if t.job == job_id
    ]


def from_document(document: Document, order: Order | None = None) -> Snapshot:
    """The snapshot of a document, with its indexes. Raises DocumentError.

    Jobs are ranked by `order`; without one they keep the ranks of the document.
    """
    nodes = _nodes(document)
    partitions, named = _partitions(document, nodes)
    views = [_without_reserved(view, document) for view in _views(document, nodes, named, order)]
    _check_tenants(partitions, views)
    jobs = versioned((v.id, v) for v in views)
    for field, ids in (
        ("arrived", document.arrived or ()),
        ("due", document.due),
        ("unsettled", [job for job, _task in document.unsettled]),
        ("leaving", [tenant.partition("/")[0] for tenant in document.leaving]),
    ):
        for job_id in ids:
            _require(job_id in jobs, field, "must name jobs of the snapshot", job_id)
    for tenant, slices in document.leaving.items():
        for part in slices:  # one by one: of a node, a tenant may leave both what it has and what was to come
            _check_slices((part,), f"leaving.{tenant}", nodes)
    arrived = document.arrived
    if arrived is None:
        arrived = tuple(v.id for v in views if not v.partitions and not v.held) if not document.decision else ()
    owners = [Owner(o.id, o.weight, o.max_gpus, o.max_cores, o.max_mem_mib, o.max_jobs) for o in document.owners]
    _distinct([o.id for o in owners], "owners", "ids")
    return Snapshot(
        document.now_s,
        nodes,
        versioned((o.id, o) for o in owners),
        versioned(usage_of(partitions, jobs).items()),
        jobs,
        *_queues(views),
        versioned((p.id, p) for p in partitions),
        versioned(document.leaving.items()),
        document.unsettled,
        _capacity(nodes, partitions),
        versioned(
            ((h.size if h.owner is None else (h.owner, h.size)), History(h.count, h.log_sum, h.log_squares))
            for h in document.history
        ),
        document.memo,
        document.wake,
        document.seed,
        document.decision,
        max(document.submissions or 0, len(views), *(v.number + 1 for v in views), 0),
        arrived,
        document.due,
        document.reservations,
    )


def _require(holds: bool, field: str, rule: str, value: object) -> None:
    if not holds:
        raise DocumentError(f"snapshot: {field} {rule}, not {shown(value)}")


def _distinct(values: list[Any], field: str, what: str) -> None:
    if len(set(values)) < len(values):
        twice = next(v for v in values if values.count(v) > 1)
        raise DocumentError(f"snapshot: {field}: {what} must be distinct, and {shown(twice)} is there twice")


def _nodes(document: Document) -> VersionedMap[str, NodeView]:
    _distinct([n.id for n in document.nodes], "nodes", "ids")
    return versioned(
        (
            n.id,
            NodeView(
                Node(n.id, n.gpus, n.gpu_kind, n.gpu_mem_mib, n.cores, n.mem_mib, n.net_mbps),
                n.up,
                n.use,
                n.drained,
                n.cleared,
            ),
        )
        for n in document.nodes
    )


def _check_slices(slices: tuple[Slice, ...], field: str, nodes: VersionedMap[str, NodeView]) -> None:
    for n, part in enumerate(slices):
        view = nodes.get(part.node)
        if view is None:
            raise DocumentError(f"snapshot: {field}: slices[{n}].node must be one of the nodes, not '{part.node}'")
        for name in ("cores", "mem_mib", "net_mbps"):
            _require(getattr(part, name) >= 0, f"{field}: slices[{n}].{name}", "must be from 0 up", getattr(part, name))
        for gpu in part.gpus:
            if not 0 <= gpu < view.node.gpus:
                raise DocumentError(
                    f"snapshot: {field}: slices[{n}].gpus must be from 0 to {view.node.gpus - 1} on node "
                    f"'{part.node}', not {gpu}"
                )
    _distinct([s.node for s in slices], field, "the nodes of its slices")


def _partitions(
    document: Document, nodes: VersionedMap[str, NodeView]
) -> tuple[tuple[Partition, ...], dict[str, list[Partition]]]:
    """The partitions, and for each job those that name it."""
    _distinct([p.id for p in document.partitions], "partitions", "ids")
    named: dict[str, list[Partition]] = {}
    seen: dict[tuple[str, str], str] = {}
    for partition in document.partitions:
        field = f"partition '{partition.id}'"
        _check_slices(partition.slices, field, nodes)
        _require(bool(partition.tenants), field, "must have a tenant", [])
        if partition.sharing is Sharing.ALONE:
            names = [t.job for t in partition.tenants]
            _require(len(names) == 1, field, "is for one tenant alone", names)
        for tenant in partition.tenants:
            _check_replicas(tenant.replicas, len(partition.slices), f"{field}: tenant '{tenant.job}'")
            key = (tenant.job, tenant.task)
            if key in seen:
                raise DocumentError(f"snapshot: {field}: tenant '{tenant.job}' is in partition '{seen[key]}' already")
            seen[key] = partition.id
            known = named.setdefault(tenant.job, [])
            if partition not in known:
                known.append(partition)
    return document.partitions, named


def _check_replicas(replicas: tuple[int, ...], slices: int, field: str) -> None:
    _require(len(replicas) == slices, f"{field}: replicas", f"must be {slices} numbers, one a slice", list(replicas))
    _require(all(0 <= n <= 1_000_000 for n in replicas), f"{field}: replicas", "must be from 0 up", list(replicas))


def _views(
    document: Document,
    nodes: VersionedMap[str, NodeView],
    named: dict[str, list[Partition]],
    order: Order | None,
) -> list[JobView]:
    views = []
    for n, entry in enumerate(document.jobs):
        field = f"job '{entry.job.id}'"
        in_order = sorted(named.get(entry.job.id, []), key=lambda p: p.id)
        view = _view(entry, n, document.now_s, in_order, field)
        _check_view(view, document.now_s, field)
        _require(
            sorted(view.partitions) == [p.id for p in in_order],
            f"{field}: partitions",
            f"must be those that name it ({', '.join(p.id for p in in_order) or 'none'})",
            list(view.partitions),
        )
        for tenancy in view.tenancies:
            for held in (tenancy.holding, tenancy.coming):
                if held is not None:
                    _check_slices(held.slices, f"{field}: tenancies", nodes)
                    _check_replicas(held.replicas, len(held.slices), f"{field}: tenancies")
        if order is not None:
            view = msgspec.structs.replace(view, rank=order(view, document.now_s))
        views.append(view)
    _distinct([v.id for v in views], "jobs", "ids")
    _distinct([v.number for v in views], "jobs", "numbers")
    return views


def _view(entry: JobEntry, number: int, now_s: float, partitions: list[Partition], field: str) -> JobView:
    """What the entry leaves out follows from the partitions that name it."""
    try:
        job = _job(entry.job)
    except CriterionError as error:
        raise DocumentError(f"snapshot: {field}: {error}") from error
    is_goal = job.target is None or isinstance(job.target, Goal)
    _require(is_goal, f"{field}: job.target", "must be a goal such as 'acc >= 90%'", entry.job.target)
    tenancies, state = entry.tenancies, entry.state
    if tenancies is None:
        runs = state is None or state is JobState.RUNNING
        tenancies = tuple(planned(job.id, partitions)) if runs else ()
    if state is None:
        idle = JobState.WAITING if entry.tier is Tier.NONE else JobState.PAUSED
        state = JobState.RUNNING if tenancies else idle
    held = [t.holding for t in tenancies if t.holding is not None]
    since_s = entry.since_s
    if since_s is None:
        since_s = now_s if held else entry.submitted_s
    run_began_s = entry.run_began_s
    if run_began_s is None and held and job.is_protectable:
        run_began_s = since_s
    same: dict[str, Any] = {name: getattr(entry, name) for name in SAME}
    return JobView(
        job,
        entry.number if entry.number is not None else number,
        state=state,
        since_s=since_s,
        gpus=sum(h.gpus for h in held),
        size=sum(h.size for h in held),
        partitions=entry.partitions if entry.partitions is not None else tuple(p.id for p in partitions),
        tenancies=tenancies,
        observations=tuple(
            Observation(o.at_s, o.epoch, {k: nan if v is None else v for k, v in o.metrics.items()}, o.step)
            for o in entry.observations
        ),
        rank=tuple(_frozen(r) for r in entry.rank or ()),
        run_began_s=run_began_s,
        **same,
    )


def _without_reserved(view: JobView, document: Document) -> JobView:
    """The view of a job that is excluded from nodes which the document reserves for other owners now."""
    found = excluded_nodes(holding_at(document.reservations, document.now_s), view.job.owner)
    if not found:
        return view
    excluded = tuple(sorted({*view.job.excluded_nodes, *found}))
    return msgspec.structs.replace(view, job=msgspec.structs.replace(view.job, excluded_nodes=excluded))


def _job(spec: SubmittedEntry) -> Job:
    fields: dict[str, Any] = {name: getattr(spec, name) for name in SubmittedEntry.__struct_fields__}
    read = {n: None if fields[n] is None else parse(fields[n]) for n in ("criterion", "target")}
    return Job(**fields | read)


def _frozen(value: Any) -> Any:
    """Ranks are tuples all through, or they would not compare."""
    if isinstance(value, list):
        return tuple(_frozen(v) for v in value)
    return INFINITIES.get(value, value) if isinstance(value, str) else value


def _check_view(view: JobView, now_s: float, field: str) -> None:
    job = view.job
    ascending = all(a < b for a, b in pairwise(job.sizes))
    _require(ascending, f"{field}: sizes", "must be ascending", list(job.sizes))
    for name in ("gpus", "cores", "mem_mib", "net_mbps"):
        _require(
            getattr(job.demand, name) >= 0, f"{field}: demand.{name}", "must be from 0 up", getattr(job.demand, name)
        )
    _require(
        view.submitted_s <= now_s, f"{field}: submitted_s", f"must not be after now_s = {now_s:g}", view.submitted_s
    )
    _require(view.since_s <= now_s, f"{field}: since_s", f"must not be after now_s = {now_s:g}", view.since_s)
    idle = view.state in (JobState.WAITING, JobState.PAUSED)
    if idle and view.tenancies:
        raise DocumentError(f"snapshot: {field}: tenancies must be empty for a job that is {view.state}")
    if not idle and not view.tenancies:
        raise DocumentError(
            f"snapshot: {field}: state must be waiting or paused where it holds nothing, not {view.state}"
        )
    if view.verdict and view.partitions:
        raise DocumentError(
            f"snapshot: {field}: a job with a verdict must be in no partition, not '{view.partitions[0]}'"
        )
    _distinct([t.task for t in view.tenancies], f"{field}: tenancies", "tasks")
    _require(
        view.beliefs.reference_size >= 1,
        f"{field}: beliefs.reference_size",
        "must be from 1 up",
        view.beliefs.reference_size,
    )
    for name in Beliefs.__struct_fields__:
        if isinstance(curve := getattr(view.beliefs, name), Curve):
            xs = [p.x for p in curve.points]
            rises = bool(xs) and all(a < b for a, b in pairwise(xs))
            _require(rises, f"{field}: beliefs.{name}.points", "must be at least one, by ascending x", xs)


def _check_tenants(partitions: tuple[Partition, ...], views: list[JobView]) -> None:
    jobs = {v.id: v.job for v in views}
    for partition in partitions:
        for tenant in partition.tenants:
            field, job = f"partition '{partition.id}'", jobs.get(tenant.job)
            if job is None:
                raise DocumentError(f"snapshot: {field}: a tenant must be one of the jobs, not '{tenant.job}'")
            if tenant.task and (job.tasks is None or job.tasks.task(tenant.task) is None):
                raise DocumentError(f"snapshot: {field}: job '{job.id}' has no task '{tenant.task}'")


def _capacity(nodes: VersionedMap[str, NodeView], partitions: tuple[Partition, ...]) -> Capacity:
    capacity = Capacity.of(v.node for v in nodes.values())
    for view in nodes.values():
        if not view.up:
            capacity = capacity.lose(view.node.id)
    for partition in partitions:
        found: list[str] = []
        capacity = capacity.exchange((), partition.slices, found)
        if found:
            raise DocumentError(f"snapshot: partition '{partition.id}': {found[0].replace('the plan', 'it')}")
    for view in nodes.values():
        if view.drained and view.up:
            capacity = capacity.close(view.node.id)
    return capacity


def _queues(views: list[JobView]) -> tuple[VersionedQueue[Shape], VersionedQueue[bool]]:
    try:
        return queues_of(views)
    except TypeError as error:
        raise DocumentError(f"snapshot: jobs: ranks must compare with each other, and {error}") from error
