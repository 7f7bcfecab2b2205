"""`hocket learn POLICY`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hocket.cli.options import AsJson, Seed

if TYPE_CHECKING:
    from hocket.learn.training import LearningState, Progress, TrainingSetup


def learned_names(incomplete: str) -> list[str]:
    """For shell completion."""
    from hocket.policies.mlfs.weights_file import SHIPPED

    return [name for name in SHIPPED if name.startswith(incomplete)]


def learn(
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="mlf_rl or rl.", autocompletion=learned_names)],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The training, its weights and curves; learn-out/POLICY.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The Philly table; without it all windows are generated.")
    ] = None,
    records: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Decisions of mlf_h (`simulate --record`) to imitate; else they are made."),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="JOURNAL", help="Go on learning from the history of a home, or of a simulation."
        ),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --from: weights to go on with; those shipped.")
    ] = None,
    seed: Seed = 0,
    generations: Annotated[int, typer.Option(min=0, help="Of reinforcement; 0: imitation only.")] = 60,
    population: Annotated[int, typer.Option(min=4, help="Candidates in a generation.")] = 12,
    windows: Annotated[int, typer.Option(min=1, help="Windows on which each candidate is tried.")] = 3,
    search_betas: Annotated[
        int, typer.Option(min=0, help="Trials of the search for the reward's weights; 0: those of the paper.")
    ] = 0,
    workers: Annotated[int, typer.Option(min=0, help="Processes at a time; 0 for one a core.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Train a learned policy in the simulator; a training that was cut off goes on.

    mlf_rl first imitates mlf_h from records, then it is reinforced by the reward of MLFS on many short windows; rl is
    reinforced by completion times alone. The same seed and data give the same weights. Use them by --param
    weights_file=DIR/weights.json.
    """
    from hocket.cli.simulation.worker_pool import cores
    from hocket.cli.terminal.errors import InputError, refusing
    from hocket.cli.terminal.output_files import must_be_writable
    from hocket.learn.own_history import recorded_workload
    from hocket.learn.reward import BETAS, JCT_ALONE
    from hocket.learn.training import TrainingSetup
    from hocket.policies.mlfs.weights_file import SHIPPED, read_weights
    from hocket.workloads.philly import read_philly

    if policy not in SHIPPED:
        raise InputError(f"policy '{policy}' does not learn; those that do: {', '.join(SHIPPED)}")
    if policy == "rl" and search_betas:
        raise InputError("--search-betas is for mlf_rl: rl is rewarded for completion times alone")
    folder = out or Path("learn-out") / policy
    with refusing():
        must_be_writable(folder, "--out", is_folder=True)
        if trace is not None:
            read_philly(str(trace))  # Report errors in the input before anything runs.
        if journal is not None:
            recorded_workload(str(journal))
        if weights is not None:
            read_weights(weights, policy)
            if journal is None:
                raise ValueError("--weights is for --from: without it, a training begins with imitation")
        for path in records or ():
            if not (path / "about.json").exists():
                raise ValueError(f"--records '{path}': must be a folder that `hocket simulate --record` wrote")
    setup = TrainingSetup(
        str(trace or ""), seed, given_records=tuple(map(str, records or ())), generations=generations,
        journal=str(journal or ""), weights=str(weights or ""), population=population, windows=windows,
        policy=policy, betas=JCT_ALONE if policy == "rl" else BETAS,
    )  # fmt: skip
    state = _trained(setup, folder, workers or cores(), search_betas)
    drawn = _drawn(state, folder)
    if as_json:
        import msgspec

        print(msgspec.json.encode(_as_data(state, folder)).decode())
        return
    _print(state, folder, drawn)


def _trained(setup: TrainingSetup, folder: Path, workers: int, search: int) -> LearningState:
    """Train, with a bar for each stage on a terminal."""
    from hocket.cli.terminal.errors import refusing
    from hocket.cli.terminal.progress import by_stage
    from hocket.learn.betas import folder_of_trial, search_betas
    from hocket.learn.training import RECORDS, train, try_out

    with by_stage("runs") as show, refusing():

        def on_progress(now: Progress) -> None:
            show(now.stage, now.done, now.total)

        def trial(short: TrainingSetup, name: str) -> LearningState:
            return try_out(short, folder_of_trial(folder, name), folder / RECORDS, workers, on_progress)

        if search:
            setup = search_betas(setup, search, trial)
        return train(setup, folder, workers, on_progress)


def _pulls(folder: Path, policy: str) -> dict[str, tuple[float, float]]:
    """Feature → what one deviation of it adds to a score, after imitation and at the end."""
    from hocket.learn.training import IMITATION, WEIGHTS
    from hocket.policies.mlfs.network import JOB_FEATURES
    from hocket.policies.mlfs.weights_file import read_weights

    before, after = (read_weights(folder / name, policy).network.pulls() for name in (IMITATION, WEIGHTS))
    return {name: (float(before[n]), float(after[n])) for n, name in enumerate(JOB_FEATURES)}


def _drawn(state: LearningState, folder: Path) -> list[Path]:
    from hocket.reports.learning_plot import draw_learning

    rows = state.history
    validation = [(0, state.imitation_gain), *((r.number, r.validation) for r in rows if r.validation is not None)]
    return draw_learning(
        folder, [r.number for r in rows], [r.reward for r in rows], validation, _pulls(folder, state.setup.policy)
    )


def _as_data(state: LearningState, folder: Path) -> dict[str, Any]:
    return {
        "setup": state.setup,
        "agreement": state.held_out,
        "same_decisions": state.same,
        "gain_of_imitation": state.imitation_gain,
        "gain": state.best_gain,
        "cpu_s": round(state.cpu_s, 1),
        "generations": state.history,
        "beta_trials": state.setup.beta_trials,
        "weights": str(folder / "weights.json"),
    }


def _print(state: LearningState, folder: Path, drawn: list[Path]) -> None:
    same, held_out = state.same, state.held_out
    if held_out.decisions:
        print(
            f"imitation: on {held_out.decisions:,} decisions of records it did not see it puts {held_out.pairs:.1%} of "
            f"the pairs of jobs in MLF-H's order, and the same job first in {held_out.first:.1%}"
        )
    if same.decisions:
        print(
            f"of {same.decisions:,} decisions of MLF-H in other windows it makes {same.same_jobs / same.decisions:.1%} "
            f"with the same jobs, {same.same_plan / same.decisions:.1%} on the same GPUs"
        )
    for trial in state.setup.beta_trials:
        print(f"β {' '.join(f'{b:.2f}' for b in trial.betas)}: reward over MLF-H {trial.gain:+.1%}")
    reward = "reward for completion times" if state.setup.policy == "rl" else "reward"
    print(
        f"reinforcement: {state.evolution.generation} generations, {state.cpu_s / 60:.1f} CPU-minutes; {reward} over "
        f"MLF-H on the validation's windows {state.imitation_gain:+.1%} before it, {state.best_gain:+.1%} now"
    )
    print(f"weights in {folder / 'weights.json'}; curves in {drawn[0]}")
