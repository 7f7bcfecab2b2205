"""One attempt of a job on this machine: prepared, started, stopped and brought to its end, with every fact told."""

from __future__ import annotations

import os
import time

from hocket.agent.cgroup import Cgroup
from hocket.agent.logs import Log
from hocket.agent.orphan_cleanup import kill_orphans
from hocket.agent.sidecar.attempt_file import AttemptFile
from hocket.agent.sidecar.checkpoint_watch import CheckpointWatch
from hocket.agent.sidecar.command import environments, understood
from hocket.agent.sidecar.lease_watch import FROZEN_S, LeaseWatch
from hocket.agent.sidecar.preparation import Cold, Preparation
from hocket.agent.sidecar.process_suspension import ProcessSuspension
from hocket.agent.sidecar.progress_events import Reporting
from hocket.agent.sidecar.spec import signal_number
from hocket.agent.sidecar.unseen_metric import UnseenMetric
from hocket.agent.sidecar.usage import JobUsage, disk_full
from hocket.agent.sidecar.workers import CannotStart, Output, Workers, may_pass, shown, start_process, told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from hocket.agent.sidecar.events_writer import Events
    from hocket.agent.sidecar.spec import Spec

_PREPARING_S = 0.1  # between looks at the memory of what is getting ready
_STANDING_S = 5.0  # and of what stands ready
_COMPANY_S = 0.1  # between looks at what outlives a worker that was asked to stop
_COLLEAGUES_S = 10.0  # grace for workers when another has failed
_NUMBER_S = 2.0  # between looks whether a later attempt has the checkpoints


class Attempt:
    """The caller waits: for what can be read (`sources`), for the time (`next_s`, `tick`), for children (`ended`)."""

    def __init__(self, folder: str, spec: Spec, events: Events) -> None:
        now_s = time.monotonic()
        self._spec, self._events = spec, events
        self._log = Log(folder, spec.log_bytes, spec.log_kept)
        self._reporting = Reporting(folder, spec, events, now_s)
        self._cgroup = Cgroup(spec.cgroup) if spec.cgroup is not None else None
        self._usage = JobUsage(os.getpid(), now_s, self._cgroup)
        self._understand(spec.command_to_prepare() if spec.warm else spec.command())
        self._count = spec.workers
        self._preparation: Preparation | None = None
        self._unprepared_s: float | None = None  # since when; None once it is known how that came out
        self._look_s = now_s  # when to look at the memory of what is prepared
        self._given: dict[str, str] | None = None  # with the order to start
        self._watch: CheckpointWatch | None = None  # of its saves, while it runs
        self._unseen = UnseenMetric(spec.awaited, spec.unseen_limit_s)
        self._lease = LeaseWatch(spec.lease, spec.mark, self._cgroup)
        self._suspension = ProcessSuspension(spec.mark, self._cgroup)
        self._number = AttemptFile(spec.attempt_file, spec.job, spec.attempt)
        self._number_s: float | None = None  # when to look whether a later attempt has its checkpoints
        self._fenced_by = 0  # the number of that one
        self._start_later: Callable[[], None] | None = None  # when the lease holds, and orders are read
        self._lease_held = self._may_start = False
        self._workers: Workers | None = None
        self._output: Output | None = None
        self._began_s = self._heard_s = now_s
        self._asked_s: float | None = None  # when its end was asked for
        self._kill_s: float | None = None  # when patience ends; None unless it is being stopped
        self._hung = self._killed = False
        self._warned_of_log = False
        self.is_over = False

    def _understand(self, argv: list[str]) -> None:
        self._argv = argv
        self._command = understood(argv, {**os.environ, **self._spec.env}.get("PATH"), self._spec.cwd)

    # -- beginning ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the job, or prepare it."""
        if self._spec.checkpoint_dir is not None:
            try:
                os.makedirs(self._spec.checkpoint_dir, exist_ok=True)
            except OSError as error:
                reason = f"folder '{self._spec.checkpoint_dir}' cannot be made: {error.strerror}"
                self._cannot_start(reason, may_pass(error.errno or 0))
                return
        if self._spec.warm:
            self._prepare()
        else:
            self._start_cold({})

    def start(self, given: dict[str, str], workers: int | None = None) -> None:
        """The order to start what is prepared, or getting there, with these variables, by so many workers."""
        if self._given is not None or not self._spec.warm:
            self.warn("order 'start' is ignored: the job was started before")
            return
        self._given, self._count = given, workers or self._spec.workers
        if (argv := self._spec.command()) != self._argv:
            self._understand(argv)
            self._go_cold("it was to go on from a checkpoint, and there is none")
        elif self._preparation is None:
            self._start_cold(given)
        elif self._preparation.is_ready:
            self._hand_over(self._preparation, given)

    def _prepare(self) -> None:
        self._unprepared_s = time.monotonic()
        if self._command.python is None:
            self._go_cold("it is not a Python program, or torchrun with an option that is not known here")
            return
        try:
            envs = self._environments({}, to_run=False)
            most = 1 if self._command.launched else self._spec.most_workers
            self._preparation = Preparation(self._command.python, self._spec.cwd, envs, most, self._cgroup)
        except (CannotStart, ValueError) as error:
            self._go_cold(str(error))

    def _prepared(self, preparation: Preparation) -> None:
        if not preparation.is_ready or self._unprepared_s is None:
            return
        took_s, self._unprepared_s = round(time.monotonic() - self._unprepared_s, 3), None
        facts = {"took_s": took_s, "mem_mib": round(preparation.mem_mib, 1), "left_from_line": preparation.line}
        self._events.add("prepared", warm=True, reason=None, pids=preparation.pids, **facts)
        if self._given is not None:
            self._hand_over(preparation, self._given)

    def _waits_for_lease(self, start: Callable[[], None]) -> bool:
        """Whether the job must not start yet: its agent was away, and the job may have been started elsewhere."""
        if self._spec.lease is None or self._may_start:
            self._may_start = False
            return False
        # When the lease is seen to hold, orders are read once more: those that came before it was renewed count first.
        self._lease_held = not self._lease.is_over
        self._start_later, self._look_s = start, time.monotonic() + (0.0 if self._lease_held else FROZEN_S)
        return True

    def _hand_over(self, preparation: Preparation, given: dict[str, str]) -> None:
        if self._waits_for_lease(lambda: self._hand_over(preparation, given)):
            return
        if self._is_stale():
            self._give_up_preparation()
            return
        try:
            pids, outputs = preparation.hand_over(self._environments(given))
        except (Cold, ValueError) as why:
            self._go_cold(str(why))
            return
        self._preparation = None
        self._started(pids, outputs, warm=True)

    def _go_cold(self, why: str) -> None:
        """End what is prepared, say so, and start the job if that was ordered."""
        if self._preparation is not None:
            self._preparation.abandon()
            pids, self._preparation = self._preparation.pids, None
            self._kill_all(pids)
        if self._unprepared_s is not None:
            took_s, self._unprepared_s = round(time.monotonic() - self._unprepared_s, 3), None
            self._events.add("prepared", warm=False, reason=why, pids=[], took_s=took_s, mem_mib=0, left_from_line=None)
        else:
            self.warn(f"what was prepared starts cold: {why}")
        if self._given is not None:
            self._start_cold(self._given)

    def _start_cold(self, given: dict[str, str]) -> None:
        if self._waits_for_lease(lambda: self._start_cold(given)):
            return
        if self._is_stale():
            self._give_up_preparation()
            return
        try:
            argv, cwd, cgroup = self._command.argv, self._spec.cwd, self._cgroup
            begun = [start_process(argv, cwd, env, cgroup) for env in self._environments(given)]
        except (CannotStart, ValueError) as error:
            self._cannot_start(str(error), isinstance(error, CannotStart) and error.passing)
            return
        self._started([pid for pid, _ in begun], [output for _, output in begun], warm=False)

    def _is_stale(self) -> bool:
        """Has a later attempt the checkpoints?"""
        self._number_s = time.monotonic() + _NUMBER_S if self._spec.attempt_file is not None else None
        self._fenced_by = self._number.newer()
        return self._fenced_by > 0

    def _started(self, pids: list[int], outputs: list[int], warm: bool) -> None:
        self._workers = Workers(pids)
        self._output = Output(outputs, self._take_output)
        self._began_s = self._heard_s = self._reporting.last_s = time.monotonic()
        self._usage = JobUsage(os.getpid(), self._began_s, self._cgroup)
        spec = self._spec
        self._watch = CheckpointWatch(spec.checkpoint_dir, spec.checkpoint, spec.cwd, self._began_s)
        self._unseen.begin(self._began_s)
        self._lease.begin(self._began_s)
        resumed = self._argv is not self._spec.argv
        self._events.add("started", pids=pids, warm=warm, resumed=resumed)

    def _cannot_start(self, reason: str, passing: bool) -> None:
        self._kill_all()
        self._events.add("cannot-start", reason=reason, passing=passing)
        self.is_over = True

    def _environments(self, given: dict[str, str], to_run: bool = True) -> list[dict[str, str]]:
        found = environments(self._spec, self._command, self._count, given, to_run)
        return [{**env, **self._reporting.env()} for env in found]

    # -- while it runs --------------------------------------------------------------------------------------------

    def sources(self) -> dict[int, Callable[[], None]]:
        """What to do when one of these can be read."""
        found: dict[int, Callable[[], None]] = {}
        if self._preparation is not None:
            for fd, read in self._preparation.sources().items():
                found[fd] = lambda read=read: self._read_preparation(read)  # type: ignore[misc]
        if self._output is not None:
            found.update(self._output.sources())
            for fd, poll in self._reporting.sources().items():
                found[fd] = lambda poll=poll: poll(time.monotonic())  # type: ignore[misc]
        return found

    def _read_preparation(self, read: Callable[[], None]) -> None:
        if self._preparation is None:
            return
        try:
            read()
            if self._preparation.is_ready:
                self._preparation.check(self._spec.warm_limit_mib)
        except Cold as why:
            self._go_cold(str(why))
        else:
            self._prepared(self._preparation)

    def _take_output(self, data: bytes) -> None:
        self._heard_s = time.monotonic()
        self._log.write(data)
        self._reporting.feed(data, self._heard_s)
        self._unseen.printed(data)
        if self._log.trouble and not self._warned_of_log:
            self._warned_of_log = True
            self.warn(f"the log cannot be written: {self._log.trouble}")

    def ended(self, pid: int, status: int, cpu_s: float, peak_mib: float) -> None:
        """A child of ours has ended: a worker, or an orphan that we adopted."""
        self._usage.ended(cpu_s)
        if self._preparation is not None and pid in self._preparation.pids:
            self._end_of_prepared(self._preparation, status)
        if self._workers is None or not self._workers.ended(pid, status):
            return
        self._usage.peak_mib = max(self._usage.peak_mib, peak_mib)
        if self._workers.failed and self._workers.alive and self._kill_s is None:
            self._stop(signal_number("SIGTERM"), min(self._spec.grace_s, _COLLEAGUES_S))
        self._see_whether_it_is_over(time.monotonic())

    def _end_of_prepared(self, preparation: Preparation, status: int) -> None:
        try:
            for read in preparation.sources().values():  # It may have sent the reason.
                read()
            self._go_cold(f"preparing it ended with {shown(os.waitstatus_to_exitcode(status))}")
        except Cold as why:
            self._go_cold(str(why))

    def next_s(self) -> float | None:
        """When to `tick` at the latest; None if there is no hurry."""
        times = [self._kill_s]
        if self._preparation is not None or self._start_later is not None:
            times.append(self._look_s)
        elif self._workers is not None:
            times += [self._usage.next_s, self._reporting.next_s, self._hangs_s()]
            times += [self._unseen.due_s] if not self._suspension.is_suspended else []
            times += [self._lease.next_s, self._suspension.next_s, self._number_s]
            times += [self._watch.next_s] if self._watch is not None else []
            if not self._workers.alive:
                times.append(time.monotonic() + _COMPANY_S)
        known = [t for t in times if t is not None]
        return min(known) if known else None

    def tick(self, now_s: float) -> None:
        """Do what is due."""
        if self._kill_s is not None and now_s >= self._kill_s:
            self.kill()
        elif self._start_later is not None and now_s >= self._look_s:
            start, self._start_later = self._start_later, None
            self._may_start = self._lease_held
            start()
        elif self._preparation is not None and now_s >= self._look_s:
            self._look_at_prepared(self._preparation, now_s)
        elif self._workers is not None and not self.is_over:
            self._look_at_running(self._workers, now_s)

    def _look_at_prepared(self, preparation: Preparation, now_s: float) -> None:
        self._look_s = now_s + (_STANDING_S if preparation.is_ready else _PREPARING_S)
        try:
            preparation.check(self._spec.warm_limit_mib)
            if self._unprepared_s is not None and now_s - self._unprepared_s > self._spec.prepare_limit_s:
                raise Cold(f"it was not ready within {self._spec.prepare_limit_s:g} s")
        except Cold as why:
            self._go_cold(str(why))

    def _look_at_running(self, workers: Workers, now_s: float) -> None:
        if self._number_s is not None and now_s >= self._number_s and self._is_stale():
            self._number_s = None
            self.kill()
            return
        if self._lease.next_s is not None and now_s >= self._lease.next_s:
            self._look_at_lease(workers, now_s)
        if self._suspension.next_s is not None and now_s >= self._suspension.next_s:
            self._look_at_suspension(workers, now_s)
        if now_s >= self._usage.next_s:
            if (use := self._usage.look(now_s)) is not None:
                self._events.add("use", **use)
            if self._out_of_memory() == "limit" and not self._killed:  # Not all kernels kill all of it.
                self.kill()
                return
        if self._reporting.next_s is not None and now_s >= self._reporting.next_s:
            self._reporting.poll(now_s)
        if self._watch is not None and now_s >= self._watch.next_s and self._watch.look(now_s):
            self._events.add("saved")
        if not self._suspension.is_suspended:
            self._look_for_metric(now_s)
        if (hangs_s := self._hangs_s()) is not None and now_s >= hangs_s:
            self._hung = True
            self._events.add("hung", silent_s=round(self._spec.hang_limit_s, 3))
            self._stop(signal_number(self._spec.stop_signal), self._spec.grace_s)
        if not workers.alive:
            self._see_whether_it_is_over(now_s)

    def _look_for_metric(self, now_s: float) -> None:
        if (unseen := self._unseen.look(now_s, self._reporting.reader)) is not None:
            self._events.add("metric-unseen", **unseen)

    def _look_at_lease(self, workers: Workers, now_s: float) -> None:
        if (found := self._lease.look(now_s, workers.pids)) is None:
            return
        self._events.add("frozen" if self._lease.is_frozen else "thawed", **found)
        if not self._lease.is_frozen:  # It could not say anything meanwhile.
            self._heard_s = self._reporting.last_s = now_s

    def _hangs_s(self) -> float | None:
        """When it will have been silent for too long. Where no progress is read, anything printed is a sign of life."""
        if not self._spec.hang_limit_s or self._kill_s is not None:
            return None
        if self._lease.is_frozen or self._suspension.is_suspended:
            return None
        return (self._reporting.last_s if self._reporting.is_on else self._heard_s) + self._spec.hang_limit_s

    # -- suspending -----------------------------------------------------------------------------------------------

    def suspend(self, grace_s: float) -> None:
        """The order to stop all processes, which keep their memory; within the grace they may choose when."""
        if self._workers is None or self._kill_s is not None:
            self.warn("order 'suspend' is ignored: it is being stopped or does not run")
        elif self._suspension.is_suspended:
            self._say_suspended(time.monotonic())
        else:
            self._suspension.ask(self._workers, grace_s, time.monotonic())

    def go_on(self) -> None:
        """The order to let it go on."""
        if self._workers is None or self._kill_s is not None:
            self.warn("order 'continue' is ignored: it is being stopped or does not run")
            return
        self._end_suspension(self._workers)
        self._events.add("continued")

    def _look_at_suspension(self, workers: Workers, now_s: float) -> None:
        if self._suspension.look(workers, now_s, self._lease.is_frozen):
            self._lease.is_suspended = True
            self._say_suspended(now_s)

    def _say_suspended(self, now_s: float) -> None:
        self._reporting.poll(now_s)  # What it said before comes first.
        self._events.add("suspended", mem_mib=round(self._usage.mem_mib(), 1))

    def _end_suspension(self, workers: Workers) -> None:
        now_s = time.monotonic()
        if self._suspension.end(workers, now_s, self._lease.is_frozen):
            self._lease.is_suspended, self._lease.goes_on_later = False, self._lease.is_frozen
            self._heard_s = self._reporting.last_s = now_s  # It could not say anything meanwhile.

    # -- ending ---------------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """The order to save a checkpoint and go on."""
        name = self._spec.checkpoint_signal
        if name is None or self._workers is None or self._kill_s is not None:
            why = "it has no signal for that" if name is None else "it is being stopped or does not run"
            self.warn(f"order 'checkpoint' is ignored: {why}")
            return
        # To the workers alone: helpers that do not know the signal would die of it, and the job is to go on.
        self._workers.signal(signal_number(name), with_group=False)
        self._events.add("checkpoint-asked", then="go-on", signal=name)

    def stop(self, grace_s: float) -> None:
        """The order to save a checkpoint and end, within a grace that a later order may shorten."""
        now_s = time.monotonic()
        if self._asked_s is None:
            self._asked_s = now_s
        if self._workers is None:
            self._give_up_preparation()
        elif self._kill_s is None:
            self._stop(signal_number(self._spec.stop_signal), grace_s)
            self._events.add("checkpoint-asked", then="stop", signal=self._spec.stop_signal, grace_s=grace_s)
        else:
            self._kill_s = min(self._kill_s, now_s + grace_s)

    def _stop(self, number: int, grace_s: float) -> None:
        assert self._workers is not None
        self._kill_s = time.monotonic() + grace_s
        self._workers.signal(number)
        self._end_suspension(self._workers)  # It must run to save its state.

    def kill(self, asked: bool = False) -> None:
        """End it now, with all it ever started."""
        if asked and self._asked_s is None:
            self._asked_s = time.monotonic()
        if self._workers is None:
            self._give_up_preparation()
            return
        self._killed = True
        self._kill_s = time.monotonic() + 1.0  # Once more, should a process survive.
        self._workers.signal(signal_number("SIGKILL"))
        if self._cgroup is not None:
            self._cgroup.kill()  # If it is frozen, a signal alone does not end it everywhere.
        self._see_whether_it_is_over(time.monotonic())

    def _give_up_preparation(self) -> None:
        if self._preparation is not None:
            self._preparation.abandon()
            self._preparation = None
        self._kill_all()
        self._finish({"code": None, "signal": None, "worker": None})

    def _see_whether_it_is_over(self, now_s: float) -> None:
        """It is over when the workers have ended; one that was asked to stop may leave a process that still saves."""
        workers = self._workers
        assert workers is not None
        if self.is_over or workers.alive:
            return
        if self._kill_s is not None and not self._killed and now_s < self._kill_s and workers.has_company():
            return
        immortal = self._kill_all(workers.pids)
        if immortal:
            self.warn(f"processes that cannot be killed are left behind: {immortal}")
        if self._output is not None:
            self._output.drain()
        rank, code = workers.outcome
        if code != 0 and (lack := disk_full(self._spec.checkpoint_dir)):
            self.warn(lack)
        self._reporting.close(finished=code == 0 and self._kill_s is None, now_s=now_s)
        if self._watch is not None and self._watch.look_last(now_s, whole=not self._killed):
            self._events.add("saved")
        if code == 0 and self._out_of_memory():
            self.warn("a process of it was killed by the kernel: it used too much memory")
        self._finish({**told(code), "worker": rank})

    def _kill_all(self, sessions: list[int] | None = None) -> list[int]:
        """Kill all that is left of the job; what would not die."""
        return kill_orphans(self._spec.mark, sessions or (), os.getpid(), self._cgroup)

    def _out_of_memory(self) -> str:
        return self._cgroup.ran_out_of_memory() if self._cgroup is not None else ""

    def _finish(self, outcome: dict[str, int | str | None]) -> None:
        now_s = time.monotonic()
        after_s = None if self._asked_s is None else round(now_s - self._asked_s, 3)
        saved_s = None if self._watch is None else self._watch.saved_s
        why, limit_mib = self._out_of_memory(), self._cgroup.limit_mib() if self._cgroup is not None else 0.0
        peak_mib = max(self._usage.peak_mib, limit_mib if why == "limit" else 0.0)
        saved_when_asked = self._asked_s is not None and saved_s is not None and saved_s >= self._asked_s
        self._events.add(
            "exited",
            **outcome,
            asked=self._asked_s is not None,
            after_s=after_s,
            hung=self._hung,
            killed=self._killed,
            fenced_by=self._fenced_by,
            saved=saved_s is not None,
            saved_when_asked=saved_when_asked,
            out_of_memory=why,
            limit_mib=round(limit_mib, 1),
            ran_s=round(now_s - self._began_s, 3) if self._workers is not None else 0,
            cpu_s=round(self._usage.cpu_s(), 2),
            peak_mib=round(peak_mib, 1),
            first_epoch=self._reporting.first_epoch,
        )
        self.is_over = True

    def warn(self, about: str) -> None:
        """Tell of something that the job's user should look at."""
        self._events.add("warning", about=about)
