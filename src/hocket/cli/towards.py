"""How far a job is towards its criterion: a share from 0 to 1, where one can be told."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hocket.cli.job_rows import Row
    from hocket.model.criterion import Limit


def share_done(row: Row) -> float | None:
    """Of the way to the goal by the metric, or of the epochs or the time it runs for; None if nobody can tell."""
    from hocket.model.criterion import CriterionError, Goal, RunTime, parse

    if not row.until:
        return None
    try:
        criterion = parse(row.until)
    except CriterionError:  # of a controller that knows more than we do
        return None
    if isinstance(criterion, RunTime):
        return _of_limit(criterion.limit, row)
    if isinstance(criterion, Goal):
        value = row.metrics.get(criterion.metric)
        if isinstance(value, int | float) and isfinite(value):
            if criterion.met_by(value):
                return 1.0
            best, worst = (value, criterion.target) if criterion.relation == ">=" else (criterion.target, value)
            return max(0.0, min(1.0, best / worst)) if best > 0 and worst > 0 else None
    # Epochs count towards the end of the attempt at least; hours that passed since it was submitted do not.
    return _of_limit(criterion.deadline, row, only_epochs=True)


def metric_shown(row: Row) -> str:
    """The value that matters: that of the criterion's metric, or the first two that it reports."""
    named = row.until.split()[0] if row.until else ""
    names = [named] if named in row.metrics else sorted(row.metrics)[:2]
    values = ((name, row.metrics[name]) for name in names)
    return " ".join(f"{name}={value:.4g}" for name, value in values if isinstance(value, int | float))


def _of_limit(limit: Limit | None, row: Row, only_epochs: bool = False) -> float | None:
    from hocket.model.criterion import Duration, Epochs

    if isinstance(limit, Epochs):
        return max(0.0, min(1.0, row.epoch / limit.count))
    if isinstance(limit, Duration) and not only_epochs:
        return max(0.0, min(1.0, row.ran_s / limit.time_s))
    return None
