"""Microsoft's Philly trace (Jeon et al., ATC'19): the published log (`philly_log.py`), or a table with one row per job.

Columns: `job_idx` (the job's id), `submit_s`, `num_gpus`, `wall_run_s` (first start to last end, queueing
excluded), `vc` (virtual cluster, the job's owner; may be empty). Others are ignored. The trace names no model
and no speed: a job runs at `num_gpus` only, and its run time is the recorded one.
"""

from __future__ import annotations

from hocket.model.job import Job
from hocket.workloads.csv_table import read_table
from hocket.workloads.fields import TEXT, Seconds, Whole
from hocket.workloads.files import read_text
from hocket.workloads.philly_log import is_log, read_log
from hocket.workloads.selection import Selection
from hocket.workloads.submission import only
from hocket.workloads.truth import NO_KINDS, Submission, Truth, Workload


def read_philly(path: str, selection: Selection = Selection(owner_option="vc")) -> Workload:
    """The jobs of the table, or of the log."""
    text = read_text(path)
    if is_log(text):
        return Workload("philly", selection.of(read_log(path, text), path))
    table = read_table(path, ("job_idx", "submit_s", "num_gpus", "wall_run_s", "vc"), selection.rows, text)
    gpus = table.column("num_gpus", Whole(low=1))
    submissions = [
        Submission(at_s, Job(job_id, vc, sizes=sizes), Truth(run_s, size, None, NO_KINDS))
        for job_id, at_s, size, sizes, run_s, vc in zip(
            table.ids("job_idx"),
            table.column("submit_s", Seconds()),
            gpus,
            map(only, gpus),
            table.column("wall_run_s", Seconds()),
            table.column("vc", TEXT),
            strict=True,
        )
    ]
    return Workload("philly", selection.of(submissions, path))
