"""What a user wishes for many jobs at once: which ones it is for is found out first, then it is asked in parts.

A part is one cycle, so that what others ask meanwhile waits for one part at most, however many jobs a wish is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from hocket.model.event import Wish
from hocket.model.job import NAME_LENGTH
from hocket.model.view import JobView
from hocket.service.catalogue import Catalogue

PART = 100  # jobs that are asked in one cycle
Name = Annotated[str, Meta(min_length=1, max_length=200)]


class WishSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """A wish, and for which jobs."""

    wish: Wish
    jobs: Annotated[list[Name], Meta(max_length=100_000, description="names, or patterns such as sweep-*")] = []
    all: Annotated[bool, Meta(description="all live jobs, instead of names")] = False
    owner: Annotated[str, Meta(max_length=NAME_LENGTH, description="only jobs of this owner")] = ""
    by: Annotated[str, Meta(max_length=200, description="user who asks")] = ""


class WishError(ValueError):
    """A wish that cannot be carried out for any job; says why."""


class Meant(Struct, frozen=True):
    """The jobs that a wish is for, and those that cannot have it."""

    jobs: list[str]
    refused: dict[str, str]  # job → why


def read_wish(body: bytes) -> WishSpec:
    """The wish of a call. Raises WishError."""
    try:
        spec = msgspec.json.decode(body, type=WishSpec)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WishError(str(error)) from error
    if bool(spec.jobs) == spec.all:
        raise WishError("a wish needs the names of jobs, or all: one of the two")
    return spec


def meant(spec: WishSpec, live: Iterable[JobView], catalogue: Catalogue) -> Meant:
    """The jobs that a wish is for. Raises WishError for a name or pattern that no job has."""
    there = {view.job.id: None for view in live if spec.owner in ("", view.job.owner)}
    if spec.all:
        return Meant(list(there), {})
    found: dict[str, None] = {}
    refused: dict[str, str] = {}
    for said in spec.jobs:
        name = catalogue.names.id_of(said)
        matching = [name] if name in there else _matching(name, there)
        found |= dict.fromkeys(matching)
        if not matching:
            record = catalogue.get(name)
            if record is None:
                raise WishError(_nobody(name, there))
            of_another = spec.owner not in ("", record.job.owner)
            refused[name] = f"job '{name}' is " + (
                f"{record.job.owner}'s, not {spec.owner}'s" if of_another else f"over: {record.verdict}"
            )
    return Meant(list(found), refused)


def in_parts(wish: Wish, jobs: Iterable[str], live: Mapping[str, JobView]) -> list[list[str]]:
    """The jobs in the order in which they are asked, so that the parts come to the same as all of them at once.

    Jobs that are to stop or pause: those that have a place come last, or others of them would start there meanwhile;
    before, the newest first, for no job starts after a newer one, and those that start after a job that is stopped are
    stopped for that reason. Jobs that are to resume: in the policy's order, or a later one would start first.
    """
    views = [live[job_id] for job_id in jobs if job_id in live]
    if wish is Wish.RESUME:
        views.sort(key=lambda view: (view.rank, view.number))
    else:
        views.sort(key=lambda view: (bool(view.partitions or view.tenancies), -view.number))
    return [[view.job.id for view in views[n : n + PART]] for n in range(0, len(views), PART)]


def _matching(name: str, there: dict[str, None]) -> list[str]:
    return [job_id for job_id in there if fnmatchcase(job_id, name)] if any(c in name for c in "*?[") else []


def _nobody(name: str, there: dict[str, None]) -> str:
    if any(c in name for c in "*?["):
        return f"no live job matches '{name}'"
    near = get_close_matches(name, there, n=1, cutoff=0.6)
    return f"there is no job '{name}'" + (f"; did you mean '{near[0]}'?" if near else "")
