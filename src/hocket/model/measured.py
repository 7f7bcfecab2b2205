"""What jobs were measured to use, beside what they ask for."""

from __future__ import annotations

from hocket.model.view import JobView


def measured_share(view: JobView) -> float | None:
    """How much of the GPU time that a job's tasks ask for they take, all together; None while it is not measured.

    It is measured job by job, so that each task of one is taken to have its part of it.
    """
    graph, use = view.job.tasks, view.use
    if use is None or graph is None:
        return None
    asked = sum(t.demand.gpu_load for t in graph.tasks)
    return use.gpus / asked if asked and use.gpus else None
