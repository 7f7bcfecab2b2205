"""Jobs that lack a task stand still and keep their GPUs. What happens to them the paper leaves open: our rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.policies.kit.task_draft import STARTS_ALONE
from hocket.policies.mlfs.queue import queue_of

if TYPE_CHECKING:
    from hocket.policies.mlfs.mlf_h import SchedulingRound


def break_deadlock(scheduling: SchedulingRound) -> None:
    """If every placed job lacks a task, the lowest priorities give their GPUs up until one has all its tasks."""
    draft, priorities, tasks_of = scheduling.draft, scheduling.priorities, scheduling.tasks
    while len(stalled := draft.incomplete) > 1 and len(stalled) == len(draft.places) and not draft.runs_plain_jobs:
        lowest = min(stalled, key=lambda j: (priorities(j).max(), -tasks_of(j).view.number))
        _release(scheduling, lowest)
        draft.reasons[lowest] = "waits: jobs with higher priority lack GPUs for their tasks, too"
        scheduling.waits = True
        if lowest in scheduling.started:
            scheduling.started.remove(lowest)
            if not scheduling.snapshot.jobs[lowest].partitions:
                del draft.reasons[lowest]
        for job_id in sorted(draft.incomplete, key=lambda j: (-priorities(j).max(), tasks_of(j).view.number)):
            tasks = tasks_of(job_id)
            for k in scheduling.task_order(tasks.view):
                if tasks.names[k] not in draft.places[job_id] and scheduling.place_task(tasks, k):
                    draft.reasons[job_id] = f"task '{tasks.names[k]}' has room again"


def start_one_beyond_the_limit(scheduling: SchedulingRound) -> None:
    """If no job runs, one that only fits with GPUs and servers used in full may have them: it would wait for ever."""
    import numpy as np

    draft, snapshot, jobs = scheduling.draft, scheduling.snapshot, scheduling.snapshot.jobs
    if not scheduling.waits or any(not draft.missing(j) for j in draft.places) or draft.runs_plain_jobs:
        return
    stalled = sorted(draft.incomplete, key=lambda j: jobs[j].number)
    for job_id in stalled:
        _release(scheduling, job_id)
        draft.reasons.pop(job_id, None)
        if jobs[job_id].partitions:
            draft.reasons[job_id] = "waits: tasks that it lacks fit nowhere, and without them it stands still"
    scheduling.started = []
    waiting: list[str] = []
    if snapshot.waiting.count:
        with queue_of(snapshot, scheduling.weights, lambda q, _among: np.arange(len(q.entries))) as queue:
            waiting = [queue.entries[n][-1] for n in queue.order.tolist()]
    for view in (jobs[job_id] for job_id in (*stalled, *waiting)):
        if view.job.tasks is None or view.verdict or not draft.start_alone(view, scheduling.shape(view)):
            continue
        draft.reasons[view.id] = STARTS_ALONE
        scheduling.started = [view.id]
        return


def _release(scheduling: SchedulingRound, job_id: str) -> None:
    """Take all tasks of a job off their GPUs."""
    for task in sorted(scheduling.draft.places[job_id]):
        scheduling.draft.take_off(scheduling.tasks(job_id), task)


def note_since_when_tasks_wait(scheduling: SchedulingRound) -> None:
    """Keep in memos since when each missing task of a placed job has waited: equation 4 counts it."""
    draft, now_s, jobs = scheduling.draft, scheduling.snapshot.now_s, scheduling.snapshot.jobs.data()
    for job_id in sorted(draft.incomplete | (draft.changed & draft.places.keys())):
        view = jobs[job_id]
        memo = draft.memos.get(job_id) or view.memo or {}
        known: dict[str, float] = memo.get("waits", {})
        missing, graph = draft.missing(job_id), view.job.tasks
        if len(missing) == len(known) and job_id not in draft.changed:
            continue  # These have not changed since they were noted.
        assert graph is not None
        waits = {name: known.get(name, now_s) for name in [graph.tasks[k].id for k, _needs in missing]}
        if waits != known:
            others = {name: value for name, value in memo.items() if name != "waits"}
            draft.memos[job_id] = others | {"waits": waits} if waits else others
