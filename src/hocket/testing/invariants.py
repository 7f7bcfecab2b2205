"""What is true of every state, whatever happened: sums, queues, what each tenant holds, and every index."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from hocket.control.state import State
from hocket.model.capacity import shape_of
from hocket.model.partition import Sharing
from hocket.model.reservation import excluded_nodes, holding_at, next_change_s
from hocket.model.resources import gpu_mask
from hocket.model.snapshot import NO_USE, Snapshot, Usage, demand_of, queues_of
from hocket.model.view import JobState, Tenancy

_CLOSE = 1e-6


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
    """Every index of a `state` that is not what its facts say; `broken_invariants` looks at those in a snapshot too."""
    jobs, partitions = state.jobs.live, state.partitions.live
    tasks: Counter[str] = Counter()
    for partition in partitions.values():
        tasks.update(t.job for t in partition.tenants if t.task)
    followers: dict[str, set[str]] = defaultdict(set)
    holders: dict[str, set[str]] = defaultdict(set)
    for job_id, view in jobs.items():
        for first in view.job.predecessors if view.held else ():
            if first in jobs:
                followers[first].add(job_id)
        for tenancy in view.tenancies:
            for held in (tenancy.holding, tenancy.coming):
                if held is not None:
                    holders[held.partition].add(job_id)
    waiting, placed = queues_of(jobs.values())
    live_followers = {first: set(ids) & jobs.keys() for first, ids in state.followers.items()}
    return [
        f"the index '{name}' has {kept}, and the facts say {rebuilt}"
        for name, kept, rebuilt in (
            ("waiting", state.waiting.seal().buckets(), waiting.buckets()),
            ("placed", state.placed.seal().buckets(), placed.buckets()),
            ("tasks_placed", state.tasks_placed, tasks if state.counts_usage else {}),
            ("followers", {first: ids for first, ids in live_followers.items() if ids}, followers),
            ("holding", state.holding, holding_at(state.reservations, state.now_s)),
            ("reservation_s", state.reservation_s, next_change_s(state.reservations, state.now_s)),
            ("jobs_by_partition", holders if state.jobs_by_partition is None else state.jobs_by_partition, holders),
        )
        if kept != rebuilt
    ]


def _capacity(snapshot: Snapshot) -> Iterator[str]:
    """Invariant: what is free and what the partitions have make up the nodes."""
    taken = defaultdict(list)
    for partition in snapshot.partitions.values():
        for part in partition.slices:
            taken[part.node].append((partition.id, part))
    gpus = 0
    for node, free in snapshot.capacity:
        view = snapshot.nodes[node.id]
        parts = [part for _pid, part in taken.pop(node.id, [])]
        gpus += free.gpus.bit_count()
        if not view.up:
            if parts or free.gpus or free.cores or free.mem_mib or free.net_mbps:
                yield f"node '{node.id}' is lost and still has something"
            continue
        if view.drained:
            if free.gpus or free.cores or free.mem_mib or free.net_mbps:
                yield f"node '{node.id}' is drained and has something free"
            continue
        masks = [free.gpus, *(gpu_mask(part.gpus) for part in parts)]
        if sum(m.bit_count() for m in masks) != node.gpus or sum(masks) != (1 << node.gpus) - 1:
            yield f"node '{node.id}': free and taken GPUs are not its {node.gpus}: {masks}"
        for name in ("cores", "mem_mib", "net_mbps"):
            total = getattr(free, name) + sum(getattr(part, name) for part in parts)
            if abs(total - getattr(node, name)) > _CLOSE:
                yield f"node '{node.id}': free and taken {name} make {total}, it has {getattr(node, name)}"
    if gpus != snapshot.capacity.gpus:
        yield f"{gpus} GPUs are free, the capacity says {snapshot.capacity.gpus}"
    for node_id in taken:
        yield f"partitions have something of node '{node_id}', which is not there"


def _tenants(snapshot: Snapshot) -> Iterator[str]:
    """Invariant: a view names the partitions that name its job."""
    named = defaultdict(set)
    for pid, partition in snapshot.partitions.items():
        if pid != partition.id or not partition.tenants:
            yield f"partition '{pid}' has another id or no tenant"
        if partition.sharing is Sharing.ALONE and len(partition.tenants) > 1:
            yield f"partition '{pid}' is for one alone and has {len(partition.tenants)} tenants"
        for tenant in partition.tenants:
            named[tenant.job].add(pid)
    for job_id, view in snapshot.jobs.items():
        if set(view.partitions) != named.pop(job_id, set()) or len(set(view.partitions)) < len(view.partitions):
            yield f"job '{job_id}' has partitions {view.partitions}, which do not all have it"
        if view.verdict and view.partitions:
            yield f"job '{job_id}' is being ended and has partitions"
    if named:
        yield f"partitions have tenants that are not live: {sorted(named)}"


def _queues(snapshot: Snapshot) -> Iterator[str]:
    """Invariant: every live job but those held stands in one queue, in its bucket, by its rank."""
    stand = Counter()  # type: Counter[tuple[str, object, object]]
    for name, queue in (("waiting", snapshot.waiting), ("placed", snapshot.placed)):
        for bucket, entries in queue.buckets().items():
            if entries != sorted(entries) or not entries:
                yield f"a bucket of the {name} queue is empty or out of order"
            stand.update((name, bucket, entry) for entry in entries)
        if len(queue) != sum(len(b) for b in queue.buckets().values()):
            yield f"the {name} queue miscounts its entries"
    held = 0
    for view in snapshot.jobs.values():
        if view.held:
            held += 1
            if view.partitions:
                yield f"job '{view.job.id}' is held and has partitions"
            continue
        entry = (view.rank, view.number, view.job.id)
        key = ("placed", view.job.is_elastic, entry) if view.partitions else ("waiting", shape_of(view.job), entry)
        if stand[key] != 1:
            yield f"job '{view.job.id}' stands {stand[key]} times where it belongs"
    if len(stand) != len(snapshot.jobs) - held:
        yield f"{len(stand)} entries stand in the queues for {len(snapshot.jobs)} jobs, of which {held} are held"


def _usage(snapshot: Snapshot) -> Iterator[str]:
    """Invariant: usage is what each owner's jobs have by plan."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 5)
    for partition in snapshot.partitions.values():
        for tenant in partition.tenants:
            job = snapshot.jobs[tenant.job].job
            demand, replicas = demand_of(job, tenant.task), sum(tenant.replicas)
            needs = (demand.gpus, demand.cores, demand.mem_mib, demand.net_mbps)
            for i, need in enumerate(needs):
                sums[job.owner][i] += need * replicas
    for view in snapshot.jobs.values():
        sums[view.job.owner][4] += bool(view.partitions)
    for owner in {*sums, *snapshot.usage}:
        used: Usage = snapshot.usage.get(owner) or NO_USE
        has = (used.gpus, used.cores, used.mem_mib, used.net_mbps, used.jobs)
        if any(abs(a - b) > _CLOSE for a, b in zip(has, sums[owner], strict=True)):
            yield f"owner '{owner}' uses {sums[owner]} by plan, usage says {has}"


def _views(snapshot: Snapshot) -> Iterator[str]:
    """Invariant: state, size and GPUs of a view follow from its tenancies; a job prepares before it has any."""
    for view in snapshot.jobs.values():
        held = [t.holding for t in view.tenancies if t.holding is not None]
        if view.size != sum(h.size for h in held) or view.gpus != sum(h.gpus for h in held):
            yield f"job '{view.job.id}' says size {view.size} on {view.gpus} GPUs, and holds {held}"
        idle = view.state in (JobState.WAITING, JobState.PAUSED)
        if idle == bool(view.tenancies):
            yield f"job '{view.job.id}' is {view.state} with tenancies {view.tenancies}"
        if view.preparing and view.tenancies:
            yield f"job '{view.job.id}' prepares, and runs or starts already"
        if len({t.task for t in view.tenancies}) < len(view.tenancies):
            yield f"job '{view.job.id}' has two tenancies of one task"
        if min(view.waited_s, view.ran_s, view.attained_gpu_s, view.done_s) < 0 or view.since_s > snapshot.now_s:
            yield f"job '{view.job.id}' has a time below 0 or in the future"
    if len(set(snapshot.unsettled)) < len(snapshot.unsettled):
        yield "a tenant is unsettled twice"


def _leaving(snapshot: Snapshot) -> Iterator[str]:
    """Invariant: the tenants that are leaving are those that hold more than the plan gives them."""
    leaving = set(snapshot.leaving)
    for view in snapshot.jobs.values():
        for tenancy in view.tenancies:
            tenant = f"{view.job.id}/{tenancy.task}"
            more = _more_than_planned(snapshot, view.job.id, tenancy)
            shared = any(
                h is not None
                and (p := snapshot.partitions.get(h.partition)) is not None
                and p.sharing is not Sharing.ALONE
                for h in (tenancy.holding, tenancy.coming)
            )
            if more and tenant not in leaving:
                yield f"tenant '{tenant}' holds {more} beyond its plan and is not leaving"
            if not more and tenant in leaving and not shared:
                yield f"tenant '{tenant}' is leaving and holds no GPU beyond its plan"
            leaving.discard(tenant)
    if leaving:
        yield f"leaving names tenants that hold nothing: {sorted(leaving)}"


def _more_than_planned(snapshot: Snapshot, job_id: str, tenancy: Tenancy) -> set[tuple[str, object]]:
    more: set[tuple[str, object]] = set()
    for held in (tenancy.holding, tenancy.coming):
        if held is None:
            continue
        partition = snapshot.partitions.get(held.partition)
        if partition is not None and partition.sharing is Sharing.ALONE:
            tenant = partition.tenants[0]
            partition = partition if (tenant.job, tenant.task) == (job_id, tenancy.task) else None  # another's by now
        planned = {s.node: s for s in partition.slices} if partition is not None else {}
        for part in held.slices:
            kept = planned.get(part.node)
            more |= {(part.node, g) for g in part.gpus if kept is None or g not in kept.gpus}
            for name in ("cores", "mem_mib", "net_mbps"):
                if getattr(part, name) > (getattr(kept, name) if kept is not None else 0.0):
                    more.add((part.node, name))
    return more


def _excluded(snapshot: Snapshot) -> Iterator[str]:
    """Invariant: jobs are excluded from the nodes that are reserved for other owners now, and from no others."""
    holding = holding_at(snapshot.reservations, snapshot.now_s)
    for view in snapshot.jobs.values():
        if (excluded := view.job.excluded_nodes) != (wanted := excluded_nodes(holding, view.job.owner)):
            yield f"job '{view.job.id}' is excluded from {excluded}, the reservations say {wanted}"
    for r in snapshot.reservations:
        if r.is_over_at(snapshot.now_s):
            yield f"reservation '{r.name}' is over since {r.until_s} s"
        if any(r.overlaps(other) for other in snapshot.reservations if other is not r):
            yield f"reservation '{r.name}' of node '{r.node}' overlaps another"


def _facts(snapshot: Snapshot) -> Iterator[str]:
    """Invariant: no GPU is held in fact by two tenants, unless they share a partition."""
    holders: dict[tuple[str, int], tuple[str, str]] = {}
    for view in snapshot.jobs.values():
        for tenancy in view.tenancies:
            tenant = f"{view.job.id}/{tenancy.task}"
            for held in (tenancy.holding, tenancy.coming):
                for part in held.slices if held is not None else ():
                    if not snapshot.nodes[part.node].up:
                        yield f"tenant '{tenant}' holds something of node '{part.node}', which is lost"
                    for gpu in part.gpus:
                        assert held is not None
                        other, pid = holders.setdefault((part.node, gpu), (tenant, held.partition))
                        if other != tenant and pid != held.partition:
                            yield f"GPU {gpu} of node '{part.node}' is held by '{other}' and '{tenant}'"
