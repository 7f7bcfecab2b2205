"""How far jobs are on the way to their criteria, and how likely they get there, from their beliefs.

A unit is an epoch of training, or all the data of a query.
"""

from __future__ import annotations

from math import inf, log

from hocket.model.criterion import Convergence, Duration, Epochs, Goal, RunTime, Steps, limit_of
from hocket.model.curve import NEVER, QUERY_TIME_EXPONENT
from hocket.model.job import Kind
from hocket.model.view import JobView


def units_done(view: JobView) -> float:
    """Epochs that it has done, or the share of its data that a query has read, as it reported last."""
    if view.job.kind is not Kind.QUERY:
        return float(view.epoch)
    error, times = view.beliefs.error, view.beliefs.times
    return max(error.points[-1].x if error is not None else 0.0, times.points[-1].x if times is not None else 0.0)


def effort_exponent(view: JobView) -> float:
    """The time of all its units that a job has needed for a share f of them is f to the power of this.

    Epochs take the same time each; the first rows of a query take longer than the last.
    """
    if view.job.kind is not Kind.QUERY:
        return 1.0
    beliefs = view.beliefs
    last = beliefs.times.points[-1] if beliefs.times is not None else None
    if last is None or beliefs.unit_s is None or not 0 < last.x < 1 or not 0 < last.mean < beliefs.unit_s.mean:
        return QUERY_TIME_EXPONENT
    return min(2.0, max(0.1, log(last.mean / beliefs.unit_s.mean) / log(last.x)))


def units_allowed(view: JobView, now_s: float, size: int = 0) -> float:
    """The units by which its criterion must hold; of a deadline in time, those that it can do until then at a size."""
    criterion = view.job.criterion
    limit = limit_of(criterion) if criterion is not None else None
    if isinstance(limit, Epochs):
        return float(limit.count)
    most = 1.0 if view.job.kind is Kind.QUERY else inf
    unit_s = view.beliefs.unit_s
    if not isinstance(limit, Duration) or isinstance(criterion, RunTime) or unit_s is None or unit_s.mean <= 0:
        return most
    left_s = max(0.0, view.submitted_s + limit.time_s - now_s)
    speed = view.beliefs.speed_at(size or view.job.sizes[0])
    exponent = effort_exponent(view)
    time_share: float = units_done(view) ** exponent + left_s * speed / unit_s.mean
    return min(most, float(time_share ** (1.0 / exponent)))


def progress(view: JobView, now_s: float) -> float | None:
    """Algorithm 6 of Rotary, from 0 to 1: units done over those needed, or over those allowed if these are fewer.

    As printed, it divides by those allowed if more are needed than are *done*, which is always so; we read "than are
    allowed". None if nothing is known yet: of a job with a criterion, that it has neither reported nor is like a past
    job; of one without, its run time.
    """
    criterion = view.job.criterion
    if type(criterion) is RunTime:  # This is asked of all jobs in each decision: no patterns, which are slow.
        limit = criterion.limit
        if type(limit) is Duration:
            return min(1.0, view.ran_at(now_s) / limit.time_s)
        return min(1.0, (view.step if type(limit) is Steps else view.epoch) / limit.count)  # type: ignore[union-attr]
    if criterion is None:
        run_s = view.beliefs.run_s
        return None if run_s is None or run_s.mean <= 0 else min(1.0, view.done_at(now_s) / run_s.mean)
    needed = view.beliefs.needs_units
    if needed is None:
        return None
    done = units_done(view)
    if not done:
        return 0.0
    of = min(needed, units_allowed(view, now_s))
    return min(1.0, done / of) if 0 < of < NEVER else 0.0


def chance(view: JobView, now_s: float, size: int = 0) -> float | None:
    """How likely its criterion holds in time, if it runs from now on at this size; None if that is not known."""
    criterion = view.job.criterion
    if isinstance(criterion, RunTime):
        return 1.0
    completes = view.beliefs.completes
    if completes is None or criterion is None:
        return None
    return chance_by(view, units_allowed(view, now_s, size))


def chance_by(view: JobView, units: float) -> float:
    """How likely its criterion holds by so many units."""
    completes = view.beliefs.completes
    if completes is None or units < completes.points[0].x:
        return 0.0
    points = completes.points
    return points[-1].mean if units >= points[-1].x else completes.at(units).mean


def likely_units(view: JobView, share: float = 0.5) -> float | None:
    """Units by which its criterion holds with this share of the chance that it has at all; None if it has none."""
    completes = view.beliefs.completes
    if completes is None:
        return None
    most = completes.points[-1].mean
    return completes.first_at_least(share * most) if most > 0 else None


def goal_in_words(view: JobView) -> str:
    """What it shall reach: `acc 95%`."""
    criterion = view.job.criterion
    match criterion:
        case Goal():
            value = f"{100 * criterion.target:g}%" if criterion.percent else f"{criterion.target:g}"
            return f"{criterion.metric} {value}"
        case Convergence():
            return f"changes of {criterion.metric} below {criterion.change:g}"
        case RunTime():
            return str(criterion.limit)
        case _:
            return "its end"


def estimate_in_words(view: JobView, now_s: float) -> str:
    """What is estimated of it: `83% sure of acc 95% in 2 epochs`, or that nothing is."""
    criterion = view.job.criterion
    sure, at = chance(view, now_s), likely_units(view)
    if criterion is None:
        left_s = view.remaining_s(now_s)
        return "its end is not known" if left_s is None else f"about {left_s / 60:.0f} min left"
    if isinstance(criterion, RunTime):
        return f"{progress(view, now_s) or 0.0:.0%} of {goal_in_words(view)}"
    if sure is None:
        return f"nothing is known yet of when it reaches {goal_in_words(view)}"
    if at is None:
        return f"unlikely to reach {goal_in_words(view)}"
    if too_late := _before_first_epoch(view, now_s):
        return too_late
    if view.job.kind is Kind.QUERY:
        return f"{sure:.0%} sure of {goal_in_words(view)} in time, by {min(1.0, at):.0%} of its data"
    return f"{sure:.0%} sure of {goal_in_words(view)} in time, in {_epochs(at - units_done(view))}"


def _before_first_epoch(view: JobView, now_s: float) -> str:
    """That no epoch can end before its deadline, in words; empty if one can, or that is not known."""
    criterion, unit_s = view.job.criterion, view.beliefs.unit_s
    limit = limit_of(criterion) if criterion is not None else None
    if not isinstance(limit, Duration) or unit_s is None or view.job.kind is Kind.QUERY:
        return ""
    left_s = max(0.0, view.submitted_s + limit.time_s - now_s)
    epoch_s = unit_s.mean / (view.beliefs.speed_at(view.job.sizes[-1]) or 1.0)
    if left_s >= epoch_s:
        return ""
    return f"its deadline is in {left_s:.0f} s, and an epoch takes about {epoch_s:.0f} s"


def need_in_words(view: JobView, now_s: float) -> str:
    """The same in few words, for a job that another is compared with: `needs 11 epochs, 40% sure`."""
    sure, at = chance(view, now_s), likely_units(view)
    if view.job.criterion is None or isinstance(view.job.criterion, RunTime):
        return f"has {estimate_in_words(view, now_s)}" if view.job.criterion is not None else "has no criterion"
    if sure is None:
        return "has shown nothing yet"
    if at is None:
        return f"is unlikely to reach {goal_in_words(view)}"
    if view.job.kind is Kind.QUERY:
        return f"needs {min(1.0, at):.0%} of its data, {sure:.0%} sure"
    return f"needs {_epochs(at - units_done(view))}, {sure:.0%} sure"


def _epochs(count: float) -> str:
    whole = max(1, round(count))
    return f"{whole} epoch{'' if whole == 1 else 's'}"
