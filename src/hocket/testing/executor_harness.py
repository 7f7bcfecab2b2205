"""What the laws for executors are written with: the real controller drives one, and a law says what its plan is.

`ExecutorUnderTest` is what you write for your executor. In what follows `under` is one of those, `job` and `node` are
ids, and a `moment` is what an executor's `wait` gives: the time, and what happened by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from operator import itemgetter
from time import monotonic
from types import TracebackType
from typing import Any, Self, cast

from msgspec.structs import replace

from hocket.agent.protocol import Report
from hocket.control.controller import Controller
from hocket.control.drive import Moment, step
from hocket.control.journal import JournalError, MemoryJournal
from hocket.control.ports import Executor, Header, LiveExecutor
from hocket.model.action import Action, Checkpoint, End, Move, Pause, Prepare, Resize, Resume, Start, Store
from hocket.model.event import (
    EpochEnded,
    Event,
    JobCheckpointed,
    JobEnded,
    JobFailed,
    JobMoved,
    JobPaused,
    JobPrepared,
    JobResized,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    StateStored,
)
from hocket.model.job import Job
from hocket.model.partition import Partition, Tenant
from hocket.model.plan import Plan, Wake
from hocket.model.resources import Demand, Node, Slice
from hocket.model.snapshot import Snapshot, empty_snapshot
from hocket.model.view import JobState, JobView, Tier
from hocket.testing.harness import in_submission_order
from hocket.testing.laws import Broken

Gpu = tuple[str, int]  # node, number
Answer = JobPrepared | JobStarted | JobPaused | JobResized | JobMoved | JobCheckpointed | StateStored | JobEnded
Deliver = Callable[[str, Sequence[Report]], Sequence[Report]]  # node, what its agent reports → what is handed over

CHANGES = (JobStarted, JobPaused, JobResized, JobMoved, JobFailed, JobEnded)  # of where a job runs

_LOOK_S = 0.1  # between looks at what no event tells: processes, files
_MOST_WAITS = 20_000  # for one condition: time may stand still
_TOLD = 5  # of the last events, in a failure


_NO_GPU = Demand(gpus=0, cores=1.0, mem_mib=64.0)
__tracebackhide__ = True  # pytest shows the test and what was found, not the frames in here.


class LawBroken(Broken):
    """An executor broke a law; says which law and job, what was expected and what was seen."""

    def __init__(self, law: str, job: str, expected: object, seen: object) -> None:
        """`law` is empty for the law that is being tried; `job` is empty where no job is meant."""
        super().__init__(f"expected {expected}; seen: {seen}")
        self.law, self.job, self.expected, self.seen = law, job, expected, seen
        self.events: list[Event] = []


def _as_reported(node: str, reports: Sequence[Report]) -> Sequence[Report]:  # noqa: ARG001 - one of `Deliver`
    """The `reports` of the agent on a node, as they came."""
    return reports


class ExecutorUnderTest:
    """An executor, and what runs there as an outside observer sees it. Subclass it; every law gets a new object.

    The jobs that `begin` makes known run for longer than any law, make numbered steps (1, 2, …), save their state
    **only** when they are told to (by a checkpoint, a pause, a resize or a move), and go on from what they saved.
    """

    name = ""  # as failures say it
    is_live = False  # it is a `LiveExecutor`, so that it gets `observe` and `settle` after each cycle
    exempt: Mapping[str, str] = {}  # law → why it cannot be tried on this executor
    late_s = 0.0  # how much later than it was asked to may `wait` return; on a real clock, be generous
    loads_into_memory = True  # a state that is on disk can be brought into memory while its job is paused
    patience_s = 60.0  # by the executor's clock, for anything that must happen

    deliver: Deliver = staticmethod(_as_reported)  # live: what is handed over for reports; laws keep and reorder them

    def begin(self, nodes: Sequence[Node], jobs: Sequence[Job]) -> Executor:
        """Make the executor with these nodes; it will be told to run these jobs. Begin agents and the like, too."""
        raise NotImplementedError

    def end(self) -> None:
        """Let go of all that `begin` began. Called once, also after a law was broken."""

    def job(self, name: str) -> Job:
        """A job of that name, which runs at sizes 1 and 2; give it the command, or whatever makes it real here."""
        return Job(name, sizes=(1, 2))

    def first_events(self, nodes: Sequence[Node], jobs: Sequence[Job]) -> Sequence[Event]:
        """What the first cycle is told of these `nodes` and `jobs`; leave out what the executor reports itself."""
        return [*(NodeJoined(0.0, node) for node in nodes), *(JobSubmitted(0.0, job) for job in jobs)]

    def steps(self, job: str, events: Sequence[Event]) -> Sequence[int]:
        """The numbers of all steps that the job has made, in order, best by an account that the job keeps itself.

        `events` are all that the executor reported so far. A step that was made twice is listed twice.
        """
        return [event.epoch for event in events if isinstance(event, EpochEnded) and event.job == job]

    def saved(self, job: str) -> int:
        """The last step in the job's newest checkpoint; 0 if it has none."""
        raise NotImplementedError

    def runs(self, job: str, snapshot: Snapshot) -> Sequence[frozenset[Gpu]]:
        """The GPUs of every run of the job that is alive, one entry a run; read off what runs, not off events.

        The parts of one run on several nodes are one entry. `snapshot` is for executors that know their partitions by
        name only.
        """
        raise NotImplementedError

    def started_cold(self, job: str, took_s: float) -> bool:
        """Did the job's present run begin without what was prepared for it?

        `took_s` is how long that took by the executor's clock, from the action to the event.
        """
        raise NotImplementedError

    def lose(self, node: str) -> None:
        """Cut the node's power: its jobs end without a word, and nothing is heard of it any more."""
        raise NotImplementedError

    def isolate(self, node: str) -> None:
        """Cut the node off, while its jobs go on if they can; where that cannot be, it is lost."""
        self.lose(node)

    def restart(self, node: str) -> None:
        """End what runs the jobs of a node, and begin it again before the node counts as lost; its jobs go on."""
        raise NotImplementedError

    def bring_back(self, node: str) -> None:
        """The node that was lost or isolated is there again, with whatever still runs on it."""
        raise NotImplementedError


class ExecutorHarness:
    """A controller whose plan is what the law says, and one executor.

    Use it in `with`. Whatever the law is about, every moment is checked: time goes on, waits end in time, events are of
    known jobs, and no job starts, pauses, is resized or moved unless an action asked for it.
    """

    def __init__(
        self,
        under: ExecutorUnderTest,
        *jobs: str,
        nodes: int = 1,
        warm: Sequence[str] = (),
        without_gpus: Sequence[str] = (),
    ) -> None:
        """The `jobs` of these names are submitted, and wait; so many `nodes` are n0, n1, … with two GPUs each.

        Those in `warm` may be prepared; those `without_gpus` need a core and some memory instead.
        """
        self.under = under
        self._nodes = [Node(f"n{i}", 2, cores=4.0, mem_mib=4096.0) for i in range(nodes)]
        made = {name: under.job(name) for name in jobs}
        made |= {name: replace(made[name], demand=_NO_GPU) for name in without_gpus}
        self._jobs = [replace(job, warm=True) if name in warm else job for name, job in made.items()]
        self.events: list[Event] = []  # all that the executor reported, in order
        self.actions: list[Action] = []  # all that it was told to do, in order
        self.now_s = 0.0
        self.unasked_is_fine = False  # the law itself makes jobs start or leave, beside the controller
        self._wanted: dict[str, Partition] = {}  # job → where the law wants it
        self._to_save: dict[str, Tier] = {}
        self._to_store: dict[str, Tier] = {}
        self._to_tell: list[Event] = []
        self._unanswered: list[Action] = []
        self._given_s: dict[str, float] = {}  # job → when it was given its last action
        self._answered: list[Action] = []  # by the last moment
        journal = MemoryJournal(Header("as the law says"))
        self.controller = Controller(empty_snapshot(()), self._decide, in_submission_order, journal)

    def __enter__(self) -> Self:
        try:
            self.executor = self.under.begin(self._nodes, self._jobs)
            self._open()
        except BaseException as error:
            self.under.end()
            if isinstance(error, LawBroken) and not error.law:  # No law is tried yet.
                raise RuntimeError(f"executor '{self.under.name}' does not begin: {error}") from None
            raise
        return self

    def _open(self) -> None:
        """The nodes are up, and the jobs are submitted: in this order, for they must fit."""
        first = self.under.first_events(self._nodes, self._jobs)
        self.tell(*(event for event in first if isinstance(event, NodeJoined)))
        self.finish(self.executor.wait(0.0) or (0.0, ()))  # A real clock is far beyond that, and says how far.
        self.until(lambda: len(self.nodes_up()) == len(self._nodes), "all nodes are up")
        self.tell(*(event for event in first if not isinstance(event, NodeJoined)))
        self.until(lambda: all(job.id in self.snapshot.jobs for job in self._jobs), "all jobs are submitted")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, LawBroken):
            error.events = self.events[-_TOLD:]
        with ExitStack() as last:  # Each of them is called, from the last to the first, also if one before it fails.
            last.callback(self.under.end)
            if self.under.is_live:
                gone = RuntimeError("the law is over")
                last.callback(self.live.refuse, gone)
                last.callback(self.live.fail, gone)
                last.callback(self.live.close)

    # -- what the law says --------------------------------------------------------------------------------------

    def give(self, job: str, node: str, *gpus: int, place: str = "") -> None:
        """From the next cycle on, the plan has the job alone on these `gpus` of a node; without any, on what it needs.

        Jobs that are given others in the same `place` are resized, in another one moved; the first is named as the job.
        """
        if gpus:
            self.spread(job, *((node, gpu) for gpu in gpus), place=place)
            return
        part = Slice(node, cores=_NO_GPU.cores, mem_mib=_NO_GPU.mem_mib)
        self._wanted[job] = Partition(place or job, (part,), (Tenant(job, (1,)),))

    def spread(self, job: str, *gpus: Gpu, place: str = "") -> None:
        """The same with `gpus` of several nodes, those of one node in succession, and `place` as there."""
        slices = [Slice(node, tuple(gpu for _node, gpu in of_node)) for node, of_node in groupby(gpus, itemgetter(0))]
        tenant = Tenant(job, tuple(len(part.gpus) for part in slices))
        self._wanted[job] = Partition(place or job, tuple(slices), (tenant,))

    def take_back(self, job: str) -> None:
        """From the next cycle on, the plan has the job nowhere."""
        self._wanted.pop(job, None)

    def save(self, job: str) -> None:
        """The next plan has the job saved."""
        self._to_save[job] = Tier.DISK

    def store(self, job: str, tier: Tier) -> None:
        """The next plan has the state of a paused job in this `tier`."""
        self._to_store[job] = tier

    def tell(self, *events: Event) -> None:
        """The next cycle takes these `events` in, beside what the executor reports."""
        self._to_tell += events

    # -- what happens -------------------------------------------------------------------------------------------

    def until(self, holds: Callable[[], bool], what: str, job: str = "", seen: Callable[[], object] = str) -> None:
        """Cycle until something holds; the law is broken if it does not in time.

        A failure names `what` should hold and the job, and `seen` says what is there instead.
        """
        began_s, began = self.now_s, monotonic()
        for _ in range(_MOST_WAITS):
            self.cycle()
            if holds():
                return
            if self.now_s - began_s > self.under.patience_s or monotonic() - began > 2 * self.under.patience_s:
                break
        raise LawBroken("", job, what, seen() or f"not so {self.now_s - began_s:.0f} s later")

    def until_steps(self, job: str, count: int) -> None:
        """Run on until the job runs and has made `count` steps."""

        def seen() -> str:
            view = self.snapshot.jobs.get(job)
            return f"state {view.state if view is not None else 'over'}, steps {self.steps(job)}"

        def holds() -> bool:
            return self.is_running(job) and len(self.steps(job)) >= count

        self.until(holds, f"it runs, and makes {count} steps", job, seen)

    def until_told(self, job: str, kind: type[Event], count: int = 1) -> None:
        """Run on until `count` events of this `kind` were reported of the job."""
        self.until(lambda: len(self.of(job, kind)) >= count, f"{kind.__name__}, {count} in all", job)

    def pause(self, job: str) -> int:
        """Take the job's place back, and run on until it is paused; the steps that it had made by then."""
        self.take_back(job)
        self.until(lambda: self.view(job).state is JobState.PAUSED, "it pauses", job)
        return len(self.steps(job))

    def cycle(self, within_s: float = _LOOK_S) -> None:
        """One cycle, with what happens within the next `within_s` seconds."""
        if (moment := self.wait(self.now_s + within_s)) is None:
            raise LawBroken("", "", f"a moment by {self.now_s + within_s:g} s", "`wait` says that nothing will come")
        self.finish(moment)

    def wait(self, until_s: float | None) -> Moment | None:
        """The executor's next moment, or `until_s`, checked; hand it to `finish` to complete the cycle."""
        moment = self.executor.wait(until_s)
        if moment is not None:
            self._check(moment, until_s)
        return moment

    def finish(self, moment: Moment) -> None:
        """The rest of the cycle, in the order that the port promises."""
        self.now_s = max(self.now_s, moment[0])
        self.controller = step(self.controller, self, self, moment)

    def fail(self, moment: Moment | None, failure: Exception) -> None:
        """Instead of `finish`: the cycle could not be written for this `failure`; the state before it is resumed."""
        for event in moment[1] if moment is not None else ():
            self.events.remove(event)
        self._unanswered = [*self._answered, *self._unanswered]
        self.live.fail(failure)
        self.live.resume(self.snapshot)

    def apply(self, actions: Iterable[Action]) -> None:
        """Hand the cycle's actions to the executor."""
        given = list(actions)
        self.actions += given
        self._unanswered += given
        self._given_s.update((action.job, self.now_s) for action in given)
        self.executor.apply(given)

    def _decide(self, snapshot: Snapshot) -> Plan:
        up = self.nodes_up(snapshot)
        wanted = {
            p.id: p
            for job, p in self._wanted.items()
            if (view := snapshot.jobs.get(job)) is not None and not view.held and not view.verdict
            and all(part.node in up for part in p.slices)
        }  # fmt: skip
        saves, self._to_save = self._to_save, {}
        tiers, self._to_store = self._to_store, {}
        return Plan(
            put=tuple(p for p in wanted.values() if snapshot.partitions.get(p.id) != p),
            drop=tuple(pid for pid in snapshot.partitions if pid not in wanted),
            checkpoints=saves,
            tiers=tiers,
            reasons={job.id: "as the law says" for job in self._jobs} | {"*": "as the law says"},
            wake=Wake(at_s=snapshot.now_s),  # It is asked in every cycle.
        )

    # -- the loop's hooks ---------------------------------------------------------------------------------------

    def take(self, now_s: float, events: Sequence[Event]) -> Moment:
        """The `events` that the executor reports at `now_s`, and what the law tells."""
        told, self._to_tell = self._to_tell, []
        return now_s, [*(replace(event, at_s=now_s) for event in told), *events]

    def written(self, controller: Controller) -> None:
        """The `controller` has written the cycle."""
        if refused := self._last_cycle.refused:
            raise ValueError(f"the law asks for what the controller refuses: {'; '.join(refused)}")
        if self.under.is_live:
            self.live.observe(controller.snapshot)

    def done(self, controller: Controller) -> None:  # noqa: ARG002 - a hook
        """The actions of the `controller` have gone out."""
        if self.under.is_live:
            self.live.settle(self._last_cycle.events)

    def recover(self, error: JournalError) -> Controller:
        """The journal is in memory, so this `error` is a bug."""
        raise error

    @property
    def _last_cycle(self) -> Any:
        return cast(MemoryJournal, self.controller.journal).cycles[-1]

    # -- what is there ------------------------------------------------------------------------------------------

    @property
    def live(self) -> LiveExecutor:
        """The executor, with what only live ones have."""
        return cast(LiveExecutor, self.executor)

    @property
    def snapshot(self) -> Snapshot:
        """The controller's state now."""
        return self.controller.snapshot

    def view(self, job: str) -> JobView:
        """The job in it."""
        return self.snapshot.jobs[job]

    def nodes_up(self, snapshot: Snapshot | None = None) -> set[str]:
        """The nodes that are up, now or in a snapshot."""
        return {v.node.id for v in (snapshot or self.snapshot).nodes.values() if v.up}

    def is_running(self, job: str) -> bool:
        """Has the job started, and not left since?"""
        view = self.snapshot.jobs.get(job)
        return view is not None and view.state is JobState.RUNNING

    def steps(self, job: str) -> list[int]:
        """The steps that it has made."""
        return list(self.under.steps(job, self.events))

    def runs(self, job: str) -> list[list[Gpu]]:
        """Where it really runs: the GPUs of each of its runs."""
        return [sorted(gpus) for gpus in self.under.runs(job, self.snapshot)]

    def of(self, job: str, *kinds: type[Event], since: int = 0) -> list[Event]:
        """The events of a job that were reported, of these kinds or all; those from the `since`th event on."""
        return [
            e for e in self.events[since:] if getattr(e, "job", None) == job and (not kinds or isinstance(e, kinds))
        ]

    def took_s(self, event: Event) -> float:
        """How long the last action took that its job was given, until this event told that it is done."""
        return event.at_s - self._given_s[str(getattr(event, "job", ""))]

    def expect(self, expected: object, seen: object, about: str, job: str = "") -> None:
        """The law is broken unless `expected` and `seen` are equal; `about` says what they are."""
        if expected != seen:
            raise LawBroken("", job, f"{about} {expected}", seen)

    # -- checks of every moment ------------------------------------------------------------------------------------

    def _check(self, moment: Moment, until_s: float | None) -> None:
        now_s, events = moment
        self.events += events
        self._answered = []
        if now_s < self.now_s:
            raise LawBroken("time_never_goes_backward", "", f"a moment from {self.now_s:.3f} s on", f"{now_s:.3f} s")
        if until_s is not None and now_s > until_s + self.under.late_s:
            late = f"a moment by {until_s:.3f} s, give or take {self.under.late_s:g} s"
            raise LawBroken("a_wait_ends_when_it_was_asked_to", "", late, f"{now_s:.3f} s")
        self.now_s = now_s
        known = {job.id for job in self._jobs}
        for event in events:
            if event.at_s > now_s:
                told = f"nothing from after {now_s:.3f} s"
                raise LawBroken("time_never_goes_backward", str(getattr(event, "job", "")), told, event)
            if isinstance(job := getattr(event, "job", None), str) and job not in known:
                raise LawBroken("events_are_of_known_jobs", job, f"one of {sorted(known)}", event)
            if isinstance(event, Answer):
                self._take_off(event)

    def _take_off(self, event: Answer) -> None:
        """Take the oldest action off the list that this event answers."""
        kinds = _ANSWERED_BY[type(event)]
        for action in self._unanswered:
            if action.job == event.job and isinstance(action, kinds):
                self._unanswered.remove(action)
                self._answered.append(action)
                return
        if isinstance(event, JobCheckpointed | JobEnded) or self.unasked_is_fine:
            return  # A job may be saved, and may come to its end, when no action asked for it.
        asked = sum(isinstance(a, kinds) and a.job == event.job for a in self.actions)
        names = " or ".join(kind.__name__ for kind in kinds)
        told = f"one {type(event).__name__} for each {names}, of which there were {asked}"
        raise LawBroken("every_action_is_answered_once", event.job, told, f"one more: {event}")

    def unanswered(self) -> list[Action]:
        """The actions that were given out and not answered so far."""
        return list(self._unanswered)


_ANSWERED_BY: dict[type[Event], tuple[type[Action], ...]] = {
    JobPrepared: (Prepare,),
    JobStarted: (Start, Resume),
    JobPaused: (Pause,),
    JobResized: (Resize,),
    JobMoved: (Move,),
    JobCheckpointed: (Checkpoint,),
    StateStored: (Store,),
    JobEnded: (End,),
}
