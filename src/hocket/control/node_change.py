"""Which jobs must leave a node that comes back with other devices: those that no longer fit where they are."""

from __future__ import annotations

from hocket.model.partition import Partition
from hocket.model.resources import Node, Vector, fits, total
from hocket.model.snapshot import Standing


def jobs_that_must_leave(standing: Standing, old: Node, new: Node) -> set[str]:
    """The jobs on a node that do not fit it any more, where they are or where the plan has them.

    All must leave if the GPUs are of another kind, and each that has a GPU that is gone. If there is too little of
    another resource, the jobs that were submitted last leave.
    """
    jobs = standing.jobs
    held = {
        (view.job.id, part)
        for view in jobs.values()
        for tenancy in view.tenancies
        for holding in (tenancy.holding, tenancy.coming)
        if holding is not None
        for part in holding.slices
        if part.node == new.id
    }
    planned = [p for p in standing.partitions.values() if any(part.node == new.id for part in p.slices)]
    if (old.gpu_kind, old.gpu_mem_mib) != (new.gpu_kind, new.gpu_mem_mib):
        return {job_id for job_id, _part in held} | {t.job for p in planned for t in p.tenants}
    leave = {job_id for job_id, part in held if any(gpu >= new.gpus for gpu in part.gpus)}

    def first_submitted(partition: Partition) -> int:
        return min(jobs[tenant.job].number for tenant in partition.tenants)

    taken: Vector = (0.0, 0.0, 0.0, 0.0)
    for partition in sorted(planned, key=first_submitted):
        here = [part for part in partition.slices if part.node == new.id]
        needs = total([taken, *(part.vector for part in here)])
        stays = all(gpu < new.gpus for part in here for gpu in part.gpus) and fits(needs, new.vector)
        if stays and leave.isdisjoint(t.job for t in partition.tenants):
            taken = needs
        else:
            leave.update(t.job for t in partition.tenants)
    return leave
