"""The same state, if its jobs had been submitted with other values of the fields that a policy need not read."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from msgspec.structs import force_setattr, replace

from hocket.control.replay import encoded
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot, queues_of
from hocket.model.versioned import versioned
from hocket.policies.registry import BoundPolicy

VALUES: dict[str, list[Any]] = {
    "priority": [-5, 0, 1, 7],
    "urgency": [0, 1, 5, 10],
    "deadline_s": [None, 1.0, 500.0, 50_000.0],
    "weight": [0.25, 1.0, 6.0],
}
_NO_DICE = Random(0)  # for no field at all
_DRAWS = 3  # of other values, for each snapshot


def with_values(snapshot: Snapshot, bound: BoundPolicy, fields: Sequence[str], dice: Random) -> Snapshot:
    """The `snapshot` with other values of these `fields` by the `dice`, as the policy in `bound` ranks its jobs now."""
    views = []
    for view in snapshot.jobs.values():
        values = {field: dice.choice(VALUES[field]) for field in fields}
        changed = replace(view, job=replace(view.job, **values))
        force_setattr(changed, "rank", bound.order(changed, snapshot.now_s))  # A copy that is not shared yet.
        views.append(changed)
    waiting, placed = queues_of(views)
    return replace(snapshot, jobs=versioned((v.job.id, v) for v in views), waiting=waiting, placed=placed)


def is_read(bound: BoundPolicy, snapshot: Snapshot, fields: Sequence[str]) -> bool:
    """Does the policy in `bound` decide something else in this `snapshot` if these `fields` of jobs are others?"""
    if not fields or not snapshot.jobs.data():
        return False
    plan = bound.decide(with_values(snapshot, bound, (), _NO_DICE))
    for draw in range(_DRAWS):
        dice = Random(f"{draw}/{snapshot.decision}/{snapshot.now_s}/{len(snapshot.jobs)}")
        if not _are_same(bound.decide(with_values(snapshot, bound, fields, dice)), plan):
            return True
    return False


def _are_same(plan: Plan, other: Plan) -> bool:
    """Would a journal have the same of both?"""
    return plan == other or encoded(plan) == encoded(other)
