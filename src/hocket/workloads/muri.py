"""Muri's traces (Zhao et al., SIGCOMM'22): Philly's arrivals with measured models. Times are in milliseconds.

Columns: `job_id`, `num_gpu`, `submit_time`, `duration`, `model_name`, `priority`. The times per resource
stage are not used yet: which stage is which is not said in the file.
"""

from __future__ import annotations

from hocket.model.job import Job
from hocket.workloads.csv_table import read_table
from hocket.workloads.fields import MAX_S, TEXT, Number, Whole
from hocket.workloads.selection import Selection
from hocket.workloads.submission import only
from hocket.workloads.truth import Submission, Truth, Workload

_MILLISECONDS = Number(high=MAX_S * 1000)


def read_muri(path: str, selection: Selection = Selection()) -> Workload:
    """The jobs of the table."""
    columns = ("job_id", "num_gpu", "submit_time", "duration", "model_name", "priority")
    table = read_table(path, columns, selection.rows)
    submissions = [
        Submission(
            at_ms / 1000,
            Job(job_id, sizes=only(size), priority=priority, model=model),
            Truth(run_ms / 1000, size),
        )
        for job_id, at_ms, size, run_ms, model, priority in zip(
            table.ids("job_id"),
            table.column("submit_time", _MILLISECONDS),
            table.column("num_gpu", Whole(low=1)),
            table.column("duration", _MILLISECONDS),
            table.column("model_name", TEXT),
            table.column("priority", Whole(low=-1_000_000)),
            strict=True,
        )
    ]
    return Workload("muri", selection.of(submissions, path))
