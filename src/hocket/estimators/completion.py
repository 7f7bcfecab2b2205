"""When jobs will have met their criteria: Rotary's estimators, put together as the beliefs about one job.

A job's beliefs begin with what similar past jobs have shown and follow its reports. When it has ended, what it has
shown becomes a past job. Only the state of a policy that asks for it keeps all this (`reads_past_jobs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import asin, exp, inf, isfinite, pi, sqrt

from msgspec.structs import replace

from hocket.estimators import (
    query_error,
    query_memory,
    query_progress,
    speed,
    training_epochs,
    training_memory,
    unit_time,
)
from hocket.estimators.quality import noted, spread_out
from hocket.model.criterion import Convergence, Criterion, Epochs, Goal, RunTime, limit_of
from hocket.model.curve import NEVER, Beliefs, Curve, Estimate, Point
from hocket.model.job import Job, Kind
from hocket.model.past_job import MAX_PAST_JOBS, MAX_POINTS, PastJob, PastJobs, most_similar
from hocket.model.view import JobView

FRACTION = "fraction"  # the metric by which a query says what share of its data it has read
HELD = "held_mib"  # the trait of a query that says what its plan holds in memory (`query_memory.held_mib`)
_MOST_POINTS = 24  # of a job's own curve that an estimate uses
_MOST_ANSWERS = 16  # of a query that are kept
_PREDICTED_AT = (0, 1, 3, 8)  # epochs after which it is noted how an estimate of an ended job would have held
_PREDICTED_GOALS = (0.6, 0.95, 1.1)  # of the way that its metric went; beyond 1 is what it never reached
_MOST_KEPT = 2048  # jobs for which the similar past jobs are kept
_CORRECTED = 20  # a correction is kept at so many probabilities, and 1


def at_submission(job: Job, past: PastJobs, beliefs: Beliefs) -> Beliefs:
    """Beliefs about a job that has not run, by similar past jobs; what was told with it stays."""
    similar = _similar(job, past.jobs, training_epochs.MOST_ALIKE)
    if beliefs.speed is None and job.is_elastic:
        beliefs = replace(beliefs, speed=_assumed_speed(job.sizes, beliefs.reference_size))
    unit_s = beliefs.unit_s or _at_reference(unit_time.from_past(similar), job, beliefs)
    memory = _query_memory(job, similar) if job.kind is Kind.QUERY else training_memory.memory_mib(job, past.jobs)
    if memory is not None and beliefs.memory_mib is None:
        batch = job.traits.get(training_memory.BATCH, 0.0)
        at = float(batch) if isinstance(batch, float | int) else 0.0
        beliefs = replace(beliefs, memory_mib=Curve((Point(at, memory.mean, memory.sd),)))
    return _with_predictions(job, past, replace(beliefs, unit_s=unit_s), 0.0)


@lru_cache(maxsize=256)
def _assumed_speed(sizes: tuple[int, ...], reference_size: int) -> Curve:
    return speed.curve({}, sizes, reference_size, speed.ASSUMED_LOSS)


def _at_reference(unit_s: Estimate | None, job: Job, beliefs: Beliefs) -> Estimate | None:
    """What a past job took at its smallest size, at the reference size of these beliefs."""
    if unit_s is None:
        return None
    factor = beliefs.speed_at(job.sizes[0])
    return unit_s if factor == 1.0 else Estimate(unit_s.mean * factor, unit_s.sd * factor)


def after_report(
    view: JobView, past: PastJobs, beliefs: Beliefs, epoch: int, metrics: Mapping[str, float], done_s: float
) -> Beliefs:
    """Beliefs after a report; `done_s` is the work done by then.

    Values that are not finite and epochs that go backwards change nothing.
    """
    found = observed(view, beliefs, epoch, metrics, done_s)
    if found is None:
        return beliefs
    units = metrics[FRACTION] if view.job.kind is Kind.QUERY else float(epoch)
    return _with_predictions(view.job, past, found, units)


def observed(
    view: JobView, beliefs: Beliefs, epoch: int, metrics: Mapping[str, float], done_s: float
) -> Beliefs | None:
    """What a report says of the job itself, without any prediction; None if it says nothing new."""
    job = view.job
    if job.kind is Kind.QUERY:
        units = metrics.get(FRACTION, 0.0)
        if not 0 < units <= 1:
            return None
        beliefs = _with_answer(beliefs, job.criterion, units, metrics)
    else:
        units = float(epoch)
        if epoch <= view.epoch:
            return None  # It was reported before, or the job began again.
        if isinstance(job.criterion, Convergence) and (value := metrics.get(job.criterion.metric)) is not None:
            beliefs = noted(beliefs, epoch, value)  # The metric of a goal is noted by `quality.refitted`.
    times = unit_time.noted(beliefs.times, units, done_s)
    if job.kind is Kind.QUERY:
        return replace(beliefs, times=times, unit_s=unit_time.whole_s(times) or beliefs.unit_s)
    return replace(beliefs, times=times, unit_s=unit_time.unit_s(times) or beliefs.unit_s)


def with_ended(past: PastJobs, view: JobView, peak_mib: float = 0.0, peak_gpu_mib: float = 0.0) -> PastJobs:
    """Past jobs with one more that has ended; the oldest are forgotten. The peaks are as for `shown_by`."""
    shown = shown_by(view, "", peak_mib, peak_gpu_mib)
    return past if shown is None else with_past(past, (shown,))


def with_past(past: PastJobs, more: Sequence[PastJob]) -> PastJobs:
    """Past jobs with these too, each with how the estimates from those before it would have held for it."""
    jobs = list(past.jobs)
    for job in more:
        jobs.append(job if job.foretold else replace(job, foretold=_would_have_held(job, tuple(jobs))))
    kept = tuple(jobs[-MAX_PAST_JOBS:])
    return PastJobs(kept, correction(kept))


_similar_jobs: dict[tuple[int, int], tuple[Job, tuple[PastJob, ...], list[tuple[float, PastJob]]]] = {}


def _similar(job: Job, past: tuple[PastJob, ...], most: int) -> list[tuple[float, PastJob]]:
    """`most_similar`, kept for the next report: comparing a job with 512 others takes longer than all estimates."""
    key = id(job), most
    had = _similar_jobs.get(key)
    if had is not None and had[0] is job and had[1] is past:
        return had[2]
    if len(_similar_jobs) >= _MOST_KEPT:
        _similar_jobs.clear()
    found = most_similar(job, past, most)
    _similar_jobs[key] = job, past, found
    return found


# -- predictions --------------------------------------------------------------------------------------------------


def _with_predictions(job: Job, past: PastJobs, beliefs: Beliefs, units: float) -> Beliefs:
    """Beliefs with the probability that the criterion holds by each unit of work, and Rotary's own estimates."""
    criterion = job.criterion
    match criterion:
        case RunTime(limit=Epochs(count=count)):
            return replace(beliefs, needs_units=float(count))
        case Goal() if job.kind is Kind.QUERY:
            return _with_query_predictions(job, criterion, past, beliefs, units)
        case Goal() | Convergence() if job.kind is not Kind.QUERY:
            return _with_training_predictions(job, criterion, past, beliefs)
        case _:
            return beliefs


def _with_training_predictions(job: Job, criterion: Goal | Convergence, past: PastJobs, beliefs: Beliefs) -> Beliefs:
    seen = [p for p in (beliefs.quality.points if beliefs.quality is not None else ()) if p.seen]
    points = tuple((p.x, p.mean) for p in spread_out(seen, _MOST_POINTS))
    similar = _similar(job, past.jobs, 4 * training_epochs.MOST_ALIKE)
    curves = tuple((alike, p.points) for alike, p in similar if p.metric == criterion.metric and len(p.points) > 1)
    curves = curves[: training_epochs.MOST_ALIKE]
    limit = limit_of(criterion)
    last = limit.count if isinstance(limit, Epochs) else int(points[-1][0] if points else 0) + training_epochs.HORIZON
    printed = training_epochs.as_printed(points, curves, criterion)
    completes = training_epochs.chances(points, curves, criterion, last)
    if completes is not None:
        completes = corrected(completes, past.correction)
    needs = beliefs.needs_units if printed is None else min(printed, NEVER)
    return replace(beliefs, needs_units=needs, completes=completes or beliefs.completes)


def _with_query_predictions(job: Job, goal: Goal, past: PastJobs, beliefs: Beliefs, units: float) -> Beliefs:
    error = max(0.0, 1.0 - goal.target)
    similar = _similar(job, past.jobs, training_epochs.MOST_ALIKE)
    constants = [(alike, c) for alike, p in similar if (c := _log_c(p)) is not None]
    answers = [(p.x, p.mean) for p in (beliefs.error.points if beliefs.error is not None else ())]
    log_c = query_error.constant(answers, query_error.from_past(constants))
    ends = query_error.batch_ends(units, [(alike, [x for x, _v in p.points]) for alike, p in similar])
    completes = query_error.chances(log_c, error, units, ends)
    share = query_error.share_for(exp(log_c.mean), error)
    if beliefs.times is not None:
        past_s = _at_reference(unit_time.from_past(similar), job, beliefs)
        beliefs = replace(beliefs, unit_s=unit_time.whole_s(beliefs.times, past_s))
    return replace(
        beliefs, completes=completes, needs_units=max(share, units), progress=_progress(job, beliefs, similar, units)
    )


def _progress(job: Job, beliefs: Beliefs, similar: Sequence[tuple[float, PastJob]], units: float) -> Curve | None:
    """Rotary-AQP's line of accuracy over run time."""
    unit_s = beliefs.unit_s
    if unit_s is None:
        return None
    times = beliefs.times.points if beliefs.times is not None else ()
    error_at = {p.x: p.mean for p in (beliefs.error.points if beliefs.error is not None else ())}
    own = [(t.mean, 1.0 - error_at[t.x]) for t in times if t.x in error_at]
    pace = beliefs.speed_at(job.sizes[0])  # Past times are those at the smallest size.
    old = [
        (alike, [(x * p.unit_s * pace, v) for x, v in p.points]) for alike, p in similar if p.unit_s > 0 and p.points
    ]
    return query_progress.progress(own, old, max(unit_s.mean, units * unit_s.mean, 1e-6))


def _log_c(past: PastJob) -> float | None:
    known = query_error.constant([(x, 1.0 - v) for x, v in past.points], Estimate(0.0, inf))
    return known.mean if isfinite(known.sd) else None


def _with_answer(beliefs: Beliefs, criterion: Criterion | None, units: float, metrics: Mapping[str, float]) -> Beliefs:
    """Beliefs with the error of one more answer: of the metric of its goal, else the half width of its intervals."""
    goal = criterion if isinstance(criterion, Goal) else None
    accuracy = metrics.get(goal.metric) if goal is not None else None
    error = 1.0 - accuracy if accuracy is not None else metrics.get("half_width")
    points = beliefs.error.points if beliefs.error is not None else ()
    if error is None or not isfinite(error) or (points and units <= points[-1].x):
        return beliefs
    kept = (*points, Point(units, min(1.0, max(0.0, error)), 0.0, 1))
    return replace(beliefs, error=Curve(kept[-_MOST_ANSWERS:]))


def _query_memory(job: Job, similar: Sequence[tuple[float, PastJob]]) -> Estimate | None:
    """The memory of a query, by its plan, or as much as the most similar past query used."""
    held = job.traits.get(HELD)
    if isinstance(held, float | int) and 0 <= held < inf:
        return query_memory.USUAL.of(float(held))
    used = [(alike, p.mem_mib) for alike, p in similar if p.mem_mib]
    if not used:
        return None
    alike, mem_mib = max(used)
    return Estimate(mem_mib, mem_mib * (1.0 - alike))


# -- what an ended job has shown ----------------------------------------------------------------------------------


def shown_by(view: JobView, metric: str = "", peak_mib: float = 0.0, peak_gpu_mib: float = 0.0) -> PastJob | None:
    """None of a job that has shown nothing; `metric` is that of its curve, if its criterion is about none.

    `peak_mib` is the memory of its node that it took, `peak_gpu_mib` that on one of its GPUs: what counts of a job with
    GPUs is theirs.
    """
    job, beliefs = view.job, view.beliefs
    criterion = job.criterion
    metric = criterion.metric if isinstance(criterion, Goal | Convergence) else metric
    if job.kind is Kind.QUERY:
        answers = beliefs.error.points if beliefs.error is not None else ()
        points = tuple((p.x, 1.0 - p.mean) for p in answers) if metric else ()
    else:
        seen = [p for p in (beliefs.quality.points if beliefs.quality is not None else ()) if p.seen and p.x > 0]
        points = tuple((p.x, p.mean) for p in spread_out(seen, MAX_POINTS))
    used = view.use.mem_mib if view.use is not None else peak_gpu_mib if job.demand.gpus else peak_mib
    unit_s = unit_time.whole_s(beliefs.times) if job.kind is Kind.QUERY else unit_time.unit_s(beliefs.times)
    if not points and unit_s is None and not used:
        return None
    took_s = unit_s.mean / (beliefs.speed_at(job.sizes[0]) or 1.0) if unit_s is not None else 0.0
    traits = {name: value for name, value in job.traits.items() if isinstance(value, str) or isfinite(value)}
    return PastJob(job.kind, job.model, traits, metric if points else "", points, took_s, used)


def _would_have_held(job: PastJob, before: tuple[PastJob, ...]) -> tuple[tuple[float, float], ...]:
    """Between which probabilities the truth about this job lay, if predicted from jobs of other models.

    For goals on its way: each says how likely it was taken to be that the goal is reached one epoch sooner, and then.
    """
    points = job.points
    if job.kind is Kind.QUERY or len(points) < 4:
        return ()
    others = tuple(p for p in before if not job.model or p.model != job.model)
    like = Job("past", kind=job.kind, model=job.model, traits=job.traits)
    similar = most_similar(like, others, 4 * training_epochs.MOST_ALIKE)
    curves = tuple((alike, p.points) for alike, p in similar if p.metric == job.metric and len(p.points) > 1)
    curves = curves[: training_epochs.MOST_ALIKE]
    rises = points[-1][1] > points[0][1]
    best = max(v for _k, v in points) if rises else min(v for _k, v in points)
    last = int(points[-1][0])
    found = []
    for share in _PREDICTED_GOALS:
        target = points[0][1] + share * (best - points[0][1])
        goal = Goal(job.metric, ">=" if rises else "<=", target)
        met = next((k for k, v in points if goal.met_by(v)), None)
        for seen in _PREDICTED_AT:
            known = tuple(p for p in points if p[0] <= seen)
            if met is not None and met <= seen:
                continue
            chances = training_epochs.chances(known, curves, goal, last)
            if chances is not None:
                found.append(between(chances, met))
    return tuple(found)


def between(chances: Curve, met: float | None) -> tuple[float, float]:
    """The probabilities that it was met an epoch sooner, and by then; of one that was not met, the last and 1."""
    if met is None:
        return chances.points[-1].mean, 1.0
    return _by(chances, met - 1.0), max(_by(chances, met), _by(chances, met - 1.0))


def _by(chances: Curve, units: float) -> float:
    points = chances.points
    if units < points[0].x:
        return 0.0
    return points[-1].mean if units >= points[-1].x else chances.at(units).mean


def correction(past: Sequence[PastJob]) -> tuple[float, ...]:
    """How often probabilities came true, at 0, 5, … 100 %: each model counts alike.

    One more is added for the next model, which is assumed to be predicted with too much confidence (the arcsine
    distribution): the fewer models are known, the more that counts. Empty if there was no prediction for any past job.
    """
    by_model: dict[str, list[tuple[float, float]]] = {}
    for n, job in enumerate(past):
        if job.foretold:
            by_model.setdefault(job.model or f"#{n}", []).extend(job.foretold)
    if not by_model:
        return ()
    found = []
    for i in range(_CORRECTED + 1):
        level = i / _CORRECTED
        came_true = sum(sum(_below(level, *each) for each in seen) / len(seen) for seen in by_model.values())
        unknown = asin(sqrt(level)) / (pi / 2.0)
        found.append(round((came_true + unknown) / (len(by_model) + 1), 6))
    return (0.0, *found[1:-1], 1.0)


def _below(level: float, low: float, high: float) -> float:
    """The share of what lies between two probabilities that is below a level."""
    return float(low <= level) if high <= low else min(1.0, max(0.0, (level - low) / (high - low)))


def corrected(chances: Curve, by: tuple[float, ...]) -> Curve:
    """The probabilities as often as such ones came true."""
    if not by:
        return chances
    steps = len(by) - 1
    points = []
    for point in chances.points:
        at = min(point.mean, 1.0) * steps
        i = min(int(at), steps - 1)
        points.append(replace(point, mean=round(by[i] + (at - i) * (by[i + 1] - by[i]), 6)))
    return Curve(tuple(points))
