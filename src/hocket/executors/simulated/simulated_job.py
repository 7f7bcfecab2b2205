"""One simulated job, as it runs."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from hocket.executors.simulated.phases import LINK_BUSY, OBSERVED_ITERATIONS, Played
from hocket.executors.simulated.speed import Companion
from hocket.executors.simulated.task_graph import Iteration
from hocket.model.action import Action
from hocket.model.event import (
    EpochEnded,
    Event,
    JobCheckpointed,
    JobPrepared,
    PhasesObserved,
    ProgressReported,
    WorkLost,
)
from hocket.model.job import Job
from hocket.model.partition import Boundary, Holding, Partition
from hocket.model.snapshot import demand_of
from hocket.model.view import Tier, Use
from hocket.workloads.truth import Truth

Place = tuple[Holding, Partition]


class SimulatedJob:
    """One simulated job."""

    # No struct: its fields are set all the time, and to set a field of one is slow.
    __slots__ = (
        "crashes", "deferred", "done_s", "entry", "entry_s", "epoch", "generation", "iteration", "job", "length",
        "next", "next_s", "noise", "observed_s", "pending", "prepared", "rate", "saved_s", "saving", "since_s",
        "suspended_on", "tenancies", "truth", "turn_done_s", "turn_s",
    )  # fmt: skip

    def __init__(self, job: Job, truth: Truth) -> None:
        self.job = job
        self.truth = truth
        self.done_s = 0.0  # work done up to `since_s`
        self.saved_s = 0.0  # work that a crash does not undo
        self.since_s = 0.0
        self.rate = 0.0
        self.epoch = 0
        self.generation = 0  # heap entries of older generations are void, but for the one numbered `entry`
        self.entry = 0  # the number of its entry in the heap for what comes next; 0: it has none
        self.entry_s = 0.0  # when that comes up; it is put off then, if what comes next is due later by now
        self.next = 0  # the number that the entry should have, …
        self.next_s = 0.0  # … and when it should come up
        self.tenancies: dict[str, Place] = {}  # task → where it runs
        self.pending: dict[str, tuple[Event, Place | None]] = {}  # task → a change under way
        self.deferred: tuple[Action, ...] = ()  # changes that wait for the tenant's boundary
        self.length: Boundary | None = None  # of its running epochs, where the plan sets one
        self.turn_s = 0.0  # when the present running epoch began …
        self.turn_done_s = 0.0  # … and what had been done then
        self.prepared: JobPrepared | None = None  # said, or to be said
        self.saving: JobCheckpointed | None = None  # to be said when its state is saved; it stands still until then
        self.suspended_on = ""  # the node where its process is, while it is paused in memory
        self.noise = 1.0
        self.crashes = 0
        self.observed_s = inf  # work at which its phases have been measured
        self.iteration: Iteration | None = None  # of a job of several tasks, once it has run

    def reached(self, work_s: float) -> bool:
        """Has it done so much work?"""
        # To the nearest microsecond of work: what is left by rounding would never be worked off.
        return self.done_s >= work_s - 1e-6

    def is_within_epoch(self, at: str, now_s: float) -> bool:
        """Is it in the midst of an epoch, one that the plan set (`after`) or one of its own?"""
        if at == "after":
            return self.length is not None and now_s > self.turn_s
        epochs = self.truth.epochs  # It may have none, or one has just ended.
        return bool(epochs) and self.done_s > self.truth.run_s * self.epoch / epochs + 1e-6

    def tenants_on(self, node: str) -> set[str]:
        """Its tasks that are on a node, or on their way there."""
        places = [*self.tenancies.items(), *((t, p) for t, (_e, p) in self.pending.items() if p is not None)]
        return {task for task, (holding, _p) in places if any(s.node == node for s in holding.slices)}

    def companion(self, kinds: Mapping[str, str], task: str = "") -> Companion:
        """One of its tenants, as those beside it meet it; `kinds` are the nodes' GPUs."""
        holding = self.tenancies[task][0]
        return Companion(demand_of(self.job, task), self.truth, holding, kinds[holding.slices[0].node])

    def phases_observed(self, now_s: float, played: Played, me: int, off: tuple[float, float]) -> PhasesObserved:
        """What was measured of its phases, as tenant `me` of those played; COMP and COMM err by these factors."""
        comp_s, comm_s = played.comp_s[me] * off[0], played.comm_s[me] * off[1]
        machines, slowest = sum(1 for n in self.tenancies[""][0].replicas if n), played.slowest[me]
        return PhasesObserved(
            now_s, self.job.id, machines, comp_s, comm_s, OBSERVED_ITERATIONS, slowest, LINK_BUSY,
            own_part=self.truth.own_part,
        )  # fmt: skip

    def lose_work(self) -> None:
        """It broke: what it had not saved is to be done again."""
        truth = self.truth
        self.done_s, self.iteration, self.saving = self.saved_s, None, None
        if truth.epochs and self.length is None:  # else they are the plan's, which it had
            self.epoch = int(self.saved_s / truth.run_s * truth.epochs + 1e-9) if truth.run_s else 0

    def dropped(self, now_s: float) -> list[Event]:
        """Give up what it has not saved, as it is paused; what is to be done again."""
        lost_s, epochs = self.done_s - self.saved_s, self.epoch
        self.lose_work()
        why = "it was paused, and is sooner done again than kept"
        return [WorkLost(now_s, self.job.id, round(lost_s, 3), epochs - self.epoch, why)] if lost_s > 0 else []

    @property
    def kept(self) -> Tier:
        """Where its state is when its process has ended."""
        return Tier.DISK if self.saved_s else Tier.NONE

    @property
    def load_s(self) -> float:
        """What it takes to read its state, when it starts again."""
        return self.truth.load_s if self.saved_s else 0.0

    def end_epochs(self, now_s: float, out: list[Event]) -> None:
        """Report the epochs that it has reached the end of, and after the first what it uses, if that differs."""
        truth = self.truth
        while self.epoch < truth.epochs and self.reached(truth.run_s * (self.epoch + 1) / truth.epochs):
            self.epoch += 1
            metrics = truth.metrics_at(self.epoch)
            out.append(EpochEnded(now_s, self.job.id, self.epoch, metrics))
            if truth.saves_epochs and self.epoch % truth.saves_epochs == 0:
                self.saved_s = truth.run_s * self.epoch / truth.epochs
            if self.epoch == 1 and truth.gpu_use != 1.0:
                asked = [demand_of(self.job, task) for task in self.tenancies]
                use = Use(gpus=truth.gpu_use * sum(d.gpu_load for d in asked))
                out.append(ProgressReported(now_s, self.job.id, 1, metrics, use))

    def turn_ends_s(self, now_s: float, length: Boundary) -> float:
        """When its running epoch of this length ends, at its present speed."""
        if length.seconds:
            return max(now_s, self.turn_s + length.seconds)
        work_s = length.batches * (self.truth.comp_s + self.truth.comm_s) - (self.done_s - self.turn_done_s)
        return now_s + max(0.0, work_s) / self.rate

    def end_turn(self, now_s: float, out: list[Event]) -> None:
        """Report that its running epoch is over, if so. Its quality is then that of the work done so far.

        Running epochs take the place of the job's own; one that has done all its work reports what came of it.
        """
        truth = self.truth
        is_over = bool(truth.epochs) and self.reached(truth.run_s) and self.done_s > self.turn_done_s
        if self.length is None or not self.rate:
            return
        if not is_over and self.turn_ends_s(now_s, self.length) > now_s + 1e-6:
            return
        self.epoch += 1
        self.turn_s, self.turn_done_s = now_s, self.done_s
        done = self.done_s / truth.run_s if truth.run_s else 1.0
        out.append(EpochEnded(now_s, self.job.id, self.epoch, truth.metrics_at(done * (truth.epochs or 1))))
