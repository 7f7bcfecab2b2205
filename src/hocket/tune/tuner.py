"""The loop of a study: what is due is submitted, the controller decides, the executor trains, and results come back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from hocket.control.controller import Controller
from hocket.control.drive import Moment, drive
from hocket.control.journal import JournalError
from hocket.control.saved_state import StateSaver
from hocket.estimators.packs import slowdown
from hocket.executors.inprocess.model_factory import ALONE_S, OTHERS, STEP_S, Stretch
from hocket.model.curve import Beliefs, Curve, Point
from hocket.model.event import Event, JobFailed, JobSubmitted
from hocket.model.job import Job, Kind
from hocket.model.resources import Demand, Node
from hocket.tune.configurations import Configurations
from hocket.tune.definition import Definition
from hocket.tune.extension import missing_results
from hocket.tune.promotion import due
from hocket.tune.sampling import Sampler
from hocket.tune.space import Space
from hocket.tune.trials import Trial, Trials, config_of, job_id, model_name, of_job

if TYPE_CHECKING:
    from hocket.executors.inprocess.executor import InProcessExecutor
    from hocket.executors.inprocess.trainer import Trainer


class Tuner:
    """Everything that one run of a study works with."""

    def __init__(
        self,
        definition: Definition,
        space: Space,
        trials: Trials,
        sampler: Sampler,
        controller: Controller,
        executor: InProcessExecutor,
        trainer: Trainer,
        node: Node,
        saver: StateSaver | None,
    ) -> None:
        self._definition, self._trials = definition, trials
        self._configurations = Configurations(definition, space, trials, sampler)
        self._controller, self._executor, self._trainer = controller, executor, trainer
        self._node, self._saver = node, saver
        self._cleared: set[int] = set()  # those of which nothing is kept any more
        self._taken = 0  # events of the present cycle

    def run(self) -> None:
        """Cycle until nothing is due and nothing trains, or the executor was stopped."""
        now_s = self._executor.now_s()
        first = [*missing_results(self._definition.search, self._trials, now_s), *self._left_behind()]
        drive(self._controller, self._executor, self, first=(now_s, first))
        if not self._controller.state.jobs.live:  # It was not stopped: there is nothing more to do.
            self._drop_checkpoints(self._trials.all)

    # -- the loop's hooks -----------------------------------------------------------------------------------

    def take(self, now_s: float, events: Sequence[Event]) -> Moment:
        """What was reported, and what is submitted upon it, are one cycle: a kill loses both or neither."""
        self._trials.take(events)
        self._configurations.tell_sampler()
        submitted = self._submissions()
        self._trials.take(submitted)
        self._taken = len(events) + len(submitted)
        return max(now_s, self._executor.now_s()), [*events, *submitted]

    def written(self, controller: Controller) -> None:
        """That trials are over is in the journal: their checkpoints can go."""
        if self._saver is not None:
            self._saver.after_cycle(controller, self._taken)
        self._drop_checkpoints(self._configurations.over)

    def done(self, controller: Controller) -> None:
        """The executor trains."""

    def recover(self, error: JournalError) -> Controller:
        """A study ends when its journal cannot be written; it goes on when it is run again."""
        raise error

    def give_up(self, reason: str) -> None:
        """All trials that are under way have failed, for a reason that is none of their own."""
        jobs = self._controller.state.jobs.values()
        events = [JobFailed(self._executor.now_s(), view.job.id, reason, final=True) for view in jobs]
        if events:
            self._trials.take(events)
            self._controller.cycle(self._executor.now_s(), events)

    def _left_behind(self) -> list[Event]:
        """Jobs that a process before this one was training wait again, and go on from where they were saved."""
        views = self._controller.state.jobs.values()
        for view in views:
            self._expect(view.job)
        reason = "the study was not running"
        return [JobFailed(self._executor.now_s(), v.job.id, reason, own=False) for v in views if v.tenancies]

    # -- submissions ----------------------------------------------------------------------------------------

    def _submissions(self) -> list[JobSubmitted]:
        wanted = due(self._definition.search, self._trials)
        slower = slowdown(_seen(self._trials.all.values())) if wanted else None
        return [self._submission(number, units, slower) for number, units in wanted]

    def _submission(self, number: int, units: int, slower: Curve | None) -> JobSubmitted:
        """A trial's next stretch as a job, with what is known of its memory and its steps."""
        asked = self._configurations.drawn(number)
        config = msgspec.json.encode(asked.config).decode()
        name = self._definition.name
        job = Job(job_id(number, units), kind=Kind.MODEL, command=(config,), model=name, traits=asked.traits)
        self._expect(job)
        # One that needs more than there is gets all of it, and fails when it starts, with what it needs in words.
        mem_mib = min(self._executor.need_mib(job.id), self._node.mem_mib)
        demand = Demand(self._node.gpus, self._node.cores, mem_mib)
        beliefs = Beliefs(comp_s=_alone(self._trials.all.get(number)), slowdown=slower)
        return JobSubmitted(self._executor.now_s(), replace(job, demand=demand), beliefs)

    def _expect(self, job: Job) -> None:
        from hocket.executors.inprocess.trainer import TrainingTask

        number, units = of_job(job.id)
        stretch = Stretch(model_name(number), units * self._definition.unit_steps, units)
        self._trainer.expect(job.id, TrainingTask(stretch, config_of(job), self._definition.seed * 1_000_003 + number))

    def _drop_checkpoints(self, over: Iterable[int]) -> None:
        """Of these trials only the best one's model is kept. Only now: that they are over is in the journal."""
        best = self._trials.best
        for number in set(over) - self._cleared - ({best[0].number} if best is not None else set()):
            self._executor.checkpoints.drop(model_name(number))
            self._cleared.add(number)


def _seen(trials: Iterable[Trial]) -> Iterator[tuple[float, float]]:
    """Companions, and how many times as long a step took with them."""
    for trial in trials:
        alone = _alone(trial)
        for result in trial.results if alone is not None else ():
            assert alone is not None
            if STEP_S in result.metrics:
                yield result.metrics[OTHERS], result.metrics[STEP_S] / alone.at(1).mean


def _alone(trial: Trial | None) -> Curve | None:
    """How long a step of the trial took alone, if that was measured."""
    for result in trial.results if trial is not None else ():
        if result.metrics.get(ALONE_S):
            return Curve((Point(1.0, result.metrics[ALONE_S], 0.0, 1),))
    return None
