"""Jobs at sizes that never change, for the policies that differ only in which size that is."""

from __future__ import annotations

from collections.abc import Callable

from hocket.model.capacity import Capacity
from hocket.model.job import Job
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft


def serve(draft: Draft, choose: Callable[[JobView, tuple[int, ...]], int], why: str, spare_gpus: bool = False) -> str:
    """Start the jobs that fit at their sizes, in the order of submission; gives the first that waits, or nothing.

    `choose` picks a job's size, always the same, among those that an empty cluster and its owner's quota have room for.
    """
    whole = Capacity.of(v.node for v in draft.snapshot.nodes.values())
    possible: dict[object, tuple[int, ...]] = {}
    full: set[object] = set()
    first = ""
    for view in draft.candidates():
        job = view.job
        size, needs = job.sizes[0], (job.demand, job.gpu_kinds, job.gpu_mem_mib, job.max_nodes, job.owner)
        # Jobs of one owner are excluded from the same nodes.
        if len(job.sizes) > 1:
            if (job.sizes, needs) not in possible:
                found = tuple(n for n in job.sizes if _ever_fits(draft, whole, job, n))
                possible[job.sizes, needs] = found or job.sizes[:1]
            size = choose(view, possible[job.sizes, needs])
        if (size, needs) in full or not draft.start(view, f"starts: at {size}, {why}", size, spare_gpus=spare_gpus):
            full.add((size, needs))
            first = first or job.id
    return first


def _ever_fits(draft: Draft, whole: Capacity, job: Job, size: int) -> bool:
    owner = draft.snapshot.owners.get(job.owner)
    if owner is not None and owner.beyond(*job.demand.times(size).vector[:3]):
        return False
    return whole.place(job, size) is not None
