"""A study: trials that are trained, judged and promoted through the same cycle as all other jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal, open_to_append
from hocket.control.ports import DurableJournal
from hocket.control.restore import restore
from hocket.control.saved_state import StateSaver
from hocket.model.resources import Node
from hocket.model.snapshot import empty_snapshot
from hocket.policies.registry import find
from hocket.tune.brackets import SEARCHES, Hyperband, Search
from hocket.tune.definition import Definition, StudyError, check_name, header_of, refuse_another
from hocket.tune.interrupts import interrupts_heard
from hocket.tune.judge import UNNAMED, Judge
from hocket.tune.outcome import CHECKPOINTS, JOURNAL, Outcome, is_begun, read, set_aside
from hocket.tune.sampling import Dice, Sampler
from hocket.tune.space import Space, check
from hocket.tune.trials import Result, Trial, Trials
from hocket.tune.tuner import Tuner

MOST_TRIALS = 1_000_000  # More would be asked for by mistake: all of them wait at once.
MOST_SEED = 2**32 - 1  # as NumPy has it


class Study:
    """Searches a space for the configuration whose model is worth most.

    `training(config)` gives a `hocket.pack.Training`, `evaluate(module, config)` a number or numbers by name. Without
    it the last step's loss counts. With a folder the study is kept there, and goes on after a kill.
    """

    def __init__(
        self,
        training: Callable[[Any], Any],
        space: Space,
        *,
        evaluate: Callable[..., Any] | None = None,
        metric: str = "",
        goal: Literal["min", "max"] = "min",
        search: Search | str = Hyperband(),
        unit_steps: int = 100,
        policy: str = "pack_gain",
        params: Mapping[str, Any] | None = None,
        way: str | None = None,
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
        if unit_steps < 1:
            raise StudyError(f"unit_steps is at least 1, not {unit_steps}")
        if (trials := sum(len(b.numbers) for b in search.brackets())) > MOST_TRIALS:
            raise StudyError(f"a study has at most {MOST_TRIALS:,} trials, not {trials:,}: take fewer, or fewer units")
        if not checkpoint_s > 0:
            raise StudyError(f"checkpoint_s is more than 0 seconds, not {checkpoint_s}")
        if memory_mib is not None and not memory_mib > 0:
            raise StudyError(f"memory_mib is more than 0, not {memory_mib}")
        if not 0 <= seed <= MOST_SEED:
            raise StudyError(f"seed is from 0 to {MOST_SEED}, not {seed}")
        if (least := getattr(search, "least", 1)) > search.units:
            raise StudyError(f"least is at most the search's {search.units} units, not {least}")
        if exact and way == "fused":
            raise StudyError("way 'fused' is not bitwise as alone, and exact asks for that: leave out one of them")
        if goal not in ("min", "max"):
            raise StudyError(f"goal is min or max, not '{goal}'")
        if metric and metric != "loss" and evaluate is None:
            raise StudyError(f"metric '{metric}' needs an evaluate function; without one there is the loss only")
        metric = metric or (UNNAMED if evaluate is not None else "loss")
        self._training, self._evaluate, self._space = training, evaluate, space
        self._policy = find(policy).bound(dict(params or {}))
        self._folder = Path(folder) if folder is not None else None
        self._checkpoint_s = checkpoint_s
        self._sampler = sampler or Dice(space, seed)
        told = dict(space) if isinstance(space, Mapping) else getattr(space, "__name__", "function")
        definition = Definition(
            name, told, search, unit_steps, metric, goal, seed, device, way, exact, memory_mib, str(self._sampler)
        )
        header = header_of(definition, self._policy, _node(device, 0.0))
        self.outcome = Outcome(header, definition, Trials(metric, goal), 0.0)

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
        """What it has taken, in all processes together."""
        return self.outcome.seconds

    @property
    def total_steps(self) -> int:
        """Steps of all trials together, if none fails."""
        return self.outcome.total_steps

    @property
    def steps(self) -> int:
        """Steps of all stretches that are over."""
        return self.outcome.steps

    def prepare(self) -> Study:
        """Refuse what could not be run here, and take in what an earlier run has done. `run` needs no such call."""
        from hocket.runtimes.packing.pack import WAYS
        from hocket.runtimes.packing.training import device_of

        of = self.outcome.definition
        device_of(of.device)
        if of.way is not None and of.way not in WAYS:
            raise StudyError(f"way '{of.way}' is not one of {', '.join(WAYS)}")
        if self._folder is not None and is_begun(self._folder):
            there = read(self._folder)
            if not there.found.came_to_nothing:
                refuse_another(str(self._folder), there.header, header_of(of, self._policy, there.header.nodes[0]))
                self.outcome = there
        return self

    def run(self, stepped: Callable[[int], None] | None = None, *, bar: bool = False) -> Study:
        """Search until all is done; `stepped` is told how many steps of models were made, as they are.

        On Ctrl-C all models are saved first. It goes on when it is run again, also after a kill. `bar` shows one.
        """
        if bar:
            from hocket.tune.bar import shown

            with shown(self.prepare()) as showing:
                return self.run(showing)
        from hocket.executors.inprocess.executor import InProcessExecutor
        from hocket.executors.inprocess.trainer import Trainer
        from hocket.runtimes.packing.training import device_of

        of = self.outcome.definition
        trials = Trials(of.metric, of.goal)
        judge = Judge(self._evaluate, trials) if self._evaluate is not None else None
        trainer = Trainer(self._training, judge, of.metric, of.most_steps, device_of(of.device))
        began, earlier_s = monotonic(), 0.0

        def now_s() -> float:
            return earlier_s + monotonic() - began

        executor = InProcessExecutor(
            trainer, now_s, device=of.device, way=of.way, exact=of.exact, memory_mib=of.memory_mib,
            checkpoints=self._folder / CHECKPOINTS if self._folder is not None else None,
            checkpoint_s=self._checkpoint_s, stepped=stepped or (lambda _steps: None),
        )  # fmt: skip
        if judge is not None:
            judge.stop = executor.stop
        node = _node(str(executor.device), executor.memory_mib)
        with self._controller(node, trials) as (controller, saver), interrupts_heard(executor.stop) as interrupts:
            earlier_s = controller.state.now_s
            header = controller.journal.header
            self.outcome = Outcome(header, of, trials, earlier_s)
            tuner = Tuner(
                of, self._space, trials, self._sampler, controller, executor, trainer, node, now_s, saver
            )  # fmt: skip
            try:
                tuner.run()
                if judge is not None and judge.fault:
                    tuner.give_up(judge.fault)
                    raise StudyError(judge.fault)
            finally:
                self.outcome = Outcome(header, of, trials, now_s())
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
            for cycle in journal:
                trials.take(cycle.events)
            if trials.came_to_nothing:
                journal.close()
                set_aside(self._folder)
                trials.all.clear()
                journal = open_to_append(self._folder / JOURNAL, header)
            refuse_another(str(self._folder), journal.header, header)
            yield restore(journal, policy), StateSaver(journal, policy)
        finally:
            journal.close()


def _node(device: str, mem_mib: float) -> Node:
    """The device as the one node of a cluster; a CPU is one whole, for its models are trained by one process."""
    is_gpu = device.startswith("cuda")
    return Node(device, int(is_gpu), cores=0.0 if is_gpu else 1.0, mem_mib=mem_mib)
