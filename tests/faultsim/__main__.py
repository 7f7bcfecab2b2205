"""Simulates clusters with faults, one for each seed: `python -m tests.faultsim --seeds 10000`.

A seed that fails is told with the command that runs it again, the faults without which it does not fail, and the last
lines of its trace. `--seed 7 --trace` runs one and shows all that happened.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.faultsim.planted_faults import PLANTED
from tests.faultsim.scenario import scenario
from tests.faultsim.simulation import Outcome, simulate

_LINES = 60  # of a trace that are shown of a seed that fails
_ALL = 1_000_000
_PART = 20  # seeds that a process takes at a time
_MOST_FAILURES = 5  # after which a run ends


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; 1 if a seed fails."""
    options = _options(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":  # The order of a set of texts must be the same each time.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.faultsim", *(arguments or sys.argv[1:])])
    planted = frozenset([options.plant] if options.plant else [])
    if options.seed is not None:
        return _run_one(options.seed, options.faults, options.trace, planted)
    return _run_many(range(options.start, options.start + options.seeds), options.processes, planted)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faultsim", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200, help="how many; default: 200")
    parser.add_argument("--start", type=int, default=0, help="the first of them; default: 0")
    parser.add_argument("--processes", type=int, default=1, help="that share them; default: 1")
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--faults", type=_numbers, help="only these of its faults, by number: 0,3")
    parser.add_argument("--trace", action="store_true", help="show all that happens")
    parser.add_argument("--plant", choices=sorted(PLANTED), help="a fault in the product, to see that it is found")
    return parser.parse_args(arguments)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


# -- one seed -------------------------------------------------------------------------------------------------


def _run_one(seed: int, only: tuple[int, ...] | None, trace: bool, planted: frozenset[str]) -> int:
    drawn = scenario(seed)
    nodes = ", ".join(f"{name} with {gpus} GPUs" for name, gpus in drawn.nodes.items())
    print(f"seed {seed}: policy {drawn.policy}, lease {drawn.lease_s:g} s, {nodes}, {len(drawn.jobs)} jobs")
    for number, fault in enumerate(drawn.faults):
        if only is None or number in only:
            print(f"  fault {number:2}  {fault}")
    outcome = simulate(seed, only, _ALL if trace else _LINES, planted)
    if trace or outcome.wrong:
        print(*outcome.trace, sep="\n")
    print(*(outcome.wrong or ["all is well"]), sep="\n")
    print(f"{outcome.simulated_s:.0f} s simulated, {outcome.steps} steps, {outcome.cycles} cycles, {outcome.digest}")
    return 1 if outcome.wrong else 0


def needed_faults(seed: int, planted: frozenset[str] = frozenset()) -> tuple[int, ...]:
    """The faults of a seed that fails without which it does not fail: one after the other is left out."""
    needed = tuple(range(len(scenario(seed).faults)))
    for number in needed:
        fewer = tuple(n for n in needed if n != number)
        if simulate(seed, fewer, planted=planted).wrong:
            needed = fewer
    return needed


def report(outcome: Outcome, planted: frozenset[str] = frozenset()) -> str:
    """A seed that fails, for its reader."""
    seed, drawn = outcome.seed, scenario(outcome.seed)
    needed = needed_faults(seed, planted)
    again = simulate(seed, needed, _LINES, planted)
    plant = "".join(f" --plant {name}" for name in planted)
    only = "" if len(needed) == len(drawn.faults) else f" --faults {','.join(map(str, needed)) or ','}"
    lines = [f"seed {seed} fails: {outcome.wrong[0]}", f"again: python -m tests.faultsim --seed {seed} --trace{plant}"]
    if only:
        lines += [
            f"with fewer faults: {again.wrong[0]}",
            f"again: python -m tests.faultsim --seed {seed}{only} --trace{plant}",
        ]
    lines += [f"  fault {number:2}  {drawn.faults[number]}" for number in needed]
    return "\n".join([*lines, "the last that happened:", *again.trace])


# -- many seeds -----------------------------------------------------------------------------------------------


class Totals:
    """What all seeds come to."""

    def __init__(self) -> None:
        self.seeds = self.jobs = self.runs = self.cycles = self.steps = 0
        self.simulated_s = 0.0
        self.faults: Counter[str] = Counter()
        self._began_s = time.monotonic()

    def add(self, outcome: Outcome) -> None:
        """One seed more."""
        self.seeds += 1
        self.simulated_s += outcome.simulated_s
        self.faults += outcome.faults
        self.jobs, self.runs = self.jobs + outcome.jobs, self.runs + outcome.runs
        self.cycles, self.steps = self.cycles + outcome.cycles, self.steps + outcome.steps

    @property
    def per_s(self) -> float:
        """Seeds a second, so far."""
        return self.seeds / max(time.monotonic() - self._began_s, 1e-9)

    def __str__(self) -> str:
        kinds = "\n".join(f"  {count:8,}  {kind}" for kind, count in sorted(self.faults.items()))
        return (
            f"{self.seeds:,} seeds, {self.simulated_s / 3600:,.1f} simulated hours, {self.jobs:,} jobs in "
            f"{self.runs:,} runs, {self.cycles:,} cycles, {self.steps:,} steps; "
            f"{self.per_s:.1f} seeds/s\nfaults:\n{kinds}"
        )


def _run_many(seeds: range, processes: int, planted: frozenset[str]) -> int:
    totals, failures = Totals(), 0
    for outcome in _outcomes(seeds, processes, planted):
        totals.add(outcome)
        if outcome.wrong:
            failures += 1
            print(f"\r{report(outcome, planted)}\n", flush=True)
            if failures == _MOST_FAILURES:
                break
        _show_progress(totals, len(seeds), failures)
    print(f"\r{totals}\n{failures} seeds fail" if failures else f"\r{totals}\nno seed fails")
    return 1 if failures else 0


def _outcomes(seeds: range, processes: int, planted: frozenset[str]) -> Iterator[Outcome]:
    if processes == 1:
        yield from (simulate(seed, planted=planted) for seed in seeds)
        return
    parts = [(seeds[first : first + _PART], planted) for first in range(0, len(seeds), _PART)]
    with ProcessPoolExecutor(processes) as pool:
        for part in pool.map(_simulated, parts):
            yield from part


def _simulated(part: tuple[range, frozenset[str]]) -> list[Outcome]:
    seeds, planted = part
    return [simulate(seed, planted=planted) for seed in seeds]


def _show_progress(totals: Totals, of: int, failures: int) -> None:
    if sys.stderr.isatty() and (totals.seeds % 10 == 0 or totals.seeds == of):
        done = 30 * totals.seeds // of
        bar = "█" * done + "░" * (30 - done)
        print(
            f"\r{bar} {totals.seeds:,} of {of:,} seeds, {totals.per_s:.1f}/s, {failures} fail ", end="", file=sys.stderr
        )


if __name__ == "__main__":
    sys.exit(main())
