"""How long jobs still need, and when they end, as far as is believed: at other sizes and in other places too.

The end of a job that runs does not move while nothing about it changes, so placed jobs are sorted by their ends.
Where an end was decided and cannot be computed from the view, it is in the job's memo: for `backfill` and `srtf`
from the moment the job is placed, for `reshape` and `optimus` while a change is under way.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from heapq import nlargest
from math import inf
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from hocket.model.job import Job
from hocket.model.partition import Partition
from hocket.model.resources import Node
from hocket.model.view import Doing, JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.registry import Params

_NOTHING = Doing.NOTHING
_GRACE_S = 60.0  # a job that ends about when it was believed to is not reviewed
_SLOWEST = 1e-9  # a belief in no speed at all would never end


# -- how fast: a job's pace is what its nodes make of its believed speed --------------------------------------------


def depends_on_place(view: JobView) -> bool:
    """Is the job believed to be faster in some places than in others?"""
    return bool(view.beliefs.kinds) or view.beliefs.spread != 1.0


def pace_in(view: JobView, nodes: Sequence[Node]) -> float:
    """The job's pace on these nodes. The first says of what kind its GPUs are."""
    return view.beliefs.pace_on(nodes[0].gpu_kind, len(nodes)) if nodes and depends_on_place(view) else 1.0


def planned_pace(draft: Draft, view: JobView) -> float:
    """The job's pace on the nodes that the draft gives it."""
    return pace_in(view, nodes_of(draft, view)) if depends_on_place(view) else 1.0


def nodes_of(draft: Draft, view: JobView) -> list[Node]:
    """The nodes on which the draft gives a job something for itself."""
    return [draft.snapshot.nodes[part.node].node for part in draft.slices_of(view)]


def speed(view: JobView, size: int, kind: str, nodes: int) -> float:
    """Its believed speed at a size, on GPUs of a kind, on so many nodes."""
    return max(view.beliefs.speed_at(size) * view.beliefs.pace_on(kind, nodes), _SLOWEST)


def speed_here(view: JobView, size: int) -> float:
    """Its believed speed at a size, on the nodes it runs on."""
    return max(view.beliefs.speed_at(size) * view.pace, _SLOWEST)


def speed_ratio(view: JobView, size: int, other: int) -> float:
    """How many times as fast it is at a size as at another."""
    return max(view.beliefs.speed_at(size), _SLOWEST) / max(view.beliefs.speed_at(other), _SLOWEST)


# -- how long -------------------------------------------------------------------------------------------------------


def left_s(view: JobView, now_s: float, size: int, pace: float) -> float:
    """How long it still needs at a size and a pace; infinite if nothing is believed."""
    left = view.remaining_s(now_s, size)
    return inf if left is None or pace <= 0 else left / pace


def work_s(view: JobView, now_s: float, unknown_s: float) -> float:
    """What is left of its work, in seconds at the reference size on a reference GPU.

    A job that outlives its belief is believed to need as much more as it has exceeded its estimate. Unlike what
    `JobView.remaining_s` gives, that does not jump at the moment when the estimate is exceeded, and neither do the
    predicted ends by which placed jobs are sorted and compared.
    """
    run_s = view.beliefs.run_s
    return abs((unknown_s if run_s is None else run_s.mean) - view.done_at(now_s))


def cold_start_s(view: JobView) -> float:
    """From its start to its first step, where nothing was prepared."""
    return view.costs.prepare_s + view.costs.start_s


def begin_s(view: JobView) -> float:
    """From its start to its first step, as it is prepared now."""
    return view.costs.start_s + (0.0 if view.prepared else view.costs.prepare_s)


def restart_s(view: JobView) -> float:
    """From its last step before a change of size to the first after it; for a job that does not run, to its start."""
    return view.costs.restart_s(view.job.warm) if view.partitions else cold_start_s(view)


def shrunk_s(ends_s: float, times: float, now_s: float, wait_s: float, stop_s: float) -> float:
    """When a job would end that goes on for a while, stops, and starts again so many times slower."""
    left_s = ends_s - now_s - wait_s
    return now_s + wait_s + stop_s + left_s * times if left_s > 0 else ends_s  # or it is over by then


# -- ends that are fixed when a job is placed -----------------------------------------------------------------------


def fixed_end_s(view: JobView, now_s: float) -> float:
    """When a placed job is believed to end: as fixed when it was placed, whatever happens to it until its review."""
    if view.review_s is not None and view.memo is not None and "end_s" in view.memo:
        return float(view.memo["end_s"])
    return now_s + left_s(view, now_s, view.size, view.pace)


def fix_end(draft: Draft, view: JobView, delay_s: float = 0.0) -> float:
    """Fix the end of a job that the draft has just started; it is reviewed if it has not ended by then."""
    now_s = draft.snapshot.now_s
    return _fix(draft, view, now_s + delay_s + left_s(view, now_s, draft.size_of(view), planned_pace(draft, view)))


def fix_ends_of_reviewed(draft: Draft) -> None:
    """Fix the ends of jobs whose review is due: they outlived the belief, and need as long again as they have run."""
    for job_id in draft.snapshot.due:
        view = draft.snapshot.jobs[job_id]
        if view.partitions and view.review_s is None:  # else its review is still to come
            _fix(draft, view, view.rank[-1])  # Whatever a policy ranks by before that, the last number is the end.


def _fix(draft: Draft, view: JobView, at_s: float) -> float:
    draft.memos[view.job.id] = None
    if at_s < inf:
        draft.memos[view.job.id] = {"end_s": at_s}
        draft.reviews[view.job.id] = at_s + _GRACE_S
    return at_s


# -- ends that are predicted, and change with a job's size ----------------------------------------------------------


class Predicting(Params, frozen=True):
    """The parameter of every policy that predicts ends."""

    unknown_s: Annotated[
        float, Meta(gt=0, description="what a job of which nothing is believed is taken to need at its reference size")
    ] = 3600.0


def by_end(view: JobView, now_s: float, params: Predicting) -> tuple[float, ...]:
    """Waiting jobs are sorted by submission, placed ones by their predicted ends."""
    if not view.partitions:
        return ()
    memo = view.memo
    if isinstance(memo, dict) and view.starts <= memo.get("starts", -1):
        return (float(memo["end_s"]),)  # as it was decided, until that has come true
    return (now_s + work_s(view, now_s, params.unknown_s) / speed_here(view, view.size or view.job.sizes[0]),)


def only_on(job: Job, kind: str | None) -> Job:
    """The same job, as if it accepted no GPUs but those of one kind."""
    return job if kind is None else replace(job, gpu_kinds=(kind,))


Settled = tuple[JobView, Partition, float]
Key = tuple[float, float, int]  # of a choice; the smallest is best


class PredictedEnds:
    """All predicted ends, those that the draft changes among them. The latest is the makespan."""

    def __init__(self, draft: Draft, by_mean: bool = False) -> None:
        self.draft, self.snapshot = draft, draft.snapshot
        self.by_mean = by_mean  # the sum of all ends decides, not the last one
        self.changed: dict[str, float] = {}  # job → end as the draft has it
        self.changing = False  # something changes already for a job that can have other sizes
        self.elastic = self._look()  # all others of them, by their ends
        nodes = self.snapshot.nodes.values()
        self._kinds = tuple(dict.fromkeys(v.node.gpu_kind for v in nodes if v.is_open and v.node.gpus))

    def kinds(self, job: Job) -> tuple[str | None, ...]:
        """The kinds of GPU that a job may have, each for itself, and None for whichever is there."""
        if len(self._kinds) == 1:
            return (None,)
        return (*(k for k in self._kinds if not job.gpu_kinds or k in job.gpu_kinds), None)

    def key(self, last_s: float, sum_s: float, moved: int) -> Key:
        """Of a choice: the latest end, or the mean; what it adds to the sum of all ends; how many GPUs change hands."""
        return (sum_s, last_s, moved) if self.by_mean else (last_s, sum_s, moved)

    def change(self, view: JobView, ends_s: float) -> None:
        """The draft starts or resizes the job, which is then predicted to end at another time."""
        self.changed[view.job.id] = ends_s
        self.draft.memos[view.job.id] = {"end_s": ends_s, "starts": view.starts}

    def last_two(self) -> tuple[str, float, float]:
        """The job that ends last, when, and the last end without it; the present where there is none."""
        found = [(e, j) for j, e in self.changed.items()]
        for entry in self.snapshot.placed.backwards():
            if entry[-1] not in self.changed:
                found.append((entry[0][0], entry[-1]))
                if len(found) >= len(self.changed) + 2:
                    break
        found = [*nlargest(2, found), (0.0, ""), (0.0, "")]
        now_s = self.snapshot.now_s
        return found[0][1], max(found[0][0], now_s), max(found[1][0], now_s)

    def latest(self, without: Container[str]) -> float:
        """The last end of all but some jobs."""
        last_s: float = max([self.snapshot.now_s, *(e for j, e in self.changed.items() if j not in without)])
        for entry in self.snapshot.placed.backwards():
            if entry[-1] not in without and entry[-1] not in self.changed:
                return max(last_s, float(entry[0][0]))
        return last_s

    def settled(self, last_first: bool = False) -> Iterator[Settled]:
        """Jobs that run as planned, in a partition of their own, and can have other sizes; with it and their end.

        They come by their ends. What the draft changed is left out: one change at a time.
        """
        for found in reversed(self.elastic) if last_first else self.elastic:
            if found[0].job.id not in self.changed:
                yield found

    def _look(self) -> list[Settled]:
        snapshot, found = self.snapshot, []
        jobs, partitions = snapshot.jobs.data(), snapshot.partitions.data()
        moving = {job for job, _task in snapshot.unsettled}
        for entry in snapshot.placed:
            job_id = entry[-1]
            view = jobs[job_id]
            tenancies = view.tenancies
            if len(view.job.sizes) == 1 or len(view.partitions) != 1 or len(tenancies) > 1:
                continue
            if job_id in moving or not tenancies or tenancies[0].doing is not _NOTHING:
                self.changing = True
                continue
            partition = partitions[view.partitions[0]]
            if len(partition.tenants) == 1 and not tenancies[0].task:
                found.append((view, partition, entry[0][0]))
        return found
