"""Synchronous training: PULL, COMP and PUSH of all workers, iteration by iteration, until it is done or must leave."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hocket.runtimes.paramserver.algorithm import Algorithm, Array, DataBlock, TrainingError, check_model
from hocket.runtimes.paramserver.block_file import MIB
from hocket.runtimes.paramserver.block_needs import BlockNeeds
from hocket.runtimes.paramserver.checkpoint import SavedProgress, packed_states
from hocket.runtimes.paramserver.comm_of_all_hosts import comm_of_all_hosts
from hocket.runtimes.paramserver.file_blocks import FileBlocks
from hocket.runtimes.paramserver.host_blocks import (
    BlocksInMemory,
    HostBlocks,
    SpilledBlocks,
    SpillOptions,
    expected_bytes,
    is_too_large,
    spill_file,
)  # fmt: skip
from hocket.runtimes.paramserver.host_group import HostGroup
from hocket.runtimes.paramserver.host_model import HostModel
from hocket.runtimes.paramserver.host_parts import HostParts
from hocket.runtimes.paramserver.host_server import ShardServer
from hocket.runtimes.paramserver.launch_variables import LaunchVariables, default_workers
from hocket.runtimes.paramserver.model_memory import ModelMemory
from hocket.runtimes.paramserver.model_shard import ModelShard, Update
from hocket.runtimes.paramserver.phase_demand import CommDemand, CompDemand
from hocket.runtimes.paramserver.phase_tokens import tokens_offered
from hocket.runtimes.paramserver.phase_turns import NoTurns, PhaseTurns
from hocket.runtimes.paramserver.pull_plan import ArrayLayout, Plan, plan_of
from hocket.runtimes.paramserver.sharding import blocks_of, iterations_of_epoch
from hocket.runtimes.paramserver.stop_signals import StopSignals
from hocket.runtimes.paramserver.training_checkpoints import TrainingCheckpoints
from hocket.runtimes.paramserver.training_result import EpochEnd, PhaseTimes, Trained
from hocket.runtimes.paramserver.worker_pool import WorkerPool

_LEFT = 128 + signal.SIGTERM
_STEP_REPORT_S = 1.0
_clock_s = time.perf_counter


class Paused(SystemExit):
    """Training was asked to leave. Its state is saved if it has a checkpoint folder; the process ends with code 143."""

    def __init__(self) -> None:
        super().__init__(_LEFT)


@dataclass(frozen=True)
class TrainingOptions:
    """How training is run; what is computed does not depend on the number of workers."""

    workers: int
    epochs: int
    batch: int  # blocks of an iteration
    seed: int
    checkpoint_every_s: float
    objective_every: int  # epochs; 0: never
    target: float | None


def train(
    algorithm: Algorithm,
    blocks: Sequence[DataBlock],
    *,
    workers: int | None = None,
    epochs: int = 10,
    batch: int | None = None,
    seed: int = 0,
    checkpoint: Path | str | None = None,
    checkpoint_every_s: float = 60.0,
    objective_every: int = 1,
    target: float | None = None,
    turns: PhaseTurns | None = None,
    report: Callable[..., None] | None = None,
    on_epoch: Callable[[EpochEnd], None] | None = None,
    launch: LaunchVariables | None = None,
    spill: SpillOptions | None = None,
) -> Trained:
    """Train until `epochs` are done, or the objective is at most `target`; see `hocket.paramserver.train`."""
    launch = launch or LaunchVariables.of(os.environ)
    count = len(blocks)
    options = TrainingOptions(
        default_workers(os.environ, launch.hosts, _cores()) if workers is None else workers,
        epochs,
        min(count if batch is None else batch, count),
        seed,
        checkpoint_every_s,
        objective_every,
        target,
    )
    for name, value, least in (
        ("blocks", count, launch.hosts), ("workers", options.workers, 1), ("epochs", epochs, 1),
        ("batch", options.batch, 1), ("objective_every", objective_every, 0),
    ):  # fmt: skip
        if value < least:
            raise TrainingError(f"{name} must be at least {least}, not {value}")
    folder = Path(checkpoint) if checkpoint is not None else launch.checkpoint
    if spill is None and launch.memory_bytes is not None:
        spill = SpillOptions(launch.memory_bytes)
    group = HostGroup(launch, memory_bytes=spill.memory_bytes if spill is not None else None)
    pool = WorkerPool(options.workers)
    run: _Run | None = None
    offered = tokens_offered() if turns is None else None
    turns = turns or offered or NoTurns()
    try:
        with StopSignals() as signals:
            run = _Run(algorithm, blocks, options, group, pool, turns, signals, folder, spill)
            run.begin()
            return run.to_the_end(report, on_epoch)
    except TrainingError as error:
        group.fail(f"host {group.host}: {error}" if not str(error).startswith("host ") else str(error))
        raise
    except BaseException as error:
        if not isinstance(error, Paused):
            group.fail(f"host {group.host}: {type(error).__name__}: {error}")
        raise
    finally:
        group.close()
        pool.close()
        if run is not None:
            run.blocks.close()
            run.memory.close()
        if offered is not None:
            offered.close()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Run:
    """One attempt, on one host."""

    def __init__(
        self, algorithm: Algorithm, blocks: Sequence[DataBlock], options: TrainingOptions, group: HostGroup,
        pool: WorkerPool, turns: PhaseTurns, signals: StopSignals, folder: Path | None, spill: SpillOptions | None,
    ) -> None:  # fmt: skip
        self.algorithm, self.options, self.group = algorithm, options, group
        self.pool, self.turns, self.signals = pool, turns, signals
        self.name = type(algorithm).__name__
        self.count = len(blocks)
        self.given, self.spill = blocks, spill
        self.blocks: HostBlocks = BlocksInMemory(())
        self.batches = iterations_of_epoch(self.count, options.batch)
        self.iteration = 0
        self.objective: float | None = None
        self.pull_demand, self.comp_demand, self.push_demand = CommDemand(), CompDemand(), CommDemand()
        self.sent_s: float | None = 0.0  # for so long something was on its way to other hosts
        self.checkpoints = TrainingCheckpoints(folder, group, options.checkpoint_every_s)
        self.server = ShardServer()
        self.plans: dict[object, Plan] = {}
        self.memory = ModelMemory()

    # -- the beginning -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Meet the other hosts, and have the model: a new one, or that of the last checkpoint."""
        self.server.states = lambda numbers: packed_states({i: self.blocks.state(i) for i in numbers})
        self.group.join(self.server, self.server.wake)
        self.server.saved = saved = self.checkpoints.newest()
        progress = None if saved is None else _plain(saved.progress)
        told = self.group.exchange("begin", {"options": self._agreed(), "saved": progress})
        self._must_agree([of["options"] for of in told])
        found = told[0]["saved"]
        if found is not None:
            self._must_go_on_alike(found)
        model = check_model(self.algorithm.init(np.random.default_rng(self.options.seed)))
        layouts = {name: ArrayLayout.of(array) for name, array in model.items()}
        if self.spill is not None and is_too_large(layouts, self.spill):
            self._spill_model()
            model = {name: self.memory.moved(model.pop(name)) for name in list(model)}
        self._take_blocks(layouts)
        whole = frozenset(
            name
            for needs in (self.needs, self.objective_needs)
            for of in needs.values()
            for name, keys in of.items()
            if keys is None
        )
        shard = ModelShard(layouts, self.group.host, self.group.hosts, whole, self.memory)
        if found is None:
            for name, (first, behind) in shard.spans.items():
                self.memory.copy(shard.values[name], model[name][first:behind])
        else:
            self.checkpoints.restore(found, shard, self.blocks)
            self.iteration, self.objective = found["iteration"], found["objective"]
        self.shard, self.model = shard, HostModel(shard, self.group)
        self.parts = HostParts(self.group, shard, layouts, self.memory, self.blocks, self.count)
        self.server.shard = shard
        self.group.exchange("ready", None)

    def _agreed(self) -> dict[str, Any]:
        """What must be the same on all hosts."""
        return {
            "algorithm": self.name, "blocks": self.count, "batch": self.options.batch, "seed": self.options.seed,
            "epochs": self.options.epochs,
        }  # fmt: skip

    def _must_agree(self, told: list[dict[str, Any]]) -> None:
        for host, of in enumerate(told):
            for key, value in told[0].items():
                if of[key] != value:
                    raise TrainingError(f"host 0 has {key} {value}, host {host} has {key} {of[key]}: start all alike")

    def _must_go_on_alike(self, found: dict[str, Any]) -> None:
        """A checkpoint must be of the same training; it may go on for more epochs."""
        for key, value in self._agreed().items():
            if key in found and found[key] != value:
                raise TrainingError(f"the checkpoint is of {key} {found[key]}, this training has {key} {value}")

    def _take_blocks(self, layouts: Mapping[str, ArrayLayout]) -> None:
        """Have this host's blocks, one after the other, and know what each needs."""
        self.layouts, rows = layouts, BlockNeeds(self.algorithm, layouts)
        self.needs, self.objective_needs = rows.of_compute, rows.of_objective
        numbers = blocks_of(self.count, self.group.host, self.group.hosts)
        if self.spill is None:
            self.blocks = BlocksInMemory((i, rows.noted(i, self.given[i])) for i in numbers)
            self._give_back_input()
            return
        each = ((i, rows.noted(i, self.given[i], copied=True)) for i in numbers)
        size = expected_bytes(self.given) // self.group.hosts
        self.blocks = spilled = SpilledBlocks(each, self.spill, self.options.workers, size)
        self._give_back_input()
        if not spilled.reserve(rows.bytes_at_once(self.options.batch, self.options.workers)):
            self._spill_model()

    def _spill_model(self) -> None:
        """All input on disk is not enough."""
        assert self.spill is not None
        self.memory.spill(spill_file(self.spill.folder).folder, self.spill.memory_bytes)

    def _give_back_input(self) -> None:
        """This host has its blocks; what they were made from may go."""
        if isinstance(self.given, FileBlocks):
            self.given.taken()
        self.given = ()

    # -- iterations ----------------------------------------------------------------------------------------------

    def to_the_end(self, report: Callable[..., None] | None, on_epoch: Callable[[EpochEnd], None] | None) -> Trained:
        """Iterate. Raises Paused when this or another host is asked to leave."""
        began, epoch_times, reported_s = PhaseTimes(), PhaseTimes(), time.monotonic()
        pass_s = 0.0  # of the epoch's iterations, without its objective, which is not in every one
        self._report_restored(report)
        while not self._is_done():
            times, needed = self._iterate(self.batches[self.iteration % len(self.batches)])
            pass_s += times.pull_s + times.comp_s + times.push_s
            self.iteration += 1
            epoch, within = divmod(self.iteration, len(self.batches))
            evaluated = None
            if not within and self._is_evaluated(epoch):
                evaluated = self._evaluate()
                times += evaluated
            began += times
            epoch_times += times
            before_s, self.sent_s = self.sent_s, (sending_s := self.group.sending_s())
            if sending_s is not None and before_s is not None:
                sending_s -= before_s
            meeting_s, self.group.meeting_s = self.group.meeting_s, 0.0
            leave = self.turns.iteration_done(
                self.iteration, needed.pull_s, needed.comp_s, needed.push_s, sending_s, meeting_s
            )
            if self.group.host == 0:
                now_s = time.monotonic()
                if not within:
                    ended = EpochEnd(
                        epoch, self.options.epochs, self.iteration, self.objective if evaluated else None, epoch_times,
                        self.blocks.spilled,
                    )  # fmt: skip
                    if on_epoch is not None:
                        on_epoch(ended)
                    if report is not None:
                        told = {} if ended.objective is None else {"objective": ended.objective}
                        if ended.spilled is not None:
                            told |= {"disk_share": ended.spilled.share, "disk_mib": ended.spilled.disk_bytes / MIB}
                        report(epoch, step=self.iteration, **told)
                elif report is not None and now_s - reported_s >= _STEP_REPORT_S:
                    report(step=self.iteration)
                    reported_s = now_s
            if not within:
                epoch_times = PhaseTimes()
                self.blocks.epoch_took(pass_s)
                pass_s = 0.0
                if not self._is_done():
                    self.blocks.expect(self._own_of(self.batches[0]))
            self.memory.write_back()
            self._save_or_leave(leave)
        self._save_if_new()
        epochs, spilled = self.iteration // len(self.batches), self.blocks.spilled
        return Trained(self._whole_model(), self.objective, epochs, self.iteration, began, spilled)

    def _report_restored(self, report: Callable[..., None] | None) -> None:
        """Report what a checkpoint ends with once more: that may have been lost with the sidecar."""
        epoch, within = divmod(self.iteration, len(self.batches))
        if report is not None and self.group.host == 0 and epoch and not within:
            known = {"objective": self.objective} if self._is_evaluated(epoch) else {}
            report(epoch, step=self.iteration, **known)

    def _is_done(self) -> bool:
        if self.iteration >= self.options.epochs * len(self.batches):
            return True
        is_epoch = not self.iteration % len(self.batches)
        return bool(
            self.options.target is not None
            and self.objective is not None
            and is_epoch
            and self.objective <= self.options.target
        )

    def _is_evaluated(self, epoch: int) -> bool:
        every = self.options.objective_every
        return bool(every) and (epoch % every == 0 or epoch == self.options.epochs)

    def _iterate(self, batch: range) -> tuple[PhaseTimes, PhaseTimes]:
        """One iteration: every host's subtask ends before the next one begins on any. What it took, and would alone."""
        mine, number = self._own_of(batch), self.iteration
        pull_s = self._pull(f"pulling {number}", mine, ("compute", batch), self.needs)
        alone_pull_s = self.pull_demand.needed_s(self.model.moved_bytes, pull_s)
        with self.turns.comp(), self.comp_demand.measure() as comp:
            take = self.model.take_only if len(mine) == 1 else self.model.add
            self.blocks.each(self.pool, mine, self._computed, take)
        if within := (number + 1) % len(self.batches):
            self.blocks.expect(self._own_of(self.batches[within]))
        with comm_of_all_hosts(self.group, self.turns, f"computed {number}") as turn:
            own = self.model.push(turn)
            self.shard.wait_for_pushes(self.group.is_broken)
            push_s = turn.took_s()
        alone_push_s = self.push_demand.needed_s(self.model.moved_bytes, push_s)
        apply_s = self._apply(own)
        took = PhaseTimes(pull_s, comp.took_s, push_s + apply_s)
        return took, PhaseTimes(alone_pull_s, comp.needed_s, alone_push_s + apply_s)

    def _pull(self, point: str, mine: list[int], key: object, needs: Mapping[int, Mapping[str, Array | None]]) -> float:
        if key not in self.plans:
            self.plans[key] = plan_of({i: needs[i] for i in mine}, self.layouts)
        with comm_of_all_hosts(self.group, self.turns, point) as turn:
            self.model.pull(self.plans[key], turn)
            self.group.exchange(f"ended {point}", None)
            return turn.took_s()

    def _own_of(self, batch: range) -> list[int]:
        return [i for i in batch if i in self.needs]

    def _computed(self, i: int, block: DataBlock) -> dict[str, Array]:
        params = self.model.params(i, self.needs[i])
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # What is not finite is found below.
                given = self.algorithm.compute(block, params)
        except TrainingError as error:
            raise TrainingError(f"block '{block.name}': {error}") from error
        return self.model.check_updates(f"block '{block.name}'", given, params)

    def _apply(self, own: Mapping[str, Update]) -> float:
        """Change this host's shard by what all hosts have pushed."""
        if self.group.is_broken.is_set():
            self.group.exchange(self._point_after_push(), None)  # It says which host is gone.
            raise TrainingError("a host is gone")
        began_s = _clock_s()
        self.shard.apply(own, self.algorithm, self.pool)
        return _clock_s() - began_s

    def _point_after_push(self) -> str:
        """Where hosts meet when they have applied the updates of an iteration."""
        epoch, within = divmod(self.iteration + 1, len(self.batches))
        is_evaluated = not within and self._is_evaluated(epoch)
        return f"{'pulling for the objective' if is_evaluated else 'ended'} {self.iteration + 1}"

    def _evaluate(self) -> PhaseTimes:
        """The objective: the sum of all blocks' parts, in their order."""
        mine = list(self.blocks.numbers)
        pull_s = self._pull(f"pulling for the objective {self.iteration}", mine, "objective", self.objective_needs)
        parts: dict[int, float] = {}

        def part(i: int, block: DataBlock) -> float:
            found = float(self.algorithm.objective(block, self.model.params(i, self.objective_needs[i])))
            if not math.isfinite(found):
                raise TrainingError(f"block '{block.name}': the objective is {found}")
            return found

        with self.turns.comp():
            began_s = _clock_s()
            self.blocks.each(self.pool, mine, part, lambda i, found: parts.__setitem__(i, found))
            comp_s = _clock_s() - began_s
        told = self.group.exchange(f"objective {self.iteration}", parts)
        everything = {i: found for of in told for i, found in of.items()}
        self.objective = math.fsum(everything[i] for i in sorted(everything))
        return PhaseTimes(pull_s, comp_s)

    # -- leaving, saving -----------------------------------------------------------------------------------------

    def _save_or_leave(self, leave: bool) -> None:
        """At the end of an iteration: save or leave if any host is asked to."""
        if is_asked := self.signals.save:
            self.signals.save = False  # Before hosts meet: a signal that comes meanwhile counts for the next time.
        asked = {"end": self.signals.end or leave, "save": is_asked or self.checkpoints.are_due()}
        by_host = self.group.exchange(f"ended {self.iteration}", asked)
        end = any(of["end"] for of in by_host)
        if end or any(of["save"] for of in by_host):
            self._save_if_new()
        if end and not self._is_done():
            raise Paused

    def _save_if_new(self) -> None:
        """One version of everything, unless that is saved already."""
        progress = SavedProgress(
            self.name, self.iteration, self.count, self.options.batch, self.options.seed, self.objective
        )
        self.checkpoints.save_if_new(progress, self.shard, self.parts)

    def _whole_model(self) -> dict[str, Array]:
        """All arrays, on host 0."""
        found = {}
        if self.group.host == 0:
            shards = {name: self.parts.shards(name, self.iteration) for name in self.layouts}
            found = {name: self.memory.joined(layout, shards[name]) for name, layout in self.layouts.items()}
        self.group.exchange("end", None)
        return found


def _plain(progress: SavedProgress) -> Any:
    import msgspec

    return msgspec.to_builtins(progress)
