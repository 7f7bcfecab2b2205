"""Priorities of tasks: equations 2 to 6 of MLFS, of one job, and the highest of many jobs at once.

Equation 3 is linear: with `reach` the sum over all paths of γ^length, P^ML = reach · P'^ML, and likewise (5). Times are
in units of `unit_s`, for (4) adds an inverse time to a time. Our reading of what the paper leaves open:

* An iteration is an epoch that the job reports. At the first, and where fewer than two losses are known, the loss
  ratio is 1. A loss that rises or stays is no reduction: 0. One that is not finite is passed over.
* A task needs its part of what is left of the job, and is due when the job is, less what comes after it.
* A time to a deadline, or left to run, is no shorter than one round; what is not known counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hocket.model.view import JobView
from hocket.policies.kit.task_shapes import GraphStructure

if TYPE_CHECKING:
    from hocket.policies.kit.task_shapes import Column

ALMOST = 1 - 1e-9  # a bound is computed in another order than what it bounds
LEAST_URGENT = 1  # of a job that states no urgency


class PriorityWeights(Struct, frozen=True):
    """The constants of the equations."""

    alpha: float  # (6): of the ML part
    gamma: float  # (3), (5): of a dependant
    deadline: float  # (4)
    remaining: float
    waiting: float
    unit_s: float
    floor_s: float  # of times that stand under a fraction bar
    longest_s: float  # from submission to deadline, where none is stated
    urgency: bool = True  # (2): whether it counts


class PriorityInputs(Struct, frozen=True, gc=False):
    """What equations 2 and 4 need of one job; constant while nothing happens to it."""

    ml: float  # L · 1/I · δl/Σδl
    due_s: float
    left_s: float  # to run; infinite when unknown
    waits_from_s: float  # it has waited for `now_s` less this


def priority_inputs(view: JobView, now_s: float, weights: PriorityWeights, metric: str | None) -> PriorityInputs:
    """Of one job, now; without a metric, as if all of its loss reduction came with the last iteration."""
    job = view.job
    left_s = view.remaining_s(now_s)
    if job.deadline_s is not None:
        due_s = view.submitted_s + job.deadline_s
    else:  # As the paper has it, the longest that a user could have asked for.
        due_s = view.submitted_s + max(weights.longest_s, 1.1 * view.beliefs.run_s.mean if view.beliefs.run_s else 0.0)
    urgency = (job.urgency or LEAST_URGENT) if weights.urgency else LEAST_URGENT
    ml = urgency / (view.epoch + 1) * (1.0 if metric is None else loss_ratio(view, metric))
    return PriorityInputs(ml, due_s, inf if left_s is None else left_s, now_s - view.waited_at(now_s))


def loss_ratio(view: JobView, metric: str) -> float:
    """Of all that the loss has gone down by, what the last iteration brought: from 0 to 1."""
    if len(view.observations) < 2:
        return 1.0
    losses: dict[int, float] = {}
    for seen in view.observations:
        if isfinite(value := seen.metrics.get(metric, inf)):
            losses[seen.epoch] = value  # Of several reports on one epoch the last counts.
    if len(losses) < 2:
        return 1.0
    values = list(losses.values())
    first = (view.memo or {}).get("first_loss", values[0])  # A view has the last reports only.
    last, total = values[-2] - values[-1], first - values[-1]
    return min(1.0, last / total) if last > 0 and total > 0 else 0.0


class Features(Struct, frozen=True, eq=False):
    """The columns of many jobs, as far as they do not depend on a task; [job, 1] so that they meet [task]."""

    ml: Column  # weighted, as all of them
    to_deadline_s: Column
    to_run_s: Column  # 0 when unknown
    remaining: Column  # its weight; 0 when the time to run is unknown
    waiting: Column


def features(
    ml: Column, due_s: Column, left_s: Column, waited_s: Column, now_s: float, weights: PriorityWeights
) -> Features:
    """The columns of these jobs."""
    import numpy as np

    known, other, unit_s = np.isfinite(left_s)[:, None], 1 - weights.alpha, weights.unit_s
    return Features(
        weights.alpha * ml[:, None],
        (due_s - now_s)[:, None],
        np.where(known, left_s[:, None], 0.0),
        np.where(known, other * weights.remaining * unit_s, 0.0),
        other * weights.waiting / unit_s * waited_s[:, None],
    )


def priorities(
    structure: GraphStructure, inputs: PriorityInputs, waited_s: Sequence[float], now_s: float, weights: PriorityWeights
) -> Column:
    """[task] of one job: equation 6. Of few numbers each is faster by itself than in a column."""
    import numpy as np

    tasks = zip(structure.after.tolist(), structure.cost.tolist(), waited_s, strict=True)
    own = _own_computation(inputs, tasks, now_s, weights)
    found: Column = (np.array([own]) @ structure.reach)[0]
    found += weights.alpha * inputs.ml * structure.learning
    return found


def _own_computation(
    inputs: PriorityInputs, tasks: Iterable[tuple[float, float, float]], now_s: float, weights: PriorityWeights
) -> list[float]:
    """Equation 4 for tasks of one job, by what comes after each, what it costs, and how long it has waited."""
    floor_s, other, unit_s = weights.floor_s, 1 - weights.alpha, weights.unit_s
    deadline, waiting = other * weights.deadline * unit_s, other * weights.waiting / unit_s
    is_known, to_deadline_s = isfinite(inputs.left_s), inputs.due_s - now_s
    to_run_s, remaining = (inputs.left_s, other * weights.remaining * unit_s) if is_known else (0.0, 0.0)
    return [
        deadline / max(to_deadline_s - to_run_s * after, floor_s)
        + remaining / max(to_run_s * cost, floor_s)
        + waiting * waited_s
        for after, cost, waited_s in tasks
    ]


def upper_bounds(structures: Sequence[GraphStructure], which: Any, of: Features, weights: PriorityWeights) -> Column:
    """[job]: none of its `priorities` is higher; `which` is the number of its structure among these."""
    import numpy as np

    floor_s, deadline = weights.floor_s, (1 - weights.alpha) * weights.deadline * weights.unit_s
    after, cost, reach, learning = np.array([s.extremes for s in structures]).T[:, which]
    to_run_s = of.to_run_s[:, 0]
    own = deadline / np.maximum(of.to_deadline_s[:, 0] - to_run_s * after, floor_s)
    own += of.remaining[:, 0] / np.maximum(to_run_s * cost, floor_s)
    own += of.waiting[:, 0]
    found: Column = own * reach + of.ml[:, 0] * learning
    return found


def least_wait_s(
    structures: Sequence[GraphStructure], most_ml: float, priority: float, weights: PriorityWeights
) -> Column:
    """[structure]: a job that has waited for less does not reach this priority, if its ML part is no more than that.

    It needs one column only, which sorts out most of a long queue.
    """
    import numpy as np

    other = 1 - weights.alpha
    _after, _cost, reach, learning = np.array([s.extremes for s in structures]).T
    others = other * (weights.deadline + weights.remaining) * weights.unit_s / weights.floor_s  # (4), at the most
    missing = (priority - weights.alpha * most_ml * learning) / reach - others
    waiting = other * weights.waiting / weights.unit_s
    least: Column = missing / waiting if waiting else np.where(missing > 0, np.inf, -np.inf)
    return least * ALMOST


def upper_bound(
    structure: GraphStructure, inputs: PriorityInputs, waited_s: float, now_s: float, weights: PriorityWeights
) -> float:
    """No task of this job has a higher priority, if none has waited longer than this."""
    after, cost, reach, learning = structure.extremes
    (own,) = _own_computation(inputs, [(after, cost, waited_s)], now_s, weights)
    return own * reach + weights.alpha * inputs.ml * learning


def highest_priorities(blocks: Sequence[tuple[GraphStructure, int]], of: Features, weights: PriorityWeights) -> Column:
    """[job]: the highest of its `priorities`, for jobs in blocks of one structure and so many each.

    All tasks of all jobs stand in one column, so that there are few operations however many structures there are.
    """
    import numpy as np

    floor_s, deadline = weights.floor_s, (1 - weights.alpha) * weights.deadline * weights.unit_s
    if not blocks:
        return np.empty(0)
    tasks = np.repeat([s.tasks for s, _n in blocks], [n for _s, n in blocks])  # of each job
    ends = np.cumsum(tasks)
    own, other, found = np.empty((3, int(ends[-1])))
    views, row, at = [], 0, 0
    for structure, n in blocks:
        rows, cells, shape = slice(row, row + n), slice(at, at + n * structure.tasks), (n, structure.tasks)
        views.append((structure, rows, own[cells].reshape(shape), other[cells].reshape(shape), cells))
        row, at = rows.stop, cells.stop
    for structure, rows, own_block, other_block, _cells in views:
        np.multiply(of.to_run_s[rows], structure.after, out=own_block)
        np.multiply(of.to_run_s[rows], structure.cost, out=other_block)
    np.subtract(np.repeat(of.to_deadline_s[:, 0], tasks), own, out=own)
    np.divide(deadline, np.maximum(own, floor_s, out=own), out=own)
    np.divide(np.repeat(of.remaining[:, 0], tasks), np.maximum(other, floor_s, out=other), out=other)
    own += other
    own += np.repeat(of.waiting[:, 0], tasks)
    for structure, rows, own_block, other_block, cells in views:
        np.matmul(own_block, structure.reach, out=found[cells].reshape(own_block.shape))
        np.multiply(of.ml[rows], structure.learning, out=other_block)
    found += other
    most: Column = np.maximum.reduceat(found, ends - tasks)
    return most
