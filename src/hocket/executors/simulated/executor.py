"""Carries out actions in a simulation: it owns the truth, and reports events at the times at which they fall.

Rates are constant between changes, so nothing ticks: each running job has one entry in the heap, for its next event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import exp, inf
from random import Random
from typing import assert_never

from msgspec.structs import replace

from hocket.executors.simulated.beliefs import BeliefMode, beliefs_of, phase_errors
from hocket.executors.simulated.phases import OBSERVED_ITERATIONS
from hocket.executors.simulated.rates import Rates
from hocket.executors.simulated.simulated_job import Place, SimulatedJob
from hocket.model.action import Action, Checkpoint, End, Move, Pause, Prepare, Resize, Resume, Start, Store
from hocket.model.event import (
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
    NodeLost,
    OwnerSet,
    StateStored,
)
from hocket.model.job import Kind, Preempt
from hocket.model.partition import NOW, Partition, Sharing
from hocket.model.resources import Node
from hocket.model.suspension import can_be_suspended
from hocket.model.view import Tier
from hocket.workloads.truth import Workload

_INTERLEAVED = Sharing.INTERLEAVED
_IDLE_TIMERS = 10_000  # moments in a row at which only a policy's own timer rang: it waits for what never comes


class SimulatedExecutor:
    """The simulated cluster and its jobs. `wait` moves its clock."""

    def __init__(
        self,
        workload: Workload,
        nodes: Sequence[Node],
        *,
        seed: int = 0,
        beliefs: BeliefMode = BeliefMode(),
        noise: float = 0.0,
        until_s: float | None = None,
    ) -> None:
        self.now_s = 0.0
        self._submissions = workload.submissions
        self._next_submission = 0
        self._submission_s = self._submissions[0].at_s if self._submissions else inf  # when the next one comes
        self._seed = seed
        self._beliefs = beliefs
        self._noise = noise
        self._until_s = until_s
        self._runs: dict[str, SimulatedJob] = {}
        self._rates = Rates(nodes, seed, noise)
        self._sharers = self._rates.sharers
        self._ready: list[Event] = [OwnerSet(0.0, owner) for owner in workload.owners]
        self._begun: list[Event] = []  # starts that took no time: nothing waits for them, so they come along later
        self._heap: list[tuple[float, int, int, SimulatedJob | None, str | Event]] = []
        self._pushed = 0
        self._idle = 0
        for change in workload.changes:
            self._push(change.at_s, None, change)
        by_id = {node.id: node for node in nodes}
        for fault in workload.faults:
            self._push(fault.at_s, None, NodeLost(fault.at_s, fault.node, "fault"))
            if fault.back_s is not None:
                self._push(fault.back_s, None, NodeJoined(fault.back_s, by_id[fault.node]))

    # -- the clock ------------------------------------------------------------------------------------------

    def wait(self, until_s: float | None) -> tuple[float, Sequence[Event]] | None:
        """The next moment and all that happens in it."""
        if self._ready:
            events, self._ready, self._begun = self._begun + self._ready, [], []
            return self.now_s, events
        heap = self._heap
        at_s = submission_s = self._submission_s
        while heap:
            due_s, n, generation, run, _what = heap[0]
            if run is None or generation == run.generation:
                if due_s < at_s:
                    at_s = due_s
                break
            heappop(heap)
            if n == run.entry:
                self._requeue(run)
        out, self._begun = self._begun, []
        if until_s is not None and until_s < at_s:
            if at_s == inf:
                self._idle += 1
            if self._idle > _IDLE_TIMERS or (self._until_s is not None and until_s > self._until_s):
                return self._last_moment(out)
            self.now_s = max(until_s, self.now_s)
            return self.now_s, out
        if at_s == inf or (self._until_s is not None and at_s > self._until_s):
            return self._last_moment(out)
        self._idle = 0
        self.now_s = at_s
        if submission_s <= at_s:
            self._submit(out)
        while heap and heap[0][0] <= at_s:
            _at, n, generation, run, what = heappop(heap)
            if run is None:
                assert not isinstance(what, str)
                self._node_event(what, out)
            elif generation == run.generation:
                if n == run.entry:
                    run.entry = 0
                self._due(run, what, out)
            elif n == run.entry:
                self._requeue(run)
        return at_s, out

    def _requeue(self, run: SimulatedJob) -> None:
        """The run's entry came up, and meanwhile the run is due later, or stands still."""
        run.entry = 0
        if run.rate:
            run.entry, run.entry_s = run.next, run.next_s
            heappush(self._heap, (run.next_s, run.next, run.generation, run, "next"))

    def _last_moment(self, out: list[Event]) -> tuple[float, Sequence[Event]] | None:
        """What is left to say; a run that is cut short lasts until it is cut."""
        if self._until_s is not None and self.now_s < self._until_s and self._runs:
            self.now_s = self._until_s
            return self.now_s, out
        return (self.now_s, out) if out else None

    def _push(self, at_s: float, run: SimulatedJob | None, what: str | Event) -> None:
        self._pushed += 1
        heappush(self._heap, (at_s, self._pushed, run.generation if run is not None else 0, run, what))

    def _submit(self, out: list[Event]) -> None:
        """All that is submitted by now."""
        submissions, n, now_s, runs = self._submissions, self._next_submission, self.now_s, self._runs
        while n < len(submissions) and submissions[n].at_s <= now_s:
            submission = submissions[n]
            job = submission.job
            if job.preempt is Preempt.SAVED:
                job = replace(job, preempt=Preempt.ALWAYS)  # A simulated job can continue from any moment.
            if job.id not in runs:  # A second one of the same name is refused, and the first goes on.
                runs[job.id] = SimulatedJob(job, submission.truth)
            beliefs = beliefs_of(submission, self._beliefs, self._seed)
            out.append(JobSubmitted(submission.at_s, job, beliefs, submission.truth.costs))
            n += 1
        self._next_submission = n
        self._submission_s = submissions[n].at_s if n < len(submissions) else inf

    def _due(self, run: SimulatedJob, what: str | Event, out: list[Event]) -> None:
        """An entry of a run came up: its end, an epoch's end, a crash, or a change that is done."""
        if what == "next":
            self._advance(run)
            self._next(run, out)
            return
        assert not isinstance(what, str)
        task = getattr(what, "task", "")
        change = run.pending.pop(task, None)
        if change is None or change[0] is not what:
            out.append(what)  # It had nothing to do with where the job runs.
            return
        self._advance(run)
        self._done(run, task, change[1])
        out.append(what)
        for event, _place in run.pending.values():
            self._push(max(event.at_s, self.now_s), run, event)

    # -- what happens by itself -----------------------------------------------------------------------------

    def _advance(self, run: SimulatedJob) -> None:
        if run.rate:
            run.done_s += (self.now_s - run.since_s) * run.rate
        run.since_s = self.now_s

    def _next(self, run: SimulatedJob, out: list[Event] | None = None) -> None:
        """Report what the run has reached, and schedule what it reaches next."""
        truth = run.truth
        if truth.crashes_s and run.crashes < len(truth.crashes_s) and run.reached(truth.crashes_s[run.crashes]):
            run.crashes += 1
            self._crash(run, "it crashed", out if out is not None else self._ready)
            return
        before = run.epoch
        if run.done_s >= run.observed_s - 1e-6:
            self._observe(run, out if out is not None else self._ready)
        if run.length is not None:
            run.end_turn(self.now_s, out if out is not None else self._ready)
        elif truth.epochs:
            run.end_epochs(self.now_s, out if out is not None else self._ready)
        if run.reached(truth.run_s):
            self._gone(run)
            del self._runs[run.job.id]
            (out if out is not None else self._ready).append(JobEnded(self.now_s, run.job.id))
            return
        if run.deferred and (run.epoch > before or not run.rate):
            actions, run.deferred = run.deferred, ()
            self.apply(actions)
        self._schedule(run)

    def _schedule(self, run: SimulatedJob) -> None:
        run.generation = generation = run.generation + 1
        if rate := run.rate:
            truth = run.truth
            goal_s = truth.run_s
            if truth.epochs and run.length is None:
                goal_s = min(goal_s, truth.run_s * (run.epoch + 1) / truth.epochs)
            if truth.crashes_s and run.crashes < len(truth.crashes_s):
                goal_s = min(goal_s, truth.crashes_s[run.crashes])
            if run.observed_s < goal_s:
                goal_s = run.observed_s
            left_s = goal_s - run.done_s
            at_s = self.now_s + left_s / rate if left_s > 0 else self.now_s
            if run.length is not None:
                at_s = min(at_s, run.turn_ends_s(self.now_s, run.length))
            self._pushed = pushed = self._pushed + 1
            run.next, run.next_s = pushed, at_s
            if not run.entry or run.entry_s > at_s:  # Else the one that is there will come up in time.
                run.entry, run.entry_s = pushed, at_s
                heappush(self._heap, (at_s, pushed, generation, run, "next"))
        if run.pending:
            for event, _place in run.pending.values():
                self._push(event.at_s, run, event)
        elif run.deferred and not run.rate:
            self._push(self.now_s, run, "next")  # It stands still, and would never come to its boundary.

    def _crash(self, run: SimulatedJob, why: str, out: list[Event]) -> None:
        self._gone(run)
        run.lose_work()
        out.append(JobFailed(self.now_s, run.job.id, why))

    def _node_event(self, event: Event, out: list[Event]) -> None:
        if isinstance(event, JobPrepared | JobCheckpointed):
            run = self._runs.get(event.job)
            if run is None or (run.prepared is not event and run.saving is not event):
                return  # It broke before it was ready, or had saved its state.
            if run.saving is event:
                run.saving = None
                self._save(run)
                run.rate = self._rates.of(run, self.now_s)
                self._schedule(run)
        out.append(event)
        if isinstance(event, NodeLost):
            for run in list(self._runs.values()):
                self._lose_node(run, event.node)

    def _lose_node(self, run: SimulatedJob, node: str) -> None:
        """Its tenants there are gone. Others stay, and with them the work if they are all that it takes."""
        if run.suspended_on == node:
            run.suspended_on = ""
            run.lose_work()
            return
        hit = run.tenants_on(node)
        if not hit:
            return
        self._advance(run)
        if hit >= run.tenancies.keys() | run.pending.keys():
            self._gone(run)
            run.lose_work()
            return
        needed = {t.partition("#")[0] for t in run.tenancies}
        for task in hit:
            run.pending.pop(task, None)
            if task in run.tenancies:
                self._leave(run, task)
        if {t.partition("#")[0] for t in run.tenancies} < needed:
            run.lose_work()
        run.rate = self._rates.of(run, self.now_s)
        self._schedule(run)

    # -- where a job runs -----------------------------------------------------------------------------------

    def _gone(self, run: SimulatedJob) -> None:
        """The job runs nowhere any more."""
        if run.pending:
            run.pending.clear()
        run.deferred = ()
        if self._sharers:
            for task in list(run.tenancies):
                self._leave(run, task)
        else:
            run.tenancies.clear()
        run.rate, run.observed_s, run.iteration = 0.0, inf, None
        run.generation += 1
        run.prepared = None

    def _leave(self, run: SimulatedJob, task: str) -> None:
        _holding, partition = run.tenancies.pop(task)
        if self._sharers and (others := self._sharers.get(partition.id)) is not None:
            others.pop(f"{run.job.id}/{task}", None)
            self._re_rate(partition)
            if not others:
                del self._sharers[partition.id]

    def _done(self, run: SimulatedJob, task: str, place: Place | None) -> None:
        """A change is done: the tenant runs in its new place, or nowhere. The run is up to date."""
        if task in run.tenancies:
            self._leave(run, task)
        if place is not None:
            run.tenancies[task] = place
            holding, partition = place
            run.length = None
            if holding.boundary is not NOW and holding.boundary.at == "after" and not task:
                run.length, run.turn_s, run.turn_done_s = holding.boundary, self.now_s, run.done_s
            run.observed_s = inf
            if partition.sharing is _INTERLEAVED and not task:
                run.observed_s = run.done_s + OBSERVED_ITERATIONS * (run.truth.comp_s + run.truth.comm_s)
            if len(partition.tenants) > 1 or (self._sharers and partition.id in self._sharers):
                self._share(partition)
                if run.truth.input_mib and self._rates.overflows(partition):
                    self._crash(run, "out of memory, beside those on its machines", self._ready)
                    return
                self._re_rate(partition)
                return
        run.rate = self._rates.of(run, self.now_s)
        self._schedule(run)

    def _share(self, partition: Partition) -> None:
        """Note which jobs are in a partition of several, also those that had it to themselves before."""
        sharers = self._sharers.setdefault(partition.id, {})
        for tenant in partition.tenants:
            other = self._runs.get(tenant.job)
            held = other.tenancies.get(tenant.task) if other is not None else None
            if other is not None and held is not None and held[0].partition == partition.id:
                other.tenancies[tenant.task] = (held[0], partition)
                sharers[f"{tenant.job}/{tenant.task}"] = other
                if partition.sharing is not _INTERLEAVED:
                    other.observed_s = inf  # They take turns no more.

    def _re_rate(self, partition: Partition) -> None:
        """Other jobs share a partition now: so the speed of each in it changes."""
        for other in list({id(r): r for r in self._sharers[partition.id].values()}.values()):
            self._advance(other)
            other.rate = self._rates.of(other, self.now_s, partition.id)
            self._schedule(other)

    def _observe(self, run: SimulatedJob, out: list[Event]) -> None:
        """Its phases have been measured for a while: say so, once for each place."""
        run.observed_s = inf
        sharers, played = self._rates.played(run, run.tenancies[""][1])
        off = phase_errors(run.job.id, self._beliefs, self._seed)
        out.append(run.phases_observed(self.now_s, played, sharers.index(run), off))

    # -- actions --------------------------------------------------------------------------------------------

    def apply(self, actions: Iterable[Action]) -> None:
        """Begin to carry these out; each takes the time that the truth says."""
        for action in actions:
            run = self._runs.get(action.job)
            if run is None:
                continue  # It ended in this very moment; the event is on its way.
            costs = run.truth.costs
            if type(action) is Start or type(action) is Resume:  # A pattern is slow, and these come often.
                is_ready = run.prepared is not None and run.prepared.at_s <= self.now_s
                takes_s = costs.start_s + (0.0 if is_ready else costs.prepare_s) + run.load_s
                job, task = action.job, action.task
                if in_place := run.suspended_on != "":
                    takes_s, run.suspended_on = 0.0, ""
                else:
                    run.prepared = None
                if self._noise and not run.tenancies and not in_place:
                    run.noise = exp(Random(f"{self._seed}/{job}/{run.generation}").gauss(0.0, self._noise))
                self._advance(run)
                started = JobStarted(self.now_s + takes_s, job, task, in_place=in_place)
                self._change(run, task, started, (action.to, action.partition), takes_s)
                continue
            if type(action) is Pause:
                if not self._deferred(run, action.task, action):
                    self._pause(run, action)
                continue
            match action:
                case Resize(job, task, to, partition) if not self._deferred(run, task, action):
                    held = run.tenancies[task][0]
                    takes_s = costs.restart_s(run.job.warm and to.stays_within(held))  # elsewhere it starts cold
                    in_place = run.job.kind is Kind.QUERY and to.stays_within(held)  # between two batches
                    if in_place or (held.slices == to.slices and held.replicas == to.replicas):
                        takes_s = 0.0  # Or only the length of its running epochs changes.
                        self._advance(run)
                    else:
                        self._save(run)
                    resized = JobResized(self.now_s + takes_s, job, task, in_place=in_place)
                    self._change(run, task, resized, (to, partition), takes_s)
                case Move(job, task, to, partition) if not self._deferred(run, task, action):
                    takes_s = costs.restart_s(warm=False)
                    self._save(run)
                    self._change(run, task, JobMoved(self.now_s + takes_s, job, task), (to, partition), takes_s)
                case Checkpoint(job, tier) if not self._deferred(run, next(iter(run.tenancies), ""), action):
                    self._checkpoint(run, JobCheckpointed(self.now_s + costs.checkpoint_s, job, tier))
                case Resize() | Move() | Checkpoint():
                    pass
                case End(job, verdict):
                    self._advance(run)
                    self._gone(run)
                    del self._runs[job]
                    self._later(JobEnded(self.now_s + costs.stop_s, job, verdict))
                case Prepare(job):
                    run.prepared = JobPrepared(self.now_s + costs.prepare_s, job)
                    self._later(run.prepared)
                case Store():
                    self._store(run, action)
                case _:
                    assert_never(action)

    def _pause(self, run: SimulatedJob, action: Pause) -> None:
        """In memory its process stops at once. Else it ends: its state is saved, or what is unsaved is done again."""
        held, job, tier, takes_s = run.tenancies[action.task][0], action.job, action.tier, run.truth.costs.stop_s
        self._advance(run)
        if tier is Tier.MEMORY and can_be_suspended(run.job, held):
            part, takes_s = held.slices[0], 0.0
            run.suspended_on = part.node
            left = JobPaused(self.now_s, job, tier=tier, node=part.node, mem_mib=part.mem_mib)
        elif tier is Tier.NONE and not action.task:
            self._ready += run.dropped(self.now_s)
            left = JobPaused(self.now_s + takes_s, job, tier=run.kept)
        else:
            self._save(run)
            takes_s += run.truth.costs.checkpoint_s
            left = JobPaused(self.now_s + takes_s, job, action.task, tier)
        self._change(run, action.task, left, None, takes_s)

    def _store(self, run: SimulatedJob, action: Store) -> None:
        """A suspended process writes its state and ends, or only ends; what is on disk already is where it is."""
        costs, is_suspended, tier = run.truth.costs, run.suspended_on != "", action.tier
        takes_s = costs.checkpoint_s
        if is_suspended and tier is not Tier.MEMORY:
            run.suspended_on = ""
            takes_s = costs.stop_s
            if tier is Tier.DISK:
                self._save(run)
                takes_s += costs.checkpoint_s
            else:
                self._ready += run.dropped(self.now_s)
                tier = run.kept
        elif not is_suspended and tier is Tier.MEMORY and run.job.kind is Kind.QUERY:
            tier = run.kept
        self._later(StateStored(self.now_s + takes_s, action.job, tier))

    def _checkpoint(self, run: SimulatedJob, event: JobCheckpointed) -> None:
        """Save its state. The job stands still until that is done, and nothing is saved before."""
        if run.saving is not None:
            return  # It is at it.
        if event.at_s <= self.now_s:
            self._save(run)
        else:
            self._advance(run)
            run.saving = event
            run.rate = self._rates.of(run, self.now_s)
            self._schedule(run)
        self._later(event)

    def _save(self, run: SimulatedJob) -> None:
        self._advance(run)
        run.saved_s = run.done_s

    def _deferred(self, run: SimulatedJob, task: str, action: Action) -> bool:
        """Keep a change for the tenant's boundary, up to which it goes on; False where it may take hold now."""
        if task not in run.tenancies:
            return True  # It broke in this very moment; the event is on its way.
        at = run.tenancies[task][0].boundary.at
        if at not in ("epoch", "after") or not run.rate:
            return False
        self._advance(run)
        if not run.is_within_epoch(at, self.now_s):
            return False
        run.deferred += (action,)
        return True

    def _change(self, run: SimulatedJob, task: str, event: Event, place: Place | None, takes_s: float) -> None:
        """Carry out a change, at once or when its time has passed; the job stands still meanwhile. It is up to date."""
        if takes_s <= 0:
            self._done(run, task, place)
            if run.job.criterion is None and type(event) is JobStarted:  # A criterion may count from the start.
                self._begun.append(event)
            else:
                self._ready.append(event)
            return
        run.pending[task] = (event, place)
        run.rate = self._rates.of(run, self.now_s)
        self._schedule(run)

    def _later(self, event: Event) -> None:
        """Report an event that changes nothing about where the job runs."""
        if event.at_s <= self.now_s:
            self._ready.append(event)
        else:  # Not tied to a generation of the run: it comes whatever happens to the run meanwhile.
            self._push(event.at_s, None, event)
