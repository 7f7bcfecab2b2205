"""The runs on this node: started, stopped and forgotten as ordered; found again when the agent was away.

Whatever matters is in the run folders, so an agent may be killed at any time. Three threads meet here, under one lock:
one brings orders, one takes away what is to be reported, and the main one waits for events and for the ends of
sidecars. None of them holds the lock while it waits for another.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec.structs import asdict

from hocket.agent.node.containment import Containment
from hocket.agent.node.events_reader import facts, story
from hocket.agent.node.job_code import CodeNeeds, JobCode
from hocket.agent.node.known_run import KnownRun, cgroup_of, read_run
from hocket.agent.node.orders_awaiting_code import OrdersAwaitingCode
from hocket.agent.node.phase_token_server import PhaseTokenServer
from hocket.agent.node.poller import Poller
from hocket.agent.node.query_run import has_resources, is_query, write_keep, write_resources
from hocket.agent.node.report_outbox import ReportBatch, ReportOutbox
from hocket.agent.node.run_log import log_fact, log_run
from hocket.agent.node.run_spec import ShowDevices, sidecar_spec
from hocket.agent.node.sidecar_process import SidecarProcess, found, launched
from hocket.agent.node.state_folder import RUNS_KEPT, StateFolder, remove
from hocket.agent.orphan_cleanup import kill_orphans
from hocket.agent.phase_token_rules import FLOOR_S
from hocket.agent.protocol import (
    ContinueRun,
    ForgetJob,
    PrepareRun,
    Report,
    ResizeRun,
    RunKey,
    RunLimits,
    RunOrder,
    SaveRun,
    StartRun,
    StopRun,
    SuspendRun,
)

_log = logging.getLogger("hocket.agent")
_CAN_WAIT = ("use",)  # events that may be reported later
_SWEEP_S, _SWEEP_UNWATCHED_S = 10.0, 0.2  # between looks at all files, just in case, and where none can be watched
_UNDELIVERED_S = 0.02  # between attempts to tell a sidecar that does not listen yet
_STUCK_S = 10.0  # beyond its grace, or after an order to kill, until a sidecar is killed itself
_CLEAN_ROUND_S, _CLEAN_S = 0.3, 10.0  # to kill what a dead sidecar left
_BOOTING_S = 1.0  # for a sidecar to come up that an agent before us launched
_OLDER_S = 2 * _STUCK_S  # for an older run of the job to be gone


class Runs:
    """`find` first; then `carry_out`, `next_batch` and `wait`, each in its own thread."""

    def __init__(
        self,
        state: StateFolder,
        watch: Poller,
        devices: ShowDevices,
        containment: Containment,
        phase_limit_s: float = FLOOR_S,
        code: JobCode | None = None,
    ) -> None:
        self._state, self._poller, self._devices, self._containment = state, watch, devices, containment
        self._changed = threading.Condition()
        self._by_job: dict[str, dict[int, KnownRun]] = {}
        self._code, self._awaiting = code, OrdersAwaitingCode(code, self._code_made)
        self._refused: dict[RunKey, Report] = {}  # not started, for want of space; said again if asked again
        self._outbox = ReportOutbox(self._changed)
        self._tokens = PhaseTokenServer(state.phase_tokens, watch.ring, phase_limit_s)
        self._live: dict[KnownRun, SidecarProcess] = {}
        self._undelivered: dict[KnownRun, None] = {}
        self._cleaning: dict[KnownRun, float] = {}  # a dead sidecar's run → until when to try
        self._forgetting: set[str] = set()
        self._sweep_s, self._leaving = 0.0, False

    # -- for hello ----------------------------------------------------------------------------------------------

    def present(self) -> tuple[RunKey, ...]:
        """Those that live, can be started, or have reports to be heard."""
        with self._changed:
            kept = {r.key for r in self._all() if not (r.cursor.over or r.is_forgotten)}
            return tuple(sorted(kept | self._outbox.keys() | self._awaiting.waiting()))

    def last_numbers(self) -> dict[str, int]:
        """Job → its last run, of those that were not forgotten: the order for that may have been lost, and a controller
        whose journal is older does not know that run."""
        with self._changed:
            return {job: max(runs) for job, runs in self._by_job.items() if runs and job not in self._forgetting}

    # -- orders -------------------------------------------------------------------------------------------------

    def carry_out(self, order: RunOrder) -> None:
        """Do what the controller says; it may have said so before."""
        with self._changed:
            try:
                self._carry_out(order)
            except Exception as error:
                fields = {"job": order.job if isinstance(order, ForgetJob) else order.run.job}
                if not isinstance(error, OSError):
                    _log.exception("bug: order %s", type(order).__name__, extra=fields)
                if isinstance(order, PrepareRun | StartRun):
                    self._refuse(order.run, error)
                else:
                    _log.warning("order %s failed: %s", order, error, extra=fields)
            self._changed.notify_all()
        self._poller.ring()

    def _carry_out(self, order: RunOrder) -> None:
        match order:
            case PrepareRun() | StartRun():
                self._begin_or_await_code(order)
            case StopRun():
                self._stop(order)
            case ResizeRun():
                self._resize(order)
            case SuspendRun():
                self._suspend(order)
            case ContinueRun():
                self._continue(order)
            case SaveRun():
                run = self._known(order.run)
                if run is not None and run.sidecar is not None:
                    log_run(logging.INFO, run.key, "is asked to save a checkpoint")
                    self._tell(run, {"do": "checkpoint"})
            case ForgetJob():
                self._forget(order.job)

    def _begin_or_await_code(self, order: PrepareRun | StartRun) -> None:
        job, number = order.run.job, order.run.number
        earlier = [key for key in self._awaiting.waiting() if key.job == job and key.number < number]
        self._awaiting.drop(earlier)
        for key in earlier:
            self._outbox.say(_lost(key, "a later run of the job is known here"))
        is_known = number in self._by_job.get(job, {}) or order.run in self._refused or self._leaving
        if is_known or not self._awaiting.must_wait(order):
            self._begin_or_go_on(order)
        else:
            log_run(logging.INFO, order.run, "waits for its working directory or packages")

    def _code_made(self, needs: CodeNeeds, error: Exception | None) -> None:
        """What orders waited for is there, or will not come; called by the thread that made it."""
        with self._changed:
            orders = self._awaiting.take(needs)
            if error is not None:
                for order in orders:
                    self._refuse(order.run, error)
                self._changed.notify_all()
        if error is None:
            for order in orders:
                self.carry_out(order)
        self._poller.ring()

    def _begin_or_go_on(self, order: PrepareRun | StartRun) -> None:
        job, number = order.run.job, order.run.number
        self._await(lambda: job not in self._forgetting, f"job '{job}' is still being forgotten")
        runs = self._by_job.setdefault(job, {})
        run = runs.get(number)
        if run is not None and run.stands_by and story(run.events).ended:
            self._await(lambda: run.ended, f"run {number} of job '{job}' was let go and does not end")
        if self._leaving:
            self._outbox.say(_lost(order.run, "this agent is leaving"))
        elif run is None and order.run in self._refused:
            self._outbox.say(self._refused[order.run])
        elif run is None and number < max(runs, default=0):
            self._outbox.say(_lost(order.run, "a later run of the job is known here"))
        elif run is not None and run.was_let_go:
            self._end_older(job, number) if isinstance(order, StartRun) else None
            self._begin(order, order.env if isinstance(order, StartRun) else {}, run.last_n)
        elif isinstance(order, PrepareRun):
            self._begin(order, {}) if run is None else self._say_again(run)
        elif run is None:
            self._end_older(job, number)
            self._begin(order, order.env)
        elif run.stands_by and any(n > number and not r.stands_by for n, r in runs.items()):
            self._stop(StopRun(run.key, 0.0))  # It is too late for it: a later one was started.
        elif run.stands_by and not run.ended:
            self._end_older(job, number)
            self._let_go_on(run, order)
        else:
            self._say_again(run)

    def _begin(self, order: PrepareRun | StartRun, env: dict[str, str], after: int = 0) -> None:
        """Begin a run, or begin it again if it never started; its reports are numbered on from those it made so far."""
        key, warm = order.run, isinstance(order, PrepareRun)
        if (let_go := self._by_job[key.job].pop(key.number, None)) is not None:
            self._leave(let_go)
        self._drop_oldest(key.job)
        folder, spec = self._state.make_run(key.job, key.number), dict[str, Any]()
        try:
            if is_query(order.spec) and isinstance(order, StartRun):
                write_resources(folder, env, order.limits)
            spec = sidecar_spec(order, env, self._state, self._devices, self._containment, self._tokens, self._code)
            run = KnownRun(key, folder, spec)
            run.create(spec, after)
            run.stands_by = warm
            self._launch(run, order.secrets if isinstance(order, StartRun) else {})
        except BaseException:
            self._containment.remove(cgroup_of(spec))
            remove(folder)
            raise
        self._by_job[key.job][key.number] = run
        for refused in [k for k in self._refused if k.job == key.job]:
            del self._refused[refused]

    def _let_go_on(self, run: KnownRun, order: StartRun) -> None:
        """Hand over to what stands prepared, or start it cold if that is gone."""
        self._await(lambda: run not in self._cleaning, "what was prepared cannot be killed")
        if run.ended:
            self._say_again(run)
            return
        env, workers = {**self._devices(order.env), **order.secrets}, order.spec.get("workers", 1)
        start = {"do": "start", "env": env, "workers": workers}
        if is_query(order.spec):
            write_resources(run.folder, order.env, order.limits)
        with suppress(OSError):  # A full disk does not keep it from starting.
            run.keep_hand_over({} if order.secrets else start)  # Secrets are in no file.
        if run.sidecar is not None:
            log_run(logging.INFO, run.key, "continues in its prepared process")
            self._containment.change_limits(run.key, run.cgroup, order.limits)
            self._tell(run, start)
        else:
            self._outbox.drop_own(run.key)
            self._start_cold(run, order)
        run.stands_by = False

    def _start_cold(self, run: KnownRun, order: StartRun) -> None:
        try:
            spec = sidecar_spec(
                order, order.env, self._state, self._devices, self._containment, self._tokens, self._code
            )
            run.mark, run.cgroup = spec["mark"], cgroup_of(spec)
            run.create(spec)
            self._launch(run, order.secrets)
        except OSError as error:
            log_run(logging.WARNING, run.key, "cannot start cold: %s", error)
            self._containment.remove(run.cgroup)
            self._lost(run)

    def _launch(self, run: KnownRun, secrets: dict[str, str]) -> None:
        self._watch_events(run)  # before there can be any
        try:
            self._attach(run, sidecar := launched(run.folder, secrets))
            how = "is prepared" if run.stands_by else "starts"
            log_run(logging.INFO, run.key, "%s, by sidecar process %d", how, sidecar.pid, sidecar=sidecar.pid)
        except BaseException:
            self._leave(run)
            raise

    def _end_older(self, job: str, number: int) -> None:
        """Kill what runs of the job; it is a bug or a race that it does."""
        older = [r for n, r in self._by_job[job].items() if n < number and self._lives(r)]
        for run in (r for r in older if r.sidecar is not None):
            self._kill(run)
        names = ", ".join(str(r.key.number) for r in older)
        self._await(lambda: not any(self._lives(r) for r in older), f"run {names} of job '{job}' does not end")

    def _drop_oldest(self, job: str) -> None:
        over = sorted(n for n, r in self._by_job[job].items() if r.cursor.over)
        for number in over[: max(len(self._by_job[job]) + 1 - RUNS_KEPT, 0)]:
            remove(self._by_job[job].pop(number).folder)

    def _stop(self, order: StopRun) -> None:
        self._awaiting.drop([order.run])
        run = self._known(order.run)
        if run is None:
            return
        if run.sidecar is not None:
            log_run(logging.INFO, run.key, "is asked to save and leave, within %g s", order.grace_s)
            run.is_stopping = True
            if run.takes_turns:
                self._tokens.ask_to_leave(run.key)
            if order.keep:
                write_keep(run.folder, order.keep)
            self._tell(run, {"do": "stop", "grace_s": order.grace_s})
            self._await_delivery([run])
            by_s = time.monotonic() + order.grace_s + _STUCK_S
            run.kill_s = by_s if run.kill_s is None else min(run.kill_s, by_s)
        elif run in self._cleaning:
            run.stands_by = False  # It will be reported as lost, for it cannot be started any more.
        elif run.ended:
            self._say_again(run)
        else:
            self._lost(run)

    def _resize(self, order: ResizeRun) -> None:
        """Other resources for a run that goes on; if it has ended, that is said instead."""
        run = self._living(order.run)
        if run is None:
            return
        write_resources(run.folder, order.env, order.limits)
        self._change_limits(run, order.limits)
        log_run(logging.INFO, run.key, "goes on with size %s, in the same process", order.env.get("HOCKET_SIZE", "1"))
        self._outbox.say(Report(run.key, 0, time.time(), "resized", {"size": order.env.get("HOCKET_SIZE", "1")}))

    def _change_limits(self, run: KnownRun, limits: RunLimits) -> None:
        # What it holds of its memory it gives back with its next batch; it must not be killed before.
        held_mib = run.cgroup.limit_mib() if run.cgroup is not None else 0.0
        mem_mib = max(limits.mem_mib, held_mib) if limits.mem_mib else 0.0
        self._containment.change_limits(run.key, run.cgroup, RunLimits(mem_mib, limits.cores))

    def _suspend(self, order: SuspendRun) -> None:
        run = self._living(order.run)
        if run is not None:
            log_run(logging.INFO, run.key, "is suspended, within %g s", order.grace_s)
            self._tell(run, {"do": "suspend", "grace_s": order.grace_s})

    def _continue(self, order: ContinueRun) -> None:
        run = self._living(order.run)
        if run is not None:
            if has_resources(run.folder):
                write_resources(run.folder, order.env, order.limits)
            self._change_limits(run, order.limits)
            log_run(logging.INFO, run.key, "goes on, in the same process")
            self._tell(run, {"do": "continue"})

    def _forget(self, job: str) -> None:
        self._forgetting.add(job)
        self._awaiting.drop([key for key in self._awaiting.waiting() if key.job == job])
        for run in self._by_job.get(job, {}).values():
            run.is_forgotten = True
            self._outbox.drop(run)
            if run.sidecar is not None:
                self._kill(run)
        self._await_delivery(list(self._by_job.get(job, {}).values()))
        for key in [k for k in {*self._refused, *self._outbox.keys()} if k.job == job]:
            self._refused.pop(key, None)
            self._outbox.drop_own(key)
        self._end_forgetting(job)

    def _end_forgetting(self, job: str) -> None:
        runs = self._by_job.get(job, {})
        if job in self._forgetting and not any(self._lives(r) for r in runs.values()):
            for run in runs.values():
                self._leave(run)
            self._by_job.pop(job, None)
            self._state.forget(job)
            self._forgetting.discard(job)
            said = "job '%s' has ended: its run files are removed; logs and checkpoints stay"
            _log.info(said, job, extra={"job": job})

    def _refuse(self, key: RunKey, error: Exception) -> None:
        log_run(logging.WARNING, key, "cannot start: %s", error)
        why = {"reason": str(error), "passing": isinstance(error, OSError)}  # Space, processes and files come back.
        report = Report(key, 0, time.time(), "cannot-start", why)
        if key.number not in self._by_job.get(key.job, {}):
            self._refused[key] = report
        self._outbox.say(report)

    def _known(self, key: RunKey) -> KnownRun | None:
        """A run; if there is none, that is said."""
        run = self._by_job.get(key.job, {}).get(key.number)
        if run is None or run.is_forgotten:
            self._outbox.say(self._refused.get(key) or _lost(key, "it is not known here"))
            return None
        return run

    def _living(self, key: RunKey) -> KnownRun | None:
        """A run whose sidecar lives; if it has ended, or is not known, that is said."""
        run = self._known(key)
        if run is not None and run.sidecar is None and run.ended:
            self._say_again(run)
        return run if run is not None and run.sidecar is not None else None

    def _await_delivery(self, runs: list[KnownRun]) -> None:
        """An order to end is carried out when its sidecar has it: the lease may be renewed then, and it would start."""
        self._await(lambda: not any(run in self._undelivered for run in runs), "its sidecar does not listen")

    def _await(self, holds: Callable[[], bool], otherwise: str) -> None:
        """Wait, while others may go on, for what the main thread does."""
        if not holds():
            self._poller.ring()
            if not self._changed.wait_for(holds, _OLDER_S):
                raise TimeoutError(otherwise)

    # -- telling sidecars ---------------------------------------------------------------------------------------

    def _tell(self, run: KnownRun, order: dict[str, Any]) -> None:
        run.orders.append(order)
        self._deliver(run)

    def _deliver(self, run: KnownRun) -> None:
        if not run.deliver():
            self._undelivered[run] = None
        elif run in self._undelivered:
            del self._undelivered[run]
            self._changed.notify_all()

    def _kill(self, run: KnownRun) -> None:
        log_run(logging.INFO, run.key, "is killed")
        self._tell(run, {"do": "kill"})
        run.kill_s = time.monotonic() + _STUCK_S

    def stop_all(self) -> None:
        """Ask everything that runs to save and leave, each with its own grace; nothing is started any more."""
        with self._changed:
            self._leaving = True
            for key in self._awaiting.waiting():
                self._outbox.say(_lost(key, "this agent is leaving"))
            self._awaiting.drop(self._awaiting.waiting())
            for run in self._live:
                self._tell(run, {"do": "stop"})
                run.kill_s = time.monotonic() + run.grace_s + _STUCK_S

    def kill_all(self) -> None:
        """End everything that runs."""
        with self._changed:
            for run in self._live:
                self._kill(run)

    # -- reports ------------------------------------------------------------------------------------------------

    def next_batch(self) -> ReportBatch:
        """Wait until there is something to be said."""
        with self._changed:
            return self._outbox.next_batch()

    def acknowledged(self, batch: ReportBatch) -> None:
        """The controller has it in its journal."""
        with self._changed:
            self._outbox.acknowledged(batch)
            for part in batch.parts:
                if part.run.cursor.over:
                    self._leave(part.run)

    def not_delivered(self) -> None:
        """It did not get through."""
        with self._changed:
            self._outbox.not_delivered()

    def rejected(self, batch: ReportBatch) -> Report | None:
        """The controller cannot read it; the report that is given up, if it was one alone."""
        with self._changed:
            return self._outbox.rejected(batch)

    @property
    def outbox_is_empty(self) -> bool:
        """Whether there is nothing to be said."""
        with self._changed:
            return self._outbox.is_empty

    def _say_again(self, run: KnownRun) -> None:
        run.say_again()
        self._outbox.add(run)

    # -- what happens -------------------------------------------------------------------------------------------

    def find(self) -> None:
        """Go on with the runs that an agent before us had."""
        with self._changed:
            booting_s = time.monotonic() + _BOOTING_S
            for folder in self._state.runs():
                run = read_run(folder)
                if run is None:
                    continue
                self._by_job.setdefault(run.key.job, {})[run.key.number] = run
                if run.cursor.over:
                    continue
                self._outbox.add(run)
                if not run.ended:
                    self._find_again(run, booting_s)
            self._containment.remove_all_but([run.cgroup for run in self._all() if self._lives(run)])

    def _find_again(self, run: KnownRun, booting_s: float) -> None:
        self._watch_events(run)
        sidecar = found(run.folder)
        while sidecar is None and not story(run.events).begun and time.monotonic() < booting_s:
            time.sleep(0.01)
            sidecar = found(run.folder)
        if sidecar is not None:
            log_run(logging.INFO, run.key, "is found, sidecar process %d", sidecar.pid, sidecar=sidecar.pid)
            if run.takes_turns:
                with suppress(OSError):  # The server has logged it; the job runs on without tokens.
                    self._tokens.listen()
            self._attach(run, sidecar)
            start = run.hand_over()
            if start and not story(run.events).started:
                self._tell(run, start)
            elif start is not None and not story(run.events).started:
                run.stands_by = True  # It has secrets, which the controller tells when it orders the start again.
        else:
            self._settle(run)

    def close(self) -> None:
        """Hand out no phase tokens any more: jobs go on without."""
        self._tokens.close()

    @property
    def are_gone(self) -> bool:
        """Whether nothing runs here."""
        with self._changed:
            return not self._live and not self._cleaning

    def tick(self) -> float | None:
        """Do what is due; in how many seconds there is more, None if nothing is to be expected."""
        with self._changed:
            now_s = time.monotonic()
            for run in list(self._undelivered):
                self._deliver(run)
            waiting = [_UNDELIVERED_S] if self._undelivered else []
            for run, sidecar in self._live.items():
                if run.kill_s is not None:
                    if now_s >= run.kill_s:
                        log_run(logging.WARNING, run.key, "does not end: its sidecar is killed")
                        sidecar.kill()
                        run.kill_s = now_s + _STUCK_S
                    waiting.append(run.kill_s - now_s)
            if self._live:
                if now_s >= self._sweep_s:
                    for run in self._live:
                        self._look(run)
                    blind = any(r.growing is None for r in self._live)
                    self._sweep_s = now_s + (_SWEEP_UNWATCHED_S if blind else _SWEEP_S)
                waiting.append(self._sweep_s - now_s)
            for key, means in self._tokens.take_reports():
                self._outbox.say_measured(Report(key, 0, time.time(), "phases", asdict(means)))
            waiting += self._containment.tick()
            to_clean = list(self._cleaning)
        for run in to_clean:
            self._clean(run)
        return min([*waiting, 0.5] if self._cleaning else waiting, default=None)

    def _watch_events(self, run: KnownRun) -> None:
        if run.growing is None:
            run.growing = self._poller.growing(run.events, lambda: self._look(run))
            if run.growing is None:
                self._sweep_s = 0.0

    def _look(self, run: KnownRun) -> None:
        """See what is new, and how urgent it is."""
        with self._changed:
            names = []
            for fact, end in facts(run.events, run.seen):
                run.seen = end
                names.append(fact["event"])
                log_fact(run.key, fact)
            if names and not run.is_forgotten:
                self._outbox.add(run, urgent=not all(name in _CAN_WAIT for name in names))

    def _attach(self, run: KnownRun, sidecar: SidecarProcess) -> None:
        run.sidecar = self._live[run] = sidecar
        run.was_held = True
        self._poller.readable(sidecar.fd, lambda: self._sidecar_ended(run))

    def _sidecar_ended(self, run: KnownRun) -> None:
        with self._changed:
            if run.sidecar is None:
                return
            self._poller.leave(run.sidecar.fd)
            run.sidecar.close()
            run.sidecar, run.kill_s = None, None
            del self._live[run]
            self._look(run)
            sidecar = found(run.folder)
            if sidecar is not None:
                self._attach(run, sidecar)
            else:
                self._settle(run)
            self._changed.notify_all()

    def _settle(self, run: KnownRun) -> None:
        """Its sidecar is gone: whether it came to its end, or died."""
        run.orders.clear()
        self._undelivered.pop(run, None)
        if story(run.events).ended:
            run.ended = True
            self._containment.remove(run.cgroup)
            if run.see_whether_over():
                self._leave(run)
            elif not run.is_forgotten:
                self._outbox.add(run)
            self._end_forgetting(run.key.job)
        else:
            log_run(logging.WARNING, run.key, "its sidecar died: what is left of it is killed")
            self._cleaning[run] = time.monotonic() + _CLEAN_S
            self._poller.ring()

    def _clean(self, run: KnownRun) -> None:
        """Kill what a dead sidecar left, a while at a time and not under the lock, for a process may not die."""
        # The numbers of processes that ended unseen, perhaps before a reboot, may be those of any process now.
        sessions = story(run.events).pids if run.was_held else ()
        left = kill_orphans(run.mark, sessions, cgroup=run.cgroup, within_s=_CLEAN_ROUND_S)
        with self._changed:
            if left and time.monotonic() < self._cleaning[run]:
                return
            if left:
                log_run(logging.WARNING, run.key, "processes that cannot be killed: %s", left, pids=left)
            self._containment.remove(run.cgroup)
            del self._cleaning[run]
            if run.is_forgotten:
                self._end_forgetting(run.key.job)
            elif run.stands_by and not run.is_stopping and not story(run.events).started:
                why = {"warm": False, "reason": "its sidecar died; it starts cold", "pids": []}
                self._outbox.say(Report(run.key, 0, time.time(), "prepared", why))
            else:
                self._lost(run)
            self._changed.notify_all()

    def _lost(self, run: KnownRun) -> None:
        if not run.close():
            sidecar = found(run.folder)
            if sidecar is not None:
                self._attach(run, sidecar)
                return
        log_run(logging.WARNING, run.key, "is lost")
        run.cursor.lost_s, run.cursor.lost_acked, run.ended = time.time(), False, True
        run.save_cursor()
        self._outbox.add(run)

    def _leave(self, run: KnownRun) -> None:
        if run.growing is not None:
            self._poller.leave_growing(run.growing)
            run.growing = None
        self._outbox.drop(run)

    def _lives(self, run: KnownRun) -> bool:
        return run in self._live or run in self._cleaning

    def _all(self) -> list[KnownRun]:
        return [run for runs in self._by_job.values() for run in runs.values()]


def _lost(key: RunKey, reason: str) -> Report:
    return Report(key, 0, time.time(), "lost", {"reason": reason})
