"""The Philly trace as Microsoft publishes it: `cluster_job_log`, a list of jobs in JSON.

From https://github.com/msr-fiddle/philly-traces. A job has its virtual cluster (`vc`), when it was submitted, and its
attempts: start, end, and the GPUs on each machine. Times are local, without a zone; some are missing.

Its run time is from its first start to its last end, its size the most GPUs of an attempt. Jobs without a start, an end
or a GPU never ran, still ran when the log was taken, or were not recorded well: they are left out.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from hocket.model.job import Job
from hocket.workloads.errors import WorkloadError, plain, shown
from hocket.workloads.fields import NAME, BrokenRuleError
from hocket.workloads.submission import only
from hocket.workloads.truth import NO_KINDS, Submission, Truth

_MISSING = ("", "None")


class _Machine(Struct, frozen=True):
    gpus: list[str] = []


class _Attempt(Struct, frozen=True):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Machine] = []


class _LoggedJob(Struct, frozen=True):
    jobid: str
    submitted_time: str | None = None
    vc: str | None = None
    attempts: list[_Attempt] = []


def is_log(text: str) -> bool:
    """Is it such a log, and no table?"""
    return text[:100].lstrip().startswith("[")


def read_log(path: str, text: str) -> list[Submission]:
    """The jobs of the log that ran, in the order of submission; the first is submitted at 0."""
    try:
        logged = msgspec.json.decode(text, type=list[_LoggedJob])
    except (msgspec.DecodeError, RecursionError) as error:
        raise WorkloadError(f"{plain(path)}: the log must be a list of jobs in JSON: {error}") from None
    names: dict[str, int] = {}
    found: list[tuple[datetime, int, Job, float]] = []
    for number, entry in enumerate(logged):
        where = f"{plain(path)} entry {number + 1}"
        job_id = _name(entry.jobid, where)
        if (earlier := names.setdefault(job_id, number)) != number:
            raise WorkloadError(f"{where}: jobid must be unique, and entry {earlier + 1} has {shown(job_id)} too")
        at = _time(entry.submitted_time, f"{where}: submitted_time")
        starts = [_time(a.start_time, f"{where}: start_time") for a in entry.attempts]
        ends = [_time(a.end_time, f"{where}: end_time") for a in entry.attempts]
        started, ended = min(filter(None, starts), default=None), ends[-1] if ends else None
        size = max((sum(len(m.gpus) for m in a.detail) for a in entry.attempts), default=0)
        if at is None or started is None or ended is None or ended < started or not size:
            continue
        owner = "" if entry.vc is None or entry.vc in _MISSING else entry.vc
        found.append((at, size, Job(job_id, owner, sizes=only(size)), (ended - started).total_seconds()))
    if not found:
        raise WorkloadError(f"{plain(path)}: the log must have a job with a start, an end and a GPU")
    found.sort(key=lambda job: job[0])
    began = found[0][0]
    return [
        Submission((at - began).total_seconds(), job, Truth(run_s, size, None, NO_KINDS))
        for at, size, job, run_s in found
    ]


def _name(job_id: str, where: str) -> str:
    try:
        return NAME.of(job_id)
    except BrokenRuleError as broken:
        raise WorkloadError(f"{where}: jobid must be {broken}, not {shown(job_id)}") from None


def _time(text: str | None, where: str) -> datetime | None:
    if text is None or text in _MISSING:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        raise WorkloadError(f"{where} must be as 2017-10-07 01:12:09, not {shown(text)}") from None
