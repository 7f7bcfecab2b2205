"""What is left to decide beside jobs that stay as they are, for policies that rearrange all jobs at once."""

from __future__ import annotations

from msgspec.structs import replace

from hocket.model.partition import Partition, Tenant
from hocket.model.reservation import holding_at
from hocket.model.snapshot import Snapshot, entry_of
from hocket.model.versioned import VersionedMap


def fixed_partitions(snapshot: Snapshot, reserved: bool = False) -> set[str]:
    """Partitions on a drained node, and those with a tenant on a node that is reserved for other owners.

    Their jobs may stay, but could not come back: a policy that forms partitions anew leaves these alone. With
    `reserved`, all partitions on reserved nodes are fixed.
    """
    partitions = snapshot.partitions
    fixed: set[str] = set()
    closed = {view.node.id for view in snapshot.nodes.data().values() if view.drained}
    if reserved:
        closed |= {r.node for r in holding_at(snapshot.reservations, snapshot.now_s)}
    if closed:
        fixed |= {pid for pid, p in partitions.items() if any(s.node in closed for s in p.slices)}
    if snapshot.reservations:
        fixed |= {pid for pid, p in partitions.items() if any(_is_excluded(snapshot, p, t) for t in p.tenants)}
    return fixed


def _is_excluded(snapshot: Snapshot, partition: Partition, tenant: Tenant) -> bool:
    """Is the tenant on a node that is reserved for other owners?"""
    excluded = snapshot.jobs[tenant.job].job.excluded_nodes
    return any(n and part.node in excluded for part, n in zip(partition.slices, tenant.replicas, strict=True))


def without_protected(snapshot: Snapshot) -> Snapshot:
    """The snapshot without partitions that have a protected tenant or are fixed, and without their jobs.

    What they have is not free: the rest of the cluster is all that there is to decide about.
    """
    now_s, jobs, partitions = snapshot.now_s, snapshot.jobs, snapshot.partitions
    stays = [v for v in jobs.values() if v.job.is_protectable and v.partitions and v.protected_at(now_s)]
    gone_partitions = {pid for view in stays for pid in view.partitions}
    gone_partitions |= fixed_partitions(snapshot, reserved=True)
    if not gone_partitions:
        return snapshot
    gone_jobs = {tenant.job for pid in gone_partitions for tenant in partitions[pid].tenants}
    placed = snapshot.placed
    for job_id in gone_jobs:
        placed = placed.remove(jobs[job_id].job.is_elastic, entry_of(jobs[job_id]))
    return replace(
        snapshot,
        jobs=VersionedMap({job_id: view for job_id, view in jobs.items() if job_id not in gone_jobs}),
        partitions=VersionedMap({pid: p for pid, p in partitions.items() if pid not in gone_partitions}),
        placed=placed,
        due=tuple(job_id for job_id in snapshot.due if job_id not in gone_jobs),
        arrived=tuple(job_id for job_id in snapshot.arrived if job_id not in gone_jobs),
    )
