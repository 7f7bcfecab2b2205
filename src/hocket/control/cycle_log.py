"""The controller's log: events, decisions, refused plans and actions, with cycle and job as fields."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from math import inf

from msgspec.structs import asdict

from hocket.control.ports import Cycle
from hocket.model.action import Action
from hocket.model.event import (
    EpochEnded,
    Event,
    JobAsked,
    JobEnded,
    JobFailed,
    JobPrepared,
    JobRefused,
    JobSubmitted,
    JobWarned,
    MetricUnseen,
    NodeLost,
    OwnerSet,
    PastJobsGiven,
    PhasesObserved,
    ProgressReported,
    StateStored,
    TimePassed,
)
from hocket.model.plan import Plan

_log = logging.getLogger("hocket.control")
_log.addHandler(logging.NullHandler())  # Without a set-up, as in simulations, nothing is printed.
_ROUTINE = {JobPrepared, StateStored, ProgressReported, EpochEnded, PhasesObserved, TimePassed}
_TROUBLE = {JobFailed, JobWarned, MetricUnseen, JobRefused, NodeLost}
_SUBJECTS = ("job", "node", "owner", "policy")
_MOST_OF_A_KIND = 20  # lines about events or actions of one kind in a cycle: a user may stop ten thousand jobs at once


def log_cycle(number: int, cycle: Cycle, actions: Sequence[Action], decision_s: Sequence[float]) -> None:
    """Log a cycle that is in the journal. Routine events are logged at DEBUG, trouble at WARNING.

    Of many events, reasons or actions of one kind, only some have a line, unless they are trouble or DEBUG is on.
    """
    if not _log.isEnabledFor(logging.INFO):
        if not _TROUBLE.isdisjoint(map(type, cycle.events)):
            for event in cycle.events:
                if type(event) in _TROUBLE:
                    _log_event(number, event)
        if cycle.refused:
            _log_refused(number, cycle)
        return
    is_detailed = _log.isEnabledFor(logging.DEBUG)
    lines = _Lines(inf if is_detailed else _MOST_OF_A_KIND)
    for event in cycle.events:
        kind = type(event)
        if is_detailed or kind in _TROUBLE or (kind not in _ROUTINE and lines.admit(kind.__name__)):
            _log_event(number, event)
    if cycle.plan is not None:
        _log_decision(number, cycle.plan, bool(cycle.refused), decision_s, lines)
    _log_refused(number, cycle)
    for action in actions:
        name = type(action).__name__
        if lines.admit(name):
            to = getattr(action, "to", None)
            place = f" on {', '.join(part.node for part in to.slices)}" if to is not None else ""
            _say(logging.INFO, number, f"{name} '{action.job}'{place}", job=action.job, action=name)
    for name, more in lines.left_out().items():
        _say(logging.INFO, number, f"{name}: {more:,} more, not listed", more=more)
    if is_detailed:
        asked = "the policy was not asked" if cycle.plan is None else f"the policy waits for {cycle.plan.wake}"
        _say(logging.DEBUG, number, f"{len(cycle.events)} events, {len(actions)} actions, {asked}")


class _Lines:
    """How many lines a cycle has of each kind, and how many were left out."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._seen: Counter[str] = Counter()

    def admit(self, kind: str) -> bool:
        """One more of this kind: may it have a line?"""
        self._seen[kind] += 1
        return self._seen[kind] <= self._most

    def left_out(self) -> dict[str, int]:
        """By kind, how many have none."""
        return {kind: int(seen - self._most) for kind, seen in self._seen.items() if seen > self._most}


def _log_event(number: int, event: Event) -> None:
    name, kind = type(event).__name__, type(event)
    level = logging.DEBUG if kind in _ROUTINE else logging.WARNING if kind in _TROUBLE else logging.INFO
    if isinstance(event, TimePassed):
        for job_id in event.jobs:
            _say(level, number, f"the timer of '{job_id}' is due", job=job_id, event=name)
        return
    fields = {s: str(getattr(of, "id", of)) for s in _SUBJECTS if (of := getattr(event, s, None)) is not None}
    subject = next(iter(fields.values()), "")
    if isinstance(event, JobSubmitted) and event.job.owner:
        fields["owner"] = event.job.owner
    elif isinstance(event, JobAsked) and event.by:
        fields["by"] = event.by
    run = getattr(event, "attempt", 0)
    details = [_detail(event), f"run {run}" if run else ""]
    said = ", ".join(detail for detail in details if detail)
    numbered = {"run": run} if run else {}
    _say(level, number, f"{name} '{subject}'{f': {said}' if said else ''}", event=name, **fields, **numbered)


def _detail(event: Event) -> str:
    match event:
        case JobSubmitted(_, job):
            return f"{f'of {job.owner}, ' if job.owner else ''}sizes {','.join(map(str, job.sizes))}"
        case OwnerSet(_, owner):
            limits = {name: value for name, value in asdict(owner).items() if name.startswith("max_") and value}
            return ", ".join(f"{name} {value:g}" for name, value in {"weight": owner.weight, **limits}.items())
        case PastJobsGiven(_, jobs):
            return f"{len(jobs)} jobs"
        case JobAsked(_, _, request, by):
            return f"{request} by {by}" if by else str(request)
        case JobEnded(_, _, verdict, reason):
            return reason or verdict
        case JobWarned(_, _, about):
            return about
        case MetricUnseen():
            return event.in_words
        case ProgressReported(step=step) if step:
            return f"step {step}"
        case EpochEnded(_, _, epoch, _) | ProgressReported(_, _, epoch, _, _):
            return f"epoch {epoch}"
    return str(getattr(event, "reason", ""))


def _log_decision(number: int, plan: Plan, is_refused: bool, decision_s: Sequence[float], lines: _Lines) -> None:
    """Log how long it took, and why, for each job that the plan gives a reason for or changes."""
    changes = len(plan.put) + len(plan.drop) + len(plan.ends)
    took_ms = 1000 * decision_s[-1] if decision_s else 0.0
    took = {"changes": changes, "took_ms": round(took_ms, 3)}
    _say(logging.INFO if changes else logging.DEBUG, number, f"decided: {changes} changes in {took_ms:.1f} ms", **took)
    if is_refused:
        return
    reasons = plan.reasons
    queue = reasons.get("*", "")
    said = {tenant.job: reasons.get(tenant.job, queue) for partition in plan.put for tenant in partition.tenants}
    # Not only those with an action: a job that makes way may go on until another is prepared.
    said |= {job_id: reason for job_id, reason in reasons.items() if job_id != "*"}
    said |= {job_id: f"ends: {verdict}" for job_id, verdict in plan.ends.items()}
    for job_id, reason in said.items():
        if reason and lines.admit("decided"):  # A job whose company changes may have none.
            _say(logging.INFO, number, f"decided for '{job_id}': {reason}", job=job_id, reason=reason)


def _say(level: int, number: int, message: str, **fields: object) -> None:
    _log.log(level, "cycle %d: %s", number, message, extra={"cycle": number, **fields})


def _log_refused(number: int, cycle: Cycle) -> None:
    for violation in cycle.refused:
        _log.warning("cycle %d: the plan is refused: %s", number, violation, extra={"cycle": number})
