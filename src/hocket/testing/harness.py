"""A controller without an executor: events go in, actions come out, and the state is checked after every cycle.

In this module `bound` is a policy with its parameters set, `nodes` are the machines of the cluster, `seed` is that of
all random numbers, and `at_s` is a moment in seconds, from 0 on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header, Journal
from hocket.control.rank_shifts import Shifts
from hocket.control.state import Order
from hocket.executors.simulated import BeliefMode, SimulatedExecutor
from hocket.model.action import Action, Checkpoint, End, Move, Pause, Prepare, Resize, Resume, Start, Store
from hocket.model.event import (
    Event,
    JobCheckpointed,
    JobEnded,
    JobMoved,
    JobPaused,
    JobPrepared,
    JobResized,
    JobStarted,
    StateStored,
)
from hocket.model.plan import Plan, Wake
from hocket.model.resources import Node
from hocket.model.snapshot import Snapshot, empty_snapshot
from hocket.model.view import Doing
from hocket.policies.registry import BoundPolicy
from hocket.testing.invariants import broken_indices, broken_invariants
from hocket.workloads.truth import Workload

Decide = Callable[[Snapshot], Plan]
_RESTLESS = 20  # cycles at one instant for each job of a workload, and something is wrong


class Unsound(AssertionError):
    """A state broke an invariant, or a plan was refused; says what, and after which events."""


def in_submission_order(_view: object, _now_s: float) -> tuple[()]:
    """The order of a policy that has none: whatever the `view` and `now_s`, all ranks are equal."""
    return ()


def done(action: Action, at_s: float) -> Event:
    """The event by which an executor reports that an `action` was carried out at `at_s`."""
    match action:
        case Start(job, task) | Resume(job, task):
            return JobStarted(at_s, job, task)
        case Pause(job, task, tier):
            return JobPaused(at_s, job, task, tier)
        case Resize(job, task):
            return JobResized(at_s, job, task)
        case Move(job, task):
            return JobMoved(at_s, job, task)
        case End(job, verdict):
            return JobEnded(at_s, job, verdict)
        case Prepare(job):
            return JobPrepared(at_s, job)
        case Checkpoint(job, tier):
            return JobCheckpointed(at_s, job, tier)
        case Store(job, tier):
            return StateStored(at_s, job, tier)
        case _:
            assert_never(action)


class Harness:
    """Runs a policy over events that the caller makes up. Actions stay pending until they are answered.

    `asked` has every (snapshot, plan) of the policy, `log` every action in order.

    Args:
        decide: the policy, as a function from a snapshot to a plan.
        nodes: the machines of the cluster.
        order: `order(view, now_s)` gives a job's rank; the smallest goes first.
        seed: of `snapshot.rng()`.
        may_be_refused: whether a plan may break a rule; else that raises `Unsound`.
        shifts: `shifts(view, now_s)` gives the moment at which a running job's rank changes; None: it never does.
        recalls: whether beliefs say when jobs will have met their criteria, from what ended jobs have shown.
    """

    def __init__(
        self,
        decide: Decide,
        nodes: Sequence[Node],
        order: Order = in_submission_order,
        *,
        seed: int = 0,
        may_be_refused: bool = False,
        shifts: Shifts | None = None,
        recalls: bool = False,
    ) -> None:
        self.asked: list[tuple[Snapshot, Plan]] = []
        self.log: list[Action] = []
        self.pending: list[Action] = []
        self.journal = MemoryJournal(Header("test", nodes=tuple(nodes), seed=seed))
        self._decide, self._may_be_refused = decide, may_be_refused
        self.controller = Controller(
            empty_snapshot(nodes, seed), self._ask, order, self.journal, shifts=shifts, recalls=recalls
        )
        self.now_s = 0.0

    @staticmethod
    def of(bound: BoundPolicy, nodes: Sequence[Node], *, seed: int = 0) -> Harness:
        """A harness for a registered policy, `bound` to its parameters, on these `nodes`."""
        recalls = bound.needs["recalls"]
        return Harness(bound.decide, nodes, bound.order, seed=seed, shifts=bound.shifts, recalls=recalls)

    def _ask(self, snapshot: Snapshot) -> Plan:
        plan = self._decide(snapshot)
        self.asked.append((snapshot, plan))
        return plan

    @property
    def snapshot(self) -> Snapshot:
        """The state now."""
        return self.controller.snapshot

    def tell(self, *events: Event, at_s: float | None = None) -> list[Action]:
        """One cycle with these `events`, at `at_s` or the last of their times; the actions are pending from now on."""
        self.now_s = max(self.now_s, at_s if at_s is not None else max((e.at_s for e in events), default=0.0))
        actions = self.controller.cycle(self.now_s, events)
        self.log += actions
        self.pending = [a for a in self.pending if self._still(a)] + actions
        self.validate()
        return actions

    def answer(self, *actions: Action, at_s: float | None = None) -> list[Action]:
        """One cycle in which these pending `actions`, or all of them, are reported as done, at `at_s` or now."""
        answered = actions or tuple(self.pending)
        self.pending = [a for a in self.pending if a not in answered]
        at_s = self.now_s if at_s is None else at_s
        return self.tell(*(done(a, at_s) for a in answered), at_s=at_s)

    def did(self, kind: type[Action]) -> list[str]:
        """The ids of the jobs that got an action of this `kind`, in order."""
        return [action.job for action in self.log if isinstance(action, kind)]

    def settle(self) -> None:
        """Answer until nothing is pending."""
        for _ in range(100):
            if not self.pending:
                return
            self.answer()
        raise Unsound(f"the policy does not come to rest; pending: {self.pending}")

    def validate(self) -> None:
        """Raise unless the state is sound and the last plan was accepted."""
        cycle = self.journal.cycles[-1]
        found = broken_invariants(self.snapshot) + broken_indices(self.controller.state)
        if cycle.refused and not self._may_be_refused:
            found += [f"the plan was refused: {v}" for v in cycle.refused]
        if found:
            told = "\n  ".join(f"{c.at_s:g}: {c.events}" for c in self.journal.cycles[-5:])
            raise Unsound("; ".join(found) + f"\nafter\n  {told}\nwith the plan {cycle.plan}")

    def _still(self, action: Action) -> bool:
        """Will the executor still answer? Not if the job is over or has failed."""
        view = self.snapshot.jobs.get(action.job)
        if view is None:
            return False
        match action:
            case End():
                return True
            case Prepare():
                return view.preparing
            case Checkpoint() | Store():
                return bool(view.tenancies) or isinstance(action, Store)
            case _:
                doing = next((t.doing for t in view.tenancies if t.task == action.task), Doing.NOTHING)
                return doing is not Doing.NOTHING and doing is not Doing.ENDING


class Ran(Struct):
    """What a simulated run came to."""

    ended: dict[str, tuple[float, str]]  # job → when, and with which verdict
    left: tuple[str, ...]  # jobs that are still live
    cycles: int  # number of cycles
    decisions: int  # how often the policy was asked
    refused: int  # plans that broke a rule; 0 for a sound policy
    final: Snapshot  # the state at the end


def simulated(
    bound: BoundPolicy,
    workload: Workload,
    nodes: Sequence[Node],
    *,
    eager: bool = False,
    late_s: float = 0.0,
    validate_every: int = 1,
    seed: int = 0,
    beliefs: BeliefMode = BeliefMode("oracle"),
    noise: float = 0.0,
    journal: Journal | None = None,
) -> Ran:
    """Run a `workload` to its end through the real cycle and the simulated executor.

    Args:
        bound: the policy.
        workload: jobs with their arrival times and how they behave.
        nodes: the machines of the cluster.
        eager: ask the policy in every cycle, whatever its plans say it waits for.
        late_s: moments that the policy asked for come so many seconds later, as they do under a real clock.
        validate_every: check the invariants of the state after every so many cycles, and at the end.
        seed: of all random numbers.
        beliefs: what the policy is told about run times: the truth ("oracle"), the truth with an error, or only what
            ended jobs have shown ("learned").
        noise: how much run times vary by chance, as the standard deviation of their logarithms; 0: not at all.
        journal: where events and plans are kept; None: in memory.
    """
    if journal is None:
        journal = MemoryJournal(Header(bound.policy.name, bound.settings, tuple(nodes), seed))
    start = empty_snapshot(nodes, seed)
    kind = _Eager if eager else Controller
    recalls = bound.needs["recalls"]
    controller = kind(start, bound.decide, bound.order, journal, shifts=bound.shifts, recalls=recalls)
    executor = SimulatedExecutor(workload, nodes, seed=seed, beliefs=beliefs, noise=noise)
    ended: dict[str, tuple[float, str]] = {}
    cycles, now_s, since = 0, -1.0, 0
    while True:
        timer_s = controller.next_timer_s()
        if (moment := executor.wait(None if timer_s is None else timer_s + late_s)) is None:
            break
        for event in moment[1]:
            if isinstance(event, JobEnded):
                ended[event.job] = (event.at_s, event.verdict)
        actions = controller.cycle(*moment)
        cycles += 1
        if cycles % validate_every == 0:
            _raise_unless_sound(controller)
        if actions:
            executor.apply(actions)
        if moment[0] > now_s:
            now_s, since = moment[0], cycles
        if cycles - since > _RESTLESS * (len(workload.submissions) + 10):
            raise Unsound(f"policy '{bound.policy.name}' does not come to rest at {now_s:g} s")
    if cycles % validate_every:
        _raise_unless_sound(controller)
    refused, final = controller.refused_plans, controller.snapshot
    return Ran(ended, tuple(final.jobs), cycles, len(controller.decision_s), refused, final)


def _raise_unless_sound(controller: Controller) -> None:
    if found := broken_invariants(controller.snapshot) + broken_indices(controller.state):
        raise Unsound(f"at {controller.state.now_s:g} s: " + "; ".join(found))


class _Eager(Controller):
    """Asks in every cycle. The moment a policy asked for still comes."""

    def __init__(
        self,
        snapshot: Snapshot,
        decide: Decide,
        order: Order,
        journal: Journal,
        shifts: Shifts | None = None,
        recalls: bool = False,
    ) -> None:
        super().__init__(snapshot, self._always, order, journal, shifts=shifts, recalls=recalls)
        self._lazy = decide
        self._at_s: float | None = None

    def _always(self, snapshot: Snapshot) -> Plan:
        plan = self._lazy(snapshot)
        self._at_s = plan.wake.at_s
        return replace(plan, wake=Wake(at_s=snapshot.now_s))

    def next_timer_s(self) -> float | None:
        """The policy's moment, or a review."""
        review_s = super().next_timer_s()
        if self._at_s is None or self._at_s <= self.state.now_s:
            return review_s
        return self._at_s if review_s is None else min(review_s, self._at_s)
