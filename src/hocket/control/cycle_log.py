"""The controller's log: events, decisions, refused plans and actions, with cycle and job as fields."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from hocket.control.ports import Cycle
from hocket.model.action import Action
from hocket.model.event import (
    Event,
    JobAsked,
    JobEnded,
    JobFailed,
    JobRefused,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    OwnerSet,
    PolicySet,
)

_log = logging.getLogger("hocket.control")
_log.addHandler(logging.NullHandler())  # Without logging set up, as in simulations, nothing is printed.
_AT_INFO = {JobSubmitted, JobRefused, JobAsked, JobEnded, JobFailed, NodeJoined, NodeLost, OwnerSet, PolicySet}


def log_cycle(number: int, cycle: Cycle, actions: Sequence[Action], decision_s: Sequence[float]) -> None:
    """Log a cycle that is in the journal. Events that change nothing are logged at DEBUG."""
    if not _log.isEnabledFor(logging.INFO):
        if cycle.refused:
            _log_refused(number, cycle)
        return
    for event in cycle.events:
        level = logging.INFO if type(event) in _AT_INFO else logging.DEBUG
        subject, reason = _subject(event), getattr(event, "reason", "")
        _say(level, number, subject, type(event).__name__, f": {reason}" if reason else "")
    plan = cycle.plan
    if plan is not None:
        changes = len(plan.put) + len(plan.drop) + len(plan.ends)
        took_ms = 1000 * decision_s[-1] if decision_s else 0.0
        level = logging.INFO if changes else logging.DEBUG
        _log.log(level, "cycle %d: decided: %d changes in %.1f ms", number, changes, took_ms, extra={"cycle": number})
        for job_id, verdict in plan.ends.items():
            _say(logging.INFO, number, job_id, "verdict", f": {verdict}")
    _log_refused(number, cycle)
    for action in actions:
        to = getattr(action, "to", None)
        place = f" on {', '.join(part.node for part in to.slices)}" if to is not None else ""
        _say(logging.INFO, number, action.job, type(action).__name__, place)


def _say(level: int, number: int, subject: str, what: str, more: str) -> None:
    of = f" '{subject}'" if subject else ""
    _log.log(level, "cycle %d: %s%s%s", number, what, of, more, extra={"cycle": number, "job": subject})


def _log_refused(number: int, cycle: Cycle) -> None:
    for violation in cycle.refused:
        _log.warning("cycle %d: the plan is refused: %s", number, violation, extra={"cycle": number})


def _subject(event: Event) -> str:
    """What an event is about: the id of a job, node, owner or policy."""
    for name in ("job", "node", "owner", "policy"):
        if (value := getattr(event, name, None)) is not None:
            return str(getattr(value, "id", value))
    return ""
