"""What a plan changes, job by job, in words."""

from __future__ import annotations

from hocket.model.partition import Partition, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Slice
from hocket.model.snapshot import Snapshot

_Places = dict[tuple[str, str], tuple[Partition, Tenant]]


def changes(snapshot: Snapshot, plan: Plan) -> dict[str, str]:
    """Tenant ("job", or "job/task") → what becomes of it. Who stays as planned before is not named."""
    before = _tenants([p for pid in (*plan.drop, *(p.id for p in plan.put)) if (p := snapshot.partitions.get(pid))])
    after = _tenants(plan.put)
    found: dict[str, str] = {}
    for key in sorted({*before, *after}):
        told = _told(before.get(key), after.get(key))
        if told and key[0] not in plan.ends:
            found["/".join(part for part in key if part)] = told
    for job, verdict in plan.ends.items():
        found[job] = f"ends: {verdict}"
    for job, tier in plan.tiers.items():
        found[job] = "; ".join(part for part in (found.get(job), f"its state goes to {tier}") if part)
    for job, tier in plan.checkpoints.items():
        found[job] = "; ".join(part for part in (found.get(job), f"is saved to {tier}") if part)
    return found


def _tenants(partitions: list[Partition] | tuple[Partition, ...]) -> _Places:
    return {(t.job, t.task): (p, t) for p in partitions for t in p.tenants}


def _told(before: tuple[Partition, Tenant] | None, after: tuple[Partition, Tenant] | None) -> str:
    if after is None:
        return "leaves its place"
    place = f"{sum(after[1].replicas)} on {_place(*after)}"
    if before is None:
        return f"gets {place}"
    if before[0].slices == after[0].slices and before[1] == after[1]:
        return "" if before[0].id == after[0].id else f"goes from '{before[0].id}' to '{after[0].id}'"
    return f"goes from {sum(before[1].replicas)} on {_place(*before)} to {place}"


def _place(partition: Partition, tenant: Tenant) -> str:
    parts = " + ".join(_slice(s) for s, n in zip(partition.slices, tenant.replicas, strict=False) if n)
    others = len(partition.tenants) - 1
    company = f", {partition.sharing} with {others} more" if others else ""
    return (parts or "nothing") + company


def _slice(part: Slice) -> str:
    amounts = [f"GPU {','.join(map(str, part.gpus))}"] if part.gpus else []
    amounts += [f"{part.cores:g} cores"] if part.cores else []
    amounts += [f"{part.mem_mib:g} MiB"] if part.mem_mib else []
    return f"{part.node} ({', '.join(amounts)})" if amounts else part.node
