"""Eight jobs on four hosts under three policies: mean JCT, makespan, use over time, and what would be best."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from benchmarks.machine import table
from benchmarks.paramserver.groups.balance import Balance, balance
from benchmarks.paramserver.groups.job_mix import HOSTS, JOBS, HostShape, RunFailed, compile_kernels, make_data
from benchmarks.paramserver.groups.policy_run import POLICIES, PolicyRun, run_policy
from benchmarks.paramserver.groups.recorded_groups import recorded_groups
from benchmarks.paramserver.groups.round_prediction import RoundErrors, round_errors
from hocket.cli.terminal.output_files import whole
from hocket.control.journal.open import open_to_read
from hocket.control.ports import Cycle
from hocket.model.event import PhasesObserved
from hocket.reports.mean_interval import MeanInterval, mean_interval

_LONGER = 1.3  # times the longest run so far: how long the next may take


class Wanted(Struct, frozen=True):
    """What to run."""

    policies: list[str]
    repetitions: int
    shape: HostShape
    share: float | None = None  # of the jobs' epochs
    seconds: float = 0.0  # that `isolated` takes, if no share is given
    mbit: float | None = None  # of links; None: as the jobs need it to balance
    within_s: float = float("inf")  # No run begins that would not end in time.


class Compared(Struct, frozen=True):
    """All runs, by repetition and policy."""

    share: float  # of the jobs' epochs
    runs: list[PolicyRun]
    best_s: float  # the least makespan that phases as measured allow
    busier: str  # the resource that sets it
    errors: RoundErrors


def run_all(wanted: Wanted, data: Path, out: Path, first_seed: int = 1) -> list[str]:
    """Run each policy so often; what failed. The orders of submission are the same for all policies.

    Each result is written when it is there, and a run that has one already is not made again.
    """
    began_s = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    tell = _teller()
    tell("generating the jobs' data …")
    make_data(data)
    tell("compiling …")
    compile_kernels(data)
    found = _balance(wanted, data, out, lambda said: tell(f"measuring what the jobs need: {said}"))
    share = found.share(wanted.seconds) if wanted.share is None else wanted.share
    tell("")
    print(f"links of {found.mbit:g} Mbit/s, {share:.3g} of the jobs' epochs", file=sys.stderr)
    failed: list[str] = []
    longest_s = found.seconds(share)
    for repetition in range(wanted.repetitions):
        for policy in wanted.policies:
            seed = first_seed + repetition
            path = out / f"{policy}-{seed}.json"
            before = read_run(path)
            if before is not None and (before.share, before.mbit, before.shape) == (share, found.mbit, wanted.shape):
                continue
            path.unlink(missing_ok=True)
            if time.monotonic() - began_s + _LONGER * longest_s > wanted.within_s:
                return [*failed, f"stopped before {path.stem}: it might not end in time; the same command goes on"]
            run_s = time.monotonic()
            try:
                run = run_policy(
                    policy, JOBS, share, found.mbit, wanted.shape, data, out, seed,
                    lambda said, name=path.stem: tell(f"{name}: {said}"),
                )  # fmt: skip
            except RunFailed as error:
                failed.append(str(error))
                continue
            longest_s = max(longest_s, time.monotonic() - run_s)
            with whole(path) as file:
                file.write(msgspec.json.encode(run).decode())
            tell("")
            said = f"{path.stem}: mean JCT {run.mean_jct_s:.1f} s, makespan {run.makespan_s:.1f} s"
            print(said, file=sys.stderr, flush=True)
    return failed


def _balance(wanted: Wanted, data: Path, out: Path, tell: Callable[[str], None]) -> Balance:
    if wanted.mbit is not None and wanted.share is not None:
        return Balance(wanted.shape, wanted.mbit, 0.0, 0.0)
    found = balance(wanted.shape, data, out, tell)
    return found if wanted.mbit is None else Balance(found.shape, wanted.mbit, found.start_s, found.epochs_s)


def read_run(path: Path) -> PolicyRun | None:
    """A result; None if there is none."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=PolicyRun)
    except (OSError, msgspec.MsgspecError):
        return None
    return found if path.with_suffix(".journal").exists() else None


def compared(out: Path) -> Compared | None:
    """What is in a folder of results, of the length that most of them have; None if nothing is."""
    each = [run for path in sorted(out.glob("*.json")) if (run := read_run(path)) is not None]
    if not each:
        return None
    shapes = [(run.share, run.mbit, run.shape) for run in each]
    runs = [run for run, shape in zip(each, shapes, strict=True) if shape == max(shapes, key=shapes.count)]
    recorded = [list(open_to_read(out / run.journal)) for run in runs]
    share = runs[0].share
    best_s, busier = least_makespan_s([cycle for cycles in recorded for cycle in cycles], share)
    errors = round_errors([group for cycles in recorded for group in recorded_groups(cycles)])
    return Compared(share, runs, best_s, busier, errors)


def least_makespan_s(cycles: Sequence[Cycle], share: float) -> tuple[float, str]:
    """What the busier resource has to do for all jobs, start-up apart, and which one it is."""
    cpu_s, net_s = needed_s(cycles, share)
    return max(cpu_s, net_s), "CPU" if cpu_s >= net_s else "network"


def needed_s(cycles: Sequence[Cycle], share: float) -> tuple[float, float]:
    """For how long all jobs need the CPUs of all hosts, and their links.

    COMP of a job takes the same machine time on any number of hosts, COMM as little as on the fewest that it was seen
    on.
    """
    seen: dict[str, list[PhasesObserved]] = {}
    for cycle in cycles:
        for event in cycle.events:
            if isinstance(event, PhasesObserved):
                seen.setdefault(event.job, []).append(event)
    cpu_s = net_s = 0.0
    for job in JOBS:
        all_of = seen.get(job.name, [])
        fewest = [s for s in all_of if s.machines == min(s.machines for s in all_of)]
        iterations = job.iterations(share)
        cpu_s += iterations * _mean([s.comp_s * s.machines for s in all_of])
        net_s += iterations * _mean([s.comm_s * s.link * s.machines for s in fewest])
    return cpu_s / HOSTS, net_s / HOSTS


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def text(found: Compared) -> list[str]:
    """As tables."""
    by_policy = {name: [run for run in found.runs if run.policy == name] for name in POLICIES}
    rows = []
    for name, runs in by_policy.items():
        if runs:
            uses = [run.mean_use() for run in runs]
            rows.append(
                (
                    name, _shown([run.mean_jct_s for run in runs]), _shown([run.makespan_s for run in runs]),
                    f"{_mean([cpu for cpu, _ in uses]):.0%}", f"{_mean([net for _, net in uses]):.0%}",
                    f"{_mean([sum(job.starts for job in run.jobs) for run in runs]):.1f}", str(len(runs)),
                )
            )  # fmt: skip
    titles = ("policy", "mean JCT s", "makespan s", "CPU", "network", "starts of 8 jobs", "runs")
    lines = [
        f"EIGHT JOBS on {HOSTS} hosts of {found.runs[0].shape.cores:g} cores with links of {found.runs[0].mbit:g} "
        f"Mbit/s, {found.share:.3g} of their epochs; ± is the 95 % interval of the mean",
        *table(titles, rows),
        f"  the best possible makespan, start-up apart: {found.best_s:.0f} s, by the {found.busier}",
    ]
    for ahead in [n for n in by_policy if n != "harmony"] if by_policy["harmony"] else ():
        if by_policy[ahead]:
            lines.append(f"  harmony against {ahead}: {_compared(by_policy['harmony'], by_policy[ahead])}")
    return [*lines, *found.errors.lines()]


def _compared(ours: Sequence[PolicyRun], theirs: Sequence[PolicyRun]) -> str:
    """Runs of one repetition follow each other, so what slows a machine down for an hour slows both."""
    said = []
    same = {run.repetition: run for run in theirs}
    for what, of in (("mean JCT", "mean_jct_s"), ("makespan", "makespan_s")):
        mine, other = (mean_interval([getattr(run, of) for run in runs]) for runs in (ours, theirs))
        ratios = [getattr(same[run.repetition], of) / getattr(run, of) for run in ours if run.repetition in same]
        assert mine is not None
        assert other is not None
        times = f"{other.mean / mine.mean:.2f} times faster{_apart(mine, other)}"
        if len(ratios) > 1:
            times += f", by repetition {_shown(ratios, '.2f')}"
        said.append(f"{what} {times}")
    return "; ".join(said)


def _apart(mine: MeanInterval, other: MeanInterval) -> str:
    if mine.half_width is None or other.half_width is None:
        return ""
    is_apart = abs(mine.mean - other.mean) > mine.half_width + other.half_width
    return " (intervals apart)" if is_apart else " (intervals overlap)"


def _shown(values: Sequence[float], form: str = ".0f") -> str:
    found = mean_interval(values)
    assert found is not None
    return f"{found.mean:{form}}" if found.half_width is None else f"{found.mean:{form}} ± {found.half_width:{form}}"


def draw(found: Compared, folder: Path) -> list[Path]:
    """CPU and network over time, one row for each policy: its first run."""
    from hocket.reports.figure_style import colour, drawing, save

    firsts = {run.policy: run for run in reversed(found.runs)}
    shown = [firsts[name] for name in POLICIES if name in firsts]
    longest_s = max(run.makespan_s for run in shown)
    with drawing() as figure:
        sheet = figure((9.0, 2.1 * len(shown)))
        for axes, run in zip(sheet.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0], shown, strict=True):
            at_s = [sample.at_s for sample in run.use]
            for number, (name, of) in enumerate((("CPU", "cpu"), ("network", "net"))):
                axes.plot(at_s, _smooth([getattr(s, of) for s in run.use]), color=colour(number), label=name)
            for job in run.jobs:
                axes.axvline(job.ended_s, color="0.8", linewidth=0.8, zorder=0)
            axes.set_ylim(0, 1.05)
            axes.set_xlim(0, longest_s)
            axes.set_title(f"{run.policy}: mean JCT {run.mean_jct_s:.0f} s, makespan {run.makespan_s:.0f} s")
        axes.set_xlabel("s since all jobs were submitted; grey lines: a job has ended")
        sheet.legend(*axes.get_legend_handles_labels(), loc="upper right")
        return save(sheet, folder, "groups-use")


def _smooth(values: Sequence[float], width: int = 5) -> list[float]:
    half = width // 2
    return [_mean(values[max(0, i - half) : i + half + 1]) for i in range(len(values))]


def _teller() -> Callable[[str], None]:
    """One line on the terminal that is written anew; nothing where there is none."""

    def tell(line: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{line[:150]}")
            sys.stderr.flush()

    return tell


def as_json(found: Compared) -> dict[str, Any]:
    """What is printed with `--json`, without samples."""
    return {
        "share": found.share, "mbit": found.runs[0].mbit, "best_s": found.best_s, "busier": found.busier,
        "errors": found.errors.as_json(),
        "runs": [
            {
                "policy": run.policy, "mean_jct_s": run.mean_jct_s, "makespan_s": run.makespan_s,
                "use": run.mean_use(), "journal": run.journal,
                "ended_s": {job.name: job.ended_s for job in run.jobs},
            }
            for run in found.runs
        ],
    }  # fmt: skip
