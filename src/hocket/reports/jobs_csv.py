"""The jobs of a run as CSV, one row a job: what `hocket simulate --jobs-csv` writes."""

from __future__ import annotations

import csv
from typing import TextIO

from hocket.reports.account import Account, JobRecord

COLUMNS = (
    *(
        "id",
        "owner",
        "model",
        "size",
        "gpus",
        "submitted_s",
        "started_s",
        "ended_s",
        "jct_s",
        "waited_s",
        "ran_s",
    ),
    *("stood_s", "starts", "verdict", "deadline_met", "goal_met"),
)


def write_jobs(account: Account, out: TextIO) -> None:
    """Write all jobs in the order of submission, then those that were refused."""
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(COLUMNS)
    for record in account.jobs:
        rows.writerow(_row(record))
    for job_id, _reason in account.refusals:
        rows.writerow([job_id, *[""] * 12, "refused", "", ""])


def _row(record: JobRecord) -> list[object]:
    job = record.job
    return [
        job.id,
        job.owner,
        job.model,
        record.size,
        record.size * job.demand.gpus,
        record.submitted_s,
        _or_empty(record.started_s),
        _or_empty(record.ended_s),
        _or_empty(record.jct_s),
        record.waited_s,
        record.ran_s,
        record.stood_s,
        record.starts,
        record.verdict,
        _or_empty(record.deadline_met),
        _or_empty(record.goal_met),
    ]


def _or_empty(value: float | bool | None) -> object:
    return "" if value is None else value
