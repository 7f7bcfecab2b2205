"""The controller in a thread of its own: the same loop and policies as in the simulator, on a journal and real jobs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from time import monotonic, perf_counter, sleep
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hocket.agent.log_setup import cycle_number
from hocket.control.controller import Controller
from hocket.control.drive import Moment, drive
from hocket.control.journal import JournalError, JournalLost, open_to_append
from hocket.control.ports import AgentSessions, Cycle, DurableJournal, Header, MakeExecutor
from hocket.control.restore import restore_and_count
from hocket.control.saved_state import StateSaver
from hocket.model.event import Event, PastJobsGiven, PolicySet
from hocket.model.past_job import MAX_PAST_JOBS, PastJob
from hocket.model.snapshot import Snapshot
from hocket.policies.registry import BoundPolicy, PolicyError, UnknownPolicy, bind, find
from hocket.service.catalogue import Catalogue
from hocket.service.ended_jobs import EndedJobs
from hocket.service.policy_guard import guarded
from hocket.service.record import Record

_log = logging.getLogger("hocket.service")
_LOG_AGAIN_S = 60.0  # until the same error of a policy is logged again
_RETRY_S = 1.0  # after the journal could not be written
_LONG_COMPILATION_S = 1.0  # is logged
DEFAULT_POLICY = "las"


class Unavailable(RuntimeError):
    """Nothing can be accepted now; says why."""


class CycleTimes(Struct, frozen=True):
    """How long a cycle took."""

    cycle_s: float  # from taking in its events to sending its actions
    append_s: float  # to write it to the journal
    decisions_s: tuple[float, ...]  # of the policy; none if it was not called


class Engine:
    """Restores a controller from its journal and keeps it going."""

    def __init__(
        self,
        store: str,
        executor: MakeExecutor,
        policy: BoundPolicy | None = None,
        *,
        seed: int = 0,
        catalogue: Path | None = None,
        history: Sequence[PastJob] = (),
    ) -> None:
        """Open the journal and restore; without a path for the catalogue, all of that is kept in memory.

        Without a policy the last one goes on. Another, or other parameters, are followed from now on.
        `history` are past jobs to begin with: those that the journal knows already are not given to it again.
        """
        self._wanted, self._history = policy, history
        self._why_wanted = ""  # as the journal will have it
        first = policy if policy is not None else find(DEFAULT_POLICY).bound()
        self.journal = open_to_append(store, Header(first.policy.name, first.settings, (), seed, "live"))
        try:
            self._begin(executor, catalogue)
        except BaseException:
            self.journal.close()
            raise

    def _begin(self, executor: MakeExecutor, catalogue: Path | None) -> None:
        begun = self.journal.header
        try:
            self.policy = self._first = self._bind(begun.policy, begun.params)
        except (UnknownPolicy, PolicyError) as error:
            raise JournalError(f"journal '{self.journal.name}': {error}") from error
        self.catalogue = Catalogue.of(self.journal, None if catalogue is None else EndedJobs(catalogue))
        self._seen = len(self.journal)  # cycles, by the catalogue
        self._why_unavailable = ""  # why nothing can be accepted
        self._recovered_s = -_RETRY_S  # when the journal was last restored after it could not be written
        self._refused: tuple[str, ...] = ()  # what was wrong with the policy's last plan
        self._raised: tuple[str, float] = ("", 0.0)  # what the policy raised last, and when that was logged
        self._changed_jobs: list[Record] = []  # by the present cycle
        self.on_jobs_changed: list[Callable[[list[Record]], None]] = []  # called with the jobs that a cycle changed
        self.on_cycle: list[Callable[[int, Cycle], None]] = []  # called with each cycle in the journal, and its number
        self.on_cycle_timed: list[Callable[[CycleTimes], None]] = []  # called with how long each cycle took
        self._began_s = 0.0  # when the present cycle began
        self._decisions_s: tuple[float, ...] = ()  # of the present cycle
        self.over = Flag()
        self._controller = self._restored()
        self.executor = executor(self._controller.snapshot)
        self._set_policy()
        self._compile_policy()
        self._give_history()
        self._show()
        self._saver = StateSaver(self.journal, self._first)
        self._thread = Thread(target=self._run, name="controller", daemon=True)

    @property
    def trouble(self) -> str:
        """What its user should look at; empty if all is well."""
        if self._why_unavailable or not self._refused:
            return self._why_unavailable
        return f"the last plan of policy '{self.policy.policy.name}' was refused: {self._refused[0]}"

    @property
    def is_writing(self) -> bool:
        """Can cycles be written to the journal?"""
        return not self._why_unavailable and not self.over.is_set()

    @property
    def cycles(self) -> int:
        """The number of the last cycle that is in the journal."""
        return self._seen

    def accept_jobs_without_room(self) -> None:
        """Accept jobs that fit no node, because nodes may be added for them. To be called before `start`."""
        self._controller.grows = True

    @property
    def refused_plans(self) -> int:
        """How many plans broke a rule since the journal began."""
        return self._controller.refused_plans

    @property
    def sessions(self) -> AgentSessions:
        """The agents that are connected."""
        return self.executor.sessions

    def now_s(self) -> float:
        """The time, on the clock of the events."""
        return self.executor.now_s()

    def start(self) -> None:
        """Begin to cycle."""
        self._thread.start()

    def close(self) -> None:
        """Stop cycling and let go of the journal."""
        self.executor.close()
        if self._thread.is_alive():
            self._thread.join(timeout=30)
        self.catalogue.close(self._seen)
        self.journal.close()

    def _restored(self) -> Controller:
        began_s = monotonic()
        controller, folded = restore_and_count(self.journal, self._first, self._on_policy_error, self._bind)
        self._last = _LastCycle(self.journal)
        controller.journal = self._last
        number, jobs, took_s = controller.cycles, len(controller.state.jobs.live), monotonic() - began_s
        message = "journal '%s' is restored to cycle %d: %d cycles folded, %d live jobs, in %.3f s"
        fields = {"cycle": number, "folded": folded, "jobs": jobs, "took_s": round(took_s, 3)}
        _log.info(message, self.journal.name, number, folded, jobs, took_s, extra=fields)
        return controller

    def _bind(self, name: str, settings: dict[str, Any]) -> BoundPolicy:
        wanted = self._wanted  # It may be one that no registry knows.
        if wanted is None or not _is_same(wanted, name, settings):
            wanted = bind(name, settings)
        return guarded(wanted, self._on_policy_error)

    def _set_policy(self) -> None:
        """Write to the journal which policy decides from now on, if it is another one than before."""
        last = self._controller.policy_set
        self.policy = self._first if last is None else self._bind(last.policy, last.params)
        wanted = self._wanted
        if wanted is None or _is_same(wanted, self.policy.policy.name, self.policy.settings):
            return
        name, settings = wanted.policy.name, wanted.settings
        self._post_policy(name, settings)

    def set_policy(self, policy: BoundPolicy, reason: str) -> Future[Any]:
        """Let another policy decide from now on; done when that is in the journal. For any thread."""
        self._wanted, self._why_wanted = policy, reason
        done = self._post_policy(policy.policy.name, policy.settings)
        self._compile_policy()
        return done

    def _post_policy(self, name: str, settings: dict[str, Any]) -> Future[Any]:
        reason = self._why_wanted
        message = "policy '%s'%s decides from now on, not '%s'%s"
        why = f": {reason}" if reason else ""
        _log.info(message, name, _with(settings), self.policy.policy.name, why, extra={"policy": name})
        self.policy = self._bind(name, settings)
        return self.executor.post(lambda _state, now_s: [PolicySet(now_s, name, settings, reason)])

    def _compile_policy(self) -> None:
        """Compile before agents call: an agent that is not answered for long gives up its jobs."""
        began_s = monotonic()
        try:
            self.policy.compile()
        except Exception:  # Its decisions will fail for the same reason, and that is logged then.
            _log.exception("policy '%s' cannot be compiled", self.policy.policy.name)
        if (took_s := monotonic() - began_s) > _LONG_COMPILATION_S:
            _log.info("policy '%s' was compiled in %.1f s", self.policy.policy.name, took_s)

    def _give_history(self) -> None:
        """Write past jobs that the journal lacks to it; they never take the place of its own ended jobs."""
        known = self._controller.snapshot.past_jobs.jobs
        had = {_plain_job(job) for job in known}
        new = [job for job in self._history if _plain_job(job) not in had]
        if given := tuple(new[-(MAX_PAST_JOBS - len(known)) :] if len(known) < MAX_PAST_JOBS else ()):
            _log.info("%d past jobs are given by --history; the journal knew %d", len(given), len(known))
            self.executor.post(lambda _state, now_s: [PastJobsGiven(now_s, given)])

    def _on_policy_error(self, error: Exception) -> None:
        message, now_s = f"{type(error).__name__}: {error}", monotonic()
        if message != self._raised[0] or now_s > self._raised[1] + _LOG_AGAIN_S:  # Every job may cause the same error.
            self._raised = message, now_s
            _log.error(
                "policy '%s' raised an error; its decision was not carried out", self.policy.policy.name, exc_info=error
            )

    def _run(self) -> None:
        cycle_number.set(self._controller.cycles + 1)
        try:
            drive(self._controller, self.executor, self)
        except JournalLost as error:
            self._why_unavailable = str(error)
            _log.error("%s", error)
        except Exception:
            self._why_unavailable = "the controller failed with an error; see its log"
            _log.exception("the controller failed")
        finally:
            self.executor.close()
            gone = Unavailable(self._why_unavailable or "the controller is going down")
            self.executor.fail(gone)
            self.executor.refuse(gone)
            self.over.set()

    # -- the loop's hooks -----------------------------------------------------------------------------------

    def take(self, now_s: float, events: Sequence[Event]) -> Moment:
        """A cycle takes in what the executor reports."""
        self._began_s = perf_counter()
        return now_s, events

    def written(self, controller: Controller) -> None:
        """The cycle is in the journal: show it to the users and to the executor."""
        self._why_unavailable = ""
        self._decisions_s = tuple(controller.decision_s)
        controller.decision_s.clear()  # Otherwise it would grow without limit.
        cycle = self._last.cycle
        if cycle.plan is not None:
            self._refused = cycle.refused
        self._changed_jobs = self._see(cycle)
        self.catalogue.store_ended(self._seen)
        self._show()
        self.executor.observe(self.snapshot)

    def done(self, controller: Controller) -> None:
        """The actions have gone out: answer all that waited for this cycle."""
        events = self._last.cycle.events
        self.executor.settle(events)
        self._save(controller, len(events))
        for call in self.on_jobs_changed:
            call(self._changed_jobs)
        times = CycleTimes(perf_counter() - self._began_s, self._last.append_s, self._decisions_s)
        for note_times in self.on_cycle_timed:
            note_times(times)
        cycle_number.set(controller.cycles + 1)

    def recover(self, error: JournalError) -> Controller:
        """What the cycle took in is not accepted; go on from what the journal has once it can be written again."""
        if isinstance(error, JournalLost):
            self.executor.fail(Unavailable("another controller has taken over"))
            raise error
        self._why_unavailable = str(error)
        _log.error("%s; nothing is accepted until it can be written", error)
        self.executor.fail(Unavailable(self._why_unavailable))
        if monotonic() - self._recovered_s < _RETRY_S:  # It can be read, and still not be written.
            sleep(_RETRY_S)
        while True:
            try:
                self._controller = self._restored()
                break
            except JournalLost:
                raise
            except JournalError as again:
                _log.debug("the journal is not restored yet: %s", again)
                self._why_unavailable = str(again)
                self.executor.refuse(Unavailable(self._why_unavailable))
                sleep(_RETRY_S)
        self._recovered_s = monotonic()
        self.executor.resume(self._controller.snapshot)
        self._set_policy()
        self._give_history()
        in_doubt = self.journal.after(self._seen)  # One whose commit got no answer may be there.
        changed = [record for cycle in in_doubt for record in self._see(cycle)]
        self._show()
        for call in self.on_jobs_changed:
            call(changed)
        cycle_number.set(self._controller.cycles + 1)
        return self._controller

    def _save(self, controller: Controller, events: int) -> None:
        """Save the state now and then. Without that, the next restore takes longer."""
        before = self._saver.trouble
        if self._saver.after_cycle(controller, events):
            _log.debug("the state is saved")
        elif (trouble := self._saver.trouble) and trouble != before:
            _log.warning("the state was not saved: %s", trouble)

    def _see(self, cycle: Cycle) -> list[Record]:
        """Let the catalogue take in a cycle that is in the journal; gives the jobs that it changed."""
        changed = self.catalogue.add_cycle(cycle)
        self._seen += 1
        live = self._controller.state.jobs.live
        before = self.snapshot.jobs.data() if any(job_id not in live for job_id in changed) else {}
        self.catalogue.update_from_state(cycle, changed, live, before)
        for call in self.on_cycle:
            call(self._seen, cycle)
        return [
            self.catalogue.records[job_id] for job_id in changed
        ]  # Soon they may be in the table of ended jobs only.

    def _show(self) -> None:
        """Publish the state to other threads."""
        self.snapshot: Snapshot = self._controller.snapshot
        self.decisions = self._controller.state.decision


def _plain_job(job: PastJob) -> bytes:
    """A past job as bytes to compare, without how estimates of it would have held: that is computed here."""
    return msgspec.json.encode(replace(job, foretold=()), order="sorted")


def _with(params: dict[str, Any]) -> str:
    """The parameters as a command line says them."""
    message = ", ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in sorted(params.items()))
    return f" with {message}" if message else ""


def _is_same(policy: BoundPolicy, name: str, settings: dict[str, Any]) -> bool:
    return policy.policy.name == name and _plain(policy.settings) == _plain(settings)


def _plain(params: dict[str, Any]) -> bytes:
    return msgspec.json.encode(params, order="sorted")


class _LastCycle:
    """A journal that remembers the last cycle it kept."""

    def __init__(self, journal: DurableJournal) -> None:
        self.header = journal.header
        self.cycle = Cycle(0.0, ())
        self.append_s = 0.0  # how long it took to write it
        self._journal = journal

    def append(self, cycle: Cycle) -> None:
        """Keep one cycle."""
        began_s = perf_counter()
        self._journal.append(cycle)
        self.append_s = perf_counter() - began_s
        self.cycle = cycle

    def __iter__(self) -> Iterator[Cycle]:
        return iter(self._journal)
