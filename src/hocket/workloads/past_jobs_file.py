"""Past jobs from a file, so that estimates need not begin with nothing: one JSON object a line.

    {"model": "resnet", "traits": {"batch_size": 128}, "metric": "acc", "points": [[1, 0.41], [2, 0.55]], "unit_s": 30}

`hocket journal history` writes such a file from a journal; docs/policies/rotary_dlt.md describes it. Units are those of
the field's names: seconds, MiB, shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hocket.model.job import Kind
from hocket.model.metric_name import is_share
from hocket.model.past_job import MAX_PAST_JOBS, MAX_POINTS, PastJob
from hocket.model.validation import explained
from hocket.workloads.errors import WorkloadError, did_you_mean, plain, shown

FILE_LIMIT = 1 << 26  # bytes: what is larger is no list of past jobs
_FIELDS = ("kind", "model", "traits", "metric", "points", "unit_s", "mem_mib")
_KINDS = (Kind.TRAINING, Kind.QUERY)
# Beyond these a value is in another unit: an epoch of a month, a machine with 95 TiB.
_MOST = {"unit_s": (2.6e6, "milliseconds"), "mem_mib": (1e8, "bytes")}


def read_past_jobs(path: str | Path) -> tuple[PastJob, ...]:
    """The past jobs of a file, the oldest first; of more than are kept, the last. Raises WorkloadError."""
    name = plain(str(path))
    try:
        if Path(path).stat().st_size > FILE_LIMIT:
            raise WorkloadError(f"{name}: a file of past jobs must have at most {FILE_LIMIT >> 20} MiB")
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise WorkloadError(f"{name}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{name}: must be text in UTF-8, and byte {error.start} is none") from error
    return past_jobs_in(text.splitlines(), name)


def past_jobs_in(lines: Iterable[str], name: str) -> tuple[PastJob, ...]:
    """Those of lines of a file that errors name; empty lines and those that begin with `#` are passed over."""
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            found.append(_past_job(line, f"{name}, line {number}"))
    if not found:
        raise WorkloadError(f"{name}: must have a past job a line, and has none")
    return tuple(found[-MAX_PAST_JOBS:])


def _past_job(line: str, where: str) -> PastJob:
    try:
        given: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WorkloadError(f"{where}: must be a JSON object, not {shown(line.strip())} ({error})") from error
    if not isinstance(given, dict):
        raise WorkloadError(f"{where}: must be a JSON object, not {shown(given)}")
    for field in given:
        if field not in _FIELDS:
            raise WorkloadError(f"{where}: unknown field {shown(field)}{did_you_mean(field, _FIELDS)}")
    if isinstance(given.get("points"), list):
        given["points"] = _thinned(given["points"])
    try:
        job = msgspec.convert(given, PastJob)
    except msgspec.ValidationError as error:
        raise WorkloadError(f"{where}: {explained(error, given, _FIELDS)}") from error
    if problem := _problem(job):
        raise WorkloadError(f"{where}: {problem}")
    return job


def _problem(job: PastJob) -> str:
    """What is wrong with it beside its types: mostly that a number is in another unit."""
    if job.kind not in _KINDS:
        return f"kind must be {' or '.join(_KINDS)}, not '{job.kind}'"
    if not (job.points or job.unit_s or job.mem_mib):
        return "must have points, unit_s or mem_mib: of a job that has shown nothing there is nothing to learn"
    for field, (most, other) in _MOST.items():
        if getattr(job, field) > most:
            return f"{field} must be at most {most:g}, not {getattr(job, field):g} (is it in {other}?)"
    is_query = job.kind is Kind.QUERY
    for units, value in job.points:
        if is_query and units > 1:
            return f"points: the units of a query are shares of its data, at most 1, not {units:g} (in percent?)"
        if (is_share(job.metric) or is_query) and not 0 <= value <= 1:
            return f"points: {job.metric} at {units:g} must be a share from 0 to 1, not {value:g} (in percent?)"
    return ""


def _thinned(points: list[Any]) -> list[Any]:
    """As many points as are kept, spread evenly, the first and the last among them."""
    if len(points) <= MAX_POINTS:
        return points
    last = len(points) - 1
    return [points[round(i * last / (MAX_POINTS - 1))] for i in range(MAX_POINTS)]


def lines_of(jobs: Sequence[PastJob]) -> list[str]:
    """The lines of a file with these past jobs; what is not known is left out."""
    found = []
    for job in jobs:
        said = {name: getattr(job, name) for name in _FIELDS if getattr(job, name) not in ("", (), {}, 0.0)}
        found.append(msgspec.json.encode({"kind": job.kind} | said).decode())
    return found
