"""GPUs to where a metric gains most, decided anew in rounds: what `slaq` and `hypersched` share.

A gain is predicted from a job's own reports, by the sublinear family of SLAQ: what is missing falls as c/k, k in
epochs, so that an epoch brings c/k(k-1). Each report says what c was, and counts twice as much as the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import inf, isfinite
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from hocket.model.metric_name import less_is_better
from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import RECENT_OBSERVATIONS, JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.rounds import is_due, next_round_s, round_at
from hocket.policies.registry import Params

Gain = Callable[[JobView, int], float]  # job, size → what it gains
_SLACK_S = 1e-3  # times that jobs ran are sums


class Trend(Struct, frozen=True, gc=False):
    """What a job's reports say about those to come."""

    epoch: int
    c: float  # what is missing is c / epoch
    largest: float  # the most that one epoch ever brought
    scale: float  # 1 of a metric that stays within 0 and 1, as accuracies do; else its range so far

    def gain(self, epochs: float) -> float:
        """What so many more epochs bring, in the metric's own unit."""
        return self.c * (1.0 / self.epoch - 1.0 / (self.epoch + epochs)) if epochs > 0 else 0.0


class _Ever(Struct, frozen=True, gc=False):
    """What of all reports of a metric must be kept, for a view has only the most recent. More is better here."""

    metric: str
    largest: float = 0.0  # the most that one epoch brought
    low: float = inf
    high: float = -inf


def _read(view: JobView, by_loss: bool) -> tuple[Trend, _Ever] | None:
    """Of the metric of its goal, or its loss, or whatever it reports first by name; None before two reports.

    By loss: of its loss, if it reports one, whatever its goal is.
    """
    goal, seen = view.job.goal, view.observations
    if not seen:
        return None
    names = sorted(seen[-1].metrics)
    if by_loss and "loss" in names:
        goal = None
    metric = goal.metric if goal is not None else "loss" if "loss" in names else next(iter(names), "")
    falls = goal.relation == "<=" if goal is not None else less_is_better(metric)
    counted = [(o.epoch if view.epoch else o.step, o) for o in seen if metric in o.metrics]
    values = {count: o.metrics[metric] for count, o in counted if count >= 1}
    points = [(k, -v if falls else v) for k, v in sorted(values.items())]
    past = _carried(view, metric) if len(seen) >= RECENT_OBSERVATIONS else None  # Else all reports are there.
    if len(points) < 2:
        return past
    last = points[-1]
    points = [(k, v) for k, v in points if isfinite(v)]
    ever = past[1] if past is not None else _Ever(metric)
    c, weight, largest = 0.0, 0.0, ever.largest
    for (before, was), (epoch, value) in pairwise(points):
        brought = max(0.0, value - was) / (epoch - before)  # What is lost is noise, or no gain.
        c, weight = c / 2.0 + brought * before * epoch, weight / 2.0 + 1.0
        largest = max(largest, brought)
    low, high = min([ever.low, *(v for _k, v in points)]), max([ever.high, *(v for _k, v in points)])
    ever = _Ever(metric, largest, low, high)
    if not isfinite(last[1]):
        return Trend(last[0], 0.0, 0.0, 0.0), ever  # It has diverged.
    is_share = -1.0 <= low <= high <= 0.0 if falls else 0.0 <= low <= high <= 1.0
    return Trend(last[0], c / weight if weight else 0.0, largest, 1.0 if is_share else high - low), ever


def _carried(view: JobView, metric: str) -> tuple[Trend, _Ever] | None:
    """What the job's last rank says about this metric; about any where the last report has none.

    A rank may be another policy's, which says nothing: it does not have the job's number in the middle of ten.
    """
    last = view.rank
    if len(last) != 10 or (last[0], last[5]) != (view.submitted_s, view.number) or metric not in ("", last[6]):
        return None
    return Trend(*last[1:5]), _Ever(*last[6:])


def rank(view: JobView, _now_s: float, _params: Params) -> tuple[Any, ...]:
    """By submission. It carries the trend, which is worked out when a job reports, not whenever all are compared.

    Behind the job's number, which decides every comparison, is what must not be forgotten of earlier reports.
    """
    return _rank(view, by_loss=False)


def rank_by_loss(view: JobView, _now_s: float, _params: Params) -> tuple[Any, ...]:
    """The same, with the trend of the job's loss if it reports one."""
    return _rank(view, by_loss=True)


def _rank(view: JobView, by_loss: bool) -> tuple[Any, ...]:
    found = _read(view, by_loss)
    if found is None:
        return (view.submitted_s,)
    return (view.submitted_s, *astuple(found[0]), view.number, *astuple(found[1]))


def trend_of(view: JobView) -> Trend | None:
    """The trend that its rank carries."""
    numbers = view.rank[1:5]
    return Trend(*numbers) if numbers else None


def epochs_in(view: JobView, time_s: float, size: int, now_s: float) -> float:
    """How many epochs the job does in a time at a size, as far as it has told; steps, if it names no epochs."""
    count = view.epoch or view.step
    work_s = view.done_at(now_s) / count if count else 0.0
    return time_s * view.beliefs.speed_at(size) * view.pace / work_s if work_s > 0 else 0.0


def gain_of_unknown(view: JobView, time_s: float, size: int, now_s: float, round_s: float) -> float:
    """The gain of a job that has not told anything: its first rounds bring most, as they do with most others.

    As a share of what is missing; it takes a round of running at its smallest size for an epoch.
    """
    done = 1.0 + view.ran_at(now_s) / round_s
    speed = view.beliefs.speed_at(size) / max(view.beliefs.speed_at(view.job.sizes[0]), 1e-9)
    return 1.0 / done - 1.0 / (done + time_s / round_s * speed)


def in_rounds(snapshot: Snapshot, round_s: float, gain: Gain) -> Plan:
    """In a round GPUs go to the jobs that gain most by them; in between waiting jobs get what is free.

    First every job gets its smallest size, the one that gains most by each GPU first; then, a size at a time, the one
    that gains most by more. A running job is left alone until it has had a round. The others make way for jobs that
    gain more.
    """
    draft = Draft(snapshot)
    now_s = snapshot.now_s
    this, (decided, asked_s) = round_at(now_s, round_s), _rounds(snapshot.memo)
    if is_due(now_s, round_s, asked_s) and this != decided:  # Once in a round, however often it is asked in it.
        _Round(draft, round_s, gain).share_out()
        decided = this
    for view in draft.with_displaced(draft.candidates(), lambda v: v.rank):
        if not draft.size_of(view):
            draft.start(view, "starts: there is room", view.job.sizes[0])
    jobs = snapshot.jobs
    elastic = any(len(jobs[j].job.sizes) > 1 for j in (*draft.reasons, *(entry[-1] for entry in snapshot.placed)))
    draft.memos = {j: {"ran_s": jobs[j].ran_at(now_s)} for j in draft.reasons}
    waits = snapshot.waiting.count + draft.paused > draft.started
    if waits:
        draft.reasons["*"] = "waits: those that run gain more by it, or it does not fit"
    at_s = next_round_s(now_s, round_s) if waits or elastic else None
    memo = {"round": decided, "asked_s": at_s}
    return draft.plan(Wake(freed_gpus=1 if waits else None, epoch=False, at_s=at_s), memo=memo)


def _rounds(memo: Any) -> tuple[int | None, float | None]:
    """The number of the round last decided, and the moment asked for then."""
    if isinstance(memo, dict) and {*memo} == {"round", "asked_s"}:
        return memo["round"], memo["asked_s"]
    return None, None  # Nothing yet, or another policy's.


class _Round:
    """All GPUs of jobs that may change, and those that are free, shared out among these jobs and those that wait."""

    def __init__(self, draft: Draft, round_s: float, gain: Gain) -> None:
        self.draft, self.round_s, self.gain = draft, round_s, gain
        self.snapshot = draft.snapshot
        jobs = self.snapshot.jobs
        self.running = [v for e in self.snapshot.placed if self._may_change(v := jobs[e[-1]])]
        self.free = draft.free_gpus + sum(draft.gpus_of(v) for v in self.running)
        self.sizes: dict[str, int] = {}  # that jobs shall have; those not named none
        self.worth: dict[str, float] = {}  # the gain by each GPU at the smallest size

    def _may_change(self, view: JobView) -> bool:
        """Has it had its round since it was last started or resized? Then it is worth the next switch."""
        if view.verdict or view.job.tasks is not None or not self.draft.gpus_of(view):
            return False
        since_s = view.memo["ran_s"] if isinstance(view.memo, dict) else 0.0
        needs_s = self.round_s + view.costs.restart_s(warm=False)
        return bool(view.size) and view.ran_at(self.snapshot.now_s) - since_s >= needs_s - _SLACK_S

    def share_out(self) -> None:
        """Shrink, start and displace, and grow: until each job has the size that it shall have, as far as it fits."""
        draft = self.draft
        waiting = list(draft.candidates())
        self._choose_sizes(waiting)
        for view in self.running:
            if 0 < (size := self.sizes.get(view.job.id, 0)) < draft.size_of(view):
                draft.resize(view, size, "shrinks: others gain more by its GPUs")
        for view in sorted(waiting, key=self._most_worth_first):
            if view.job.id in self.sizes and not draft.start(view, "starts: it gains most", view.job.sizes[0]):
                draft.displace(view, self._losers(view), f"paused: '{view.job.id}' gains more", "starts: it gains more")
        for view in sorted([*self.running, *waiting], key=self._most_worth_first):
            size, has = self.sizes.get(view.job.id, 0), draft.size_of(view)
            if has and size > has:
                reason = draft.reasons.get(view.job.id, "grows: it gains most by more GPUs")
                while size > has and not draft.resize(view, size, reason):
                    size = view.job.sizes[view.job.sizes.index(size) - 1]

    def _most_worth_first(self, view: JobView) -> tuple[float, bool, int]:
        """Of equals those that run, and then by submission."""
        return -self.worth[view.job.id], not view.partitions, view.number

    def _losers(self, view: JobView) -> list[JobView]:
        """Running jobs that shall have nothing, and gain less; the least first."""
        worth = self.worth[view.job.id]
        least_first = sorted(self.running, key=self._most_worth_first, reverse=True)
        return [v for v in least_first if v.job.id not in self.sizes and self.worth[v.job.id] < worth]

    def _choose_sizes(self, waiting: list[JobView]) -> None:
        """The size that each job shall have, by the number of GPUs alone."""
        views = [*self.running, *waiting]
        for view in views:
            gpus = view.job.sizes[0] * view.job.demand.gpus
            self.worth[view.job.id] = self.gain(view, view.job.sizes[0]) / max(gpus, 1e-9)
        line: list[tuple[float, int, JobView, int]] = []
        for view in sorted(views, key=self._most_worth_first):
            gpus = view.job.sizes[0] * view.job.demand.gpus
            if gpus <= self.free:
                self.free -= gpus
                self.sizes[view.job.id] = view.job.sizes[0]
                self._put_in_line(view, 0, line)
        heapify(line)
        while line:
            _worth, _number, view, at = heappop(line)
            sizes, gpus = view.job.sizes, view.job.demand.gpus
            if (extra := (sizes[at] - sizes[at - 1]) * gpus) <= self.free:
                self.free -= extra
                self.sizes[view.job.id] = sizes[at]
                self._put_in_line(view, at, line)

    def _put_in_line(self, view: JobView, at: int, line: list[tuple[float, int, JobView, int]]) -> None:
        """Put the job's next size into line, by what it brings for each GPU."""
        sizes, gpus = view.job.sizes, view.job.demand.gpus
        if at + 1 < len(sizes):
            more = self.gain(view, sizes[at + 1]) - self.gain(view, sizes[at])
            if more > 0:
                heappush(line, (-more / max((sizes[at + 1] - sizes[at]) * gpus, 1e-9), view.number, view, at + 1))
