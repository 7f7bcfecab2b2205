"""Graphene: the jobs by a score of several aims; in each the troublesome tasks first, where they align best."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from hocket.model.job import Job, TaskGraph
from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.registry import Params, policy

if TYPE_CHECKING:
    from hocket.policies.kit.task_draft import Choose, JobTasks
    from hocket.policies.kit.task_gangs import TaskGangs


class Graphene(Params, frozen=True):
    jct: Annotated[float, Meta(ge=0, description="weight of little work left, in GPU hours")] = 1.0
    fairness: Annotated[float, Meta(ge=0, description="weight of an early submission, in hours")] = 1.0
    packing: Annotated[
        float, Meta(ge=0, description="weight of a large job, which is hard to place later, in GPUs")
    ] = 0.1
    load: Annotated[float, Meta(gt=0, le=1, description="up to which tasks share a GPU")] = 0.9
    unknown_s: Annotated[float, Meta(gt=0, description="what a job of which nothing is believed is taken to need")] = (
        3600.0
    )


def rank(view: JobView, now_s: float, params: Graphene) -> tuple[float, ...]:
    """Waiting jobs by their score, the least first, and the GPUs they need. Neither changes while a job waits.

    Time alone makes all of them older alike, so an early submission stands for a long wait.
    """
    if view.partitions:
        return ()
    left_s = view.remaining_s(now_s)
    left_s = params.unknown_s if left_s is None else left_s
    gpus = _gpus(view.job)
    hours = left_s * gpus / 3600.0
    return params.jct * hours + params.fairness * view.submitted_s / 3600.0 - params.packing * gpus, gpus


def _gpus(job: Job) -> float:
    if job.tasks is None:
        return float(job.sizes[0] * job.demand.gpus)
    return sum(t.demand.gpu_load for t in job.tasks.tasks)


@policy("graphene", params=Graphene, order=rank, paper="Graphene, OSDI'16", reads=())
def decide(snapshot: Snapshot, params: Graphene) -> Plan:
    """Jobs by little work, age and size together; in each the tasks with most dependants and largest demands first.

    Such troublesome tasks are placed while there is most room, each on the server whose free resources are most like
    what it needs. A job starts with all its tasks; none is paused. Jobs without tasks count as one.
    """
    from hocket.policies.kit.task_gangs import TaskGangs  # It needs NumPy, which no start-up shall pay for.

    draft = TaskGangs(snapshot, params.load)
    best_aligned = partial(_best_aligned, draft)
    waits = draft.replace_lost_tasks(_troublesome_first, best_aligned)
    waits = _start_by_score(draft, best_aligned) or waits
    if waits and draft.is_empty:
        any(map(draft.alone, draft.waiting()))
    if waits:
        draft.reasons["*"] = "waits: those with a better score took what it needs, or it does not fit"
    return draft.plan(Wake(freed_gpus=1 if waits or draft.over_quota else None, epoch=False))


def _start_by_score(draft: TaskGangs, choose: Choose) -> bool:
    """Start the jobs that fit, the best score first; True if others wait."""
    from hocket.policies.kit.incremental_columns import measured_factor

    waits = False
    full: set[object] = set()  # what jobs ask for that did not fit
    headroom = draft.table.headroom
    for view in draft.waiting():
        job, gpus = view.job, view.rank[1]
        factor = 1.0 if job.tasks is None else measured_factor(view)
        key = (job.tasks, factor, job.demand, job.sizes, job.owner, job.gpu_kinds, job.gpu_mem_mib, job.max_nodes)
        if gpus * factor > (draft.free_gpus if job.tasks is None else headroom) or key in full:
            waits = True  # It is certain not to fit.
        elif _start(draft, view, choose):
            headroom = draft.table.headroom
        else:
            waits = True
            full.add(key)
    return waits


def _start(draft: TaskGangs, view: JobView, choose: Choose) -> bool:
    if view.job.tasks is None:
        return draft.admits(view) and draft.start_plain(view, "starts: its score is best")
    why = "starts: its score is best, its troublesome tasks were placed first"
    return draft.start_all(view, _troublesome_first(view), choose, why)


def _best_aligned(draft: TaskGangs, tasks: JobTasks, k: int) -> int:
    """For a task, a GPU of the server whose free resources are most like what it needs; -1 if none has room."""
    import numpy as np

    needs, table = tasks.needs[k], draft.table
    may = draft.open_to(tasks, needs)
    if not may.any():
        return -1
    has = np.maximum(table.index.has, 1e-9)
    aligned = ((1.0 - table.use) * (needs / has)).sum(axis=1)[table.index.server_of]
    # Of one server's GPUs the fullest that has room, so that whole ones stay free for tasks that need them.
    return int(np.where(may, aligned + 1e-6 * table.gpu_load, -np.inf).argmax())


def _troublesome_first(view: JobView) -> tuple[int, ...]:
    assert view.job.tasks is not None
    return by_trouble(view.job.tasks)


@lru_cache(maxsize=4096)
def by_trouble(graph: TaskGraph) -> tuple[int, ...]:
    """The tasks of a graph, the most troublesome first: by their dependants, all of them, and what they demand.

    Both count as shares of the most that a task of the graph has.
    """
    children: dict[str, set[str]] = {t.id: set() for t in graph.tasks}
    for edge in graph.edges:
        children[edge.source].add(edge.target)
    below: dict[str, set[str]] = {}
    todo = [t.id for t in graph.tasks]
    while todo:
        name = todo[-1]
        if name in below:
            todo.pop()
        elif missing := [c for c in children[name] if c not in below]:
            todo += missing
        else:
            below[name] = children[name].union(*(below[c] for c in children[name]))
    most = max(len(b) for b in below.values()) or 1
    rows = [t.demand.load for t in graph.tasks]
    tops = [max(column) or 1.0 for column in zip(*rows, strict=True)]
    score = {
        k: len(below[t.id]) / most + sum(x / top for x, top in zip(rows[k], tops, strict=True)) / len(tops)
        for k, t in enumerate(graph.tasks)
    }
    return tuple(sorted(score, key=lambda k: (-score[k], k)))
