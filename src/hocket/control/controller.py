"""The cycle, on one page. It is the same in every world: only the executor and the journal differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from time import perf_counter
from typing import Any

from msgspec.structs import replace

from hocket.control.admission import beyond_quota, refusal
from hocket.control.adopt import adopt, carry_out, end_job, issue
from hocket.control.check import NoPlan, examine
from hocket.control.diff import diff
from hocket.control.fold import fold
from hocket.control.ports import Cycle, Executor, Journal
from hocket.control.state import Order, Shifts, State
from hocket.control.verdict import next_verdict_s, verdict
from hocket.model.action import Action
from hocket.model.capacity import Capacity
from hocket.model.event import Event, JobFailed, JobRefused, JobSubmitted, NodeJoined, OwnerSet, PolicySet, TimePassed
from hocket.model.job import Job, Owner
from hocket.model.plan import ALWAYS, Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.policies.registry import BoundPolicy

Decide = Callable[[Snapshot], Plan]  # a policy with its parameters bound
Bind = Callable[[str, dict[str, Any]], BoundPolicy]  # a policy by its name, with these parameters
Excuse = Callable[[Exception], None]  # is told of a policy that raised, so that somebody may mend it

_ASKED_AGAIN_S = 60.0  # after a policy raised, at the latest
_LOOKED_AT = frozenset({JobSubmitted, NodeJoined, JobFailed})  # events that may become others
_WEIGHED = _LOOKED_AT | {OwnerSet}  # what counts then: a quota does for jobs that come with it


class Controller:
    """Owns the state; everything it does with it is pure but for the journal."""

    def __init__(
        self,
        snapshot: Snapshot,
        decide: Decide,
        order: Order,
        journal: Journal,
        learns: bool = True,
        shifts: Shifts | None = None,
        counts: bool = True,
        excuse: Excuse | None = None,
        bind: Bind | None = None,
    ) -> None:
        self.state = State(snapshot, order, learns, shifts, counts)
        self.decide = decide
        self.journal = journal
        self.excuse = excuse  # With it, as live, a policy that raises wastes a cycle; without, it ends the run.
        self.bind = bind  # Without it, the policy that it began with decides to the end.
        self.followed: PolicySet | None = None  # the last that was set
        self.decision_s: list[float] = []  # how long each decision took
        self.refused_plans = 0
        self._timers: list[tuple[float, str]] = []  # (when, job); stale ones are passed over when they come
        self._judged_s: dict[str, float] = {}  # job → the last of them for its criterion or limit
        self._whole = Capacity.of(v.node for v in snapshot.nodes.values())
        self._fits: dict[tuple[int, ...], Job] = {}  # sizes → a job that was admitted with them

    def cycle(self, now_s: float, events: Sequence[Event]) -> list[Action]:
        """One pass, from what happened to what is to be done."""
        # 1. Facts: a submission that breaks a rule becomes a refusal, a failure too many the end; a moment that was
        #    asked for is a fact too.
        return self.advance(now_s, self._facts(now_s, events))

    def advance(self, now_s: float, events: Sequence[Event], recorded: Cycle | None = None) -> list[Action]:
        """The rest of the pass, from facts; a replay takes them from a journal, a restore the decision too."""
        # 2. Fold.
        state = self.state
        state.begin()
        fold(state, events)
        state.now_s = now_s
        if state.shifting and state.shifting[0][0] <= now_s:
            state.shift()

        # 3. Criteria and limits that were decided end their jobs, whatever the policy.
        for job_id in state.judged:
            self._judge(job_id)
        for timer in state.timers:
            heappush(self._timers, timer)

        # 4. Decide, if what the policy waits for has happened; a plan that breaks a rule is refused.
        plan: Plan | None = None
        refused: tuple[str, ...] = ()
        actions: list[Action] | None = None
        if _woken(state) if recorded is None else recorded.plan is not None:
            if state.ruling is not None:
                self._follow(state.ruling)
            plan, capacity, refused = self._decide(state.snapshot(), recorded)
            if refused:
                state.wake = replace(ALWAYS, at_s=plan.wake.at_s)
            else:
                actions = carry_out(state, plan, capacity)
                if actions is None:
                    adopt(state, plan, capacity)
                for job_id, at_s in plan.reviews.items():
                    heappush(self._timers, (at_s, job_id))

        # 5. Diff: what can be done now towards the plan.
        if actions is None:
            actions = []
            if state.unsettled or (plan is not None and plan.checkpoints):
                actions, settled = diff(state, None if refused else plan)
                issue(state, actions, settled)

        # 6. Written down before anything is done.
        self.journal.append(Cycle(now_s, tuple(events), plan, refused))
        return actions

    @property
    def snapshot(self) -> Snapshot:
        """The state at this moment, as a value."""
        return self.state.snapshot()

    def _facts(self, now_s: float, events: Sequence[Event]) -> Sequence[Event]:
        for event in events:
            if type(event) in _LOOKED_AT:
                events = self._admitted(events)
                break
        timers = self._timers
        if timers and timers[0][0] <= now_s:
            due: dict[str, None] = {}
            while timers and timers[0][0] <= now_s:
                due[heappop(timers)[1]] = None
            return [*events, TimePassed(now_s, tuple(due))]
        return events or (TimePassed(now_s),)

    def _admitted(self, events: Sequence[Event]) -> list[Event]:
        facts: list[Event] = []
        new: set[str] = set()  # ids that came with these events
        owners = self.state.owners.live
        for event in events:
            if type(event) not in _WEIGHED:  # To ask one class after another is slow.
                facts.append(event)
                continue
            if isinstance(event, JobSubmitted):
                if reason := self._refusal(event.job, new, owners.get(event.job.owner) if owners else None):
                    facts.append(JobRefused(event.at_s, event.job.id, reason))
                    continue
                new.add(event.job.id)
            elif isinstance(event, NodeJoined):
                self._cluster_grows(event)
            elif isinstance(event, OwnerSet):  # The state knows nothing yet of those that come with their jobs.
                owners = {**owners, event.owner.id: event.owner}
            elif isinstance(event, JobFailed) and event.own and not event.final and self._tried_enough(event.job):
                event = replace(event, final=True)
            facts.append(event)
        return facts

    def _tried_enough(self, job_id: str) -> bool:
        view = self.state.jobs.get(job_id)
        return view is not None and view.job.retries is not None and view.crashes >= view.job.retries

    def _refusal(self, job: Job, new: set[str], owner: Owner | None) -> str:
        job_id = job.id
        if job_id in new or job_id in self.state.jobs:
            return f"job '{job_id}': id must be unique, and a live job has it already"
        like = self._fits.get(job.sizes)
        if (
            like is not None
            and replace(job, id=like.id, owner=like.owner) == like
            and job_id.isprintable()
            and "/" not in job_id
            and 0 < len(job_id) <= 200
        ):
            # The common case: a job like another before it, but for its names.
            return beyond_quota(job, owner) if owner is not None else ""
        reason = refusal(self.state.jobs, job, self._whole, owner)
        if not reason and job.tasks is None and not job.after:  # Whom it is to follow may be over by then.
            self._fits[job.sizes] = job
        return reason

    def _cluster_grows(self, event: NodeJoined) -> None:
        nodes = {node.id: node for node in self._whole.layout.nodes}  # The state knows nothing yet of those beside it.
        nodes[event.node.id] = event.node
        self._whole = Capacity.of(nodes.values())
        self._fits.clear()

    def _judge(self, job_id: str) -> None:
        state = self.state
        view = state.jobs.get(job_id)
        if view is None or view.verdict:
            return
        if (found := verdict(view, state.now_s)) is not None:
            end_job(state, job_id, *found)
            state.freed = True
            return
        at_s = next_verdict_s(view, state.now_s)
        if at_s is None or (at_s == self._judged_s.get(job_id) and at_s > state.now_s):
            return  # Time alone decides nothing, or the moment stands there already and has not come yet.
        self._judged_s[job_id] = at_s
        heappush(self._timers, (at_s, job_id))

    def _follow(self, ruling: PolicySet) -> None:
        self.state.ruling = None
        if self.bind is not None:
            policy = self.bind(ruling.policy, ruling.params)
            self.decide, self.followed = policy.decide, ruling
            self.state.follow(policy.order, **policy.needs)

    def _decide(self, snapshot: Snapshot, recorded: Cycle | None) -> tuple[Plan, Capacity, tuple[str, ...]]:
        if recorded is not None and recorded.plan is not None:
            self.refused_plans += bool(recorded.refused)
            return recorded.plan, examine(snapshot, recorded.plan)[1], recorded.refused
        began = perf_counter()
        try:
            plan = self.decide(snapshot)
            self.decision_s.append(perf_counter() - began)
            violations, capacity = examine(snapshot, plan)
        except Exception as error:
            if self.excuse is None:
                raise
            self.excuse(error)
            self.refused_plans += 1
            did = str(error) if isinstance(error, NoPlan) else f"raised {type(error).__name__}: {error}"
            said = " ".join(f"the policy {did}".split())[:500]
            return Plan(wake=Wake(at_s=snapshot.now_s + _ASKED_AGAIN_S)), snapshot.capacity, (said,)
        if violations:
            self.refused_plans += 1
        return plan, capacity, tuple(violations)

    def next_timer_s(self) -> float | None:
        """When the next moment comes that somebody asked for."""
        state, timers = self.state, self._timers
        at_s = state.wake.at_s
        if at_s is not None and at_s <= state.now_s:
            at_s = None
        if state.shifting and state.waiting.count and state.wake.overtaken:
            shift_s = state.next_shift_s()
            if shift_s is not None and (at_s is None or shift_s < at_s):
                at_s = shift_s
        while timers:
            due_s, job_id = timers[0]
            view = state.jobs.get(job_id)
            if view is None or (due_s not in (view.review_s, view.held_until_s) and not _has_a_judge(view.job)):
                heappop(timers)  # The job is over, or the policy has named another moment since.
                if self._judged_s.get(job_id) == due_s:
                    del self._judged_s[job_id]
                continue
            return due_s if at_s is None or due_s < at_s else at_s
        return at_s

    def forget_the_dead(self) -> None:
        """Keep no moments of jobs that are over; those that lie far ahead would stay for long."""
        state = self.state
        live = state.jobs.live
        self._timers = sorted({timer for timer in self._timers if timer[1] in live})  # A heap too.
        self._judged_s = {job_id: self._judged_s[job_id] for job_id in sorted(self._judged_s) if job_id in live}
        state.shifting = sorted({shift for shift in state.shifting if shift[1] in live})


def _has_a_judge(job: Job) -> bool:
    return job.criterion is not None or job.limit_s is not None


def _woken(state: State) -> bool:
    if state.alarm or state.decision == 0:
        return True
    wake = state.wake
    if wake.at_s is not None and state.now_s >= wake.at_s:
        return True
    if state.arrived and wake.arrival:
        return True
    if state.freed and wake.freed_gpus is not None and (wake.freed_gpus <= 1 or state.capacity.gpus >= wake.freed_gpus):
        return True
    if state.fell_to is not None and wake.overtaken and (first := state.waiting.first()) and state.fell_to > first[0]:
        return True
    return state.epoch_ended and wake.epoch


def run(controller: Controller, executor: Executor) -> None:
    """Cycle until nothing more will happen."""
    while (moment := executor.wait(controller.next_timer_s())) is not None:
        actions = controller.cycle(*moment)
        if actions:
            executor.apply(actions)
