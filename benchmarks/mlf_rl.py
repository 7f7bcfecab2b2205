"""MLF-RL on windows that it never saw, beside MLF-H and others: `python -m benchmarks.mlf_rl --trace FILE [--json]`.

The windows are those of `hocket.learn.windows`: generated ones at loads from 0.7 to 1.5, other weeks and other virtual
clusters of the Philly table, another trace if one is given (Muri's), and with --large ten times the jobs and servers.
The first set of them was looked at before the shipped weights were trained; `--held-out second` is another.
Policies that place no tasks run the same jobs in one piece. Differences are paired by window, with 95 % intervals.
What is kept in --keep is not run again; MLF-RL with other weights is.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from benchmarks.machine import Machine, machine
from hocket.cli.terminal.progress import bars
from hocket.learn.episodes import Episode, begin_worker, run_episode
from hocket.learn.reward import Goals
from hocket.learn.windows import Window, held_out_windows, large_windows, second_held_out_windows
from hocket.policies.mlfs.weights_file import SHIPPED, read_weights
from hocket.reports.mean_interval import MeanInterval, mean_interval

OF_TASKS = ("mlf_rl", "mlf_h", "graphene", "rl")
WHOLE = ("tiresias", "srtf")  # srtf with learned beliefs
METRICS: dict[str, Callable[[Goals], float]] = {
    "reward": Goals.reward,
    "JCT": lambda g: g.jct_mean_s / 3600.0,
    "deadlines": lambda g: g.deadlines,
    "sent": lambda g: g.sent_share,
    "accuracies": lambda g: g.accuracies,
    "accuracy": lambda g: g.accuracy,
}


class Result(Struct, frozen=True):
    """One window under one policy."""

    window: Window
    policy: str
    weights: str  # digest of MLF-RL's; empty for others
    goals: Goals | None = None


class Difference(Struct, frozen=True):
    """How much MLF-RL differs from another policy in a metric, as a share of the other's; over all windows."""

    policy: str
    metric: str
    share: MeanInterval


class Measured(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    results: list[Result]
    differences: list[Difference]


def tasks_of(
    windows: Sequence[Window], policies: Sequence[str], weights: str, guard: bool
) -> list[tuple[Result, Episode]]:
    """Every window under every policy: what its result will be filed under, and what runs."""
    path = Path(weights) if weights else SHIPPED["mlf_rl"]
    read_weights(path, "mlf_rl")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12] + ("" if guard else " without guard")
    found = []
    for window in windows:
        for policy in policies:
            learned = policy == "mlf_rl"
            seen = replace(window, beliefs="learned") if policy == "srtf" else window
            params: dict[str, Any] = {"weights_file": weights, "guard": guard} if learned else {}
            episode = Episode(seen, policy, params, whole=policy in WHOLE)
            found.append((Result(window, policy, digest if learned else ""), episode))
    return found


def measured(tasks: Sequence[tuple[Result, Episode]], keep: Path | None, workers: int) -> list[Result]:
    """Run what is not kept yet, and keep it."""
    lines = keep.read_bytes().splitlines() if keep is not None and keep.exists() else []
    known = {_filed(r): r for r in (msgspec.json.decode(line, type=Result) for line in lines)}
    missing = [(of, episode) for of, episode in tasks if _filed(of) not in known]
    progress = bars("runs")
    with progress, get_context("spawn").Pool(workers, begin_worker) as pool:
        bar = progress.add_task("windows", total=len(missing))
        goals = pool.imap(run_episode, [episode for _of, episode in missing])
        for (of, _episode), reached in zip(missing, goals, strict=True):
            result = known[_filed(of)] = replace(of, goals=reached)
            progress.advance(bar)
            if keep is not None:
                with keep.open("ab") as file:
                    file.write(msgspec.json.encode(result) + b"\n")
    return [known[_filed(of)] for of, _episode in tasks]


def _filed(result: Result) -> bytes:
    return msgspec.json.encode(replace(result, window=replace(result.window, trace=""), goals=None))


def differences(results: Sequence[Result]) -> list[Difference]:
    """MLF-RL against each other policy in each metric, paired by window."""
    by_policy: dict[str, dict[Window, Goals]] = {}
    for result in results:
        assert result.goals is not None
        by_policy.setdefault(result.policy, {})[result.window] = result.goals
    ours, found = by_policy.get("mlf_rl", {}), []
    for policy, theirs in by_policy.items():
        for metric, of in METRICS.items() if policy != "mlf_rl" else ():
            pairs = [(of(ours[w]), of(theirs[w])) for w in ours if w in theirs]
            share = mean_interval([a / b - 1 for a, b in pairs if b])
            if share is not None:
                found.append(Difference(policy, metric, share))
    return found


def main(arguments: list[str]) -> None:
    """Measure, and print tables or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mlf_rl", description="MLF-RL on windows it never saw.")
    parser.add_argument("--trace", default="", help="the Philly table; without it only generated windows are run")
    parser.add_argument("--other-trace", default="", help="Muri's table")
    parser.add_argument(
        "--held-out", choices=["first", "second"], default="first", help="which windows: the first ones are well known"
    )
    parser.add_argument("--large", action="store_true", help="ten times the jobs and servers of the training")
    parser.add_argument("--weights", default="", help="a file of `hocket learn mlf_rl`; the shipped ones by default")
    parser.add_argument("--no-guard", action="store_true", help="ask the network also far from its training")
    parser.add_argument("--policies", nargs="*", default=[*OF_TASKS, *WHOLE], help="those to run")
    parser.add_argument("--keep", type=Path, help="a file of results, which are not run again")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    parser.add_argument("--quick", action="store_true", help="two windows: seconds instead of minutes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    if chosen.large:
        windows = large_windows(chosen.trace)
    elif chosen.held_out == "second":
        windows = second_held_out_windows(chosen.trace)
    else:
        windows = held_out_windows(chosen.trace, chosen.other_trace)
    if chosen.quick:
        windows = [replace(w, jobs=20) for w in windows[:2]]
    results = measured(
        tasks_of(windows, chosen.policies, chosen.weights, not chosen.no_guard), chosen.keep, chosen.workers
    )
    names = {str(Path(a)): Path(a).name for a in (chosen.trace, chosen.other_trace, chosen.weights, chosen.keep) if a}
    command = " ".join(["python -m benchmarks.mlf_rl", *(names.get(a, a) for a in arguments)])
    shown = [replace(r, window=replace(r.window, trace=Path(r.window.trace).name)) for r in results]
    found = Measured(command, machine(), shown, differences(results))
    print(msgspec.json.encode(found).decode() if chosen.json else text(found))


def text(found: Measured) -> str:
    """The tables, with the command that made them."""
    here = found.machine
    lines = [
        f"`{found.command}`; simulated; {here.cores} cores, load {here.load:g}, Python {here.python}, {here.date}",
        "",
        "| window | load | policy | " + " | ".join(METRICS) + " |",
        "| --- | --: | --- |" + " --: |" * len(METRICS),
    ]
    for r in found.results:
        assert r.goals is not None
        values = " | ".join(f"{of(r.goals):.3f}" for of in METRICS.values())
        lines.append(f"| {r.window.name} | {r.window.load:g} | {r.policy} | {values} |")
    lines += ["", "| MLF-RL against | " + " | ".join(METRICS) + " |", "| --- |" + " --: |" * len(METRICS)]
    for policy in dict.fromkeys(d.policy for d in found.differences):
        cells = {d.metric: d.share for d in found.differences if d.policy == policy}
        lines.append(f"| {policy} | " + " | ".join(shown(cells.get(m)) for m in METRICS) + " |")
    return "\n".join(lines)


def shown(share: MeanInterval | None) -> str:
    """A share and its interval, as percentages."""
    if share is None:
        return "–"
    return f"{share.mean:+.1%}" + (f" ± {share.half_width:.1%}" if share.half_width is not None else "")


if __name__ == "__main__":
    main(sys.argv[1:])
