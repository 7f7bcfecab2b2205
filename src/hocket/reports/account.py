"""One pass over a journal: which resources each job held from when to when, and how it ended.

Only events and plans are read, so simulated and live journals are treated alike. Actions are not in a journal,
hence two rules:

* A tenant holds what its latest plan before the event gave it. If a further plan came while a change was under
  way, the difference lasts until the next event of that tenant.
* A change lasts from the plan, or from when the last tenant in its way has left, until its event. Where the
  submission declares switching costs, it counts no longer than these: a tenant may continue to train up to a boundary.
  Where nothing is declared, changes at another boundary than `now` count nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

from msgspec import Struct

from hocket.control.held_time import HeldTime, held_at_submission
from hocket.control.ports import Cycle, Header
from hocket.model.criterion import Criterion, History, RunTime, Seen, judge
from hocket.model.event import (
    EpochEnded,
    Event,
    JobAsked,
    JobEnded,
    JobFailed,
    JobMoved,
    JobPaused,
    JobRefused,
    JobRequest,
    JobResized,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    ProgressReported,
    TimePassed,
)
from hocket.model.job import Job
from hocket.model.partition import Partition, Tenant
from hocket.model.plan import Verdict
from hocket.model.resources import Node, Slice
from hocket.model.view import NO_COSTS, Costs


class JobRecord(Struct, frozen=True, gc=False):
    """How one job ran and ended."""

    job: Job
    submitted_s: float
    started_s: float | None = None  # first start
    ended_s: float | None = None
    ran_s: float = 0.0  # it held resources, starting and stopping included
    stood_s: float = 0.0  # it held resources without training, summed over its tenants
    waited_s: float = 0.0  # it held nothing and could have run: before its first start, and while others ran instead
    starts: int = 0
    size: int = 0  # replicas of its last run, 0 if it never ran
    verdict: str = ""  # empty while it is unfinished
    # Both are None if the job has none, or if it is still open.
    deadline_met: bool | None = None  # the job ended by its deadline and did not fail
    goal_met: bool | None = None  # the job reached the metric of its criterion, or its target

    @property
    def jct_s(self) -> float | None:
        """Job completion time: from submission to end."""
        return None if self.ended_s is None else self.ended_s - self.submitted_s


class Span(Struct, frozen=True, gc=False):
    """A time in which a tenant held a partition. A shared partition is divided equally among its tenants."""

    job: int  # its number: the index of its record
    task: str
    since_s: float
    until_s: float  # later than `since_s`
    partition: Partition
    share: float = 1.0
    trains: bool = True  # else it was starting or stopping


class EventCounts(Struct, frozen=True):
    """How often things happened."""

    pauses: int = 0
    resizes: int = 0
    moves: int = 0
    failures: int = 0  # runs that failed or lost their node, whether or not the job continued
    plans: int = 0
    refused_plans: int = 0


class Account(Struct, frozen=True):
    """The result of reading a journal."""

    header: Header
    jobs: tuple[JobRecord, ...]  # in the order of submission
    spans: tuple[Span, ...]  # in the order in which they ended
    refusals: tuple[tuple[str, str], ...]  # (job, reason)
    capacity: tuple[tuple[float, tuple[Node, ...]], ...]  # (from when, nodes that are up)
    counts: EventCounts
    began_s: float  # first submission
    until_s: float  # end of the last job, or of the journal if jobs are unfinished
    failed: tuple[tuple[int, float], ...] = ()  # (job's number, when) of runs that failed or lost their node

    @property
    def makespan_s(self) -> float:
        """From the first submission to the end."""
        return self.until_s - self.began_s


class _Tenant(Struct, gc=False, kw_only=True):
    """What plans and events say about one tenant's resources."""

    task: str = ""
    planned: Partition | None = None
    planned_s: float = 0.0
    named: Tenant | None = None  # by that plan
    told_s: float | None = None  # when it was told to leave a shared partition
    changing_s: float | None = None  # when the change under way began, if a later plan has superseded it
    held: Partition | None = None
    since_s: float = 0.0  # it holds that
    share: float = 1.0


class _Live(_Tenant, gc=False):
    """A job that has not ended. Without tasks it is its own and only tenant."""

    job: Job
    number: int
    submitted_s: float
    costs: Costs
    started_s: float | None = None
    ran_s: float = 0.0
    stood_s: float = 0.0
    starts: int = 0
    ran_as: Tenant | None = None  # last
    tasks: dict[str, _Tenant] | None = None
    held_tasks: int = 0
    busy_since_s: float = 0.0  # since when one of its tasks holds resources
    epoch: int = 0
    step: int = 0
    history: list[Seen] | None = None  # kept for a criterion
    hold: HeldTime | None = None  # by its user, or for jobs that must end first; None: never


def account(header: Header, cycles: Iterable[Cycle], is_cut: bool | None = None) -> Account:
    """Read the cycles of a journal.

    `is_cut` says that unfinished jobs would have continued: their deadlines and goals are open. Else they are stuck for
    good, and meet none. If it is None, a live journal counts as cut, and a simulated one if a job ran at its end:
    a simulation that was not cut off has no such job.
    """
    book = _Book(header)
    book.read(cycles)
    return book.closed(is_cut)


class _Book:
    """The account while it is being made."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.live: dict[str, _Live] = {}
        self.dropped: dict[str, float] = {}  # partition → when a plan last dropped it
        self.sharers: dict[str, list[tuple[_Live, _Tenant]]] = {}  # shared partition → the tenants that held it last
        self.followers: dict[str, list[_Live]] = {}  # live job → those that start after it
        self.records: list[JobRecord | None] = []
        self.spans: list[Span] = []
        self.failed: list[tuple[int, float]] = []
        self.refusals: list[tuple[str, str]] = []
        self.nodes = {n.id: n for n in header.nodes}
        self.capacity: list[tuple[float, tuple[Node, ...]]] = [(-inf, header.nodes)]
        self.ended_s = self.now_s = 0.0
        self.pauses = self.resizes = self.moves = self.failures = self.plans = self.refused = 0

    def read(self, cycles: Iterable[Cycle]) -> None:
        """Read every cycle.

        The hot loop: the commonest events come first, and a job that is the only tenant of its partition and starts
        at the time of its plan is handled inline. All other cases have methods of their own.
        """
        live, records, sharers, add_span = self.live, self.records, self.sharers, self.spans.append
        now_s, plans = 0.0, 0
        for cycle in cycles:
            # An event may be in a later cycle: use its own time. Any: mypy does not narrow by `type() is`.
            events: Iterable[Any] = cycle.events
            for event in events:
                kind = type(event)
                if kind is JobStarted:
                    job = live.get(event.job)
                    if job is None:
                        continue
                    now_s = event.at_s
                    if event.task or job.planned_s != now_s or job.held is not None or job.planned is None:
                        self._started(job, event.task, now_s)
                        continue
                    job.held = partition = job.planned
                    job.since_s = now_s
                    if job.started_s is None:
                        job.started_s = now_s
                    job.starts += 1
                    job.ran_as = job.named
                    if job.hold is not None:
                        _hold_changed(job, now_s)
                    if len(partition.tenants) > 1 or (sharers and partition.id in sharers):
                        self._share(partition, now_s)
                elif kind is JobEnded:
                    job = live.pop(event.job, None)
                    if job is None:
                        continue
                    now_s, held = event.at_s, job.held
                    if held is None or job.tasks is not None or len(held.tenants) > 1 or event.verdict != "finished":
                        self._over(job, event.verdict, now_s, event.at_exit)
                        continue
                    since_s = job.since_s
                    if now_s > since_s:
                        add_span(Span(job.number, "", since_s, now_s, held, job.share))
                        job.ran_s += now_s - since_s
                    if now_s > self.ended_s:
                        self.ended_s = now_s
                    records[job.number] = _record(job, now_s, "finished", now_s)
                    if job.job.id in self.followers:
                        self._release(job.job.id, now_s)
                elif kind is JobSubmitted:
                    new = event.job
                    live[new.id] = _Live(new, len(records), event.at_s, event.costs)
                    records.append(None)
                    if new.after or new.after_any:
                        self._follows(live[new.id])
                elif kind is JobPaused:
                    self.pauses += 1
                    job = live.get(event.job)
                    if job is not None:
                        self._paused(job, event.task, event.at_s)
                elif kind is not TimePassed:
                    self._rare(event, event.at_s)
            now_s, plan = cycle.at_s, cycle.plan
            if plan is None:
                continue
            plans += 1
            if cycle.refused:
                self.refused += 1
                continue
            for pid in plan.drop:
                self.dropped[pid] = now_s
            for partition in plan.put:
                for t in partition.tenants:
                    job = live.get(t.job)
                    if job is None:
                        continue  # The journal begins in the middle: this job is unknown.
                    tenant = _task(job, t.task) if t.task else job
                    old = tenant.planned
                    if old is not None and len(old.tenants) > 1 and old.id == partition.id:
                        self._told(old, partition, now_s)
                    if tenant.held is not None and tenant.changing_s is None:
                        tenant.changing_s = self._changing_since(tenant)
                    tenant.planned = partition
                    tenant.planned_s = now_s
                    tenant.named = t
                    tenant.told_s = None
        self.now_s, self.plans = now_s, plans - self.refused

    def _told(self, old: Partition, new: Partition, now_s: float) -> None:
        """Tenants that the new version of a shared partition does not name shall leave it."""
        stay = {(t.job, t.task) for t in new.tenants}
        for t in old.tenants:
            tenant = _known(self.live.get(t.job), t.task)
            if tenant is not None and tenant.planned is old and (t.job, t.task) not in stay:
                tenant.told_s = now_s

    # -- a tenant comes and goes ------------------------------------------------------------------------------

    def _started(self, job: _Live, task: str, now_s: float) -> None:
        tenant = _known(job, task)
        if tenant is None or tenant.planned is None:
            return
        self._close(job, tenant, now_s)
        stood_s = 0.0
        # Other tenants use a shared partition while one starts in it.
        if now_s > tenant.planned_s and len(tenant.planned.tenants) == 1:
            stood_s = now_s - self._free_since(tenant.planned_s, tenant.planned.slices)
            if job.costs != NO_COSTS:
                stood_s = min(stood_s, job.costs.prepare_s + job.costs.start_s)
            job.stood_s += stood_s
        if job.started_s is None:
            job.started_s = now_s
        job.starts += 1
        self._open(job, tenant, now_s - stood_s, now_s)
        if stood_s:
            self._write(job, tenant, now_s, trains=False)

    def _open(self, job: _Live, tenant: _Tenant, since_s: float, now_s: float) -> None:
        partition = tenant.planned
        assert partition is not None
        tenant.held, tenant.changing_s = partition, None
        tenant.since_s = since_s
        job.ran_as = tenant.named
        if tenant is not job:
            if not job.held_tasks:
                job.busy_since_s = since_s
            job.held_tasks += 1
        if job.hold is not None:
            _hold_changed(job, since_s)
        if len(partition.tenants) > 1 or partition.id in self.sharers:
            self._share(partition, now_s)

    def _close(self, job: _Live, tenant: _Tenant, now_s: float) -> None:
        partition = tenant.held
        if partition is None:
            return
        self._write(job, tenant, now_s)
        tenant.held = None
        if tenant is not job:
            job.held_tasks -= 1
            if not job.held_tasks:
                job.ran_s += now_s - job.busy_since_s
        if job.hold is not None:
            _hold_changed(job, now_s)
        if len(partition.tenants) > 1 or tenant.share != 1.0:
            tenant.share = 1.0
            self._share(partition, now_s)

    def _write(self, job: _Live, tenant: _Tenant, until_s: float, trains: bool = True) -> None:
        """Close the tenant's span at this time, and begin a new one."""
        held, since_s = tenant.held, tenant.since_s
        if held is not None and until_s > since_s:
            self.spans.append(Span(job.number, tenant.task, since_s, until_s, held, tenant.share, trains))
            tenant.since_s = until_s
            if tenant is job:
                job.ran_s += until_s - since_s

    def _share(self, partition: Partition, now_s: float) -> None:
        """The tenants of a shared partition changed: from now on it is divided equally among these."""
        known = [(job, _known(job, t.task)) for t in partition.tenants if (job := self.live.get(t.job)) is not None]
        pairs = [*self.sharers.pop(partition.id, ()), *known]  # Tenants that shall leave are in no newer version.
        holders = {id(t): (job, t, t.held) for job, t in pairs if t and t.held and t.held.id == partition.id}
        if holders:
            self.sharers[partition.id] = [(job, tenant) for job, tenant, _held in holders.values()]
        for job, tenant, held in holders.values():
            self._write(job, tenant, now_s)
            # The newest version names all tenants; a tenant gets other slices only by a resize.
            if tenant.planned is partition and (held.slices == partition.slices or len(held.tenants) == 1):
                tenant.held = partition
            tenant.share = 1 / len(holders)

    def _paused(self, job: _Live, task: str, now_s: float) -> None:
        tenant = _known(job, task)
        if tenant is None or tenant.held is None:
            return
        told_s = self._told_to_leave(tenant)
        if told_s is not None and tenant.changing_s is None:
            tenant.changing_s = self._resizing_since(tenant)
        elif told_s is None and tenant.changing_s is not None:
            told_s = tenant.planned_s  # A newer plan has a place for it again; it leaves all the same.
        if told_s is not None:
            self._stood(job, tenant, told_s, job.costs.checkpoint_s + job.costs.stop_s, now_s)
        self._close(job, tenant, now_s)

    def _told_to_leave(self, tenant: _Tenant) -> float | None:
        """When its last plan, or a later one, took the tenant out of what it holds; None if none did."""
        assert tenant.held is not None
        told_s = self.dropped.get(tenant.held.id) if tenant.told_s is None else tenant.told_s
        return told_s if told_s is not None and told_s >= tenant.planned_s else None

    def _changed(self, job: _Live, task: str, now_s: float, fresh: bool) -> None:
        """Resized, or moved (`fresh`: its process is started again)."""
        tenant, costs = _known(job, task), job.costs
        if tenant is None or tenant.held is None or tenant.planned is None:
            return
        prepare_s = costs.prepare_s if fresh or not job.job.warm else 0.0
        free_s = self._free_since(tenant.planned_s, tenant.planned.slices)
        self._stood(job, tenant, free_s, prepare_s + costs.checkpoint_s + costs.stop_s + costs.start_s, now_s)
        self._close(job, tenant, now_s)
        self._open(job, tenant, now_s, now_s)

    def _changing_since(self, tenant: _Tenant) -> float | None:
        """When the change began that is under way for a tenant; None if there is none, or it waits for others."""
        told_s = self._told_to_leave(tenant)
        return self._resizing_since(tenant) if told_s is None else told_s

    def _resizing_since(self, tenant: _Tenant) -> float | None:
        """The same for a resize or a move alone."""
        held, planned = tenant.held, tenant.planned
        if held is None or planned is None or planned.slices == held.slices:
            return None
        others = (t.held for job in self.live.values() for t in (job, *(job.tasks or {}).values()) if t is not tenant)
        if any(other is not None and _overlap(other.slices, planned.slices) for other in others):
            return None
        return self._free_since(tenant.planned_s, planned.slices)

    def _stood(self, job: _Live, tenant: _Tenant, since_s: float, declared_s: float, now_s: float) -> None:
        """A change is done that began at that time. If it superseded another, the tenant has stood since that one."""
        began_s, tenant.changing_s = tenant.changing_s, None
        observed_s = now_s - since_s
        if began_s is not None and began_s < since_s:
            observed_s, declared_s = now_s - began_s, declared_s + since_s - began_s
        if job.costs != NO_COSTS:
            observed_s = min(observed_s, declared_s)
        elif tenant.named is not None and tenant.named.boundary.at != "now":
            return
        stood_s = max(0.0, min(observed_s, now_s - tenant.since_s))
        job.stood_s += stood_s
        self._write(job, tenant, now_s - stood_s)
        self._write(job, tenant, now_s, trains=False)

    def _free_since(self, planned_s: float, slices: tuple[Slice, ...]) -> float:
        """When the last tenant that held a GPU of these slices left, or when they were planned if that was later."""
        wanted = {s.node: s.gpus for s in slices}
        for span in reversed(self.spans):
            if span.until_s <= planned_s:
                break
            for part in span.partition.slices:
                if part.gpus and not set(part.gpus).isdisjoint(wanted.get(part.node, ())):
                    return span.until_s
        return planned_s

    def _over(self, job: _Live, verdict: str, now_s: float, at_exit: bool = False) -> None:
        """A job has ended, `at_exit` by itself: remove it from the live ones."""
        for tenant in (job, *(job.tasks or {}).values()):
            if tenant.held is not None:
                if verdict != Verdict.FINISHED and not at_exit and job.costs.stop_s:
                    self._stood(job, tenant, now_s - job.costs.stop_s, job.costs.stop_s, now_s)
                self._close(job, tenant, now_s)
        self.ended_s = max(self.ended_s, now_s)
        self.records[job.number] = _record(job, now_s, verdict, now_s)
        if job.job.id in self.followers:
            self._release(job.job.id, now_s)

    # -- held by users, and for other jobs ----------------------------------------------------------------------

    def _follows(self, job: _Live) -> None:
        job.hold = held_at_submission(job.job, self.live, job.submitted_s)
        for first in job.hold.awaits if job.hold is not None else ():
            self.followers.setdefault(first, []).append(job)

    def _release(self, job_id: str, now_s: float) -> None:
        """A job has ended: those that start after it no longer wait for it."""
        for follower in self.followers.pop(job_id):
            if follower.hold is not None:
                follower.hold.awaits = [first for first in follower.hold.awaits if first != job_id]
                _hold_changed(follower, now_s)

    def _asked(self, event: JobAsked, now_s: float) -> None:
        job = self.live.get(event.job)
        if job is not None and event.request is not JobRequest.STOP:
            job.hold = job.hold or HeldTime()
            job.hold.is_paused = event.request is JobRequest.PAUSE
            _hold_changed(job, now_s)

    # -- what is rare -----------------------------------------------------------------------------------------

    def _rare(self, event: Event, now_s: float) -> None:
        if isinstance(event, EpochEnded | ProgressReported):
            job = self.live.get(event.job)
            if job is not None and sought(job.job) is not None:
                _observe(job, event)
        elif isinstance(event, JobResized | JobMoved):
            moved = isinstance(event, JobMoved)
            self.moves += moved
            self.resizes += not moved
            if (job := self.live.get(event.job)) is not None:
                self._changed(job, event.task, now_s, moved)
        elif isinstance(event, JobFailed):
            self._failed(event, now_s)
        elif isinstance(event, JobAsked):
            self._asked(event, now_s)
        elif isinstance(event, JobRefused):
            self.refusals.append((event.job, event.reason))
        elif isinstance(event, NodeLost):
            self._lost(event.node, now_s)
        elif isinstance(event, NodeJoined) and self.nodes.get(event.node.id) != event.node:
            self.nodes[event.node.id] = event.node
            self.capacity.append((now_s, tuple(self.nodes.values())))

    def _failed(self, event: JobFailed, now_s: float) -> None:
        self.failures += 1
        if (job := self.live.get(event.job)) is not None:
            self.failed.append((job.number, now_s))
        if event.final:
            if (job := self.live.pop(event.job, None)) is not None:
                self._over(job, Verdict.FAILED, now_s)
        elif (job := self.live.get(event.job)) is not None:
            for tenant in (job, *(job.tasks or {}).values()):
                self._close(job, tenant, now_s)

    def _lost(self, node: str, now_s: float) -> None:
        for job in self.live.values():
            for tenant in (job, *(job.tasks or {}).values()):
                if tenant.held is not None and any(s.node == node for s in tenant.held.slices):
                    self.failures += 1
                    self.failed.append((job.number, now_s))
                    self._close(job, tenant, now_s)
        if self.nodes.pop(node, None) is not None:
            self.capacity.append((now_s, tuple(self.nodes.values())))

    def closed(self, is_cut: bool | None) -> Account:
        """The account at the end of the journal."""
        now_s = self.now_s
        goes_on = is_cut if is_cut is not None else not self.header.nodes or self._runs()
        for job in self.live.values():
            for tenant in (job, *(job.tasks or {}).values()):
                self._close(job, tenant, now_s)
            self.records[job.number] = _record(job, None, "", now_s, goes_on)
        jobs = tuple(r for r in self.records if r is not None)
        return Account(
            self.header,
            jobs,
            tuple(self.spans),
            tuple(self.refusals),
            tuple(self.capacity),
            EventCounts(self.pauses, self.resizes, self.moves, self.failures, self.plans, self.refused),
            began_s=min((r.submitted_s for r in jobs), default=0.0),
            until_s=now_s if self.live or not jobs else self.ended_s,
            failed=tuple(self.failed),
        )

    def _runs(self) -> bool:
        """Whether any job holds resources."""
        return any(t.held is not None for job in self.live.values() for t in (job, *(job.tasks or {}).values()))


def _overlap(one: tuple[Slice, ...], other: tuple[Slice, ...]) -> bool:
    """Do they have a GPU in common?"""
    gpus = {(part.node, gpu) for part in one for gpu in part.gpus}
    return any((part.node, gpu) in gpus for part in other for gpu in part.gpus)


def _known(job: _Live | None, task: str) -> _Tenant | None:
    """The tenant, if a plan has named it."""
    if job is None or not task:
        return job
    return job.tasks.get(task) if job.tasks is not None else None


def _task(job: _Live, task: str) -> _Tenant:
    """The tenant for a task that a plan names."""
    if job.tasks is None:
        job.tasks = {}
    if task not in job.tasks:
        job.tasks[task] = _Tenant(task=task)
    return job.tasks[task]


def _hold_changed(job: _Live, now_s: float) -> None:
    if job.hold is not None:
        job.hold.update(now_s, runs=job.held is not None or job.held_tasks > 0)


def _record(live: _Live, ended_s: float | None, verdict: str, now_s: float, goes_on: bool = False) -> JobRecord:
    job, ran_as = live.job, live.ran_as
    waited_s = now_s - live.submitted_s - live.ran_s
    if live.hold is not None:
        waited_s -= live.hold.at(now_s)
    return JobRecord(
        job,
        live.submitted_s,
        live.started_s,
        ended_s,
        live.ran_s,
        live.stood_s,
        waited_s if waited_s > 0.0 else 0.0,  # tolerance for rounding in sums of floats
        live.starts,
        sum(ran_as.replicas) if ran_as is not None else 0,
        verdict,
        deadline_met(job, live.submitted_s, ended_s, verdict, now_s if goes_on else None)
        if job.deadline_s is not None
        else None,
        goal_met(job, verdict, live.history, live.epoch, now_s - live.submitted_s, goes_on, live.step)
        if sought(job) is not None
        else None,
    )


def _observe(live: _Live, event: EpochEnded | ProgressReported) -> None:
    criterion = sought(live.job)
    live.epoch = max(live.epoch, event.epoch)
    if isinstance(event, ProgressReported):
        live.step = max(live.step, event.step)
    if isinstance(criterion, RunTime) or criterion is None or criterion.metric not in event.metrics:
        return
    if live.history is None:
        live.history = []
    live.history.append(Seen(event.epoch, event.metrics[criterion.metric], live.step))


def sought(job: Job) -> Criterion | None:
    """The goal of the job: its criterion, else its target."""
    return job.target if job.criterion is None else job.criterion


def deadline_met(
    job: Job, submitted_s: float, ended_s: float | None, verdict: str, goes_on_s: float | None
) -> bool | None:
    """Whether it ended by its deadline and did not fail; None if it has none, or if that is not decided yet.

    `goes_on_s` is the present time, for a job that may still end: undecided until its deadline has passed. None is for
    a job that has ended, or is stuck for good: that one never meets its deadline.
    """
    if job.deadline_s is None:
        return None
    if goes_on_s is not None and goes_on_s - submitted_s < job.deadline_s:
        return None
    return ended_s is not None and verdict != Verdict.FAILED and ended_s - submitted_s <= job.deadline_s


def goal_met(
    job: Job, verdict: str, history: History | None, epoch: int, after_s: float, goes_on: bool, step: int = 0
) -> bool | None:
    """Whether the goal was reached, by verdict or last report: a job may end by itself when it gets there.

    A job that continues may report other values: it is undecided (None) until the limit of its goal has passed.
    """
    criterion = sought(job)
    if criterion is None or isinstance(criterion, RunTime):
        return None
    if verdict == Verdict.ATTAINED:
        return True
    found = judge(criterion, history or (), epoch, after_s, step)
    return None if goes_on and found != "missed" else found == "attained"
