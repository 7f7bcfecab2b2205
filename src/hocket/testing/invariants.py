"""What is true of every state, whatever happened: sums, queues, what each tenant holds, and every index."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from hocket.control.state import State
from hocket.model.partition import Holding, Partition, Sharing
from hocket.model.reservation import excluded_nodes, holding_at, next_change_s
from hocket.model.resources import Slice, gpu_mask
from hocket.model.snapshot import NO_USE, Snapshot, Usage, demand_of, queues_of
from hocket.model.versioned import VersionedQueue
from hocket.model.view import JobState, JobView, Tenancy

_CLOSE = 1e-6
_AMOUNTS = ("cores", "mem_mib", "net_mbps")
_IDLE = (JobState.WAITING, JobState.PAUSED)


def broken_invariants(snapshot: Snapshot) -> list[str]:
    """What is wrong with the state in this `snapshot`, a sentence for each broken invariant; empty if it is sound."""
    return [
        *_capacity(snapshot),
        *_tenants(snapshot),
        *_queues(snapshot),
        *_usage(snapshot),
        *_views(snapshot),
        *_leaving(snapshot),
        *_facts(snapshot),
        *_excluded(snapshot),
    ]


def broken_indices(state: State) -> list[str]:
    """Every index of a `state` that is in no snapshot of it and is not what its facts say; `broken_invariants` looks at
    the others."""
    jobs = state.jobs.live
    tasks: dict[str, int] = {}
    followers: dict[str, set[str]] = defaultdict(set)
    holders: dict[str, set[str]] = defaultdict(set)
    for partition in state.partitions.live.values():
        for tenant in partition.tenants:
            if tenant.task:
                tasks[tenant.job] = tasks.get(tenant.job, 0) + 1
    for job_id, view in jobs.items():
        if view.held:
            for first in view.job.predecessors:
                if first in jobs:
                    followers[first].add(job_id)
        if state.jobs_by_partition is not None:
            for held in _holdings(view):
                holders[held.partition].add(job_id)
    live_followers = {first: kept for first, ids in state.followers.items() if (kept := set(ids) & jobs.keys())}
    return [
        f"the index '{name}' has {kept}, and the facts say {rebuilt}"
        for name, kept, rebuilt in (
            ("tasks_placed", state.tasks_placed, tasks if state.counts_usage else {}),
            ("followers", live_followers, followers),
            ("holding", state.holding, holding_at(state.reservations, state.now_s)),
            ("reservation_s", state.reservation_s, next_change_s(state.reservations, state.now_s)),
            ("jobs_by_partition", holders if state.jobs_by_partition is None else state.jobs_by_partition, holders),
        )
        if kept != rebuilt
    ]


def _holdings(view: JobView) -> list[Holding]:
    """What a job's tenants hold and will hold."""
    return [held for t in view.tenancies for held in (t.holding, t.coming) if held is not None]


def _capacity(snapshot: Snapshot) -> Iterator[str]:
    """Invariant: what is free and what the partitions have make up the nodes."""
    taken: dict[str, list[Slice]] = {}
    for partition in snapshot.partitions.data().values():
        for part in partition.slices:
            if (there := taken.get(part.node)) is None:
                taken[part.node] = [part]
            else:
                there.append(part)
    gpus, nodes = 0, snapshot.nodes.data()
    for node, free in snapshot.capacity:
        view = nodes[node.id]
        parts = taken.pop(node.id, ())
        gpus += free.gpus.bit_count()
        if not view.up:
            if parts or free.gpus or free.cores or free.mem_mib or free.net_mbps:
                yield f"node '{node.id}' is lost and still has something"
            continue
        if view.drained:
            if free.gpus or free.cores or free.mem_mib or free.net_mbps:
                yield f"node '{node.id}' is drained and has something free"
            continue
        cores, mem_mib, net_mbps = free.cores, free.mem_mib, free.net_mbps
        count, together = free.gpus.bit_count(), free.gpus
        for part in parts:
            cores, mem_mib, net_mbps = cores + part.cores, mem_mib + part.mem_mib, net_mbps + part.net_mbps
            mask = gpu_mask(part.gpus)
            count, together = count + mask.bit_count(), together | mask
        if count != node.gpus or together != (1 << node.gpus) - 1:
            masks = [free.gpus, *[gpu_mask(part.gpus) for part in parts]]
            yield f"node '{node.id}': free and taken GPUs are not its {node.gpus}: {masks}"
        if cores == node.cores and mem_mib == node.mem_mib and net_mbps == node.net_mbps:
            continue
        for name, total, has in zip(
            _AMOUNTS, (cores, mem_mib, net_mbps), (node.cores, node.mem_mib, node.net_mbps), strict=True
        ):
            if abs(total - has) > _CLOSE:
                yield f"node '{node.id}': free and taken {name} make {total}, it has {has}"
    if gpus != snapshot.capacity.gpus:
        yield f"{gpus} GPUs are free, the capacity says {snapshot.capacity.gpus}"
    for node_id in taken:
        yield f"partitions have something of node '{node_id}', which is not there"


def _tenants(snapshot: Snapshot) -> Iterator[str]:
    """Invariant: a view names the partitions that name its job."""
    named: dict[str, set[str]] = {}
    for pid, partition in snapshot.partitions.data().items():
        tenants = partition.tenants
        if pid != partition.id or not tenants:
            yield f"partition '{pid}' has another id or no tenant"
        if len(tenants) > 1 and partition.sharing is Sharing.ALONE:
            yield f"partition '{pid}' is for one alone and has {len(tenants)} tenants"
        for tenant in tenants:
            if tenant.job in named:
                named[tenant.job].add(pid)
            else:
                named[tenant.job] = {pid}
    for job_id, view in snapshot.jobs.data().items():
        if not view.partitions and job_id not in named:
            continue
        names = set(view.partitions)
        if names != named.pop(job_id, set()) or len(names) < len(view.partitions):
            yield f"job '{job_id}' has partitions {view.partitions}, which do not all have it"
        if view.verdict and view.partitions:
            yield f"job '{job_id}' is being ended and has partitions"
    if named:
        yield f"partitions have tenants that are not live: {sorted(named)}"


def _queues(snapshot: Snapshot) -> Iterator[str]:
    """Invariant: every live job but those held stands in one queue, in its bucket, by its rank."""
    views = snapshot.jobs.data().values()
    waiting, placed = queues_of(views)
    pairs: tuple[tuple[str, VersionedQueue[Any], VersionedQueue[Any]], ...] = (
        ("waiting", snapshot.waiting, waiting),
        ("placed", snapshot.placed, placed),
    )
    for name, queue, facts in pairs:
        if queue.buckets() != facts.buckets():
            yield f"the {name} queue has {queue.buckets()}, and the jobs say {facts.buckets()}"
        if len(queue) != len(facts):
            yield f"the {name} queue miscounts its entries: it says {len(queue)}, there are {len(facts)}"
    for view in views:
        if view.held and view.partitions:
            yield f"job '{view.job.id}' is held and has partitions"


def _zeros() -> list[float]:
    return [0.0] * 5


def _usage(snapshot: Snapshot) -> Iterator[str]:
    """Invariant: usage is what each owner's jobs have by plan."""
    jobs = snapshot.jobs.data()
    sums: dict[str, list[float]] = defaultdict(_zeros)
    for partition in snapshot.partitions.data().values():
        for tenant in partition.tenants:
            job = jobs[tenant.job].job
            demand = demand_of(job, tenant.task) if tenant.task else job.demand
            replicas, used_by_plan = sum(tenant.replicas), sums[job.owner]
            used_by_plan[0] += demand.gpus * replicas
            used_by_plan[1] += demand.cores * replicas
            used_by_plan[2] += demand.mem_mib * replicas
            used_by_plan[3] += demand.net_mbps * replicas
    for view in jobs.values():
        if view.partitions:
            sums[view.job.owner][4] += 1
    usage = snapshot.usage.data()
    for owner in {*sums, *usage}:
        used: Usage = usage.get(owner) or NO_USE
        has = [used.gpus, used.cores, used.mem_mib, used.net_mbps, used.jobs]
        if has != sums[owner] and any(abs(a - b) > _CLOSE for a, b in zip(has, sums[owner], strict=True)):
            yield f"owner '{owner}' uses {sums[owner]} by plan, usage says {has}"


def _views(snapshot: Snapshot) -> Iterator[str]:
    """Invariant: state, size and GPUs of a view follow from its tenancies; a job prepares before it has any."""
    now_s = snapshot.now_s
    for view in snapshot.jobs.data().values():
        tenancies = view.tenancies
        size = gpus = 0
        for tenancy in tenancies:
            if (held := tenancy.holding) is not None:
                size, gpus = size + held.size, gpus + held.gpus
        if view.size != size or view.gpus != gpus:
            holds = [t.holding for t in tenancies if t.holding is not None]
            yield f"job '{view.job.id}' says size {view.size} on {view.gpus} GPUs, and holds {holds}"
        if (view.state in _IDLE) == bool(tenancies):
            yield f"job '{view.job.id}' is {view.state} with tenancies {tenancies}"
        if view.suspended is not None and not snapshot.nodes[view.suspended.node].up:
            yield f"job '{view.job.id}' is suspended on node '{view.suspended.node}', which is lost"
        if view.preparing and tenancies:
            yield f"job '{view.job.id}' prepares, and runs or starts already"
        if len(tenancies) > 1 and len({t.task for t in tenancies}) < len(tenancies):
            yield f"job '{view.job.id}' has two tenancies of one task"
        if (
            view.waited_s < 0 or view.ran_s < 0 or view.attained_gpu_s < 0 or view.done_s < 0 or view.since_s > now_s
        ):  # fmt: skip
            yield f"job '{view.job.id}' has a time below 0 or in the future"
    if len(set(snapshot.unsettled)) < len(snapshot.unsettled):
        yield "a tenant is unsettled twice"


def _leaving(snapshot: Snapshot) -> Iterator[str]:
    """Invariant: the tenants that are leaving are those that hold more than the plan gives them."""
    leaving, partitions = set(snapshot.leaving), snapshot.partitions.data()
    for view in snapshot.jobs.data().values():
        for tenancy in view.tenancies:
            tenant = f"{view.job.id}/{tenancy.task}"
            more = _more_than_planned(partitions, view.job.id, tenancy)
            if more and tenant not in leaving:
                yield f"tenant '{tenant}' holds {more} beyond its plan and is not leaving"
            if not more and tenant in leaving and not _shares(partitions, tenancy):
                yield f"tenant '{tenant}' is leaving and holds no GPU beyond its plan"
            leaving.discard(tenant)
        if view.suspended is not None and not view.tenancies:
            tenant, parts = f"{view.job.id}/", [p for pid in view.partitions for p in partitions[pid].slices]
            planned = sum(part.mem_mib for part in parts if part.node == view.suspended.node)
            if (view.suspended.mem_mib > planned) != (tenant in leaving):
                yield f"'{tenant}' is suspended with {view.suspended.mem_mib} MiB, and leaving does not say so"
            leaving.discard(tenant)
    if leaving:
        yield f"leaving names tenants that hold nothing: {sorted(leaving)}"


def _shares(partitions: Mapping[str, Partition], tenancy: Tenancy) -> bool:
    """Does a tenant hold something, or will it, of a partition that is not its own alone?"""
    return any(
        held is not None
        and (partition := partitions.get(held.partition)) is not None
        and partition.sharing is not Sharing.ALONE
        for held in (tenancy.holding, tenancy.coming)
    )


def _more_than_planned(partitions: Mapping[str, Partition], job_id: str, tenancy: Tenancy) -> set[tuple[str, object]]:
    more: set[tuple[str, object]] = set()
    for held in (tenancy.holding, tenancy.coming):
        if held is None:
            continue
        partition = partitions.get(held.partition)
        if partition is not None and partition.sharing is Sharing.ALONE:
            tenant = partition.tenants[0]
            partition = partition if (tenant.job, tenant.task) == (job_id, tenancy.task) else None  # another's by now
        if partition is not None and partition.slices == held.slices:
            continue  # as planned
        planned = {s.node: s for s in partition.slices} if partition is not None else {}
        for part in held.slices:
            kept = planned.get(part.node)
            more |= {(part.node, g) for g in part.gpus if kept is None or g not in kept.gpus}
            for name in _AMOUNTS:
                if getattr(part, name) > (getattr(kept, name) if kept is not None else 0.0):
                    more.add((part.node, name))
    return more


def _excluded(snapshot: Snapshot) -> Iterator[str]:
    """Invariant: jobs are excluded from the nodes that are reserved for other owners now, and from no others."""
    holding = holding_at(snapshot.reservations, snapshot.now_s)
    for view in snapshot.jobs.data().values():
        wanted = excluded_nodes(holding, view.job.owner) if holding else ()
        if (excluded := view.job.excluded_nodes) != wanted:
            yield f"job '{view.job.id}' is excluded from {excluded}, the reservations say {wanted}"
    for r in snapshot.reservations:
        if r.is_over_at(snapshot.now_s):
            yield f"reservation '{r.name}' is over since {r.until_s} s"
        if any(r.overlaps(other) for other in snapshot.reservations if other is not r):
            yield f"reservation '{r.name}' of node '{r.node}' overlaps another"


def _facts(snapshot: Snapshot) -> Iterator[str]:
    """Invariant: no GPU is held in fact by two tenants, unless they share a partition."""
    nodes = snapshot.nodes.data()
    holders: dict[tuple[str, int], tuple[str, str]] = {}
    for view in snapshot.jobs.data().values():
        for tenancy in view.tenancies:
            tenant = f"{view.job.id}/{tenancy.task}"
            for held in (tenancy.holding, tenancy.coming):
                if held is None:
                    continue
                for part in held.slices:
                    if not nodes[part.node].up:
                        yield f"tenant '{tenant}' holds something of node '{part.node}', which is lost"
                    for gpu in part.gpus:
                        other, pid = holders.setdefault((part.node, gpu), (tenant, held.partition))
                        if other != tenant and pid != held.partition:
                            yield f"GPU {gpu} of node '{part.node}' is held by '{other}' and '{tenant}'"
