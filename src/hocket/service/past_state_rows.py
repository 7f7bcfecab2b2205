"""What the API shows of a past state: the rows of today's calls, what happened in the cycle, and its decision."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hocket.control.diff import changes
from hocket.control.ports import Cycle
from hocket.model.event import Event
from hocket.model.shortage import Shortages
from hocket.model.snapshot import Snapshot
from hocket.service import rows
from hocket.service.owners import owner_rows
from hocket.service.past_states import PastState, PastStates
from hocket.service.record import Record
from hocket.service.tokens import Token
from hocket.service.visibility import sees_all_rows, visible_reason, visible_row

PARTS = ("jobs", "queue", "nodes", "owners", "events", "decision")  # that can be asked for
_MOST_EVENTS = 100  # of a cycle


def shown_past(
    states: PastStates, number: int, parts: frozenset[str], token: Token, *, over: bool, owner: str, limit: int
) -> dict[str, Any]:
    """How things stood after a cycle, as far as the caller may see it. Raises NotKept and JournalError."""
    past = states.at(number)
    fold, at_s = past.fold, past.cycle.at_s
    snapshot = fold.controller.snapshot
    policy = fold.controller.policy_set
    said: dict[str, Any] = {
        "cycle": number,
        "at_s": at_s,
        "first": states.first,
        "last": states.last,
        "previous_decision": states.decision_before(number),
        "next_decision": states.decision_after(number),
        "policy": states.header.policy if policy is None else policy.policy,
        "params": states.header.params if policy is None else policy.params,
        "counts": rows.live_counts(snapshot) + fold.catalogue.over,
    }
    if "jobs" in parts:
        said["jobs"] = _jobs(states, past, snapshot, token, over=over, owner=owner, limit=limit)
    if "queue" in parts:
        said["queue"] = [job_id for _rank, _number, job_id in snapshot.waiting]
    if "nodes" in parts:
        said["nodes"] = rows.nodes(snapshot, at_s)
    if "owners" in parts:
        said["owners"] = owner_rows(snapshot)
    if "events" in parts:
        events = [event_row(event) for event in past.cycle.events if _sees(event, past, token)]
        said["events"], said["more_events"] = events[:_MOST_EVENTS], max(0, len(events) - _MOST_EVENTS)
    if "decision" in parts:
        said["decision"] = _decision(past, token)
    return said


def _jobs(
    states: PastStates, past: PastState, snapshot: Snapshot, token: Token, *, over: bool, owner: str, limit: int
) -> list[rows.JobRow]:
    found: list[Record] = [r for r in past.fold.catalogue.records.values() if r.ended_s is None]
    if over:
        found = sorted([*states.ended(past, limit), *found], key=lambda record: record.number)
    if owner:
        found = [record for record in found if record.job.owner == owner]
    live, short, waits = snapshot.jobs.data(), Shortages(snapshot), past.fold.catalogue.queue_reason
    at_s = past.cycle.at_s
    listed = found[max(0, len(found) - limit) :]
    made = [rows.row(r, live.get(r.job.id), snapshot, at_s, waits, short) for r in listed]
    return made if sees_all_rows(token) else [visible_row(row, token) for row in made]


def _sees(event: Event, past: PastState, token: Token) -> bool:
    """What happens to jobs of others is not for a user."""
    return sees_all_rows(token) or token.owns(_owner(event, past, token.owner))


def _owner(event: Event, past: PastState, otherwise: str) -> str:
    """The owner of the job that an event is about; another one, if it is about none."""
    job: Any = getattr(event, "job", None)
    if job is None:
        return otherwise
    if not isinstance(job, str):
        return str(job.owner)
    record = past.fold.catalogue.records.get(job)
    return "" if record is None else record.job.owner


def event_row(event: Event) -> dict[str, str]:
    """What kind of event it is, and which job, node, owner or policy it is about."""
    subjects = (getattr(event, name, None) for name in ("job", "node", "owner", "policy"))
    of = next((subject for subject in subjects if subject is not None), "")
    return {"kind": type(event).__name__, "subject": str(getattr(of, "id", of))}


def _decision(past: PastState, token: Token) -> dict[str, Any] | None:
    """What the plan of the cycle changed, and why; None if the policy was not asked."""
    cycle: Cycle = past.cycle
    if (plan := cycle.plan) is None:
        return None
    reasons = dict(plan.reasons)
    if not sees_all_rows(token):
        records = past.fold.catalogue.records
        owned = {job for job, record in records.items() if token.owns(record.job.owner)}
        reasons = {job: why if job in owned else visible_reason(why) for job, why in reasons.items()}
    return {
        "changes": {} if cycle.refused else changes(past.before, plan),
        "reasons": {job: why for job, why in reasons.items() if why},
        "refused": cycle.refused,
    }


def counts_of(states: PastStates, buckets: int, since_s: float, until_s: float) -> dict[str, Any]:
    """The density of cycles and decisions over time, and which cycles there are."""
    found = states.density(buckets, since_s, until_s)
    totals = Counter(cycles=sum(b.cycles for b in found), decisions=sum(b.decisions for b in found))
    return {"first": states.first, "last": states.last, **totals, "buckets": found}
