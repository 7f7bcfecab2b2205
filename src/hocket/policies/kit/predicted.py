"""When jobs will end, and when they would at another size or place, with all that switching takes.

The end of a job that runs does not move while nobody touches it, so placed jobs stand in the order of their ends.
While a change is under way, its end is the one that was predicted when the change was decided, which is in its memo.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from heapq import nlargest
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from hocket.model.job import Job
from hocket.model.partition import Partition
from hocket.model.view import Doing, JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.registry import Params

_NOTHING = Doing.NOTHING
SLOWEST = 1e-9  # a belief in no speed at all would never end


def work_s(view: JobView, now_s: float, unknown_s: float) -> float:
    """What is left of its work, in seconds at the reference size on a reference GPU.

    A job that outlives its belief is believed to need as long again as it is over.
    """
    run_s = view.beliefs.run_s
    return abs((unknown_s if run_s is None else run_s.mean) - view.done_at(now_s))


def speed(view: JobView, size: int, kind: str, nodes: int) -> float:
    """Its believed speed at a size, on GPUs of a kind, on so many nodes."""
    beliefs = view.beliefs
    return max(beliefs.speed_at(size) * beliefs.pace_on(kind, nodes), SLOWEST)


def end_s(view: JobView, now_s: float, unknown_s: float) -> float:
    """When a placed job is predicted to end."""
    memo = view.memo
    if isinstance(memo, dict) and view.starts <= memo.get("starts", -1):
        return float(memo["end_s"])  # as it was decided, until that has come true
    size = view.size or view.job.sizes[0]
    return now_s + work_s(view, now_s, unknown_s) / max(view.beliefs.speed_at(size) * view.pace, SLOWEST)


class Predicting(Params, frozen=True):
    """What every policy asks that predicts ends."""

    unknown_s: Annotated[
        float, Meta(gt=0, description="what a job of which nothing is believed is taken to need at its reference size")
    ] = 3600.0


def by_end(view: JobView, now_s: float, params: Predicting) -> tuple[float, ...]:
    """Waiting jobs stand in the order of submission, placed ones in the order of their predicted ends."""
    return (end_s(view, now_s, params.unknown_s),) if view.partitions else ()


def begin_s(view: JobView) -> float:
    """From its start to its first step."""
    return view.costs.start_s + (0.0 if view.prepared else view.costs.prepare_s)


def as_decided(view: JobView, ends_s: float) -> dict[str, Any]:
    """The memo of a job that is started or resized now."""
    return {"end_s": ends_s, "starts": view.starts}


def slower(view: JobView, less: int) -> float:
    """How many times as long the same work takes at a smaller size."""
    beliefs = view.beliefs
    return max(beliefs.speed_at(view.size), SLOWEST) / max(beliefs.speed_at(less), SLOWEST)


def shrunk_s(ends_s: float, times: float, now_s: float, wait_s: float, stop_s: float) -> float:
    """When a job would end that goes on for a while, stops, and starts again so many times slower."""
    left_s = ends_s - now_s - wait_s
    return now_s + wait_s + stop_s + left_s * times if left_s > 0 else ends_s  # or it is over by then


def on(job: Job, kind: str | None) -> Job:
    """The same job, as if it accepted no GPUs but those of one kind."""
    return job if kind is None else replace(job, gpu_kinds=(kind,))


Settled = tuple[JobView, Partition, float]


class PredictedEnds:
    """All predicted ends, those that the draft changes among them. The latest is the makespan."""

    def __init__(self, draft: Draft) -> None:
        self.draft, self.snapshot = draft, draft.snapshot
        self.changed: dict[str, float] = {}  # job → end as the draft has it
        self.restless = False  # something changes already for a job that can have other sizes
        self.elastic = self._look()  # all others of them, by their ends
        nodes = self.snapshot.nodes.values()
        self._kinds = tuple(dict.fromkeys(v.node.gpu_kind for v in nodes if v.up and v.node.gpus))

    def kinds(self, job: Job) -> tuple[str | None, ...]:
        """The kinds of GPU that a job may have, each for itself, and None for whichever is there."""
        if len(self._kinds) == 1:
            return (None,)
        return (*(k for k in self._kinds if not job.gpu_kinds or k in job.gpu_kinds), None)

    def change(self, view: JobView, ends_s: float) -> None:
        """The draft starts or resizes the job, which is then predicted to end at another time."""
        self.changed[view.job.id] = ends_s
        self.draft.memos[view.job.id] = as_decided(view, ends_s)

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
                self.restless = True
                continue
            partition = partitions[view.partitions[0]]
            if len(partition.tenants) == 1 and not tenancies[0].task:
                found.append((view, partition, entry[0][0]))
        return found
