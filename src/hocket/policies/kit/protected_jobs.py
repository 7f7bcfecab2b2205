"""What is left to decide beside jobs that stay as they are, for policies that rearrange all jobs at once."""

from __future__ import annotations

from msgspec.structs import replace

from hocket.model.snapshot import Snapshot, entry_of
from hocket.model.versioned import VersionedMap


def without_protected(snapshot: Snapshot) -> Snapshot:
    """The snapshot without partitions that have a protected tenant or are on a drained node, and without their jobs.

    What they have is not free: the rest of the cluster is all that there is to decide about.
    """
    now_s, jobs, partitions = snapshot.now_s, snapshot.jobs, snapshot.partitions
    stays = [v for v in jobs.values() if v.job.is_protectable and v.partitions and v.protected_at(now_s)]
    gone_partitions = {pid for view in stays for pid in view.partitions}
    if drained := {view.node.id for view in snapshot.nodes.values() if view.drained}:
        gone_partitions |= {pid for pid, p in partitions.items() if any(s.node in drained for s in p.slices)}
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
