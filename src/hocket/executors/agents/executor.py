"""The executor for real jobs: it tells agents what to do, and takes in what they and the users say.

It runs in the controller's thread. Others hand it what they have by `post`, and learn by the future they get that it is
in the journal.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from threading import Condition
from time import monotonic, time
from typing import Any, assert_never

from msgspec import Struct

from hocket.agent.protocol import Hello, Order, Report, RunKey, StopRun
from hocket.control.node_change import jobs_that_must_leave
from hocket.control.ports import Facts, MakeExecutor, Refused, SecretsOf
from hocket.executors.agents.local_effects import local_effect
from hocket.executors.agents.multi_node_exits import MultiNodeExits, nodes_of_attempt
from hocket.executors.agents.orders import Orders
from hocket.executors.agents.phase_reports import PhaseReports
from hocket.executors.agents.reconcile import Reconciliation
from hocket.executors.agents.reports_to_events import GONE, facts, ignored_signal, lost_work
from hocket.executors.agents.run_numbers import changes_place, going, nodes_of, tenancy_of
from hocket.executors.agents.sessions import Sessions
from hocket.executors.agents.standby_runs import ResizeBy
from hocket.executors.agents.unconfirmed_orders import Overdue, UnconfirmedOrders
from hocket.executors.agents.usage_reports import UsageReports
from hocket.model.action import Action, Checkpoint, End, Move, Pause, Prepare, Resize, Resume, Start, Store
from hocket.model.event import (
    Event,
    JobCheckpointed,
    JobEnded,
    JobFailed,
    JobMoved,
    JobPaused,
    JobRefused,
    JobResized,
    JobStarted,
    JobWarned,
    MetricUnseen,
    NodeJoined,
    NodeLost,
    StateStored,
)
from hocket.model.snapshot import Snapshot
from hocket.model.view import Doing, JobView, Tier

_log = logging.getLogger("hocket.executors")
_LONGEST_WAIT_S = 1.0  # so that leases are looked at
_MOST_WARNINGS = 50  # of a job


class _Posted(Struct, eq=False):
    make: Facts | None
    done: Future[Any]
    reports: deque[Report] = deque()
    node: str = ""  # whose agent reports
    result: Callable[[Refused], Any] = lambda _refused: None
    since: float = 0.0  # when it came, by the clock that never jumps


class AgentExecutor:
    """Orders for the agents, events for the controller."""

    def __init__(
        self,
        snapshot: Snapshot,
        sessions: Sessions,
        clock: Callable[[], float] = time,
        resize_by: ResizeBy = ResizeBy.EARLY,
    ) -> None:
        self.sessions = sessions
        self._orders = Orders(snapshot, sessions, prepares=resize_by is ResizeBy.EARLY)
        self._usage = UsageReports()
        self._clock = clock
        self._inbox: deque[_Posted] = deque()
        self._arrived = Condition()
        self._heard: dict[str, dict[tuple[str, int], int]] = {}  # job → node and run → its last report
        self._exits = MultiNodeExits()
        self._phases = PhaseReports()
        self._warned: dict[str, set[str]] = {}  # job → what was said before
        self._left_alone: list[tuple[str, StopRun]] = []  # node → parts whose attempt broke elsewhere, to be stopped
        self._unconfirmed = UnconfirmedOrders()
        self._taken: list[_Posted] = []  # what the present cycle takes in
        self._closed = False
        self._take_up(snapshot)

    @property
    def secrets_of(self) -> SecretsOf:
        """Gives the values of a job's secrets, when it starts."""
        return self._orders.secrets_of

    @secrets_of.setter
    def secrets_of(self, secrets_of: SecretsOf) -> None:
        self._orders.secrets_of = secrets_of

    def resume(self, snapshot: Snapshot) -> None:
        """Go on from a restored state, as after a restart: how far the last orders came is not known.

        So all agents say hello again, within their lease, and are told what they should have.
        """
        self.sessions.end_all()
        self._take_up(snapshot)

    def observe(self, snapshot: Snapshot) -> None:
        """The state after the cycle that was just written."""
        self.snapshot = self._orders.snapshot = snapshot

    def _take_up(self, snapshot: Snapshot) -> None:
        """Begin with this state: what needs no agent is true."""
        self.observe(snapshot)
        self._orders.broken.begin_anew(v.node.id for v in snapshot.nodes.values() if v.up)
        # A clock that was set back while there was no controller goes on from the last time in the journal.
        self._behind_s = max(0.0, snapshot.now_s - self._clock())
        self._began_s = self._looked_s = self.now_s()  # _looked_s: when silent agents were last looked for
        self._was_late = False  # the last look
        now_s = max(self._began_s, snapshot.now_s)
        for view in snapshot.jobs.values():
            self._unconfirmed.see(view)
        found = (local_effect(view, self._orders.prepares, now_s) for view in snapshot.jobs.values())
        self._ready: list[Event] = [event for event in found if event is not None]

    # -- for other threads ----------------------------------------------------------------------------------

    def post(self, make: Facts, result: Callable[[Refused], Any] = lambda _refused: None) -> Future[Any]:
        """Have facts taken in; they are made of the state at that moment. Done when they are in the journal.

        The future's result is made of the jobs that the cycle refused, each with the reason.
        """
        return self._post(_Posted(make, Future(), result=result))

    def report(self, reports: Sequence[Report], node: str = "") -> Future[Any]:
        """What a node's agent reports, in order."""
        return self._post(_Posted(None, Future(), deque(reports), node, lambda _refused: len(reports)))

    def now_s(self) -> float:
        """The time, as events have it."""
        return self._clock() + self._behind_s

    def nodes(self, job_id: str) -> list[str]:
        """The connected nodes where a job's logs may be: those that run it, or all if it runs nowhere."""
        connected, view = self.sessions.addresses(), self.snapshot.jobs.get(job_id)
        return [n for n in (nodes_of(view) if view is not None else []) if n in connected] or list(connected)

    def usage(self, job_id: str) -> dict[str, Any]:
        """What a job was last seen to use; empty if that is not known."""
        return self._usage.last(job_id)

    def usage_over_time(self, job_id: str) -> list[dict[str, float]]:
        """The same at some moments since it first ran."""
        return self._usage.over_time(job_id)

    def unwritten_s(self) -> float:
        """The age of the oldest thing that was posted and is not in the journal yet; 0 if there is none."""
        with self._arrived:
            came = [posted.since for posted in (*self._taken, *self._inbox)]
        return monotonic() - min(came) if came else 0.0

    def stop_all(self, grace_s: float) -> Callable[[], list[str]]:
        """Ask every job to save and leave; from now on agents are told nothing else. Gives what tells the jobs left."""
        connected = set(self.sessions.addresses())
        awaited: list[RunKey] = []
        last: list[tuple[str, Order]] = []
        for view in self.snapshot.jobs.values():
            for run in going(view):
                # Where a run that is only prepared stands is not known.
                nodes = connected.intersection(there) if (there := nodes_of(view)) else connected
                last += [(node, StopRun(run, grace_s)) for node in sorted(nodes)]
                awaited += [run] if there and nodes else []
        self.sessions.hush(last)

        def left() -> list[str]:
            # One that has left may be given a place again; that is another run, which no agent is told of any more.
            jobs = self.snapshot.jobs
            return [run.job for run in awaited if (view := jobs.get(run.job)) is not None and run in going(view)]

        return left

    def close(self) -> None:
        """Let `wait` return None, and answer agents that wait for orders."""
        self.sessions.close()
        with self._arrived:
            self._closed = True
            self._arrived.notify_all()

    def _post(self, posted: _Posted) -> Future[Any]:
        with self._arrived:
            if self._closed:
                posted.done.set_exception(RuntimeError("the controller is going down"))
            else:
                posted.since = monotonic()
                self._inbox.append(posted)
                self._arrived.notify_all()
        return posted.done

    def hello(self, hello: Hello) -> Facts:
        """The facts of an agent that is there, or there again."""
        return Reconciliation(hello, self.sessions, self._orders, self._exits).facts

    # -- the port -------------------------------------------------------------------------------------------

    def wait(self, until_s: float | None) -> tuple[float, Sequence[Event]] | None:
        """The next moment, and what is known to have happened by then."""
        while True:
            with self._arrived:
                if self._closed:
                    return None
                if not self._inbox and not self._ready:
                    left = _LONGEST_WAIT_S if until_s is None else until_s - self.now_s()
                    if left > 0:
                        self._arrived.wait(min(left, _LONGEST_WAIT_S))
                    if self._closed:
                        return None
                self._taken = list(self._inbox)
                self._inbox.clear()
            now_s = max(self.now_s(), self.snapshot.now_s)
            events = self._ready + self._events(now_s) + self._losses(now_s)
            events += self._give_up_unconfirmed(events, now_s)
            events += self._orders.failures(now_s)
            self._ready = []
            self._left_alone = self._rest_of_broken(events)
            for node, stop in self._left_alone:
                self._orders.broken.add(node, stop.run)
            if events or self._taken or (until_s is not None and until_s <= now_s):
                return now_s, events

    def apply(self, actions: Iterable[Action]) -> None:
        """Tell the agents. What needs no agent is true at once."""
        now_s, orders = self.snapshot.now_s, self._orders
        for action in actions:
            job_id = action.job
            view = self.snapshot.jobs.get(job_id)
            if view is None:
                continue  # It ended in this very cycle.
            self._unconfirmed.see(view)
            match action:
                case Start(_, _, to, _) | Resume(_, _, to, _):
                    orders.run(view, to)
                case Resize() | Move() | End() | Prepare() if done := local_effect(view, orders.prepares, now_s):
                    self._ready.append(done)
                case Resize() | Move():
                    orders.resize(view)
                case Pause() | End():
                    orders.pause_or_end(view)
                case Prepare():
                    orders.prepare(view)
                case Checkpoint():
                    if view.job.launch is not None and view.job.launch.checkpoint_signal:
                        orders.save(view)
                    else:
                        self._ready.append(JobCheckpointed(now_s, job_id))  # It saves when it pleases.
                case Store():
                    if not orders.store(view):
                        self._ready.append(StateStored(now_s, job_id, view.tier))  # It stays where it is.
                case _:
                    assert_never(action)
        self._ready += orders.failures(now_s)  # `wait` would find them too, but not at once.

    def settle(self, facts_of_cycle: Iterable[Event]) -> None:
        """The cycle is in the journal with these facts: callers that wait for that learn it."""
        refused: Refused = {}
        for event in facts_of_cycle:
            if isinstance(event, JobRefused):
                refused[event.job] = event.reason
            elif isinstance(event, JobEnded) or (isinstance(event, JobFailed) and event.final):
                self._forget(event.job)
            elif isinstance(event, JobStarted | JobResized | JobMoved | JobFailed):
                self._orders.renew_standby(event.job, isinstance(event, JobFailed))
            elif isinstance(event, NodeLost | NodeJoined):
                self._ready += self._orders.prepare_again()
            if isinstance(event, NodeLost):
                self._orders.broken.lost(event.node)
            elif isinstance(event, StateStored):
                self._orders.start_after_store(event.job)
        for node, stop in self._left_alone:
            self.sessions.tell(node, [stop])
        self._left_alone = []
        self._orders.run_released()
        taken, self._taken = self._taken, []
        later = [posted for posted in taken if posted.reports]  # They wait for what others of their job changed.
        for posted in taken:
            if not posted.reports and not posted.done.done():
                posted.done.set_result(posted.result(refused))
        with self._arrived:
            self._inbox.extendleft(reversed(later))

    def fail(self, failure: Exception) -> None:
        """The cycle could not be written: nothing of it was said, and callers may say it again."""
        taken, self._taken = self._taken, []
        for posted in taken:
            if not posted.done.done():
                posted.done.set_exception(failure)
        self._heard.clear()
        self._phases = PhaseReports()
        self._warned.clear()
        self._ready = []
        self._left_alone = []

    def refuse(self, failure: Exception) -> None:
        """Nothing can be taken in for now: callers that wait learn it."""
        with self._arrived:
            waiting, self._inbox = list(self._inbox), deque()
        for posted in waiting:
            posted.done.set_exception(failure)

    # -- from what was said to facts ------------------------------------------------------------------------

    def _events(self, now_s: float) -> list[Event]:
        found: list[Event] = []
        changed: set[str] = set()  # jobs whose state these events change: further reports of theirs wait a cycle
        for posted in self._taken:
            try:
                if posted.make is not None:
                    new = list(posted.make(self.snapshot, now_s))
                    found += new
                    changed.update(
                        job for e in new if (job := getattr(e, "job", None)) is not None and type(job) is str
                    )
                while posted.reports and posted.reports[0].run.job not in changed:
                    report = posted.reports.popleft()
                    if events := self._take_report(report, posted.node, now_s):
                        found += events
                        changed.add(report.run.job)
            except Exception as error:  # One caller's bad input must not stop the cycle.
                posted.reports.clear()
                posted.done.set_exception(error)
        return found

    def _take_report(self, report: Report, node: str, now_s: float) -> list[Event]:
        run = report.run
        if report.event in GONE:
            self._orders.broken.gone(node, run)
        view = self.snapshot.jobs.get(run.job)
        heard = self._heard.setdefault(run.job, {}) if view is not None else {}
        last = heard.get((node, run.number), 0)
        if _log.isEnabledFor(logging.DEBUG):
            fields = {"job": run.job, "run": run.number, "node": node, "report": report.event}
            said = node, report.n, report.event, run.number, run.job
            _log.debug("node '%s' reports %d, %s, of run %d of job '%s'", *said, extra=fields)
        if view is None or (report.n and report.n <= last and report.event != "prepared"):
            return []  # That something stands ready is said again when it is asked for.
        if node and (nodes := nodes_of_attempt(view, run)) and node not in nodes and report.event != "prepared":
            where = "node '%s' reports %s of run %d of job '%s', which is not there: it is ignored"
            _log.warning(where, node, report.event, run.number, run.job, extra={"node": node, "job": run.job})
            return []
        heard[node, run.number] = max(report.n, last)
        warned: list[Event] = []
        if report.event == "use":
            self._usage.add(run, node, report.fields, now_s)
        elif report.event in ("warning", "hung"):
            warned = self._warn(view, str(report.fields.get("about", "it hung")), now_s)
        elif report.event == "thawed":
            stood_s = float(report.fields.get("stood_s", 0.0))
            about = f"it stood still for {stood_s:.1f} s: node '{node}' had no contact with the controller"
            warned = self._warn(view, about, now_s)
        elif report.event == "metric-unseen" and not self._is_new(view, report.event):
            return []  # Another attempt said so.
        elif report.event == "progress":
            warned = self._look_for_its_metric(view, report, now_s)
        elif report.event == "phases":
            return self._phases.add_report(view, report, node, now_s)
        elif report.event == "prepared":
            self._orders.prepared(view, report, node)
        elif report.event in GONE:
            whole = self._exits.gone(view, report, node)
            if whole is None or self._orders.is_only_standby(view, whole):
                return []
            report = whole
            if about := ignored_signal(view.job, report):
                warned = self._warn(view, about, now_s)
        events = warned + facts(view, report, now_s)
        if report.event in GONE:
            self._orders.left(view, report)
        return events

    def _warn(self, view: JobView, about: str, now_s: float) -> list[Event]:
        """Something that the job's user should see; said once."""
        return [JobWarned(now_s, view.job.id, about[:500])] if self._is_new(view, about) else []

    def _is_new(self, view: JobView, about: str) -> bool:
        """Was this not said before? And not too much in all."""
        said = self._warned.setdefault(view.job.id, set())
        if about in said or len(said) >= _MOST_WARNINGS:
            return False
        said.add(about)
        return True

    def _look_for_its_metric(self, view: JobView, report: Report, now_s: float) -> list[Event]:
        """A goal that speaks of what the job never reports is never reached: its user should know after one epoch."""
        metric = getattr(view.job.criterion, "metric", None)
        seen = report.fields.get("metrics", {})
        if metric is None or metric in seen or "step" in report.fields:  # Not every step tells all.
            return []
        if any(metric in o.metrics for o in view.observations):
            return []
        unseen = MetricUnseen(now_s, view.job.id, metric, tuple(sorted(map(str, seen)))[:20])
        return [unseen] if self._is_new(view, unseen.in_words) else []

    def _rest_of_broken(self, events: Iterable[Event]) -> list[tuple[str, StopRun]]:
        """What is left, on other nodes, of attempts that these facts break: nothing may go on there."""
        lost = {e.node for e in events if isinstance(e, NodeLost)}
        broken = {e.job for e in events if isinstance(e, JobFailed)}
        for event in events:
            if isinstance(event, NodeJoined) and (known := self.snapshot.nodes.get(event.node.id)) is not None:
                broken |= jobs_that_must_leave(self.snapshot, known.node, event.node)
        if not lost and not broken:
            return []
        found = []
        for view in self.snapshot.jobs.values() if lost else filter(None, map(self.snapshot.jobs.get, broken)):
            nodes = nodes_of(view)
            if len(nodes) > 1 and (view.job.id in broken or not lost.isdisjoint(nodes)):
                parts = [(node, run) for run in going(view) for node in nodes_of_attempt(view, run)]
                left = [part for part in parts if part[0] not in lost and not self._exits.is_gone(*part)]
                found += [(node, StopRun(run, 0.0)) for node, run in left]
        return found

    def _losses(self, now_s: float) -> list[Event]:
        """Nodes whose agents are silent; after a restart each has its lease to say hello."""
        if self._stood_still(now_s):
            _log.warning("this process was suspended: all agents have a new lease")
            self.sessions.renew()
            self._began_s = now_s
            return []
        lost = set(self.sessions.silent())
        if now_s - self._began_s > self.sessions.lease_s:
            lost |= {v.node.id for v in self.snapshot.nodes.values() if v.up and not self.sessions.has(v.node.id)}
        for node in sorted(lost):
            lease_s = self.sessions.lease_s
            _log.warning("node '%s' is lost: its agent is silent for over %g s", node, lease_s, extra={"node": node})
            self.sessions.end(node)
        up = {v.node.id for v in self.snapshot.nodes.values() if v.up}
        lost &= up
        events: list[Event] = [NodeLost(now_s, node, "its agent is silent") for node in sorted(lost)]
        for view in self.snapshot.jobs.values() if lost else ():
            if (view.run_began_s is not None or view.suspended is not None) and not lost.isdisjoint(nodes_of(view)):
                events += lost_work(view, now_s, "its node was lost")
        return events

    def _give_up_unconfirmed(self, events: Sequence[Event], now_s: float) -> list[Event]:
        """Orders that nothing came of are repeated, and then given up; neither for jobs that change just now."""
        if self._unconfirmed.is_empty:
            return []
        found: list[Event] = []
        for view, how, waited_s in self._unconfirmed.overdue(self.snapshot.jobs.get, self.sessions.addresses()):
            tenancy = tenancy_of(view)
            if tenancy is None or any(getattr(event, "job", None) == view.job.id for event in events):
                continue
            nodes = ", ".join(f"'{node}'" for node in nodes_of(view))
            about = f"that it is {tenancy.doing} is not confirmed by node {nodes} after {waited_s:.0f} s"
            # What its agent says again was not understood when it was said first.
            self._heard.pop(view.job.id, None)
            self._orders.broken.forget(view.job.id)  # Whatever it waits for, it has waited for longer than any lease.
            if how is Overdue.ASK_AGAIN:
                found += self._warn(view, f"{about}: asked again", now_s)
                if tenancy.doing is Doing.STARTING and tenancy.coming is not None:
                    self._orders.run(view, tenancy.coming)
                elif changes_place(tenancy) and self._orders.has_left(view):
                    self._orders.begin_in_new_place(view)
                else:
                    self._orders.stop(view)
                continue
            found += self._warn(view, f"{about}: given up", now_s)
            for node in nodes_of(view):
                self.sessions.tell(node, [StopRun(run, 0.0) for run in going(view)])
            if tenancy.doing is Doing.ENDING:
                found.append(JobEnded(now_s, view.job.id, view.verdict or "stopped"))
            elif tenancy.doing is Doing.PAUSING:
                found.append(JobPaused(now_s, view.job.id, tier=Tier.NONE if view.saved_s is None else Tier.DISK))
            else:
                found.append(JobFailed(now_s, view.job.id, about, own=False))
        return found

    def _stood_still(self, now_s: float) -> bool:
        """Was this process stopped for so long that it may have heard no agent? Cycles that all take long are none."""
        late = now_s - self._looked_s > max(self.sessions.lease_s / 3, 2 * _LONGEST_WAIT_S)
        first, self._was_late, self._looked_s = not self._was_late, late, now_s
        return late and first

    def _forget(self, job_id: str) -> None:
        self._usage.forget(job_id)
        self._warned.pop(job_id, None)
        self._heard.pop(job_id, None)
        self._exits.forget(job_id)
        self._phases.forget(job_id)
        self._orders.forget(job_id)


def agents(
    lease_s: float = 15.0, resize_by: ResizeBy = ResizeBy.EARLY, clock: Callable[[], float] = time
) -> MakeExecutor:
    """An executor for the agents that connect; one that is silent for longer than its lease is taken for lost.

    `clock` must not jump: times that jobs ran and waited, and their limits, are differences of it.
    """
    return lambda snapshot: AgentExecutor(snapshot, Sessions(lease_s), clock, resize_by)
