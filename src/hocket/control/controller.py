"""The cycle, on one page. It is the same live and simulated: only the executor and the journal differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from msgspec.structs import replace

from hocket.control.admission import refusal
from hocket.control.check import MAX_SAID, NoPlan, examine
from hocket.control.commit import commit, end_job, next_actions
from hocket.control.cycle_log import log_cycle
from hocket.control.fold import fold
from hocket.control.ports import Cycle, Journal
from hocket.control.rank_shifts import Shifts
from hocket.control.state import CycleNotes, Order, State
from hocket.control.timers import Timers, next_verdict_s, verdict, verdict_at_exit
from hocket.model.action import Action
from hocket.model.capacity import Capacity
from hocket.model.event import (
    EpochEnded,
    Event,
    JobEnded,
    JobFailed,
    JobRefused,
    JobSubmitted,
    NodeJoined,
    OwnerSet,
    PolicySet,
    ProgressReported,
    TimePassed,
)
from hocket.model.plan import ALWAYS, Plan, Verdict, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import Observation
from hocket.policies.registry import BoundPolicy

Decide = Callable[[Snapshot], Plan]  # a policy with its parameters bound
Bind = Callable[[str, dict[str, Any]], BoundPolicy]  # a policy by its name, with these parameters
OnPolicyError = Callable[[Exception], None]  # called with an exception that a policy raised

_FINISHED = str(Verdict.FINISHED)
_RETRY_S = 60.0  # after a policy raised, it is called again at the latest after this time
_ADMITTED = frozenset({JobSubmitted, NodeJoined, OwnerSet, JobFailed})  # events that admission looks at, and some ends


class Controller:
    """Owns the state and runs cycles; pure except for the journal."""

    # Fields that may differ in a restored controller: given by its caller, or measured.
    NOT_RESTORED = frozenset({"decide", "journal", "on_policy_error", "bind", "decision_s"})

    def __init__(
        self,
        snapshot: Snapshot,
        decide: Decide,
        order: Order,
        journal: Journal,
        learns: bool = True,
        shifts: Shifts | None = None,
        counts: bool = True,
        recalls: bool = False,
        on_policy_error: OnPolicyError | None = None,
        bind: Bind | None = None,
    ) -> None:
        self.state = State(snapshot, order, learns, shifts, counts, recalls)
        self.decide = decide
        self.journal = journal
        # With it (live), an exception of the policy wastes a cycle; without it, the exception ends the run.
        self.on_policy_error = on_policy_error
        self.bind = bind  # Without it, the policy never changes.
        self.policy_set: PolicySet | None = None  # the last policy that was set by an event
        self.decision_s: list[float] = []  # how long each decision took
        self.refused_plans = 0
        self.cycles = 0  # the number of the last cycle, as its journal counts
        self.timers = Timers()
        self.grows = False  # whether nodes may come for jobs that fit none of those that were there
        self.cluster = Capacity.of(v.node for v in snapshot.nodes.values())  # all nodes since the start, empty

    def cycle(self, now_s: float, events: Sequence[Event]) -> list[Action]:
        """One pass, from events to actions."""
        # 1. Admit: a submission that breaks a rule is refused, one failure too many is final, a job whose process
        # ended before its criterion held has missed it; due timers are events.
        return self.advance(now_s, self._admit(now_s, events))

    def advance(self, now_s: float, events: Sequence[Event], recorded: Cycle | None = None) -> list[Action]:
        """The rest of the pass; a replay takes the events from a journal, a restore also the decision."""
        # 2. Fold the events into the state.
        state = self.state
        state.notes = CycleNotes()
        fold(state, events)
        state.advance_to(now_s)

        # 3. End jobs that have met or missed their criterion or limit; the policy is not asked.
        for job_id in state.notes.judged:
            self._judge(job_id)
        for at_s, job_id in state.notes.timers:
            self.timers.add(at_s, job_id)

        # 4. Decide, if an event happened that the policy waits for; a plan that breaks a rule is refused.
        plan: Plan | None = None
        refused: tuple[str, ...] = ()
        if _is_woken(state) if recorded is None else recorded.plan is not None:
            plan, capacity, refused = self._decide(recorded)

        # 5. Commit the plan, and find the actions that are possible now.
        if plan is None:
            actions = next_actions(state)
        elif refused:
            state.wake = replace(ALWAYS, at_s=plan.wake.at_s)
            actions = next_actions(state)
        else:
            actions = commit(state, plan, capacity)
            for job_id, at_s in plan.reviews.items():
                self.timers.add(at_s, job_id)

        # 6. Write the cycle to the journal before any action is sent.
        cycle = Cycle(now_s, tuple(events), plan, refused)
        self.journal.append(cycle)
        self.cycles += 1
        if recorded is None:
            log_cycle(self.cycles, cycle, actions, self.decision_s)
        return actions

    @property
    def snapshot(self) -> Snapshot:
        """The state at this moment, as a value."""
        return self.state.snapshot()

    # -- 1. admit -------------------------------------------------------------------------------------------

    def _admit(self, now_s: float, events: Sequence[Event]) -> Sequence[Event]:
        for event in events:
            if type(event) in _ADMITTED or (type(event) is JobEnded and self._needs_verdict(event)):
                events = self._admitted(events)
                break
        heap = self.timers.heap
        if heap and heap[0][0] <= now_s:
            return [*events, TimePassed(now_s, self.timers.pop_due(now_s, self.state.jobs.live))]
        return events or (TimePassed(now_s),)

    def _admitted(self, events: Sequence[Event]) -> list[Event]:
        facts: list[Event] = []
        new: set[str] = set()  # ids that came with these events
        reports: dict[str, list[Observation]] = {}  # that came with these events
        owners = self.state.owners.live
        for event in events:
            if isinstance(event, JobSubmitted):
                job = event.job
                live = new if job.id in new else self.state.jobs
                if reason := refusal(live, job, self.cluster, owners.get(job.owner), grows=self.grows):
                    event = JobRefused(event.at_s, job.id, reason)
                else:
                    new.add(job.id)
            elif isinstance(event, NodeJoined):
                self.grow_cluster(event)
            elif isinstance(event, OwnerSet):  # It applies to jobs that come with it, too.
                owners = {**owners, event.owner.id: event.owner}
            elif isinstance(event, JobFailed) and event.own and not event.final and self._tried_enough(event.job):
                event = replace(event, final=True)
            elif isinstance(event, EpochEnded | ProgressReported):
                step = event.step if isinstance(event, ProgressReported) else 0
                seen = Observation(event.at_s, event.epoch, event.metrics, step)
                reports.setdefault(event.job, []).append(seen)
            elif isinstance(event, JobEnded):
                event = self._with_verdict(event, reports.get(event.job, ()))
            facts.append(event)
        return facts

    def _needs_verdict(self, event: JobEnded) -> bool:
        view = self.state.jobs.live.get(event.job)
        return view is not None and (view.job.criterion is not None or event.verdict != _FINISHED)

    def _with_verdict(self, event: JobEnded, reports: Sequence[Observation]) -> JobEnded:
        """The end of a job with its reason, and with the verdict on its criterion if its process ended by itself."""
        view = self.state.jobs.live.get(event.job)
        if view is None or event.reason:
            return event
        if event.verdict != _FINISHED:
            return replace(event, reason=view.reason if view.verdict == event.verdict else event.verdict)
        found = verdict_at_exit(view, reports) if view.job.criterion is not None else None
        return event if found is None else replace(event, verdict=str(found[0]), reason=found[1], at_exit=True)

    def _tried_enough(self, job_id: str) -> bool:
        view = self.state.jobs.get(job_id)
        return view is not None and view.job.retries is not None and view.crashes >= view.job.retries

    def grow_cluster(self, event: NodeJoined) -> None:
        """Jobs that fit with this node are admitted from now on."""
        nodes = {node.id: node for node in self.cluster.layout.nodes}  # Several may join before the state knows them.
        nodes[event.node.id] = event.node
        self.cluster = Capacity.of(nodes.values())

    # -- 3. criteria and limits -----------------------------------------------------------------------------

    def _judge(self, job_id: str) -> None:
        state = self.state
        view = state.jobs.get(job_id)
        if view is None or view.verdict:
            return
        if (found := verdict(view, state.now_s)) is not None:
            end_job(state, job_id, *found)
            state.notes.freed = True
        elif (at_s := next_verdict_s(view, state.now_s)) is not None:
            self.timers.add_verdict(at_s, job_id, state.now_s)

    # -- 4. decide ------------------------------------------------------------------------------------------

    def _decide(self, recorded: Cycle | None) -> tuple[Plan, Capacity, tuple[str, ...]]:
        """A plan, the capacity that is free under it, and the rules that it breaks."""
        if self.state.new_policy is not None:
            self._switch_policy(self.state.new_policy)
        snapshot = self.state.snapshot()
        if recorded is not None and recorded.plan is not None:
            self.refused_plans += bool(recorded.refused)
            return recorded.plan, examine(snapshot, recorded.plan)[1], recorded.refused
        began = perf_counter()
        try:
            plan = self.decide(snapshot)
            self.decision_s.append(perf_counter() - began)
            violations, capacity = examine(snapshot, plan)
        except Exception as error:
            if self.on_policy_error is None:
                raise
            self.on_policy_error(error)
            self.refused_plans += 1
            did = str(error) if isinstance(error, NoPlan) else f"raised {type(error).__name__}: {error}"[:MAX_SAID]
            said = " ".join(f"the policy {did}".split())
            return Plan(wake=Wake(at_s=snapshot.now_s + _RETRY_S)), snapshot.capacity, (said,)
        if violations:
            self.refused_plans += 1
        return plan, capacity, tuple(violations)

    def _switch_policy(self, event: PolicySet) -> None:
        self.state.new_policy = None
        if self.bind is not None:
            policy = self.bind(event.policy, event.params)
            self.decide, self.policy_set = policy.decide, event
            self.state.switch_policy(policy.order, **policy.needs)

    # -- between cycles -------------------------------------------------------------------------------------

    def next_timer_s(self) -> float | None:
        """When the next cycle is due if no event comes before; None if time alone changes nothing."""
        state = self.state
        at_s, wake, shifts = self.timers.next_s(state.jobs.live), state.wake, state.shifts
        if wake.at_s is not None and wake.at_s > state.now_s and (at_s is None or wake.at_s < at_s):
            at_s = wake.at_s
        if shifts is not None and state.waiting.count and wake.overtaken:
            shift_s = shifts.next_s()
            if shift_s is not None and (at_s is None or shift_s < at_s):
                at_s = shift_s
        reservation_s = state.reservation_s if state.jobs.live else None  # Without jobs, its begin or end can wait.
        if reservation_s is not None and (at_s is None or reservation_s < at_s):
            at_s = reservation_s
        return at_s

    def drop_outdated_timers(self) -> None:
        """Drop timers of ended jobs."""
        live = self.state.jobs.live
        self.timers.drop_ended(live)
        if self.state.shifts is not None:
            self.state.shifts.drop_ended(live)


def _is_woken(state: State) -> bool:
    """Did an event happen that the policy waits for?"""
    notes, wake = state.notes, state.wake
    if notes.alarm or state.decision == 0:
        return True
    if wake.at_s is not None and state.now_s >= wake.at_s:
        return True
    if state.arrived and wake.arrival:
        return True
    if notes.freed and wake.freed_gpus is not None and (wake.freed_gpus <= 1 or state.capacity.gpus >= wake.freed_gpus):
        return True
    if notes.fell_to is not None and wake.overtaken and (first := state.waiting.first()) and notes.fell_to > first[0]:
        return True
    return notes.epoch_ended and wake.epoch
