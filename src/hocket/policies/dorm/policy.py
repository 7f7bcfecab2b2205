"""Dorm: partitions that grow and shrink, decided by an integer program."""

from __future__ import annotations

from math import inf
from typing import Annotated

from msgspec import Meta

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.policies.dorm.optimise import Outcome, optimise
from hocket.policies.dorm.problem import Allocation, Places, containers
from hocket.policies.dorm.snapshot_to_problem import SnapshotProblem, problem_of, signature
from hocket.policies.kit.draft import Draft
from hocket.policies.registry import Params, policy

# An application came or ended: nothing else changes the posed.
_WAKE = Wake(arrival=True, freed_gpus=1, epoch=False, overtaken=False)
LEFT_OUT = "waits: there is not enough for its smallest size beside those of all jobs that run or came before it"


class Dorm(Params, frozen=True):
    theta1: Annotated[float, Meta(ge=0, le=1, description="how unfair it may be: Σ|s - ŝ| is at most ⌈θ1·2m⌉")] = 0.1
    theta2: Annotated[
        float, Meta(ge=0, le=1, description="the share of running jobs that one decision may resize or move")
    ] = 0.1
    solver_s: Annotated[
        float, Meta(ge=0, description="seconds for each search of the solver; 0 for none, so that plans repeat")
    ] = 0.0


@policy("dorm", params=Dorm, paper="Sun et al., SMARTCOMP'17", reads_beliefs=False, reads=("weight",))
def decide(snapshot: Snapshot, params: Dorm) -> Plan:
    """The most use of the cluster that is nearly fair and resizes few: one integer program for all jobs at once.

    Whenever a job comes or ends, all jobs get their number of replicas and their nodes anew: as much of all resources
    in use as can be, with dominant shares close to weighted DRF, and only a few running jobs touched. A newcomer's
    smallest size comes before any growth. If that cannot be, all stay as they are and what fits starts.
    """
    draft = Draft(snapshot)
    placed = {view.number for view in snapshot.jobs.values() if view.partitions}
    waiting = {entry[1] for entry in snapshot.waiting}
    if snapshot.memo == signature(snapshot, placed, waiting) and not snapshot.due:  # Due: may be preempted now.
        return draft.plan(_WAKE, snapshot.memo)
    posed = problem_of(snapshot, params.theta1, params.theta2)
    outcome = optimise(posed.problem, params.solver_s or inf)
    if outcome.allocation is not None:
        if posed.left_out:
            draft.reasons["*"] = LEFT_OUT
        _rearrange(draft, posed, outcome, outcome.allocation)
    else:
        draft.reasons["*"] = f"waits: {outcome.why}"
        for view in draft.candidates():
            draft.start(view, f"starts at its smallest size, all others stay: {outcome.why}", view.job.sizes[0])
    for view in posed.without_a_place:
        draft.reasons[view.id] = "waits: no nodes that are up could hold it"
    started = {view.number for view in snapshot.jobs.values() if not view.partitions and draft.size_of(view)}
    return draft.plan(_WAKE, signature(snapshot, placed | started, waiting - started))


def _rearrange(draft: Draft, posed: SnapshotProblem, outcome: Outcome, allocation: Allocation) -> None:
    """Make the draft what the allocation says."""
    why = f"utilisation {outcome.worth:.3f} of at most {outcome.bound:.3f}, gap {outcome.gap:.2%}"
    new = [
        (view, application.before, places)
        for view, application, places in zip(posed.views, posed.problem.applications, allocation, strict=True)
        if application.before != places
    ]
    for view, before, _places in new:
        if before is not None:
            draft.pause(view, why)  # All that change give everything back first: another may need just that.
    for view, before, places in new:
        there = tuple((posed.nodes[server], n) for server, n in places)
        draft.put(view, there, f"{_change(before, places)}: {why}")


def _change(before: Places | None, places: Places) -> str:
    after = containers(places)
    if before is None:
        return f"starts at size {after}"
    had = containers(before)
    if after == had:
        return "moves"
    return f"{'grows' if after > had else 'shrinks'} from {had} to {after}"
