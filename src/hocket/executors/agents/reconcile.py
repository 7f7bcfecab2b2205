"""An agent says hello: what it has is compared with what it should have, and it is told the difference.

It may be new, or back after a while; or the controller is, and how far its last orders came is not known.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from hocket.agent.protocol import ForgetJob, Hello, Report, StopRun
from hocket.control.node_change import jobs_that_must_leave
from hocket.executors.agents.local_effects import resizes_in_place, stays
from hocket.executors.agents.multi_node_exits import MultiNodeExits
from hocket.executors.agents.orders import Orders
from hocket.executors.agents.reports_to_events import process_lost
from hocket.executors.agents.run_numbers import (
    changes_place,
    coming,
    going,
    is_continuing,
    last_given,
    nodes_of,
    present,
    tenancy_of,
)
from hocket.executors.agents.sessions import Sessions
from hocket.executors.agents.standby_runs import keeps_standby
from hocket.model.event import Event, JobEnded, JobFailed, JobPaused, JobPrepared, NodeJoined, RunsPassed
from hocket.model.snapshot import Snapshot
from hocket.model.view import Doing, JobView

_log = logging.getLogger("hocket.executors")


class Reconciliation:
    """One hello, and what comes of it."""

    def __init__(self, hello: Hello, sessions: Sessions, orders: Orders, parts: MultiNodeExits) -> None:
        self._hello = hello
        self._sessions, self._orders, self._exits = sessions, orders, parts

    def facts(self, snapshot: Snapshot, now_s: float) -> list[Event]:
        """The facts of a node that is there, with these runs: some may be unwanted, some may be missing."""
        node = self._hello.node
        known = snapshot.nodes.get(node.id)
        runs, kept = len(self._hello.runs), len(self._hello.jobs)
        said = "node '%s' says hello with %d runs, and keeps files of %d jobs"
        _log.info(said, node.id, runs, kept, extra={"node": node.id})
        has_files = {*self._hello.jobs, *(run.job for run in self._hello.runs)}
        self._sessions.note_files(node.id, [job for job in has_files if job in snapshot.jobs])
        self._forget_again(snapshot)
        if known is None or not known.up:
            self._let_go([], set(), snapshot)
            return [NodeJoined(now_s, node), *self._later_runs(snapshot, set(), now_s)]
        leave = jobs_that_must_leave(snapshot, known.node, node) if known.node != node else set()
        views = [v for v in snapshot.jobs.values() if v.job.id not in leave]
        here = [v for v in views if node.id in nodes_of(v) or v.preparing]
        later = self._later_runs(snapshot, {v.job.id for v in here}, now_s)
        passed = {event.job for event in later}
        here = [v for v in here if v.job.id not in passed]
        # Runs that are not wanted may still run here, for this node was not lost: their jobs wait for their end.
        self._let_go(here, {run.job for run in self._hello.runs if run.job in snapshot.jobs}, snapshot)
        joined = [NodeJoined(now_s, node)] if known.node != node else []
        return [*joined, *later, *(event for view in here for event in self._compare(view, now_s))]

    def _later_runs(self, snapshot: Snapshot, here: set[str], now_s: float) -> list[JobFailed | RunsPassed]:
        """Of jobs whose last run on that node has a number which was not given yet: the journal is an older one.

        Whatever of such a job is believed to run there (`here`) does not.
        """
        found: list[JobFailed | RunsPassed] = []
        for job_id, number in self._hello.seen.items():
            if (view := snapshot.jobs.get(job_id)) is None or number <= last_given(view):
                continue
            if job_id in here and tenancy_of(view) is not None:
                reason = f"its node knows run {number} of it, which is later than any in the journal"
                found.append(JobFailed(now_s, job_id, reason, own=False))
            found.append(RunsPassed(now_s, job_id, number))
        return found

    def _forget_again(self, snapshot: Snapshot) -> None:
        """An agent that was to be told that a job is over may have died before it was."""
        running = {run.job for run in self._hello.runs}  # of which we decide below
        over = [job for job in self._hello.jobs if job not in running and job not in snapshot.jobs]
        self._sessions.tell(self._hello.node.id, [ForgetJob(job) for job in over])

    def _let_go(self, here: Sequence[JobView], waiting: set[str], snapshot: Snapshot) -> None:
        """End the runs that are not wanted; of jobs that wait for that, it must be reported.

        Of a job that goes on, the agent keeps the numbers of its runs: an older journal may not know them.
        """
        wanted = {run for view in here for run in going(view)} | {coming(v) for v in here if keeps_standby(v)}
        left = [run for run in self._hello.runs if run not in wanted and run.job in waiting]
        self._orders.broken.agent_connected(self._hello.node.id, self._hello.runs, left)
        for run in self._hello.runs:
            if run not in wanted:
                fields = {"node": self._hello.node.id, "job": run.job, "run": run.number}
                _log.info("run %d of job '%s' is not wanted any more", run.number, run.job, extra=fields)
            if run.job not in snapshot.jobs:
                self._sessions.tell(self._hello.node.id, [ForgetJob(run.job)])
            elif run not in wanted:
                self._sessions.tell(self._hello.node.id, [StopRun(run, 0.0)])

    def _compare(self, view: JobView, now_s: float) -> list[Event]:
        """Set a job going again from what its agent has of it, however much of its orders had come through."""
        orders, job_id, tenancy = self._orders, view.job.id, tenancy_of(view)
        old, new = present(view) in self._hello.runs, coming(view) in self._hello.runs
        if view.suspended is not None and (tenancy is None or is_continuing(view)):
            return self._compare_suspended(view, now_s)
        if tenancy is None:
            if view.preparing and not view.partitions:
                return [JobPrepared(now_s, job_id)]  # It has no place any more, and starts cold when it has one.
            if view.preparing and orders.prepares:
                # It may be a spare already, which was said before it was asked for: it is said again.
                orders.prepare(view)
            return []
        doing = tenancy.doing
        if doing is Doing.ENDING:
            if not (old or new):
                return [JobEnded(now_s, job_id, view.verdict or "stopped")] if self._is_gone(view, now_s) else []
            orders.stop(view)
        elif doing is Doing.STARTING:
            if tenancy.coming is not None:  # If the agent has the run, it may stand prepared; nothing starts twice.
                orders.run(view, tenancy.coming)
        elif doing is Doing.PAUSING:
            if not old:
                return [JobPaused(now_s, job_id)] if self._is_gone(view, now_s) else []
            orders.pause_or_end(view)
        elif changes_place(tenancy) and (resizes_in_place(view) or not stays(tenancy)):
            if old:
                orders.resize(view)
            elif orders.has_left(view) or self._is_gone(view, now_s):
                orders.begin_in_new_place(view)
        elif not old:
            return [JobFailed(now_s, job_id, "its agent has lost it", own=False)]
        else:
            if len(nodes_of(view)) > 1:  # It counts as started since one part is; this one may only stand prepared.
                orders.run_parts(view, [self._hello.node.id])
            if keeps_standby(view) and orders.prepares:
                orders.prepare(view)  # If it stands, that is said again.
        return []

    def _compare_suspended(self, view: JobView, now_s: float) -> list[Event]:
        """A process that is suspended stays, unless it was told to go on, or to write its state and end."""
        tenancy = tenancy_of(view)
        if present(view) not in self._hello.runs:
            return process_lost(view, now_s, "its agent has lost it")
        if tenancy is not None and tenancy.coming is not None:
            self._orders.run(view, tenancy.coming)
        else:
            self._orders.store(view)
        return []

    def _is_gone(self, view: JobView, now_s: float) -> bool:
        """The node has nothing of the attempt that was to leave: has no other node anything either?"""
        gone = Report(present(view), 0, now_s, "lost")
        return self._exits.gone(view, gone, self._hello.node.id) is not None
