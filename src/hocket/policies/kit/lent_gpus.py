"""Idle GPUs are lent to elastic jobs, and given back as soon as a waiting job can start in them.

What an elastic job has beyond its smallest size is lent to it. A running job grows when that pays for its restart: when
in the time that it has run so far it would have gained, at the larger size, all that its starts took. So nothing needs
to be known of the future, and however often a job shrinks and grows, its starts take a bounded share of its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import NamedTuple

from msgspec.structs import replace

from hocket.model.plan import Wake
from hocket.model.view import NO_COSTS, JobView
from hocket.policies.kit.common_params import ElasticParams
from hocket.policies.kit.draft import Draft


class Lending(NamedTuple):
    """What to wait for after idle GPUs were lent."""

    wanted: bool = False  # an elastic job could use more GPUs than it has
    at_s: float | None = None  # when the growth of one into GPUs that are idle now pays

    def wake(self, wake: Wake) -> Wake:
        """Wait for that too."""
        if not self.wanted:
            return wake
        at_s = min((at_s for at_s in (self.at_s, wake.at_s) if at_s is not None), default=None)
        return replace(wake, freed_gpus=1, at_s=at_s)


NOTHING_LENT = Lending()


def elastic_jobs(draft: Draft) -> list[JobView]:
    """Jobs that could have another size, as the draft stands: the placed ones in the policy's order, then new ones."""
    if not draft.has_elastic:
        return []
    jobs = draft.snapshot.jobs.data()
    views = [jobs[entry[-1]] for entry in draft.snapshot.placed.buckets().get(True, ())]
    views += [view for view in draft.started_jobs() if view.job.is_elastic and not view.partitions]
    return [v for v in views if v.job.tasks is None and not v.verdict and draft.gpus_of(v)]


def lent_to(draft: Draft, view: JobView) -> int:
    """How many GPUs the job has beyond its smallest size and can give back."""
    return 0 if draft.is_protected(view) else (draft.size_of(view) - view.job.sizes[0]) * view.job.demand.gpus


def start_in_lent(draft: Draft, view: JobView, why: str, borrowers: Iterable[JobView]) -> list[JobView]:
    """Start the job at its smallest size in GPUs that are free or lent to these jobs, the first of which shrink first.

    Returns the jobs that shrink; none, and nothing is changed, if the job does not fit all the same.
    """
    job, size = view.job, view.job.sizes[0]
    if draft.has_quotas and not draft.within_quota(job, size):
        return []
    lent = [(borrower, gpus) for borrower in borrowers if (gpus := lent_to(draft, borrower))]
    if not lent or size * job.demand.gpus > draft.free_gpus + sum(gpus for _borrower, gpus in lent):
        return []
    before, shrunk = draft.saved(), list[JobView]()
    for borrower, _gpus in lent:
        sizes = borrower.job.sizes
        for less in reversed(sizes[: sizes.index(draft.size_of(borrower))]):
            if not draft.resize(
                borrower, less, _told(draft, borrower, f"shrinks: '{job.id}' can start in what it had")
            ):
                break
            if borrower not in shrunk[-1:]:
                shrunk.append(borrower)
            if draft.start(view, why, size):
                return shrunk
    draft.restore(before)
    return []


def lend_idle(
    draft: Draft, params: ElasticParams, resized: Callable[[JobView], object] = lambda _view: None
) -> Lending:
    """Let elastic jobs grow into the GPUs that are idle as the draft stands, in the policy's order.

    Of larger sizes that fit, the one at which the job is fastest. `resized` is called for each that grows.
    """
    if not (params.lend and draft.has_elastic):
        return NOTHING_LENT
    wanted, now_s, at_s = False, draft.snapshot.now_s, inf
    for view in elastic_jobs(draft):
        speed, has = view.beliefs.speed_at, draft.size_of(view)
        faster = [size for size in view.job.sizes if size > has and speed(size) > speed(has)]
        for size in sorted(faster, key=lambda size: (-speed(size), size)):
            if (size - has) * view.job.demand.gpus > draft.free_gpus:
                continue
            pays_s = _pays_at(draft, view, size, params)
            if pays_s > now_s:
                at_s = min(at_s, pays_s)
                continue
            idle = "1 GPU is" if draft.free_gpus == 1 else f"{draft.free_gpus} GPUs are"
            why = f"grows: {idle} idle, and no waiting job can start there"
            if draft.resize(view, size, _told(draft, view, why)):
                resized(view)
                break
        wanted = wanted or bool(faster and draft.size_of(view) < max(faster))
    return Lending(wanted, at_s if at_s < inf else None)


def _told(draft: Draft, view: JobView, why: str) -> str:
    """Why the draft changes a job: for one that it starts, why it starts."""
    return why if view.partitions else draft.reasons[view.job.id]


def _pays_at(draft: Draft, view: JobView, size: int, params: ElasticParams) -> float:
    """When growth to this size pays for a restart; a job that the draft starts is not restarted."""
    now_s = draft.snapshot.now_s
    if not view.partitions:
        return now_s
    speed, has = view.beliefs.speed_at, draft.size_of(view)
    restart_s = params.restart_s if view.costs == NO_COSTS else view.costs.restart_s(view.job.warm)
    gain = speed(size) / max(speed(has), 1e-9) - 1.0
    left_s = view.remaining_s(now_s, has)
    if left_s is not None and left_s * gain / (1.0 + gain) <= restart_s:
        return inf  # It is done too soon.
    return now_s + max(0.0, max(view.starts, 1) * restart_s / gain - view.ran_at(now_s))
