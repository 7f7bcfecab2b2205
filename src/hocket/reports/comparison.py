"""One run in a comparison: summary, completion times and time series, small enough to send between processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import inf

from msgspec import Struct
from msgspec.structs import asdict

from hocket.model.resources import RESOURCES, Vector, total
from hocket.reports.account import Account, Span
from hocket.reports.fairness import vector_of
from hocket.reports.summary import Summary, quantile

INTERVALS = 300


class TimeSeries(Struct, frozen=True):
    """Means over equal intervals of the makespan."""

    interval_s: float  # the first begins with the first submission
    utilisation: dict[str, tuple[float, ...]]  # of each resource that the cluster has: held / there
    waiting: tuple[float, ...]  # jobs without resources
    running: tuple[float, ...]  # jobs with resources


def time_series(account: Account, intervals: int = INTERVALS) -> TimeSeries:
    """Utilisation and queue over time."""
    began_s, interval_s = account.began_s, account.makespan_s / intervals
    if interval_s <= 0:
        return TimeSeries(0.0, {}, (), ())
    live, running = _Means(began_s, interval_s, intervals), _Means(began_s, interval_s, intervals)
    for record in account.jobs:
        live.add(record.submitted_s, account.until_s if record.ended_s is None else record.ended_s)
    held = [_Means(began_s, interval_s, intervals) for _ in RESOURCES]
    there = [_Means(began_s, interval_s, intervals) for _ in RESOURCES]
    for since_s, until_s, capacity in _capacities(account):
        for means, amount in zip(there, capacity, strict=True):
            if amount:
                means.add(since_s, until_s, amount)
    for span in account.spans:
        for means, amount in zip(held, vector_of(span), strict=True):
            if amount:
                means.add(span.since_s, span.until_s, amount)
    for since_s, until_s in _busy(account.spans):
        running.add(since_s, until_s)
    runs = running.values()
    return TimeSeries(
        interval_s,
        {
            name: tuple(h / t if t else 0.0 for h, t in zip(h.values(), t.values(), strict=True))
            for name, h, t in zip(RESOURCES, held, there, strict=True)
            if any(t.values())
        },
        tuple(max(0.0, n - r) for n, r in zip(live.values(), runs, strict=True)),
        tuple(runs),
    )


def jct_curve(account: Account, points: int = 200) -> tuple[tuple[float, float], ...]:
    """The distribution of job completion times: (seconds, share of the jobs that took at most as long)."""
    jcts_s = sorted(r.jct_s for r in account.jobs if r.jct_s is not None)
    # Dense at the ends: readers look for the last percent.
    shares = [i / points for i in range(points + 1)] + [0.99 + i / 2000 for i in range(1, 20)]
    return tuple((quantile(jcts_s, share) or 0.0, share) for share in sorted(shares)) if jcts_s else ()


class _Means:
    """Adds up heights over intervals, each in constant time."""

    def __init__(self, began_s: float, interval_s: float, intervals: int) -> None:
        self.began_s = began_s
        self.interval_s = interval_s
        self._parts = [0.0] * intervals  # height × share of the interval, where it covers a part
        self._steps = [0.0] * (intervals + 1)  # changes of height, where it covers whole intervals

    def add(self, since_s: float, until_s: float, height: float = 1.0) -> None:
        """Add a height that lasts from one moment to another."""
        most = len(self._parts)
        begin = min(max((since_s - self.began_s) / self.interval_s, 0.0), most)
        end = min(max((until_s - self.began_s) / self.interval_s, 0.0), most)
        if begin >= end:
            return
        first, last = min(int(begin), most - 1), min(int(end), most - 1)
        if first == last:
            self._parts[first] += height * (end - begin)
            return
        self._parts[first] += height * (first + 1 - begin)
        self._parts[last] += height * (end - last)
        self._steps[first + 1] += height
        self._steps[last] -= height

    def values(self) -> list[float]:
        """The mean height of every interval."""
        height, means = 0.0, []
        for part, step in zip(self._parts, self._steps, strict=False):
            height += step
            means.append(part + height)
        return means


def _capacities(account: Account) -> Iterable[tuple[float, float, Vector]]:
    for (since_s, nodes), (until_s, _nodes) in pairwise([*account.capacity, (inf, ())]):
        yield max(since_s, account.began_s), min(until_s, account.until_s), total(node.vector for node in nodes)


def _busy(spans: Iterable[Span]) -> Iterable[tuple[float, float]]:
    """When jobs held resources. Overlapping tasks of one job count once."""
    of_tasks: dict[int, list[Span]] = {}
    for span in spans:
        if span.task:
            of_tasks.setdefault(span.job, []).append(span)
        else:
            yield span.since_s, span.until_s
    for several in of_tasks.values():
        several.sort(key=lambda s: s.since_s)
        since_s, until_s = several[0].since_s, several[0].until_s
        for span in several[1:]:
            if span.since_s > until_s:
                yield since_s, until_s
                since_s = span.since_s
            until_s = max(until_s, span.until_s)
        yield since_s, until_s


class ComparedRun(Struct, frozen=True):
    """A run in a comparison."""

    label: str  # the policy, with its parameters where they were given
    summary: Summary
    jct_curve: tuple[tuple[float, float], ...]  # (seconds, share of jobs)
    series: TimeSeries
    stuck: tuple[str, ...] = ()  # why the first unfinished jobs do not continue
    refused: str = ""  # why the first refused job was refused


# What a run cost the process that made it differs between equal runs.
_NO_RESULTS = ("seed", "decision_ms_mean", "decision_ms_p99", "cpu_s", "peak_rss_mib")


def without_repetitions(runs: Sequence[ComparedRun]) -> list[ComparedRun]:
    """The runs, but only the first of a label whose seeds all gave the same results: nothing in it is random."""
    groups: dict[str, list[ComparedRun]] = {}
    for run in runs:
        groups.setdefault(run.label, []).append(run)
    return [run for same in groups.values() for run in (same[:1] if _are_equal(same) else same)]


def _are_equal(runs: Sequence[ComparedRun]) -> bool:
    first = _results(runs[0])
    return all(_results(run) == first for run in runs[1:])


def _results(run: ComparedRun) -> tuple[object, ...]:
    numbers = {name: value for name, value in asdict(run.summary).items() if name not in _NO_RESULTS}
    return numbers, run.jct_curve, run.series, run.stuck, run.refused


def compared_run(label: str, account: Account, summary: Summary, stuck: tuple[str, ...] = ()) -> ComparedRun:
    """A run for a comparison, from its account."""
    refused = next((reason or job_id for job_id, reason in account.refusals), "")
    return ComparedRun(label, summary, jct_curve(account), time_series(account), stuck, refused)
