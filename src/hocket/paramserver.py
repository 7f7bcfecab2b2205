"""Train a model that is divided among parameter servers, with as many workers and hosts as there are.

    from hocket.paramserver import Algorithm, DataBlock, train

    class Mean(Algorithm):
        def init(self, rng):
            return {"mean": np.zeros(3)}

        def compute(self, block, params):
            return {"mean": 0.5 * (block.data["x"].mean(axis=0) - params["mean"])}

        def objective(self, block, params):
            return float(np.square(block.data["x"] - params["mean"]).sum())

    trained = train(Mean(), [DataBlock("all", {"x": x})], epochs=20)

As a job of Hocket it reports its epochs, saves checkpoints, and is paused and resumed. It needs NumPy, and nothing else
of Hocket; a `Kernel`, as the applications that come with it (`hocket paramserver`) have some, needs numba once.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import hocket
from hocket.runtimes.paramserver.algorithm import Algorithm, DataBlock, TrainingError
from hocket.runtimes.paramserver.host_blocks import Spilled, SpillOptions
from hocket.runtimes.paramserver.kernel import Kernel
from hocket.runtimes.paramserver.launch_variables import LaunchVariables
from hocket.runtimes.paramserver.phase_turns import PhaseTurns
from hocket.runtimes.paramserver.training import Paused
from hocket.runtimes.paramserver.training import train as _train
from hocket.runtimes.paramserver.training_result import EpochEnd, PhaseTimes, Trained

__all__ = [
    "Algorithm", "DataBlock", "EpochEnd", "Kernel", "Paused", "PhaseTimes", "Spilled", "Trained", "TrainingError",
    "train",
]  # fmt: skip


def print_epoch(end: EpochEnd) -> None:
    """A line for each epoch at whose `end` there is an objective, and for the last one."""
    # An epoch without a number behind it would be taken for one that begins.
    told = f"iterations={end.iteration}" if end.objective is None else f"objective={end.objective:.6g}"
    if end.objective is not None or end.epoch == end.epochs:
        print(f"epoch {end.epoch}/{end.epochs} {told}", flush=True)


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
    on_epoch: Callable[[EpochEnd], None] | None = print_epoch,
    turns: PhaseTurns | None = None,
    memory: int | None = None,
    spill_dir: Path | str | None = None,
) -> Trained:
    """Train a model. Raises TrainingError if it cannot, and Paused (exit code 143) when SIGTERM asks it to leave.

    Args:
        algorithm: What is computed.
        blocks: The input. All hosts give the same blocks in the same order; each looks at its own only.
        workers: Threads that compute, on each host. What is computed does not depend on them. By default as many as the
            process has cores, or as the job has by `--cpus`.
        epochs: How often every block is computed on.
        batch: Blocks of an iteration: all are computed on the same version of the model. By default all there are.
        seed: What `init` draws random numbers from.
        checkpoint: Folder in which the state is saved, and from which training goes on; also with another number of
            workers or hosts. By default `$HOCKET_CHECKPOINT_DIR`; without either nothing is saved.
        checkpoint_every_s: Seconds between two checkpoints. One more is saved after the first iteration, one on
            SIGTERM or SIGUSR1, and one at the end.
        objective_every: Epochs between two computations of the objective; 0: never.
        target: Ends training when the objective is at most this.
        on_epoch: Called on host 0 at the end of each epoch; by default it prints a line.
        turns: How this job takes turns with others on its hosts; by default by its agent's tokens, where those are.
        memory: Bytes that this process may have in memory. What does not fit of the input is kept on disk; so let
            `blocks` be a `Sequence` that makes a block when it is asked for. By default as much as the job asked for
            (`--mem`); without that, all stays in memory.
        spill_dir: Folder for blocks on disk. By default that for temporary files. Nothing is left in it.
    """
    if memory is None and spill_dir is not None:
        memory = LaunchVariables.of(os.environ).memory_bytes
    if memory is not None and memory <= 0:
        raise TrainingError(f"memory must be above 0 bytes, not {memory}")
    spill = None if memory is None else SpillOptions(memory, None if spill_dir is None else str(spill_dir))
    return _train(
        algorithm, blocks, workers=workers, epochs=epochs, batch=batch, seed=seed, checkpoint=checkpoint,
        checkpoint_every_s=checkpoint_every_s, objective_every=objective_every, target=target, on_epoch=on_epoch,
        turns=turns, report=hocket.report, spill=spill,
    )  # fmt: skip
