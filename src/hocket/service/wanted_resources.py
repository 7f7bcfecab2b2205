"""What jobs wait for, as sets of resources that one node each must have: for a cluster that can grow. Pure."""

from __future__ import annotations

from hocket.model.snapshot import Snapshot

MOST = 1000  # sets that are asked for at once; the rest waits until some of them are there
_ANY_SHARE = 0.001  # of a resource that only says what kind a node is
_CORES = 1.0  # of a replica that does not say how many it needs: no job runs without


def wanted_resources(snapshot: Snapshot) -> list[dict[str, float]]:
    """One set for each replica that waiting jobs need at least, in the order in which they wait, by Ray's names."""
    found: list[dict[str, float]] = []
    for _rank, _number, job_id in snapshot.waiting:
        job = snapshot.jobs[job_id].job
        demand = job.demand
        one = {"CPU": max(demand.cores, _CORES)}
        one |= {"GPU": float(demand.gpus)} if demand.gpus else {}
        one |= {"memory": demand.mem_mib * (1 << 20)} if demand.mem_mib else {}
        one |= {f"accelerator_type:{job.gpu_kinds[0]}": _ANY_SHARE} if demand.gpus and job.gpu_kinds else {}
        if job.tasks is None:
            found += [one] * min(job.sizes[0], MOST - len(found))
        if len(found) >= MOST:
            break
    return found
