"""A policy gradient beside evolution, for MLF-RL: `python -m benchmarks.policy_gradient --trace FILE --out DIR`.

Both begin with the same imitation of MLF-H, change the same 24 numbers, and try as many episodes of the same windows in
each generation; both are judged on windows of the training's weeks. Evolution is that of `hocket learn mlf_rl`. The
gradient is REINFORCE (Williams, 1992): every choice is drawn, and choices that came with more reward than others on the
same window become likelier.

- The order of waiting jobs is drawn from the Plackett-Luce model: softmax of scores for the first, of the rest for the
  second, and so on.
- The server of a task by a softmax of less distance; the least loaded or the fullest GPU, and whether a task stays on
  an overloaded server, by a logistic function; what a missing task counts from a normal distribution.
- The baseline of an episode is the mean reward of the other episodes of its window. Steps are those of Adam.

Afterwards all choices are the likeliest ones.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from math import exp
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from benchmarks.machine import Machine, machine
from benchmarks.mlf_rl import shown
from hocket.cli.terminal.progress import by_stage
from hocket.learn.episodes import Episode
from hocket.learn.reward import Goals, run_window
from hocket.learn.training import (
    IMITATION,
    Progress,
    TrainingSetup,
    applied,
    evolving,
    generation_windows,
    numbers,
    processes,
    timed_episode,
    train,
    unguarded,
    validation_gain,
)
from hocket.learn.windows import Window, training_windows
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.policies.mlfs.mlf_h import decide_round
from hocket.policies.mlfs.mlf_rl import LearnedHosts, LearnedRound, MlfRl, leaving_features
from hocket.policies.mlfs.network import PolicyNetwork, job_columns
from hocket.policies.mlfs.queue import SingleTask, SingleTaskQueue, WaitingJobs
from hocket.policies.mlfs.weights_file import read_weights
from hocket.policies.registry import BoundPolicy, find
from hocket.reports.mean_interval import MeanInterval, mean_interval

ORDER, SERVER, GPU, STAYS, MISSING = 0.2, 0.05, 0.5, 0.5, 0.5  # how much chance there is in each choice
RATE = 0.1  # of Adam
FURTHER = 16  # windows of the training's weeks beside the validation's


# -- choices that are drawn -----------------------------------------------------------------------------------------


class Chances:
    """Draws choices, and sums the gradients of the logarithms of their probabilities."""

    def __init__(self, network: PolicyNetwork, seed: int) -> None:
        self.network, self.rng = network, np.random.default_rng(seed)
        self.gradient = {name: np.zeros_like(getattr(network, name)) for name in ("linear", "hosts", "gpu", "leaving")}
        self.gradient["missing"] = np.zeros(1)

    def order(self, scores: Any, scaled: Any) -> Any:
        """[job]: scores whose order is drawn."""
        drawn = scores + ORDER * self.rng.gumbel(size=len(scores))
        order = np.argsort(-drawn, kind="stable")
        weights = np.exp((scores[order] - scores.max()) / ORDER)
        left = np.cumsum(weights[::-1])[::-1]  # of those that are not chosen yet
        self.gradient["linear"] += (1.0 - weights * np.cumsum(1.0 / left)) @ scaled[order] / ORDER
        return drawn

    def server(self, distance: Any, features: Any) -> int:
        """One of the servers with a finite distance, which the features count in."""
        able = np.flatnonzero(distance < np.inf)
        logits = -distance[able] / SERVER
        chance = np.exp(logits - logits.max())
        chance /= chance.sum()
        taken = int((logits + self.rng.gumbel(size=len(able))).argmax())
        self.gradient["hosts"] -= (features[able[taken]] - chance @ features[able]) / SERVER
        return int(able[taken])

    def yes(self, name: str, value: float, features: Any, spread: float) -> bool:
        """Is a value above 0, give or take; the features are what the numbers of that name are multiplied with."""
        chance = 1.0 / (1.0 + exp(-min(max(value / spread, -30.0), 30.0)))
        taken = bool(self.rng.random() < chance)
        self.gradient[name] += (taken - chance) * np.asarray(features) / spread
        return taken

    def normal(self, name: str, spread: float) -> float:
        """What is added to a number."""
        drawn = float(self.rng.standard_normal())
        self.gradient[name] += drawn / spread
        return spread * drawn


class DrawnRound(LearnedRound):
    """A round in which chance has a part in each choice."""

    def __init__(self, snapshot: Snapshot, params: MlfRl, chances: Chances) -> None:
        super().__init__(snapshot, params, chances.network)
        self._chances, self._evicted = chances, dict[tuple[str, int], bool]()
        self._more = chances.normal("missing", MISSING) if self.draft.incomplete else 0.0

    def _score(self, jobs: WaitingJobs) -> Any:
        if not len(jobs.which):
            return None
        table = self.draft.table
        gpus = len(table.gpu_load)
        columns = job_columns(jobs, self.weights, float(table.load[:, 0].sum()) / max(gpus, 1), gpus)
        scaled = (columns - self.network.mean) / self.network.scale
        return np.exp(np.clip(self._chances.order(self.network.scores(columns), scaled), -50.0, 50.0))

    def candidates(self, needs: Any, accepts: Any) -> DrawnHosts:
        """The servers that could host such a task."""
        return DrawnHosts(self.draft.table, needs, accepts, self.network, self._chances)

    def evicts(self, task: SingleTask) -> bool:
        """Shall a task that must leave its server, and fits on no other, go to the queue? It is asked twice."""
        key = task.view.id, task.k
        if key not in self._evicted:
            of = leaving_features(task, self.snapshot.now_s, self.draft.table.limit)
            stays = self._chances.yes("leaving", float(self.network.leaving @ of), of, STAYS)
            self._evicted[key] = self.params.evict and not stays
        return self._evicted[key]

    def _place_singles(self, singles: SingleTaskQueue, least: float = float("-inf")) -> None:
        super()._place_singles(singles, least * exp(-self._more) if least > 0 else least)


class DrawnHosts(LearnedHosts):
    """Servers of which one is drawn, the nearest most often."""

    __slots__ = ("_chances",)

    def __init__(self, table: Any, needs: Any, accepts: Any, network: PolicyNetwork, chances: Chances) -> None:
        super().__init__(table, needs, accepts, network)
        self._chances = chances

    def nearest(self, distance: Any, traffic_mib: dict[int, float], most_mib: float) -> int:
        """The server to take."""
        features = np.zeros((len(distance), 6))
        features[:, :4] = self._table.use
        features[:, 5] = np.minimum(np.minimum.reduceat(self._loads, self._table.index.begins[:-1]), 1.0)
        for server, mib in traffic_mib.items() if most_mib else ():
            features[server, 4] = mib / most_mib
        return self._chances.server(distance + features @ self._chances.network.hosts, features)

    def first_gpu(self, loads: Any) -> int:
        """The least loaded GPU, or the fullest on which the task can be."""
        able = np.flatnonzero(loads < np.inf)
        if len(able) == 1 or self._chances.yes("gpu", self._gpu_counts, 1.0, GPU):
            return int(loads.argmin())
        return int(able[loads[able].argmax()])


class DrawnEpisode(Struct, frozen=True):
    """A window under a network whose choices are drawn by a seed. Plain data for another process."""

    window: Window
    network: PolicyNetwork
    seed: int
    eta: float


class Explored(Struct, frozen=True):
    """What came of it."""

    goals: Goals
    gradient: dict[str, Any]  # of the logarithm of the probability of all that was chosen
    cpu_s: float


def explore(episode: DrawnEpisode) -> Explored:
    """In a process: run it."""
    import time

    began = time.process_time()
    chances = Chances(episode.network, episode.seed)

    def drawn(snapshot: Snapshot, params: MlfRl) -> Plan:
        return decide_round(snapshot, params, lambda s, p: DrawnRound(s, p, chances))

    def around(policy: BoundPolicy) -> BoundPolicy:
        return replace(policy, decide=partial(drawn, params=policy.params))

    goals = run_window(episode.window, find("mlf_rl").bound({}), eta=episode.eta, around=around)
    return Explored(goals, chances.gradient, time.process_time() - began)


# -- the ascent -----------------------------------------------------------------------------------------------------


class Ascent(Struct, frozen=True):
    """Where Adam is."""

    generation: int
    mean: list[float]
    first: list[float]
    second: list[float]

    def step(self, gradient: Any) -> Ascent:
        """One step up."""
        n = self.generation + 1
        first = 0.9 * np.array(self.first) + 0.1 * gradient
        second = 0.99 * np.array(self.second) + 0.01 * gradient**2
        step = first / (1 - 0.9**n) / (np.sqrt(second / (1 - 0.99**n)) + 1e-8)
        return Ascent(n, (np.array(self.mean) + RATE * step).tolist(), first.tolist(), second.tolist())


def ascended(at: Ascent, setup: TrainingSetup, base: PolicyNetwork, run: Any) -> tuple[Ascent, float, float]:
    """One generation: as many episodes as one of evolution has; then its mean reward and CPU time."""
    windows, network = generation_windows(setup, at.generation), applied(base, at.mean, setup.policy)
    episodes = [
        DrawnEpisode(w, unguarded(network), setup.seed << 32 | at.generation << 16 | n, setup.eta)
        for n in range(setup.population)
        for w in windows
    ]
    found: list[Explored] = run(explore, episodes, f"gradient, generation {at.generation + 1} of {setup.generations}")
    rewards = np.array([e.goals.discounted(setup.betas) for e in found]).reshape(setup.population, len(windows))
    others = (rewards.sum(axis=0) - rewards) / (setup.population - 1)
    advantage = ((rewards - others) / rewards.mean(axis=0)).reshape(-1)
    parts = evolving(base, setup.policy)
    gradients = np.array([np.concatenate([p.step * e.gradient[p.array][p.which] for p in parts]) for e in found])
    return at.step(advantage @ gradients / len(found)), float(rewards.mean()), sum(e.cpu_s for e in found)


# -- side by side ---------------------------------------------------------------------------------------------------


class Way(Struct, frozen=True):
    """One way to train, and how far it came."""

    name: str
    generations: int
    cpu_s: float
    chosen: int  # the generation that was best on the validation's windows
    validation: float  # gain in reward over MLF-H there, as a share
    further: MeanInterval | None  # on the further windows
    jct: MeanInterval | None


class Compared(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    ways: list[Way]


def compared(setup: TrainingSetup, folder: Path, workers: int, every: int) -> list[Way]:
    """Train both ways, and judge what each found."""
    with by_stage("runs") as show:

        def told(now: Progress) -> None:
            show(now.stage, now.done, now.total)

        state = train(setup, folder, workers, told)
        base = read_weights(folder / IMITATION, "mlf_rl").network
        evolved = [(row.number, row.validation) for row in state.history if row.validation is not None]
        best_at = max([(state.imitation_gain, 0), *((gain, n) for n, gain in evolved)])[1]
        with processes(workers, told) as run:
            at, cpu_s = Ascent(0, *([0.0] * numbers(base, "mlf_rl") for _ in range(3))), 0.0
            best = (state.imitation_gain, 0, at.mean)
            while at.generation < setup.generations:
                at, reward, more_s = ascended(at, setup, base, run)
                cpu_s += more_s
                print(f"gradient {at.generation}: reward {reward:.4f}", file=sys.stderr)
                if at.generation % every == 0 or at.generation == setup.generations:
                    gain, more_s = validation_gain(state, applied(base, at.mean, "mlf_rl"), run)
                    cpu_s += more_s
                    print(f"gradient {at.generation}: {gain:+.4f} on the validation's windows", file=sys.stderr)
                    best = max(best, (gain, at.generation, at.mean))
            windows = training_windows(setup.trace, setup.seed, -7, FURTHER)
            theirs = [g for g, _s in run(timed_episode, [Episode(w, "mlf_h") for w in windows], "MLF-H")]
            found = []
            for name, spent_s, chosen, gain, mean in (
                ("imitation alone", 0.0, 0, state.imitation_gain, [0.0] * len(at.mean)),
                ("evolution (CMA-ES)", state.cpu_s, best_at, state.best_gain, state.best),
                ("gradient (REINFORCE)", cpu_s, best[1], best[0], best[2]),
            ):
                network = unguarded(applied(base, mean, "mlf_rl"))
                ours = [g for g, _s in run(timed_episode, [Episode(w, network=network) for w in windows], name)]
                reward_of = mean_interval([a.reward() / b.reward() - 1 for a, b in zip(ours, theirs, strict=True)])
                jct = mean_interval([a.jct_mean_s / b.jct_mean_s - 1 for a, b in zip(ours, theirs, strict=True)])
                found.append(Way(name, setup.generations if spent_s else 0, spent_s, chosen, gain, reward_of, jct))
    return found


def main(arguments: list[str]) -> None:
    """Train both ways, and print a table or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policy_gradient", description="Gradient or evolution?")
    parser.add_argument("--trace", default="", help="the Philly table; without it all windows are generated")
    parser.add_argument("--seed", type=int, default=0, help="of windows and draws")
    parser.add_argument("--generations", type=int, default=20, help="of both")
    parser.add_argument("--population", type=int, default=12, help="episodes of each window in a generation")
    parser.add_argument("--windows", type=int, default=3, help="of a generation")
    parser.add_argument("--every", type=int, default=10, help="generations between two validations of the gradient")
    parser.add_argument("--out", type=Path, default=Path("gradient-out"), help="evolution's training; it goes on there")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    setup = TrainingSetup(
        chosen.trace, chosen.seed, generations=chosen.generations, population=chosen.population, windows=chosen.windows
    )
    ways = compared(setup, chosen.out, chosen.workers, chosen.every)
    names = {str(Path(a)): Path(a).name for a in (chosen.trace, chosen.out) if a}
    command = " ".join(["python -m benchmarks.policy_gradient", *(names.get(a, a) for a in arguments)])
    found = Compared(command, machine(), ways)
    print(msgspec.json.encode(found).decode() if chosen.json else text(found))


def text(found: Compared) -> str:
    """The table, with the command that made it."""
    here = found.machine
    lines = [
        f"`{found.command}`; {here.cores} cores, load {here.load:g}, Python {here.python}, {here.date}",
        "",
        f"| way | generations | CPU-minutes | best at | validation | {FURTHER} further windows | mean JCT there |",
        "| --- | --: | --: | --: | --: | --: | --: |",
    ]
    for w in found.ways:
        cells = (shown(w.further), shown(w.jct))
        lines.append(
            f"| {w.name} | {w.generations} | {w.cpu_s / 60:.1f} | {w.chosen} | {w.validation:+.1%} | "
            + " | ".join(cells)
            + " |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
