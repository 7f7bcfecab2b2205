"""The cycle, on one page. It is the same in every world: only the executor and the journal differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from time import perf_counter

from hocket.control.admission import refusal
from hocket.control.check import InvalidPlan, violations
from hocket.control.diff import diff
from hocket.control.ports import Cycle, Executor, Journal
from hocket.control.state import Edit, Order
from hocket.control.verdict import next_verdict_s, verdict
from hocket.model.action import Action
from hocket.model.capacity import Capacity, shape_of
from hocket.model.event import Event, JobRefused, JobSubmitted, NodeJoined, NodeLost, TimePassed
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot

Decide = Callable[[Snapshot], Plan]  # a policy with its parameters bound


class Controller:
    """Owns the state; everything it does with it is pure but for the journal."""

    def __init__(self, snapshot: Snapshot, decide: Decide, order: Order, journal: Journal) -> None:
        self.snapshot = snapshot
        self.decide = decide
        self.order = order
        self.journal = journal
        self.decision_s: list[float] = []  # how long each decision took
        self.refused_plans = 0
        self._timers: list[tuple[float, str]] = []  # (when, job); stale ones are passed over when they come
        self._whole = Capacity.of(v.node for v in snapshot.nodes.values())
        self._fits: set[object] = set()

    def cycle(self, now_s: float, events: Sequence[Event]) -> list[Action]:
        """One pass, from what happened to what is to be done."""
        # 1. Facts: a submission that breaks a rule becomes a refusal; a moment that was asked for is a fact too.
        events = self._facts(now_s, events)

        # 2. Fold.
        edit = Edit(self.snapshot, now_s, self.order)
        for event in events:
            edit.fold(event)

        # 3. Criteria that were decided end their jobs, whatever the policy.
        for job_id in edit.judged:
            self._judge(edit, job_id)

        # 4. Decide, if what the policy waits for has happened; a plan that breaks a rule is refused.
        plan, refused = None, ()
        if _woken(edit):
            before = edit.snapshot()
            plan, refused = self._decide(before)
            if refused:
                edit.wake = edit.wake.__class__()
            else:
                edit.adopt(plan)
                for job_id, at_s in plan.reviews.items():
                    heappush(self._timers, (at_s, job_id))

        # 5. Diff: what can be done now towards the plan.
        actions: list[Action] = []
        if edit.unsettled.data():
            actions, settled = diff(edit.snapshot(), plan if not refused else None)
            edit.issue(actions)
            for key in settled:
                edit.unsettled = edit.unsettled.without(key)

        # 6. Written down before anything is done.
        self.journal.append(Cycle(now_s, tuple(events), plan, refused))
        self.snapshot = edit.snapshot()
        return actions

    def _facts(self, now_s: float, events: Sequence[Event]) -> Sequence[Event]:
        facts: list[Event] = []
        for event in events:
            if isinstance(event, JobSubmitted):
                if reason := self._refusal(event, facts):
                    facts.append(JobRefused(event.at_s, event.job.id, reason))
                    continue
            elif isinstance(event, NodeJoined | NodeLost):
                self._cluster_changed(event)
            facts.append(event)
        timers = self._timers
        if timers and timers[0][0] <= now_s:
            due: dict[str, None] = {}
            while timers and timers[0][0] <= now_s:
                due[heappop(timers)[1]] = None
            facts.append(TimePassed(now_s, tuple(due)))
        elif not facts:
            facts.append(TimePassed(now_s))
        return facts

    def _refusal(self, event: JobSubmitted, before: list[Event]) -> str:
        job = event.job
        shape = shape_of(job)
        if shape in self._fits and type(shape) is int and job.id not in self.snapshot.jobs:
            return ""  # the common case: a job like others before it
        if any(isinstance(e, JobSubmitted) and e.job.id == job.id for e in before):
            return f"job '{job.id}': id must be unique, and a live job has it already"
        reason = refusal(self.snapshot, job, self._whole)
        if not reason:
            self._fits.add(shape)
        return reason

    def _cluster_changed(self, event: NodeJoined | NodeLost) -> None:
        if isinstance(event, NodeJoined):
            nodes = {v.node.id: v.node for v in self.snapshot.nodes.values()}
            nodes[event.node.id] = event.node
            self._whole = Capacity.of(nodes.values())
            self._fits.clear()

    def _judge(self, edit: Edit, job_id: str) -> None:
        view = edit.jobs.get(job_id)
        if view is None or view.verdict:
            return
        if (found := verdict(view, edit.now_s)) is not None:
            edit.end(job_id, *found)
            edit.freed = True
        elif (at_s := next_verdict_s(view, edit.now_s)) is not None:
            heappush(self._timers, (at_s, job_id))

    def _decide(self, snapshot: Snapshot) -> tuple[Plan, tuple[str, ...]]:
        began = perf_counter()
        plan = self.decide(snapshot)
        self.decision_s.append(perf_counter() - began)
        if found := violations(snapshot, plan):
            self.refused_plans += 1
            return plan, tuple(found)
        return plan, ()

    def next_timer_s(self) -> float | None:
        """When the next moment comes that somebody asked for."""
        at_s = self.snapshot.wake.at_s
        timers = self._timers
        if at_s is not None and at_s <= self.snapshot.now_s:
            at_s = None
        if timers and (at_s is None or timers[0][0] < at_s):
            return timers[0][0]
        return at_s


def _woken(edit: Edit) -> bool:
    if edit.alarm or edit.base.decision == 0:
        return True
    wake = edit.wake
    if wake.at_s is not None and edit.now_s >= wake.at_s:
        return True
    if edit.arrived and wake.arrival:
        return True
    if edit.freed and wake.freed_gpus is not None and (wake.freed_gpus <= 1 or edit.capacity.gpus >= wake.freed_gpus):
        return True
    return edit.epoch_ended and wake.epoch


def run(controller: Controller, executor: Executor) -> None:
    """Cycle until nothing more will happen."""
    while (moment := executor.wait(controller.next_timer_s())) is not None:
        actions = controller.cycle(*moment)
        if actions:
            executor.apply(actions)


__all__ = ["Controller", "InvalidPlan", "run"]
