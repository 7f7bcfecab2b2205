"""The gate before anything is applied: a plan that breaks a rule is refused, with what it breaks in words.

It looks at what the plan changes, not at what exists.
"""

from __future__ import annotations

from collections.abc import Iterator

from hocket.model.capacity import OverCapacity
from hocket.model.job import Job
from hocket.model.partition import BOUNDARIES, Partition, Sharing, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Slice
from hocket.model.snapshot import NO_USE, Snapshot, demand_of
from hocket.model.view import JobView

OVERSUBSCRIPTION = 2.0  # how much of a GPU's time, cores or network stacked tenants may ask for; memory: never
_ALONE, _STACKED = Sharing.ALONE, Sharing.STACKED
_TOLERANCE = 1e-6


class InvalidPlan(ValueError):
    """A plan broke rules; `violations` says which, one sentence each."""

    def __init__(self, violations: list[str]) -> None:
        super().__init__("; ".join(violations))
        self.violations = violations


def violations(snapshot: Snapshot, plan: Plan) -> list[str]:
    """All that is wrong with a plan; empty when it may be applied."""
    found: list[str] = []
    if plan.put or plan.drop:
        found += _partitions(snapshot, plan)
        found += _capacity(snapshot, plan)
        found += _reasons(snapshot, plan)
        if not found and snapshot.owners.data():
            found += _quotas(snapshot, plan)
    for name, jobs in (("ends", plan.ends), ("keeps the state of", plan.tiers), ("checkpoints", plan.checkpoints)):
        found += [f"the plan {name} job '{j}', which is not live" for j in jobs if j not in snapshot.jobs]
    found += [f"job '{j}' ends without a reason" for j in plan.ends if j not in plan.reasons]
    return found


def _partitions(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    dropped = set(plan.drop)
    for pid in plan.drop:
        if pid not in snapshot.partitions:
            yield f"the plan drops partition '{pid}', which does not exist"
    seen: set[str] = set()
    tenants: dict[tuple[str, str], str] = {}
    for partition in plan.put:
        if partition.id in seen:
            yield f"partition '{partition.id}' is in the plan twice"
        if partition.id in dropped:
            yield f"partition '{partition.id}' is both kept and dropped"
        seen.add(partition.id)
        if not partition.tenants:
            yield f"partition '{partition.id}' has no tenant"
        if len(partition.tenants) > 1 and partition.sharing is _ALONE:
            names = ", ".join(f"'{t.job}'" for t in partition.tenants)
            yield f"partition '{partition.id}' is for one tenant alone and has {names}"
        if len(partition.slices) > 1 and len({s.node for s in partition.slices}) < len(partition.slices):
            yield f"partition '{partition.id}' names a node twice"
        for tenant in partition.tenants:
            key = (tenant.job, tenant.task)
            if key in tenants:
                yield f"tenant {_name(tenant)} is in partitions '{tenants[key]}' and '{partition.id}'"
            tenants[key] = partition.id
            yield from _tenant(snapshot, plan, partition, tenant)
        if len(partition.tenants) > 1:
            yield from _shared(snapshot, partition)
    for (job, task), pid in tenants.items():
        view = snapshot.jobs.get(job)
        for other in view.partitions if view is not None else ():
            if other not in seen and other not in dropped:
                there = snapshot.partitions[other].tenants
                if any(t.job == job and t.task == task for t in there):
                    yield f"tenant '{job}{'/' + task if task else ''}' is in partitions '{other}' and '{pid}'"


def _tenant(snapshot: Snapshot, plan: Plan, partition: Partition, tenant: Tenant) -> Iterator[str]:
    view = snapshot.jobs.get(tenant.job)
    if view is None or view.verdict or tenant.job in plan.ends:
        yield f"partition '{partition.id}' has tenant '{tenant.job}', which is not live"
        return
    job = view.job
    if len(tenant.replicas) != len(partition.slices):
        yield (
            f"tenant {_name(tenant)} counts replicas on {len(tenant.replicas)} nodes, "
            f"partition '{partition.id}' has {len(partition.slices)}"
        )
        return
    if tenant.task:
        if job.tasks is None or job.tasks.task(tenant.task) is None:
            yield f"job '{job.id}' has no task '{tenant.task}'"
            return
    elif (size := sum(tenant.replicas)) not in job.sizes:
        yield f"job '{job.id}' runs at sizes {_listed(job.sizes)}, the plan gives it {size}"
    if tenant.boundary.at not in BOUNDARIES:
        yield f"tenant {_name(tenant)} has boundary '{tenant.boundary.at}', which is none of {', '.join(BOUNDARIES)}"
    if job.max_nodes and sum(1 for r in tenant.replicas if r) > job.max_nodes:
        yield f"job '{job.id}' may span {job.max_nodes} nodes, the plan spreads it over {len(partition.slices)}"
    for part, replicas in zip(partition.slices, tenant.replicas, strict=True):
        if replicas:
            yield from _holds(snapshot, partition, view, tenant, part, replicas)


def _holds(
    snapshot: Snapshot, partition: Partition, view: JobView, tenant: Tenant, part: Slice, replicas: int
) -> Iterator[str]:
    """Does a slice hold the tenant's replicas, each for itself?"""
    job = view.job
    if replicas < 0:
        yield f"tenant {_name(tenant)} has {replicas} replicas on node '{part.node}'"
        return
    if job.gpu_kinds or job.gpu_mem_mib:
        yield from _accepts(snapshot, job, part)
    demand = demand_of(view, tenant.task) if tenant.task else job.demand
    gpus = demand.gpus * replicas
    if partition.sharing is _ALONE or partition.sharing is _STACKED:
        short = len(part.gpus) < gpus
    else:
        short = len(part.gpus) < min(gpus, 1)  # turns are taken: each needs the device, not one of its own
    if short:
        yield (
            f"tenant {_name(tenant)} needs {gpus} GPUs on node '{part.node}', "
            f"partition '{partition.id}' has {len(part.gpus)}"
        )
    if demand.gpus_only or partition.sharing is not _ALONE:
        return
    for name, need, has in (
        ("cores", demand.cores * replicas, part.cores),
        ("MiB of memory", demand.mem_mib * replicas, part.mem_mib),
        ("Mbps of network", demand.net_mbps * replicas, part.net_mbps),
    ):
        if need > has + _TOLERANCE:
            yield (
                f"tenant {_name(tenant)} needs {need:g} {name} on node '{part.node}', "
                f"partition '{partition.id}' has {has:g}"
            )


def _accepts(snapshot: Snapshot, job: Job, part: Slice) -> Iterator[str]:
    view = snapshot.nodes.get(part.node)
    if view is None:
        return  # said where capacity is looked at
    if job.gpu_kinds and view.node.gpu_kind not in job.gpu_kinds:
        yield (
            f"job '{job.id}' accepts GPUs of kind {_listed(job.gpu_kinds)}, "
            f"node '{part.node}' has '{view.node.gpu_kind}'"
        )
    if view.node.gpu_mem_mib < job.gpu_mem_mib:
        yield (
            f"job '{job.id}' needs {job.gpu_mem_mib:g} MiB on each GPU, "
            f"node '{part.node}' has {view.node.gpu_mem_mib:g}"
        )


def _shared(snapshot: Snapshot, partition: Partition) -> Iterator[str]:
    """Do the tenants fit together? Memory always; the rest as far as this way of sharing allows."""
    tenants = [(t, snapshot.jobs[t.job]) for t in partition.tenants if t.job in snapshot.jobs]
    for i, part in enumerate(partition.slices):
        demands = [demand_of(v, t.task).times(t.replicas[i]) for t, v in tenants if i < len(t.replicas)]
        mem_mib = sum(d.mem_mib for d in demands)
        if mem_mib > part.mem_mib + _TOLERANCE:
            yield (
                f"the tenants of partition '{partition.id}' need {mem_mib:g} MiB of memory "
                f"on node '{part.node}', it has {part.mem_mib:g}"
            )
        if partition.sharing is not _STACKED:
            continue
        for name, need, has in (
            ("GPUs", sum(d.gpus * d.gpu_share for d in demands), float(len(part.gpus))),
            ("cores", sum(d.cores for d in demands), part.cores),
            ("Mbps of network", sum(d.net_mbps for d in demands), part.net_mbps),
        ):
            if need > OVERSUBSCRIPTION * has + _TOLERANCE:
                yield (
                    f"the tenants stacked on partition '{partition.id}' ask for {need:g} {name} on node "
                    f"'{part.node}', more than {OVERSUBSCRIPTION:g} times its {has:g}"
                )


def _capacity(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    capacity = snapshot.capacity
    partitions = snapshot.partitions
    taking = []
    for pid in plan.drop:
        if (old := partitions.get(pid)) is not None:
            for part in old.slices:
                capacity = capacity.give(part)
    for new in plan.put:
        old = partitions.get(new.id)
        if old is not None:
            if old.slices == new.slices:
                continue
            for part in old.slices:
                capacity = capacity.give(part)
        taking.append(new)
    for new in taking:
        for part in new.slices:
            try:
                capacity = capacity.take(part)
            except OverCapacity as error:
                yield f"partition '{new.id}': {error}"


def _reasons(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    reasons = plan.reasons
    if "*" in reasons:
        return
    for new in plan.put:
        old = snapshot.partitions.get(new.id)
        before = old.tenants if old is not None else ()
        if old is not None and old.slices == new.slices:
            standing = {t.job for t in set(before) ^ set(new.tenants)}
        else:
            standing = {t.job for t in before} | {t.job for t in new.tenants}
        for job in standing:
            if job not in reasons:
                yield f"job '{job}' changes its standing without a reason"
    for pid in plan.drop:
        gone = snapshot.partitions.get(pid)
        for tenant in gone.tenants if gone is not None else ():
            if tenant.job not in reasons:
                yield f"job '{tenant.job}' changes its standing without a reason"


def _quotas(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Owners' quotas hold for what the plan adds; what an owner has already may stay."""
    change: dict[str, list[float]] = {}
    for sign, partitions in (
        (-1, [snapshot.partitions[p] for p in plan.drop]),
        (-1, [old for p in plan.put if (old := snapshot.partitions.get(p.id)) is not None]),
        (1, plan.put),
    ):
        for partition in partitions:
            for tenant in partition.tenants:
                view = snapshot.jobs[tenant.job]
                replicas = sum(tenant.replicas) * sign
                demand = demand_of(view, tenant.task)
                sums = change.setdefault(view.job.owner, [0.0, 0.0, 0.0, 0.0])
                sums[0] += demand.gpus * replicas
                sums[1] += demand.cores * replicas
                sums[2] += demand.mem_mib * replicas
                sums[3] += sign
    for owner_id, more in sorted(change.items()):
        owner = snapshot.owners.get(owner_id)
        if owner is None:
            continue
        used = snapshot.usage.get(owner_id) or NO_USE
        for name, limit, has, extra in (
            ("GPUs", owner.max_gpus, used.gpus, more[0]),
            ("cores", owner.max_cores, used.cores, more[1]),
            ("MiB of memory", owner.max_mem_mib, used.mem_mib, more[2]),
            ("jobs at once", owner.max_jobs, used.jobs, more[3]),
        ):
            if limit and extra > 0 and has + extra > limit + _TOLERANCE:
                yield f"owner '{owner_id}' has a quota of {limit:g} {name}, the plan gives it {has + extra:g}"


def _name(tenant: Tenant) -> str:
    return f"'{tenant.job}/{tenant.task}'" if tenant.task else f"'{tenant.job}'"


def _listed(values: tuple[object, ...]) -> str:
    return ", ".join(map(str, values)) if len(values) <= 8 else f"{values[0]} to {values[-1]}"
