"""A study: trials that are trained, evaluated and promoted through the same cycle as all other jobs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal, open_to_append
from hocket.control.ports import DurableJournal
from hocket.control.restore import restore
from hocket.control.saved_state import StateSaver
from hocket.model.resources import Node
from hocket.model.snapshot import empty_snapshot
from hocket.policies.registry import find
from hocket.tune import extension
from hocket.tune.brackets import SEARCHES, Hyperband, Search
from hocket.tune.definition import (
    Definition,
    StudyError,
    check_name,
    check_search,
    definition_of,
    goal_of,
    header_of,
)
from hocket.tune.outcome import CHECKPOINTS, JOURNAL, StudyOutcome, is_begun, read, set_aside
from hocket.tune.sampling import RandomSampler, Sampler
from hocket.tune.space import Space, check
from hocket.tune.trials import Result, Trial, Trials
from hocket.tune.tuner import Tuner

if TYPE_CHECKING:
    from rich.progress import Progress

UNNAMED = "value"  # the metric where none is named, and evaluate gives one number
_BAR_EVERY_S = 0.2


class Study:
    """Searches a space for the configuration with the best metric.

    Args:
        training: a function from a configuration to a `hocket.pack.Training`.
        space: hyperparameters by name with their values, or a function that asks for them as in Optuna.
        evaluate: a function from module and configuration to a number, or to numbers by name; None: the loss counts.
        metric: which of these numbers counts.
        goal: `min` if less of it is better, `max` if more; None: `max` for an accuracy or a score, by its name.
        search: how many trials are trained how far: a `Hyperband`, `SuccessiveHalving`, `Asha` or `RandomSearch`.
        unit_steps: steps that are one unit of the search.
        policy: which waiting trials are packed together: the name of a policy.
        params: parameters of that policy.
        mode: how a pack steps; None: the fastest mode.
        exact: use only modes that are bitwise equal to a solo run.
        device: where all trials are trained.
        memory_mib: limit on the memory of a pack.
        seed: of configurations, weights and batches.
        sampler: gives the configurations; None: random ones.
        name: of the study.
        folder: keep the study there, so that it continues after a kill; None: write nothing.
        checkpoint_s: seconds between two checkpoints of all models.
    """

    def __init__(
        self,
        training: Callable[[Any], Any],
        space: Space,
        *,
        evaluate: Callable[..., Any] | None = None,
        metric: str = "",
        goal: Literal["min", "max"] | None = None,
        search: Search | str = Hyperband(),
        unit_steps: int = 100,
        policy: str = "pack_gain",
        params: Mapping[str, Any] | None = None,
        mode: str | None = None,
        exact: bool = False,
        device: str = "cpu",
        memory_mib: float | None = None,
        seed: int = 0,
        sampler: Sampler | None = None,
        name: str = "study",
        folder: Path | str | None = None,
        checkpoint_s: float = 60.0,
    ) -> None:
        check(space)
        check_name(name)
        if isinstance(search, str):
            if search not in SEARCHES:
                raise StudyError(f"search '{search}' is not one of {', '.join(SEARCHES)}")
            search = SEARCHES[search]()
        metric = metric or (UNNAMED if evaluate is not None else "loss")
        goal = goal or goal_of(metric)
        check_search(search, goal, seed)
        if unit_steps < 1:
            raise StudyError(f"unit_steps is at least 1, not {unit_steps}")
        if not checkpoint_s > 0:
            raise StudyError(f"checkpoint_s is more than 0 seconds, not {checkpoint_s}")
        if memory_mib is not None and not memory_mib > 0:
            raise StudyError(f"memory_mib is more than 0, not {memory_mib}")
        if exact and mode == "fused":
            raise StudyError("mode 'fused' is not bitwise as alone, and exact asks for that: leave out one of them")
        if metric != "loss" and evaluate is None:
            raise StudyError(f"metric '{metric}' needs an evaluate function; without one there is the loss only")
        self._training, self._evaluate, self._space = training, evaluate, space
        self._policy = find(policy).bound(dict(params or {}))
        self._folder = Path(folder) if folder is not None else None
        self._checkpoint_s = checkpoint_s
        self._sampler = sampler or RandomSampler(space, seed)
        told = dict(space) if isinstance(space, Mapping) else getattr(space, "__name__", "function")
        definition = Definition(
            name, told, search, unit_steps, metric, goal, seed, device, mode, exact, memory_mib, str(self._sampler)
        )
        header = header_of(definition, self._policy, _node(device, 0.0))
        self.outcome = StudyOutcome(header, definition, Trials(metric, goal), 0.0)

    @property
    def best(self) -> Trial | None:
        """The trial with the best result at any rung, if there is one yet."""
        return self.outcome.best

    @property
    def best_result(self) -> Result | None:
        """That result."""
        return self.outcome.best_result

    @property
    def trials(self) -> list[Trial]:
        """All trials so far."""
        return self.outcome.trials

    @property
    def seconds(self) -> float:
        """Seconds of all processes together."""
        return self.outcome.seconds

    @property
    def total_steps(self) -> int:
        """Steps of all trials together, if none fails."""
        return self.outcome.total_steps

    @property
    def steps(self) -> int:
        """Steps of all stages that are over."""
        return self.outcome.steps

    def prepare(self) -> Study:
        """Refuse what cannot run here, and read what an earlier run has done. Optional: `run` does it, too."""
        from hocket.runtimes.packing.pack import STEP_MODES
        from hocket.runtimes.packing.training import device_of

        of = self.outcome.definition
        device_of(of.device)
        if of.mode is not None and of.mode not in STEP_MODES:
            raise StudyError(f"mode '{of.mode}' is not one of {', '.join(STEP_MODES)}")
        if self._folder is not None and is_begun(self._folder):
            there = read(self._folder)
            if not there.found.has_failed:
                extension.refuse_other(self._folder, there.header, header_of(of, self._policy, there.header.nodes[0]))
                self.outcome = replace(there, definition=of)
        return self

    def run(self, stepped: Callable[[int], None] | None = None, *, bar: bool = False) -> Study:
        """Search until all is done. A study that was begun in the folder with fewer units or trials gets more.

        On Ctrl-C all models are saved first. Run it again to continue, also after a kill.

        Args:
            stepped: called with the number of steps of models that were just made.
            bar: show a progress bar.
        """
        if bar:
            with progress_bar(self.prepare()) as showing:
                return self.run(showing)
        from hocket.executors.inprocess.executor import InProcessExecutor
        from hocket.executors.inprocess.trainer import Trainer
        from hocket.runtimes.packing.training import device_of

        of = self.outcome.definition
        trials = Trials(of.metric, of.goal)
        checked = MetricCheck(self._evaluate, trials) if self._evaluate is not None else None
        trainer = Trainer(self._training, checked, of.metric, of.most_steps, device_of(of.device))
        began, earlier_s = monotonic(), 0.0

        def now_s() -> float:
            return earlier_s + monotonic() - began

        executor = InProcessExecutor(
            trainer, now_s, device=of.device, mode=of.mode, exact=of.exact, memory_mib=of.memory_mib,
            checkpoints=self._folder / CHECKPOINTS if self._folder is not None else None,
            checkpoint_s=self._checkpoint_s, stepped=stepped or (lambda _steps: None),
        )  # fmt: skip
        if checked is not None:
            checked.stop = executor.stop
        node = _node(str(executor.device), executor.memory_mib)
        with self._controller(node, trials) as (controller, saver), stopping_on_ctrl_c(executor.stop) as interrupts:
            earlier_s = controller.state.now_s
            header = controller.journal.header
            self.outcome = StudyOutcome(header, of, trials, earlier_s)
            tuner = Tuner(of, self._space, trials, self._sampler, controller, executor, trainer, node, saver)
            try:
                tuner.run()
                if checked is not None and checked.fault:
                    tuner.give_up(checked.fault)
                    raise StudyError(checked.fault)
            finally:
                self.outcome = StudyOutcome(header, of, trials, executor.now_s())
        if interrupts:
            raise KeyboardInterrupt
        return self

    @contextmanager
    def _controller(self, node: Node, trials: Trials) -> Iterator[tuple[Controller, StateSaver | None]]:
        """A new one, or as its journal has it; the trials are brought up to date."""
        policy, definition = self._policy, self.outcome.definition
        header = header_of(definition, policy, node)
        if self._folder is None:
            start = empty_snapshot((node,), definition.seed)
            yield Controller(start, policy.decide, policy.order, MemoryJournal(header), **policy.needs), None
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        journal: DurableJournal = open_to_append(self._folder / JOURNAL, header)
        try:
            begun = definition_of(journal.header)
            before = Trials(begun.metric, begun.goal)  # Measured by another metric, all would have failed.
            for cycle in journal:
                before.take(cycle.events)
            if before.has_failed:
                journal.close()
                set_aside(self._folder)
                before.all.clear()
                journal = open_to_append(self._folder / JOURNAL, header)
            extension.refuse_other(self._folder, journal.header, header)
            if extension.in_force(self._folder, definition_of(journal.header)).search != definition.search:
                extension.keep(self._folder, definition.search)
            trials.all |= before.all
            yield restore(journal, policy), StateSaver(journal, policy)
        finally:
            journal.close()


def _node(device: str, mem_mib: float) -> Node:
    """The device as the one node of a cluster; a CPU counts as one core, since one process trains the models."""
    is_gpu = device.startswith("cuda")
    return Node(device, int(is_gpu), cores=0.0 if is_gpu else 1.0, mem_mib=mem_mib)


class MetricCheck:
    """Calls `evaluate`; stops the study if it does not give the metric, unless a trial has had it before."""

    def __init__(self, evaluate: Callable[..., Any], trials: Trials) -> None:
        self._evaluate, self._trials = evaluate, trials
        self.stop: Callable[[], None] = lambda: None
        self.fault = ""  # why no trial can have a result

    def __call__(self, module: Any, config: Any) -> Any:
        """What `evaluate` gives, as it is."""
        found = self._evaluate(module, config)
        metric = self._trials.metric
        if isinstance(found, Mapping) and metric not in found and metric != "loss" and self._trials.best is None:
            self.fault = _fault(metric, [str(name) for name in found])
            self.stop()
        return found


def _fault(metric: str, names: list[str]) -> str:
    given = f"evaluate gives {', '.join(names) or 'nothing'}"
    if metric == UNNAMED and names:
        return f"{given}: say by metric, or --metric, which of them counts"
    return f"{given}, and not '{metric}', which is the metric"


@contextmanager
def stopping_on_ctrl_c(stop: Callable[[], None]) -> Iterator[list[int]]:
    """The first Ctrl-C calls `stop` and is put into the list; the second interrupts. In the main thread only."""
    interrupts: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return

    def interrupted(*_: object) -> None:
        interrupts.append(1)
        stop()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def progress_bar(study: Study, progress: Progress | None = None) -> Iterator[Callable[[int], None]]:
    """Show a bar; pass the function that it gives to `Study.run`."""
    if progress is None:
        from rich.progress import Progress

        progress = Progress(transient=True)
    name = study.outcome.definition.name
    task = progress.add_task(name, total=study.total_steps, completed=study.steps)
    made, shown_s = 0, 0.0

    def stepped(steps: int) -> None:
        nonlocal made, shown_s
        made += steps
        if (now_s := monotonic()) - shown_s >= _BAR_EVERY_S:
            progress.update(task, advance=made, description=f"{name}{_best(study)}")
            made, shown_s = 0, now_s

    with progress:
        yield stepped


def _best(study: Study) -> str:
    best, result = study.best, study.best_result
    if best is None or result is None:
        return ""
    metric = study.outcome.definition.metric
    return f", best {metric} {result.metrics[metric]:.4g} (trial {best.number})"
