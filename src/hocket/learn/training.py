"""Training of MLF-RL: imitation of MLF-H from records, then evolution in the simulator by the reward of MLFS.

RL is trained alike, by completion times alone, and imitates nothing: records only tell the scale of its features.

A training is a folder. `training.json` is written after every generation, so that a training that was killed goes on
where it was and ends with the same weights; `weights.json` is what it has found. The windows of a generation are the
same for all of its candidates, so that they are compared on the same work.

The same setup gives the same weights, however many processes there are: what is fitted is computed by one thread, and
rounded, as sums of many numbers depend on how they are divided.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hocket.learn.episodes import (
    Episode,
    RecordedWindow,
    SameDecisions,
    begin_worker,
    compare_decisions,
    record,
    run_episode,
    seen_columns,
)
from hocket.learn.evolution import Evolution, candidates, initial, selected
from hocket.learn.imitation import Agreement, agreement, imitate, joined_records, read_record, seen_range
from hocket.learn.own_history import history_windows
from hocket.learn.reward import BETAS, ETA, JCT_ALONE, Goals
from hocket.learn.windows import Window, long_queue_windows, training_windows, validation_windows
from hocket.policies.mlfs.network import HOST_FEATURES, JOB_FEATURES, PolicyNetwork
from hocket.policies.mlfs.rl import HOST_READS, JOB_READS, untrained
from hocket.policies.mlfs.weights_file import SHIPPED, LearnedWeights, MadeBy, encoded, read_weights

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Column = NDArray[float64]

STATE, WEIGHTS, IMITATION, RECORDS = "training.json", "weights.json", "imitation.json", "records"
SIGMA = 0.5
# What evolves, and how far one step of it goes. The hidden layer stays as imitation left it.
STEPS = {"linear": 1.0, "hosts": 0.5, "gpu": 1.5, "leaving": 1.0, "missing": 3.0}
_VALIDATE_EVERY = 10
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_HELD_OUT = 0.25  # of the records: agreement is measured on these
T = TypeVar("T")
R = TypeVar("R")
Run = Callable[[Callable[[T], R], Sequence[T], str], list[R]]  # in processes, in the order given


class LearningError(ValueError):
    """A training cannot be done as asked."""


class BetaTrial(Struct, frozen=True):
    """One trial of a search: β, and the gain over MLF-H after a short training with it."""

    betas: tuple[float, ...]
    gain: float


class TrainingSetup(Struct, frozen=True):
    """All that the weights depend on."""

    trace: str = ""
    seed: int = 0
    records: int = 12  # windows that are recorded, if no records are given
    given_records: tuple[str, ...] = ()
    journal: str = ""  # the history of a home, from which weights go on learning; else it begins with imitation
    weights: str = ""  # where they begin; empty: those shipped
    generations: int = 60
    population: int = 12
    windows: int = 3  # of each candidate in a generation
    validation: int = 12
    betas: tuple[float, float, float, float, float] = BETAS
    eta: float = ETA
    policy: str = "mlf_rl"
    beta_trials: tuple[BetaTrial, ...] = ()  # of the search that found β

    @property
    def judges(self) -> tuple[float, ...]:
        """The weights of the reward by which weights of the network are chosen, whatever β they were trained with."""
        return JCT_ALONE if self.policy == "rl" else BETAS


_USUAL = TrainingSetup()


class Generation(Struct, frozen=True):
    """One row of the curves."""

    number: int
    reward: float  # discounted, mean of the candidates
    best: float
    sigma: float
    cpu_s: float  # of all episodes until then
    validation: float | None = None  # gain in reward over MLF-H, on the validation's windows


class LearningState(Struct, frozen=True):
    """Where a training is."""

    setup: TrainingSetup
    evolution: Evolution
    history: list[Generation]
    best: list[float]  # what evolves of the best weights
    best_gain: float  # over MLF-H, on the validation's windows; of the imitation at first
    imitation_gain: float
    held_out: Agreement
    same: SameDecisions
    baseline: list[float]  # reward of MLF-H on each of the validation's windows
    cpu_s: float


class Progress(Struct, frozen=True):
    """How far a training is, as it runs."""

    stage: str
    done: int
    total: int


def train(setup: TrainingSetup, folder: Path, workers: int, on_progress: Callable[[Progress], None]) -> LearningState:
    """Begin a training, or go on with the one in the folder, to the end."""
    with processes(workers, on_progress) as run:
        state, base = reinforced(setup, folder, folder / RECORDS, run, on_progress)
        network, with_long_queues = final_network(state, base, run)
    made_by = _made_by(state, with_long_queues)
    save_weights(folder / IMITATION, LearnedWeights(base, made_by, setup.policy))
    save_weights(folder / WEIGHTS, LearnedWeights(network, made_by, setup.policy))
    return state


def try_out(
    setup: TrainingSetup, folder: Path, records: Path, workers: int, on_progress: Callable[[Progress], None]
) -> LearningState:
    """A training that writes no weights, with records that it shares with others."""
    with processes(workers, on_progress) as run:
        return reinforced(setup, folder, records, run, on_progress)[0]


def reinforced(
    setup: TrainingSetup, folder: Path, records: Path, run: Run[Any, Any], on_progress: Callable[[Progress], None]
) -> tuple[LearningState, PolicyNetwork]:
    """All generations of a training, and the network that they began with."""
    folder.mkdir(parents=True, exist_ok=True)
    known = _known(setup, folder)
    base, held_out = imitated(setup, records, run) if not setup.journal else begins_with(setup)
    state = known or _initial_state(setup, base, held_out, run)
    _write(state, folder)
    while state.evolution.generation < setup.generations:
        state = next_generation(state, base, run)
        _write(state, folder)
        on_progress(Progress("learning", state.evolution.generation, setup.generations))
    return state, base


# -- imitation --------------------------------------------------------------------------------------------------


def imitated(setup: TrainingSetup, folder: Path, run: Run[Any, Any]) -> tuple[PolicyNetwork, Agreement]:
    """The network that imitates MLF-H's records, and how often it agrees with those that it has not seen.

    RL begins with first come, first served.
    """
    records = records_of(setup, folder, run)
    fit: tuple[PolicyNetwork, Agreement] = run(
        fitted, [RecordsToImitate(records, setup.seed, setup.policy)], "imitation"
    )[0]
    return fit


class RecordsToImitate(Struct, frozen=True):
    """Their folders, and how. Plain data for another process."""

    records: list[str]  # folders
    seed: int
    policy: str


def fitted(fit: RecordsToImitate) -> tuple[PolicyNetwork, Agreement]:
    """The network that imitates the records, computed in a process with one thread."""
    found = [r for path in fit.records if len((r := read_record(Path(path))).columns)]
    if not found:
        raise LearningError("no job waits in any decision of the records: there is nothing to imitate")
    if fit.policy == "rl":
        return untrained(joined_records(found).columns).rounded(), Agreement(0, 0.0, 0.0)
    cut = max(1, round(len(found) * (1 - _HELD_OUT)))
    network = imitate(joined_records(found[:cut]), fit.seed)
    return network, agreement(network, joined_records(found[cut:] or found))


def begins_with(setup: TrainingSetup) -> tuple[PolicyNetwork, Agreement]:
    """The network that goes on learning; it imitates nothing."""
    path = Path(setup.weights) if setup.weights else SHIPPED[setup.policy]
    return read_weights(path, setup.policy).network, Agreement(0, 0.0, 0.0)


def generation_windows(setup: TrainingSetup, generation: int) -> list[Window]:
    """What the candidates of a generation are tried on."""
    if setup.journal:
        return history_windows(setup.journal, setup.seed, generation, setup.windows)
    return training_windows(setup.trace, setup.seed, generation, setup.windows)


def validation_of(setup: TrainingSetup) -> list[Window]:
    """What a training chooses among its own weights by."""
    if setup.journal:
        return history_windows(setup.journal, setup.seed, -1, setup.validation, validate=True)
    return validation_windows(setup.trace, setup.seed, setup.validation)


def records_of(setup: TrainingSetup, folder: Path, run: Run[Any, Any]) -> list[str]:
    """The records given, or those of windows under MLF-H; those that are there are not made again."""
    if setup.given_records:
        return list(setup.given_records)
    windows = training_windows(setup.trace, setup.seed, -4, setup.records)
    folders = [folder / f"{n:02d}" for n in range(len(windows))]
    missing = [
        RecordedWindow(window, str(path))
        for window, path in zip(windows, folders, strict=True)
        if not (path / "about.json").exists()
    ]
    run(record, missing, "recording MLF-H")
    return [str(path) for path in folders]


# -- reinforcement ----------------------------------------------------------------------------------------------


class Evolving(Struct, frozen=True):
    """Numbers of one array that evolve."""

    array: str
    which: list[int]
    step: float  # how far one step goes


def evolving(network: PolicyNetwork, policy: str) -> list[Evolving]:
    """What evolves; of RL only what it looks at."""
    if policy != "rl":
        return [Evolving(name, list(range(len(getattr(network, name)))), step) for name, step in STEPS.items()]
    jobs, hosts = [JOB_FEATURES.index(n) for n in JOB_READS], [HOST_FEATURES.index(n) for n in HOST_READS]
    found = {"linear": jobs, "hosts": hosts, "gpu": [0]}
    return [Evolving(name, which, STEPS[name]) for name, which in found.items()]


def numbers(network: PolicyNetwork, policy: str) -> int:
    """How many numbers evolve."""
    return sum(len(part.which) for part in evolving(network, policy))


def applied(base: PolicyNetwork, found: Sequence[float], policy: str) -> PolicyNetwork:
    """The network with these changes."""
    import numpy as np

    changed, at = {}, 0
    for part in evolving(base, policy):
        changed[part.array] = getattr(base, part.array).copy()
        changed[part.array][part.which] += part.step * np.array(found[at : at + len(part.which)])
        at += len(part.which)
    return replace(base, **changed)


def next_generation(state: LearningState, base: PolicyNetwork, run: Run[Any, Any]) -> LearningState:
    """Try candidates, all on the same windows, and go towards the better ones."""
    import numpy as np

    setup, at = state.setup, state.evolution
    windows = generation_windows(setup, at.generation)
    tried = candidates(at, setup.population, setup.seed)
    episodes = [_episode(setup, w, applied(base, x, setup.policy)) for x in tried.tolist() for w in windows]
    what = f"generation {at.generation + 1} of {setup.generations}"
    goals, cpu_s = _timed(run(timed_episode, episodes, what))
    rewards = np.array([g.discounted(setup.betas) for g in goals]).reshape(len(tried), len(windows))
    gains = (rewards / rewards.mean(axis=0)).mean(axis=1)  # A window with much reward counts no more than others.
    then = selected(at, tried, gains)
    cpu_s += state.cpu_s
    best, best_gain, validation = state.best, state.best_gain, None
    if then.generation % _VALIDATE_EVERY == 0 or then.generation == setup.generations:
        validation, more_s = validation_gain(state, applied(base, then.mean, setup.policy), run)
        cpu_s += more_s
        if validation > best_gain:
            best, best_gain = then.mean, validation
    row = Generation(then.generation, float(rewards.mean()), float(gains.max()), then.sigma, cpu_s, validation)
    return replace(state, evolution=then, history=[*state.history, row], best=best, best_gain=best_gain, cpu_s=cpu_s)


def validation_gain(state: LearningState, network: PolicyNetwork, run: Run[Any, Any]) -> tuple[float, float]:
    """How much more reward than MLF-H it gets on the validation's windows, as a share; and the CPU time."""
    setup, windows = state.setup, validation_of(state.setup)
    goals, cpu_s = _timed(run(timed_episode, [_episode(setup, w, network) for w in windows], "validation"))
    gains = [g.reward(setup.judges) / b - 1 for g, b in zip(goals, state.baseline, strict=True)]
    return sum(gains) / len(gains), cpu_s


def _episode(setup: TrainingSetup, window: Window, network: PolicyNetwork) -> Episode:
    return Episode(window, setup.policy, network=unguarded(network), eta=setup.eta)


def timed_episode(episode: Episode) -> tuple[Goals, float]:
    """Run an episode in this process: its goals, and its CPU time."""
    began = time.process_time()
    return run_episode(episode), time.process_time() - began


def _timed(results: list[tuple[Goals, float]]) -> tuple[list[Goals], float]:
    return [goals for goals, _s in results], sum(s for _goals, s in results)


def unguarded(network: PolicyNetwork) -> PolicyNetwork:
    """The network without its range of inputs: in training, none is taken to be unlike the others."""
    import numpy as np

    return replace(network, low=np.full_like(network.low, -np.inf), high=np.full_like(network.high, np.inf))


def _initial_state(setup: TrainingSetup, base: PolicyNetwork, held_out: Agreement, run: Run[Any, Any]) -> LearningState:
    windows = validation_of(setup)
    goals, cpu_s = _timed(run(timed_episode, [Episode(w, "mlf_h") for w in windows], "MLF-H"))
    asked = [Episode(w, network=base) for w in windows[:3]] if setup.policy == "mlf_rl" else []
    compared: list[SameDecisions] = run(compare_decisions, asked, "agreement")
    same = SameDecisions(
        sum(c.decisions for c in compared), sum(c.same_jobs for c in compared), sum(c.same_plan for c in compared)
    )
    size = numbers(base, setup.policy)
    baseline = [g.reward(setup.judges) for g in goals]
    state = LearningState(setup, initial(size, SIGMA), [], [0.0] * size, 0.0, 0.0, held_out, same, baseline, cpu_s)
    gain, more_s = validation_gain(state, base, run)
    return replace(state, best_gain=gain, imitation_gain=gain, cpu_s=cpu_s + more_s)


def final_network(state: LearningState, base: PolicyNetwork, run: Run[Any, Any]) -> tuple[PolicyNetwork, float | None]:
    """The best network, with the range of what it saw, and of longer queues if it is as good as MLF-H there.

    Then its gain over MLF-H with these.
    """
    import numpy as np

    setup = state.setup
    network = applied(base, state.best, setup.policy)
    windows, gain = validation_of(setup), None
    if setup.policy == "mlf_rl" and not setup.journal:
        longer = long_queue_windows(setup.seed)
        gain = _gain_with(longer, network, run)
        windows += longer if gain >= 0 else []
    seen = run(seen_columns, [_episode(setup, w, network) for w in windows], "range of the training")
    asked = np.concatenate(seen)
    if not len(asked):  # No job ever waited.
        return network, gain
    low, high = seen_range(asked, network.scale)
    return replace(network, low=np.minimum(low, base.low), high=np.maximum(high, base.high)).rounded(), gain


def _gain_with(windows: Sequence[Window], network: PolicyNetwork, run: Run[Any, Any]) -> float:
    episodes = [e for w in windows for e in (Episode(w, network=unguarded(network)), Episode(w, "mlf_h"))]
    goals, _cpu_s = _timed(run(timed_episode, episodes, "longer queues"))
    return sum(a.reward() / b.reward() - 1 for a, b in zip(goals[::2], goals[1::2], strict=True)) / len(windows)


# -- files ------------------------------------------------------------------------------------------------------


def _known(setup: TrainingSetup, folder: Path) -> LearningState | None:
    try:
        state = msgspec.json.decode((folder / STATE).read_bytes(), type=LearningState)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise LearningError(f"'{folder / STATE}': {error}") from error
    if replace(state.setup, generations=0) != replace(setup, generations=0):
        raise LearningError(
            f"'{folder}' has a training with other settings; name another folder, or give the same settings"
        )
    return replace(state, setup=setup)


def _write(state: LearningState, folder: Path) -> None:
    part = folder / f".{STATE}.part"
    part.write_bytes(msgspec.json.encode(state))
    os.replace(part, folder / STATE)


def save_weights(path: Path, weights: LearnedWeights) -> None:
    """Write weights, whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(encoded(weights))
    read_weights(part, weights.policy)
    os.replace(part, path)


def _made_by(state: LearningState, with_long_queues: float | None) -> MadeBy:
    setup = state.setup
    command = f"hocket learn {setup.policy} --seed {setup.seed} --generations {setup.generations}"
    if (setup.population, setup.windows) != (_USUAL.population, _USUAL.windows):
        command += f" --population {setup.population} --windows {setup.windows}"
    data = "generated windows" if not setup.journal else f"journal {Path(setup.journal).name}"
    if setup.journal:
        command += f" --from {Path(setup.journal).name}"
    if setup.beta_trials:
        command += f" --search-betas {len(setup.beta_trials)}"
    if setup.trace:
        command += f" --trace {Path(setup.trace).name}"
        data += f" and {Path(setup.trace).name}"
    notes: dict[str, Any] = {
        "gain_on_validation": round(state.best_gain, 4),
        "agreement_pairs": round(state.held_out.pairs, 4),
        "betas": list(setup.betas),
        "eta": setup.eta,
    }
    if with_long_queues is not None:
        notes["gain_with_long_queues"] = round(with_long_queues, 4)
    if setup.beta_trials:
        notes["beta_trials"] = [{"betas": list(t.betas), "gain": round(t.gain, 4)} for t in setup.beta_trials]
    return MadeBy(command, data, setup.seed, time.strftime("%Y-%m-%d", time.gmtime()), notes)


# -- processes --------------------------------------------------------------------------------------------------


@contextmanager
def one_thread() -> Iterator[None]:
    """Processes that begin meanwhile compute with one thread each."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


@contextmanager
def processes(workers: int, on_progress: Callable[[Progress], None]) -> Iterator[Run[Any, Any]]:
    """Run functions of plain data in so many processes of one thread each, none of which is left behind."""
    with one_thread(), get_context("spawn").Pool(max(1, workers), begin_worker) as pool:  # Its end terminates them.

        def run(function: Callable[[T], R], inputs: Sequence[T], what: str) -> list[R]:
            found: list[R] = []
            for result in pool.imap(function, inputs):
                found.append(result)
                on_progress(Progress(what, len(found), len(inputs)))
            return found

        yield run
