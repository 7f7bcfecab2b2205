"""The executor whose world is real: it tells agents what to do, and takes in what they and the users say.

It runs in the controller's thread. Others hand it what they have by `post`, and learn by the future they get that it is
in the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from threading import Condition
from time import time
from typing import Any, assert_never

from msgspec import Struct

from hocket.agent.protocol import Forget, Hello, Order, Report, Save, Stop
from hocket.agent.protocol import Run as RunOrder
from hocket.control.state import State
from hocket.executors.agents.hearing import GONE, facts, is_finish
from hocket.executors.agents.launching import prepare_order, run_orders
from hocket.executors.agents.runs import changes_place, coming, going, nodes_of, present, tenancy_of
from hocket.executors.agents.sessions import Sessions
from hocket.model.action import Action, Checkpoint, End, Move, Pause, Prepare, Resize, Resume, Start, Store
from hocket.model.event import (
    Event,
    JobCheckpointed,
    JobEnded,
    JobFailed,
    JobPaused,
    JobRefused,
    JobResized,
    NodeJoined,
    NodeLost,
    StateStored,
)
from hocket.model.partition import Holding
from hocket.model.view import Doing, JobView

_LONGEST_WAIT_S = 1.0  # so that leases are looked at
_NOTES = 50  # warnings kept of a job

Facts = Callable[[State, float], Iterable[Event]]
Refused = dict[str, str]  # job → why it was refused


class _Posted(Struct, eq=False):
    make: Facts | None
    done: Future[Any]
    reports: deque[Report] = deque()
    result: Callable[[Refused], Any] = lambda _refused: None


class AgentExecutor:
    """Orders for the agents, events for the controller."""

    def __init__(self, state: State, sessions: Sessions, clock: Callable[[], float] = time) -> None:
        self.state = state
        self.sessions = sessions
        self.use: dict[str, dict[str, Any]] = {}  # job → what it was last seen to use
        self.warnings: dict[str, deque[str]] = {}  # job → what somebody should look at
        self._clock = clock
        self._began_s = clock()
        self._inbox: deque[_Posted] = deque()
        self._arrived = Condition()
        self._ready: list[Event] = []
        self._heard: dict[str, dict[int, int]] = {}  # job → run → its last report
        self._taken: list[_Posted] = []  # what the present cycle takes in
        self._closed = False

    # -- for other threads ----------------------------------------------------------------------------------

    def post(self, make: Facts, result: Callable[[Refused], Any] = lambda _refused: None) -> Future[Any]:
        """Have facts taken in; they are made of the state at that moment. Done when they are in the journal.

        The future's result is made of the jobs that the cycle refused, each with the reason.
        """
        return self._post(_Posted(make, Future(), result=result))

    def report(self, reports: Sequence[Report]) -> Future[Any]:
        """What an agent reports, in order."""
        count = len(reports)
        return self._post(_Posted(None, Future(), deque(reports), lambda _refused: count))

    def close(self) -> None:
        """Let `wait` return None."""
        with self._arrived:
            self._closed = True
            self._arrived.notify_all()

    def _post(self, posted: _Posted) -> Future[Any]:
        with self._arrived:
            if self._closed:
                posted.done.set_exception(RuntimeError("the controller is going down"))
            else:
                self._inbox.append(posted)
                self._arrived.notify_all()
        return posted.done

    # -- the port -------------------------------------------------------------------------------------------

    def wait(self, until_s: float | None) -> tuple[float, Sequence[Event]] | None:
        """The next moment, and what is known to have happened by then."""
        while True:
            with self._arrived:
                if self._closed:
                    return None
                if not self._inbox and not self._ready:
                    left = _LONGEST_WAIT_S if until_s is None else until_s - self._clock()
                    if left > 0:
                        self._arrived.wait(min(left, _LONGEST_WAIT_S))
                    if self._closed:
                        return None
                self._taken = list(self._inbox)
                self._inbox.clear()
            now_s = max(self._clock(), self.state.now_s)
            events = self._ready + self._events(now_s) + self._losses(now_s)
            self._ready = []
            if events or self._taken or (until_s is not None and until_s <= now_s):
                return now_s, events

    def apply(self, actions: Iterable[Action]) -> None:
        """Tell the agents. What needs no agent is true at once."""
        now_s = self.state.now_s
        for action in actions:
            job_id = action.job
            view = self.state.jobs.get(job_id)
            if view is None:
                continue  # It ended in this very cycle.
            match action:
                case Start(_, _, to, _) | Resume(_, _, to, _):
                    self._run(view, to)
                case Pause():
                    self._stop(view)
                case Resize(_, _, to, _) | Move(_, _, to, _):
                    tenancy = tenancy_of(view)
                    was = tenancy.holding if tenancy is not None else None
                    if was is not None and was.slices == to.slices and was.replicas == to.replicas:
                        self._ready.append(JobResized(now_s, job_id))  # Only a boundary changed.
                    else:
                        self._stop(view)
                case End(_, verdict):
                    if view.tenancies:
                        self._stop(view)
                    else:
                        self._ready.append(JobEnded(now_s, job_id, verdict))
                case Prepare():
                    self._prepare(view)
                case Checkpoint():
                    if view.job.launch is not None and view.job.launch.checkpoint_signal:
                        self._order(nodes_of(view), Save(present(view)))
                    else:
                        self._ready.append(JobCheckpointed(now_s, job_id))  # It saves when it pleases.
                case Store(_, tier):
                    self._ready.append(StateStored(now_s, job_id, tier))
                case _:
                    assert_never(action)

    def settle(self, facts_of_cycle: Iterable[Event]) -> None:
        """The cycle is in the journal with these facts: whoever waits for that learns it."""
        refused: Refused = {}
        for event in facts_of_cycle:
            if isinstance(event, JobRefused):
                refused[event.job] = event.reason
            elif isinstance(event, JobEnded) or (isinstance(event, JobFailed) and event.final):
                self._forget(event.job)
        taken, self._taken = self._taken, []
        later = [posted for posted in taken if posted.reports]  # They wait for what others of their job changed.
        for posted in taken:
            if not posted.reports and not posted.done.done():
                posted.done.set_result(posted.result(refused))
        with self._arrived:
            self._inbox.extendleft(reversed(later))

    def fail(self, failure: Exception) -> None:
        """The cycle could not be written: nothing of it was said, and whoever said it may say it again."""
        taken, self._taken = self._taken, []
        for posted in taken:
            if not posted.done.done():
                posted.done.set_exception(failure)
        self._heard.clear()
        self._ready = []

    def refuse(self, failure: Exception) -> None:
        """Nothing can be taken in for now: whoever waits learns it."""
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
                    new = list(posted.make(self.state, now_s))
                    found += new
                    changed.update(
                        job for e in new if (job := getattr(e, "job", None)) is not None and type(job) is str
                    )
                while posted.reports and posted.reports[0].run.job not in changed:
                    report = posted.reports.popleft()
                    if events := self._hear(report, now_s):
                        found += events
                        changed.add(report.run.job)
            except Exception as error:  # Somebody's bad input must not stop everybody's cycle.
                posted.reports.clear()
                posted.done.set_exception(error)
        return found

    def _hear(self, report: Report, now_s: float) -> list[Event]:
        run = report.run
        view = self.state.jobs.get(run.job)
        heard = self._heard.setdefault(run.job, {}) if view is not None else {}
        if view is None or (report.n and report.n <= heard.get(run.number, 0)):
            return []
        heard[run.number] = max(report.n, heard.get(run.number, 0))
        if report.event == "use":
            self.use[run.job] = report.fields
        elif report.event in ("warning", "hung"):
            self.warn(run.job, str(report.fields.get("about", "it hung")))
        elif report.event == "progress":
            self._look_for_its_metric(view, report)
        events = facts(view, report, now_s)
        if report.event in GONE:
            self._next_place(view, report)
        return events

    def warn(self, job_id: str, about: str) -> None:
        """Keep something that the job's user should see."""
        notes = self.warnings.setdefault(job_id, deque(maxlen=_NOTES))
        if about not in notes:
            notes.append(about)

    def _look_for_its_metric(self, view: JobView, report: Report) -> None:
        """A goal that speaks of what the job never reports is never reached: its user should know after one epoch."""
        metric = getattr(view.job.criterion, "metric", None)
        seen = report.fields.get("metrics", {})
        if metric is not None and metric not in seen and not any(metric in o.metrics for o in view.observations):
            reported = ", ".join(sorted(map(str, seen))) or "nothing"
            self.warn(view.job.id, f"its criterion is about '{metric}', and it has reported {reported} so far")

    def _next_place(self, view: JobView, report: Report) -> None:
        """A run that was to change its place has left the old one."""
        tenancy = tenancy_of(view)
        if tenancy is None or not changes_place(tenancy) or report.run != present(view):
            return
        if tenancy.coming is not None and not is_finish(report):
            self._run(view, tenancy.coming)

    def _losses(self, now_s: float) -> list[Event]:
        """Nodes whose agents are silent; after a restart each has its lease to say hello."""
        lost = set(self.sessions.silent())
        if now_s - self._began_s > self.sessions.lease_s:
            lost |= {v.node.id for v in self.state.nodes.live.values() if v.up and not self.sessions.has(v.node.id)}
        for node in lost:
            self.sessions.end(node)
        up = {v.node.id for v in self.state.nodes.live.values() if v.up}
        return [NodeLost(now_s, node, "its agent is silent") for node in sorted(lost & up)]

    # -- hello ----------------------------------------------------------------------------------------------

    def hello(self, hello: Hello) -> Facts:
        """The facts of a node that is there, with these runs: some may be unwanted, some may be missing."""

        def make(state: State, now_s: float) -> list[Event]:
            known = state.nodes.live.get(hello.node.id)
            if known is None or not known.up or known.node != hello.node:
                self._let_go(hello, [])
                return [NodeJoined(now_s, hello.node)]
            here = [v for v in state.jobs.live.values() if hello.node.id in nodes_of(v) or v.preparing]
            self._let_go(hello, here)
            return [event for view in here for event in self._compare(view, hello, now_s)]

        return make

    def _let_go(self, hello: Hello, here: Sequence[JobView]) -> None:
        wanted = {run for view in here for run in going(view)}
        live = {view.job.id for view in here}
        for run in hello.runs:
            if run.job not in live:
                self.sessions.tell(hello.node.id, [Forget(run.job)])
            elif run not in wanted:
                self.sessions.tell(hello.node.id, [Stop(run, 0.0)])

    def _compare(self, view: JobView, hello: Hello, now_s: float) -> list[Event]:
        """Set a job going again from what its agent has of it, however much of its orders had come through."""
        job_id, tenancy = view.job.id, tenancy_of(view)
        old, new = present(view) in hello.runs, coming(view) in hello.runs
        if tenancy is None:
            if view.preparing and not new:
                self._prepare(view)
            return []
        doing = tenancy.doing
        if doing is Doing.ENDING:
            if not (old or new):
                return [JobEnded(now_s, job_id, view.verdict or "stopped")]
            self._stop(view)
        elif doing is Doing.STARTING:
            if tenancy.coming is not None:  # If the agent has the run, it may stand prepared; nothing starts twice.
                self._run(view, tenancy.coming)
        elif doing is Doing.PAUSING:
            if not old:
                return [JobPaused(now_s, job_id)]
            self._stop(view)
        elif changes_place(tenancy):
            if old:
                self._stop(view)
            elif tenancy.coming is not None:
                self._run(view, tenancy.coming)
        elif not old:
            return [JobFailed(now_s, job_id, "its agent has lost it", own=False)]
        return []

    # -- from actions to orders -----------------------------------------------------------------------------

    def _run(self, view: JobView, to: Holding) -> None:
        orders: dict[str, RunOrder] = run_orders(view.job, coming(view), to, self.sessions.addresses())
        for node, order in orders.items():
            self.sessions.tell(node, [order])

    def _prepare(self, view: JobView) -> None:
        for pid in view.partitions:
            partition = self.state.partitions.live[pid]
            for part, replicas in zip(partition.slices, partition.tenants[0].replicas, strict=True):
                self.sessions.tell(part.node, [prepare_order(view.job, coming(view), replicas)])

    def _stop(self, view: JobView) -> None:
        """Stop what of the job has processes; of one that changes its place, the old run."""
        grace_s = view.job.launch.grace_s if view.job.launch is not None else 30.0
        tenancy = tenancy_of(view)
        runs = going(view)
        if tenancy is not None and changes_place(tenancy):
            runs = [present(view)]
        for run in runs:
            self._order(nodes_of(view), Stop(run, grace_s))

    def _forget(self, job_id: str) -> None:
        self.use.pop(job_id, None)
        self.warnings.pop(job_id, None)
        self._heard.pop(job_id, None)
        self._order(self.sessions.addresses(), Forget(job_id))

    def _order(self, nodes: Iterable[str], order: Order) -> None:
        for node in nodes:
            self.sessions.tell(node, [order])
