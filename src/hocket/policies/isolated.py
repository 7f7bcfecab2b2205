"""Isolated: every job has its own machines, as few as keep their processors busy. A baseline of Harmony."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from hocket.model.phases import profile_of
from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.registry import Params, policy


class Isolated(Params, frozen=True):
    grow: Annotated[
        float, Meta(ge=1, description="a running job is restarted on more machines if it gets so many times as many")
    ] = 1.25
    least: Annotated[
        int, Meta(ge=1, description="machines that a job has at least, or its largest size if that is smaller")
    ] = 1


@policy(
    "isolated",
    params=Isolated,
    paper="the baseline of Harmony, ICDCS'21; after Optimus and SLAQ",
    reads_usage=False,
    reads=(),
)
def decide(snapshot: Snapshot, params: Isolated) -> Plan:
    """Jobs run alone, in the order of submission, at the smallest size; what is left over keeps most processors busy.

    The smallest size has `least` machines or more. Where a job does not fit, jobs above theirs shrink, those first
    whose processors idle most. When no job waits, free machines go one by one to the job that computes most with them.
    """
    draft = Draft(snapshot)
    waits = False
    elastic = [v for e in snapshot.placed if len((v := snapshot.jobs[e[-1]]).job.sizes) > 1 and len(v.partitions) == 1]
    new: list[JobView] = []
    for view in draft.candidates():
        smallest = _smallest(view, params.least)
        if draft.start(view, "starts: on machines of its own", smallest) or _shrink(draft, view, elastic, params.least):
            new.append(view)
        else:
            waits = True
            draft.pass_over(view)
    if waits:
        draft.reasons["*"] = "waits: there are no machines for it"
    else:
        _grow(draft, [*elastic, *new], {v.job.id for v in new}, params.grow)
    return draft.plan(Wake(freed_gpus=1, epoch=False))


def busy(view: JobView, size: int) -> float:
    """How many of so many machines compute at a time: COMP shrinks as they grow in number, COMM does not."""
    profile = profile_of(view.beliefs)
    if profile is None:
        return float(size)
    return size * profile.comp_s(size) / profile.iteration_s(size)


def _smallest(view: JobView, least: int) -> int:
    return next((s for s in view.job.sizes if s >= least), view.job.sizes[-1])


def _gain(view: JobView, size: int, other: int) -> float:
    """What each machine more, or less, changes."""
    return (busy(view, other) - busy(view, size)) / (other - size)


def _shrink(draft: Draft, view: JobView, elastic: Iterable[JobView], least: int) -> bool:
    """Take machines where they are missed least until the job fits; nothing changes if it never does."""
    saved = draft.saved()
    why = f"shrinks: '{view.job.id}' has no machines"
    line = [(v, n) for v in elastic if (n := draft.size_of(v)) > _smallest(v, least)]
    while line:
        donor, size = min(line, key=lambda x: (_gain(x[0], x[1], _below(x[0], x[1])), x[0].number))
        line.remove((donor, size))
        less = _below(donor, size)
        if not draft.resize(donor, less, why):
            continue
        if less > _smallest(donor, least):
            line.append((donor, less))
        if draft.start(view, "starts: on machines that others can spare", _smallest(view, least)):
            return True
    draft.restore(saved)
    return False


def _below(view: JobView, size: int) -> int:
    return max(s for s in view.job.sizes if s < size)


def _grow(draft: Draft, jobs: list[JobView], new: set[str], least: float) -> None:
    """Free machines go where most of their time is used; a running job is not restarted for a few."""
    sizes = {v.job.id: draft.size_of(v) for v in jobs}
    while True:
        saved = draft.saved()
        wanted = dict(sizes)
        line = [v for v in jobs if sizes[v.job.id] and _above(v, sizes[v.job.id])]
        while line:
            view = max(line, key=lambda v: (_gain(v, wanted[v.job.id], _above(v, wanted[v.job.id])), -v.number))
            more = _above(view, wanted[view.job.id])
            reason = draft.reasons[view.job.id] if view.job.id in new else "grows: no other job needs the machines"
            if draft.resize(view, more, reason):
                wanted[view.job.id] = more
            if draft.size_of(view) != more or not _above(view, more):
                line.remove(view)
        short = [
            v for v in jobs
            if v.job.id not in new and sizes[v.job.id] < wanted[v.job.id] < least * sizes[v.job.id]
        ]  # fmt: skip
        if not short:
            return
        # Jobs that would get too little for a restart stay as they are, and the others share what that leaves.
        draft.restore(saved)
        jobs = [v for v in jobs if v not in short]


def _above(view: JobView, size: int) -> int:
    return min((s for s in view.job.sizes if s > size), default=0)
