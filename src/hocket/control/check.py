"""Checks a plan before it is applied: one that breaks a rule is refused, with a sentence for each broken rule.

Only what the plan changes is checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite

from hocket.model.capacity import Capacity
from hocket.model.job import ONE_GPU, Job
from hocket.model.partition import BOUNDARIES, NOW, Boundary, Partition, Sharing, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import UNITS, Demand, Slice
from hocket.model.snapshot import NO_USE, Snapshot, demand_of
from hocket.model.view import JobView

OVERSUBSCRIPTION = 2.0  # how much of a GPU's time, cores or network stacked tenants may ask for; memory: never
_ALONE, _STACKED = Sharing.ALONE, Sharing.STACKED
_TOLERANCE = 1e-6
MAX_SAID = 500  # characters of what a policy raised, or returned instead of a plan


class NoPlan(Exception):
    """A policy did not return a plan; the message says what it returned."""


def violations(snapshot: Snapshot, plan: Plan) -> list[str]:
    """All rules that a plan breaks, one sentence each; empty if it may be applied."""
    return examine(snapshot, plan)[0]


def examine(snapshot: Snapshot, plan: Plan) -> tuple[list[str], Capacity]:
    """All rules that a plan breaks, and the capacity that is free under it."""
    if not isinstance(plan, Plan):
        raise NoPlan(f"returned {repr(plan)[:MAX_SAID]}, which is not a Plan")
    found: list[str] = []
    capacity = snapshot.capacity
    if plan.put or plan.drop:
        problems: list[str] = []
        if (starts := _only_starts(snapshot, plan)) is not None:
            capacity = capacity.exchange(*starts, problems)
        if starts is None or problems:
            _partitions(snapshot, plan, found)
            found += _protected(snapshot, plan)
            found += _drained(snapshot, plan)
            if snapshot.reservations:
                found += _reserved(snapshot, plan)
            capacity = _capacity(snapshot, plan, found)
            if "*" not in plan.reasons:
                _reasons(snapshot, plan, found)
        if not found and snapshot.owners.data():
            found += _quotas(snapshot, plan)
    if plan.ends or plan.tiers or plan.checkpoints:
        for does, jobs in (("ends", plan.ends), ("keeps the state of", plan.tiers), ("checkpoints", plan.checkpoints)):
            found += [f"the plan {does} job '{j}', which is not live" for j in jobs if j not in snapshot.jobs]
        found += [f"job '{j}' ends without a reason" for j in plan.ends if j not in plan.reasons]
    if plan.reviews:
        found += [f"job '{j}' has a review at {t} s" for j, t in plan.reviews.items() if not isfinite(t)]
    if plan.wake.at_s is not None and not isfinite(plan.wake.at_s):
        found.append(f"the policy shall be called at {plan.wake.at_s} s")
    return found, capacity


def _only_starts(snapshot: Snapshot, plan: Plan) -> tuple[list[Slice], list[Slice]] | None:
    """The slices that a plan gives back and takes, if it only starts waiting jobs, each alone on GPUs, with or without
    preempting others; None for other plans.

    Most plans are like this. The contract: such a plan breaks no rule unless it takes resources that are not free. For
    None, the rules below must be checked one by one. `tests/property/test_check.py` tests that they find nothing where
    this function returns slices.
    """
    jobs, partitions, reasons = snapshot.jobs.data(), snapshot.partitions.data(), plan.reasons
    put, drop = plan.put, plan.drop
    if (
        plan.ends
        or (len(drop) > 1 and len(set(drop)) < len(drop))
        or (len(put) > 1 and len({p.id for p in put}) < len(put))
    ):
        return None
    back: list[Slice] = []
    for pid in drop:
        old = partitions.get(pid)
        if old is None or len(old.tenants) > 1 or (victim := old.tenants[0].job) not in reasons:
            return None
        if jobs[victim].job.is_protectable:
            return None
        back += old.slices
    out: list[Slice] = []
    for new in put:
        pid, slices, tenants = new.id, new.slices, new.tenants
        if len(tenants) != 1 or new.sharing is not _ALONE or pid in partitions or pid not in reasons:
            return None
        tenant = tenants[0]
        view = jobs.get(pid)  # A job that is alone has a partition of its own name, so no job is here twice.
        if tenant.job != pid or tenant.task or tenant.boundary is not NOW or view is None:
            return None
        job, replicas = view.job, tenant.replicas
        if view.partitions or view.verdict or view.held is not None or job.tasks is not None:
            return None
        if job.gpu_kinds or job.gpu_mem_mib or job.excluded_nodes or job.demand is not ONE_GPU:
            return None
        if len(replicas) != len(slices) or sum(replicas) not in job.sizes:
            return None
        if len(slices) > 1 and (job.max_nodes or len({part.node for part in slices}) < len(slices)):
            return None
        for i, part in enumerate(slices):  # `zip` with `strict` is slow, and both are as long.
            if not 0 < replicas[i] <= len(part.gpus) or part.cores or part.mem_mib or part.net_mbps:
                return None
        out += slices
    return back, out


def _partitions(snapshot: Snapshot, plan: Plan, found: list[str]) -> None:
    jobs, partitions = snapshot.jobs.data(), snapshot.partitions.data()
    dropped = set(plan.drop)
    for pid in plan.drop:
        if pid not in partitions:
            found.append(f"the plan drops partition '{pid}', which does not exist")
    if len(dropped) < len(plan.drop):
        found.append(f"the plan drops partition '{next(p for p in plan.drop if plan.drop.count(p) > 1)}' twice")
    seen: set[str] = set()
    tenants: dict[tuple[str, str], str] = {}
    for partition in plan.put:
        pid = partition.id
        if pid in seen:
            found.append(f"partition '{pid}' is in the plan twice")
        if pid in dropped:
            found.append(f"partition '{pid}' is both kept and dropped")
        seen.add(pid)
        if not partition.tenants:
            found.append(f"partition '{pid}' has no tenant")
        if len(partition.slices) > 1 and len({s.node for s in partition.slices}) < len(partition.slices):
            found.append(f"partition '{pid}' names a node twice")
        for tenant in partition.tenants:
            key = (tenant.job, tenant.task)
            if key in tenants:
                found.append(f"tenant {_name(tenant)} is in partitions '{tenants[key]}' and '{pid}'")
            tenants[key] = pid
            _tenant(snapshot, plan, partition, tenant, jobs.get(tenant.job), found)
        if partition.sharing is not _ALONE:
            found += _shared(snapshot, partition)
        if len(partition.tenants) > 1:
            if len({bool(t.task) for t in partition.tenants}) > 1:
                names = ", ".join(map(_name, partition.tenants))
                found.append(f"partition '{pid}' has {names}: whole jobs and tasks cannot share a partition")
            if partition.sharing is _ALONE:
                names = ", ".join(f"'{t.job}'" for t in partition.tenants)
                found.append(f"partition '{pid}' is for one tenant alone and has {names}")
            old = partitions.get(pid)
            if old is not None and old.sharing is not partition.sharing and _tells_no_tenant(old, partition):
                found.append(
                    f"partition '{pid}' is {old.sharing} and shall be {partition.sharing}, "
                    "but no tenant joins it or changes in it, so its tenants would not be told"
                )
    for (job, task), pid in tenants.items():
        view = jobs.get(job)
        if view is None or not view.partitions:
            continue
        for other in view.partitions:
            if other not in seen and other not in dropped:
                there = partitions[other].tenants
                if any(t.job == job and t.task == task for t in there):
                    found.append(f"tenant '{job}{'/' + task if task else ''}' is in partitions '{other}' and '{pid}'")


def _protected(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Running jobs that may not be preempted must keep the resources that they have."""
    partitions = snapshot.partitions.data()
    planned: list[tuple[str, Partition | None]] = [(pid, None) for pid in plan.drop]
    planned += [(new.id, new) for new in plan.put]
    for pid, new in planned:
        old = partitions.get(pid)
        for tenant in old.tenants if old is not None else ():
            view = snapshot.jobs.get(tenant.job)
            if view is None or not view.job.is_protectable or not (why := view.protected_at(snapshot.now_s)):
                continue
            if new is None or old is None or new.slices != old.slices or tenant not in new.tenants:
                yield f"job {_name(tenant)} must keep its resources: {why}"


def _tenant(
    snapshot: Snapshot, plan: Plan, partition: Partition, tenant: Tenant, view: JobView | None, found: list[str]
) -> None:
    if view is None or view.verdict or tenant.job in plan.ends:
        found.append(f"partition '{partition.id}' has tenant '{tenant.job}', which is not live")
        return
    job, replicas = view.job, tenant.replicas
    if view.held is not None:
        found.append(f"partition '{partition.id}' has tenant {_name(tenant)}, which is held")
        return
    if len(replicas) != len(partition.slices):
        found.append(
            f"tenant {_name(tenant)} counts replicas on {len(replicas)} nodes, "
            f"partition '{partition.id}' has {len(partition.slices)}"
        )
        return
    if tenant.task:
        if job.tasks is None or job.tasks.task(tenant.task) is None:
            found.append(f"job '{job.id}' has no task '{tenant.task}'")
            return
        if sum(replicas) < 1:
            found.append(f"tenant {_name(tenant)} has no replica in partition '{partition.id}'")
    elif job.tasks is not None:
        found.append(f"job '{job.id}' consists of tasks, but is whole in partition '{partition.id}'")
    elif (size := sum(replicas)) not in job.sizes:
        found.append(f"job '{job.id}' runs at sizes {_listed(job.sizes)}, the plan gives it {size}")
    at = tenant.boundary.at
    if at != "now":
        if at not in BOUNDARIES:
            found.append(f"tenant {_name(tenant)} has boundary '{at}', which is not one of {', '.join(BOUNDARIES)}")
        elif at == "after" and not _sets_a_length(tenant.boundary):
            found.append(
                f"tenant {_name(tenant)} has boundary 'after' {tenant.boundary.seconds:g} seconds and "
                f"{tenant.boundary.batches} batches, of which one must be above 0"
            )
    if job.max_nodes and sum(1 for r in replicas if r) > job.max_nodes:
        found.append(f"job '{job.id}' may span {job.max_nodes} nodes, the plan spreads it over {len(replicas)}")
    demand = demand_of(job, tenant.task) if tenant.task else job.demand
    for part, here in zip(partition.slices, replicas, strict=True):
        if here:
            _holds(snapshot, partition, job, demand, tenant, part, here, found)


def _drained(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """No job joins others on a drained node; new places there are refused for want of capacity."""
    for new in plan.put:
        old = snapshot.partitions.data().get(new.id)
        closed = [part.node for part in new.slices if (v := snapshot.nodes.get(part.node)) is not None and v.drained]
        if old is None or not closed:
            continue
        there = {(t.job, t.task) for t in old.tenants}
        for tenant in new.tenants:
            if (tenant.job, tenant.task) not in there:
                yield f"job {_name(tenant)} is placed on node '{closed[0]}', which is drained"


def _reserved(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Jobs of other owners keep what they have of a reserved node, and get nothing else of it."""
    for new in plan.put:
        for tenant in new.tenants:
            view = snapshot.jobs.get(tenant.job)
            if view is None or not view.job.excluded_nodes or len(tenant.replicas) != len(new.slices):
                continue  # reported by the check of tenants
            had = _held_by(snapshot, view, tenant.task)
            for part, here in zip(new.slices, tenant.replicas, strict=True):
                kept, before = had.get(part.node, (None, 0))
                if here and part.node in view.job.excluded_nodes and (kept != part or here > before):
                    yield (
                        f"job {_name(tenant)} of owner '{view.job.owner}' is placed on node '{part.node}', "
                        f"which is {_reservation_of(snapshot, part.node)}"
                    )


def _held_by(snapshot: Snapshot, view: JobView, task: str) -> dict[str, tuple[Slice, int]]:
    """By node, the slice and the replicas there that a tenant of the job has in the present plan."""
    return {
        part.node: (part, here)
        for partition in (snapshot.partitions[pid] for pid in view.partitions)
        for tenant in partition.tenants
        if (tenant.job, tenant.task) == (view.id, task)
        for part, here in zip(partition.slices, tenant.replicas, strict=True)
    }


def _reservation_of(snapshot: Snapshot, node: str) -> str:
    held = (r.words for r in snapshot.reservations if r.node == node and r.holds_at(snapshot.now_s))
    return next(held, "reserved")


def _tells_no_tenant(old: Partition, new: Partition) -> bool:
    """Would no tenant be told? Executors learn of a changed partition only by actions for tenants that change."""
    return old.slices == new.slices and set(new.tenants) <= set(old.tenants)


def _sets_a_length(boundary: Boundary) -> bool:
    seconds, batches = boundary.seconds, boundary.batches
    return isfinite(seconds) and seconds >= 0 and batches >= 0 and (seconds > 0) != (batches > 0)


def _holds(
    snapshot: Snapshot,
    partition: Partition,
    job: Job,
    demand: Demand,
    tenant: Tenant,
    part: Slice,
    replicas: int,
    found: list[str],
) -> None:
    """Does a slice have enough for each of the tenant's replicas?"""
    if replicas < 0:
        found.append(f"tenant {_name(tenant)} has {replicas} replicas on node '{part.node}'")
        return
    if job.gpu_kinds or job.gpu_mem_mib:
        found += _accepts(snapshot, job, part)
    gpus, sharing = demand.gpus * replicas, partition.sharing
    if sharing is not _ALONE and sharing is not _STACKED:
        gpus = min(gpus, 1)  # Interleaved tenants take turns on the device.
    if len(part.gpus) < gpus:
        found.append(
            f"tenant {_name(tenant)} needs {gpus} GPUs on node '{part.node}', "
            f"partition '{partition.id}' has {len(part.gpus)}"
        )
    if sharing is not _ALONE or not (demand.cores or demand.mem_mib or demand.net_mbps):
        return
    for name, need, has in (
        (UNITS["cores"], demand.cores * replicas, part.cores),
        (UNITS["mem_mib"], demand.mem_mib * replicas, part.mem_mib),
        (UNITS["net_mbps"], demand.net_mbps * replicas, part.net_mbps),
    ):
        if need > has + _TOLERANCE:
            found.append(
                f"tenant {_name(tenant)} needs {need:g} {name} on node '{part.node}', "
                f"partition '{partition.id}' has {has:g}"
            )


def _accepts(snapshot: Snapshot, job: Job, part: Slice) -> Iterator[str]:
    view = snapshot.nodes.get(part.node)
    if view is None:
        return  # reported by the check of capacity
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
    """Do the tenants fit together? Only stacked tenants may exceed the slice, and never in memory."""
    tenants = [(t, snapshot.jobs[t.job]) for t in partition.tenants if t.job in snapshot.jobs]
    for i, part in enumerate(partition.slices):
        demands = [demand_of(v.job, t.task).times(t.replicas[i]) for t, v in tenants if i < len(t.replicas)]
        mem_mib = sum(d.mem_mib for d in demands)
        if mem_mib > part.mem_mib + _TOLERANCE:
            yield (
                f"the tenants of partition '{partition.id}' need {mem_mib:g} {UNITS['mem_mib']} "
                f"on node '{part.node}', it has {part.mem_mib:g}"
            )
        if partition.sharing is not _STACKED:
            continue
        for name, need, has in (
            (UNITS["gpus"], sum(d.gpu_load for d in demands), float(len(part.gpus))),
            (UNITS["cores"], sum(d.cores for d in demands), part.cores),
            (UNITS["net_mbps"], sum(d.net_mbps for d in demands), part.net_mbps),
        ):
            if need > OVERSUBSCRIPTION * has + _TOLERANCE:
                yield (
                    f"the tenants stacked on partition '{partition.id}' ask for {need:g} {name} on node "
                    f"'{part.node}', more than {OVERSUBSCRIPTION:g} times its {has:g}"
                )


def _capacity(snapshot: Snapshot, plan: Plan, found: list[str]) -> Capacity:
    """First all dropped resources are given back, then new ones are taken."""
    partitions = snapshot.partitions.data()
    back: list[Slice] = []
    for pid in plan.drop:
        if (gone := partitions.get(pid)) is not None:
            back += gone.slices
    taking: list[Partition] = []
    out: list[Slice] = []
    for new in plan.put:
        old = partitions.get(new.id)
        if old is None:
            taking.append(new)
            out += new.slices
        elif old.slices != new.slices:
            taking.append(new)
            back += old.slices
            out += new.slices
    problems: list[str] = []
    for part in out:
        if (part.cores or part.mem_mib or part.net_mbps) and not (
            0 <= part.cores < inf and 0 <= part.mem_mib < inf and 0 <= part.net_mbps < inf
        ):
            cores, mem_mib, net_mbps = (f"{getattr(part, k):g} {UNITS[k]}" for k in ("cores", "mem_mib", "net_mbps"))
            problems.append(f"node '{part.node}' cannot give {cores}, {mem_mib} and {net_mbps}")
            out = []
            break
    capacity = snapshot.capacity.exchange(back, out, problems)
    drained = [view.node.id for view in snapshot.nodes.values() if view.drained and view.up] if problems else ()
    for node in drained:  # Capacity knows only that there is nothing to have of it.
        problems = [p.replace(f"node '{node}' is lost", f"node '{node}' is drained") for p in problems]
    for problem in problems:
        whose = [f"'{p.id}'" for p in taking if any(f"node '{s.node}'" in problem for s in p.slices)]
        found.append(f"partition {' or '.join(whose)}: {problem}")
    return capacity


def _reasons(snapshot: Snapshot, plan: Plan, found: list[str]) -> None:
    reasons, partitions = plan.reasons, snapshot.partitions.data()
    standing: set[str] = set()
    for new in plan.put:
        old = partitions.get(new.id)
        if old is None:
            for t in new.tenants:
                if t.job not in reasons:
                    standing.add(t.job)
        elif old.slices == new.slices:
            standing.update(t.job for t in set(old.tenants) ^ set(new.tenants))
        else:
            standing.update(t.job for t in (*old.tenants, *new.tenants))
    for pid in plan.drop:
        if (gone := partitions.get(pid)) is not None:
            for t in gone.tenants:
                if t.job not in reasons:
                    standing.add(t.job)
    if standing:
        for job in sorted(standing - reasons.keys()):
            found.append(f"job '{job}' changes without a reason")


def _quotas(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Quotas limit what the plan adds; resources that an owner already has may stay."""
    change: dict[str, list[float]] = {}
    had: set[str] = set()  # jobs with a place that the plan changes
    have: set[str] = set()  # jobs to which it gives one
    for sign, partitions in (
        (-1, [snapshot.partitions[p] for p in plan.drop]),
        (-1, [old for p in plan.put if (old := snapshot.partitions.get(p.id)) is not None]),
        (1, plan.put),
    ):
        for partition in partitions:
            for tenant in partition.tenants:
                view = snapshot.jobs[tenant.job]
                replicas = sum(tenant.replicas) * sign
                demand = demand_of(view.job, tenant.task)
                sums = change.setdefault(view.job.owner, [0.0, 0.0, 0.0, 0.0])
                sums[0] += demand.gpus * replicas
                sums[1] += demand.cores * replicas
                sums[2] += demand.mem_mib * replicas
                (have if sign > 0 else had).add(tenant.job)
    changed = {*plan.drop, *(p.id for p in plan.put)}
    for job_id in had ^ have:  # A job counts once, independent of the number of its tasks that have resources.
        view = snapshot.jobs[job_id]
        if changed.issuperset(view.partitions):
            change[view.job.owner][3] += 1 if job_id in have else -1
    for owner_id, more in sorted(change.items()):
        owner = snapshot.owners.get(owner_id)
        if owner is None:
            continue
        used = snapshot.usage.get(owner_id) or NO_USE
        for name, limit, has, extra in (
            (UNITS["gpus"], owner.max_gpus, used.gpus, more[0]),
            (UNITS["cores"], owner.max_cores, used.cores, more[1]),
            (UNITS["mem_mib"], owner.max_mem_mib, used.mem_mib, more[2]),
            ("jobs at once", owner.max_jobs, used.jobs, more[3]),
        ):
            if limit and extra > 0 and has + extra > limit + _TOLERANCE:
                yield f"owner '{owner_id}' has a quota of {limit:g} {name}, the plan gives it {has + extra:g}"


def _name(tenant: Tenant) -> str:
    return f"'{tenant.job}/{tenant.task}'" if tenant.task else f"'{tenant.job}'"


def _listed(values: tuple[object, ...]) -> str:
    return ", ".join(map(str, values)) if len(values) <= 8 else f"{values[0]} to {values[-1]}"
