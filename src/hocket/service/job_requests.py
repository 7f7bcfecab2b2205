"""One request for many jobs: the jobs that it names are found first, then it goes to the controller in parts.

A part is one cycle, so that other calls wait for one part at most, however many jobs a request is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from hocket.model.event import JobRequest
from hocket.model.job import NAME_LENGTH
from hocket.model.view import JobView
from hocket.service.catalogue import Catalogue

PART = 100  # jobs whose requests go into one cycle
Name = Annotated[str, Meta(min_length=1, max_length=200)]


class JobRequestSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """What is requested, and of which jobs."""

    request: JobRequest
    jobs: Annotated[list[Name], Meta(max_length=100_000, description="names, or patterns such as sweep-*")] = []
    all: Annotated[bool, Meta(description="all live jobs, instead of names")] = False
    owner: Annotated[str, Meta(max_length=NAME_LENGTH, description="only jobs of this owner")] = ""
    by: Annotated[str, Meta(max_length=200, description="user that makes the request")] = ""


class JobRequestError(ValueError):
    """A request that cannot be carried out for any job; says why."""


class RequestedJobs(Struct, frozen=True):
    """The jobs that a request is for, and those that have ended or are not the owner's."""

    jobs: list[str]
    refused: dict[str, str]  # job → why


def read_job_request(body: bytes) -> JobRequestSpec:
    """Read the body of a call. Raises JobRequestError."""
    try:
        spec = msgspec.json.decode(body, type=JobRequestSpec)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JobRequestError(str(error)) from error
    if bool(spec.jobs) == spec.all:
        raise JobRequestError("a request needs the names of jobs, or all: one of the two")
    return spec


def requested_jobs(spec: JobRequestSpec, live: Iterable[JobView], catalogue: Catalogue) -> RequestedJobs:
    """The jobs that a request is for. Raises JobRequestError for a name or pattern that no job has."""
    there = {view.job.id: None for view in live if spec.owner in ("", view.job.owner)}
    if spec.all:
        return RequestedJobs(list(there), {})
    found: dict[str, None] = {}
    refused: dict[str, str] = {}
    for said in spec.jobs:
        name = catalogue.names.id_of(said)
        matching = [name] if name in there else _matching(name, there)
        found |= dict.fromkeys(matching)
        if not matching:
            record = catalogue.get(name)
            if record is None:
                raise JobRequestError(_no_job_called(name, there))
            of_another = spec.owner not in ("", record.job.owner)
            refused[name] = f"job '{name}' is " + (
                f"{record.job.owner}'s, not {spec.owner}'s" if of_another else f"over: {record.verdict}"
            )
    return RequestedJobs(list(found), refused)


def in_parts(request: JobRequest, jobs: Iterable[str], live: Mapping[str, JobView]) -> list[list[str]]:
    """The jobs in the order in which the request goes to them, so that parts have the same result as all at once.

    Stop and pause: running jobs come last, or other jobs of the request would start in their place meanwhile; before
    them the newest come first, because a job can only be `after` older ones, and is stopped for that reason when one
    of those is. Resume: in the policy's order, or a later job would start before an earlier one.
    """
    views = [live[job_id] for job_id in jobs if job_id in live]
    if request is JobRequest.RESUME:
        views.sort(key=lambda view: (view.rank, view.number))
    else:
        views.sort(key=lambda view: (bool(view.partitions or view.tenancies), -view.number))
    return [[view.job.id for view in views[n : n + PART]] for n in range(0, len(views), PART)]


def _matching(name: str, there: dict[str, None]) -> list[str]:
    return [job_id for job_id in there if fnmatchcase(job_id, name)] if any(c in name for c in "*?[") else []


def _no_job_called(name: str, there: dict[str, None]) -> str:
    if any(c in name for c in "*?["):
        return f"no live job matches '{name}'"
    near = get_close_matches(name, there, n=1, cutoff=0.6)
    return f"there is no job '{name}'" + (f"; did you mean '{near[0]}'?" if near else "")
