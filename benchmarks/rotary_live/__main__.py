"""A shortened Table 3.1 of Rotary on real queries, live and simulated: `python -m benchmarks.rotary_live [POLICY …]`.

For each policy and seed a real controller is started on a few cores, and queries of TPC-H are submitted to it as they
arrive: they are drawn as those of `workloads/rotary.py`, with gaps and deadlines shortened by one factor; those that
are refused with a goal on these data are left out. First each query that will come is run alone, once on one core and
once on all that it may get: that is the past of the policies, and how queries behave in the simulator, where the same
arrivals run then. Printed are attained queries by class, pauses by where the state was kept and the time that they
cost, and how many queries end alike, live and simulated. A policy is `rotary` or `rotary:suspend=disk`. `--parallel N`
has N of these runs at a time, each on cores of its own. `--keep DIR` keeps the data and the journals, and uses data
that `python -m benchmarks.query.cost --folder DIR` has made; `--json FILE` writes all of it there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from benchmarks.live import HOCKET
from benchmarks.machine import Machine, machine, table
from benchmarks.query.cost import generated, tpch_queries
from benchmarks.rotary_live.drawing import Drawn, accepted, drawn, faster
from benchmarks.rotary_live.live_run import Submitter, run_alone, run_live
from benchmarks.rotary_live.lone_runs import LoneRun, lone_runs, process_sizes, start_s
from benchmarks.rotary_live.outcome import Ran
from benchmarks.rotary_live.simulation import simulated
from hocket.cli.simulation.scenario import bound_policy
from hocket.model.past_job import PastJob
from hocket.reports.mean_interval import mean_interval
from hocket.workloads.past_jobs_file import read_past_jobs
from hocket.workloads.rotary import CLASSES

# Running epochs are shortened with the gaps.
POLICIES = (
    "rotary:epoch_s=1", "rotary_aqp:epoch_s=1", "edf:restart_s=1", "laf:epoch_s=1", "relaqs:epoch_s=1",
    "round_robin:quantum_s=1",
)  # fmt: skip


class Compared(Struct, frozen=True):
    """One policy with one seed."""

    policy: str
    seed: int
    live: Ran
    simulated: Ran

    @property
    def alike(self) -> int:
        """Queries that attain both live and simulated, or neither."""
        return sum(
            (v == "attained") == (self.simulated.verdicts[j] == "attained") for j, v in self.live.verdicts.items()
        )


class Measured(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    scale: float
    cores: int  # of each controller
    parallel: int
    gap_s: float
    start_s: float
    work_s: float  # of a query that comes, in the mean: all its batches on one core
    process_mib: tuple[float, float, float]  # a process without its state: after its first batch, before its last, most
    refused: list[str]  # queries that are not accepted with a goal
    compared: list[Compared]


class Cores:
    """Groups of cores, each for one controller at a time."""

    def __init__(self, groups: int, cores: int) -> None:
        have = sorted(os.sched_getaffinity(0))
        if groups * cores > len(have):
            raise SystemExit(f"benchmarks: {groups} x {cores} cores are asked for, and this machine has {len(have)}")
        self._free: SimpleQueue[list[int]] = SimpleQueue()
        for n in range(groups):
            self._free.put(have[n * cores : (n + 1) * cores])

    def run(self, call: Any, *arguments: Any) -> Any:
        """The call with a group of cores as its first argument; it waits for one."""
        cpus = self._free.get()
        try:
            return call(cpus, *arguments)
        finally:
            self._free.put(cpus)


def history(homes: Sequence[Path], file: Path) -> list[PastJob]:
    """What these journals have learned, into a file; the same for simulated jobs, without traits."""
    commands = [[*HOCKET, "journal", "history", "--home", str(home)] for home in homes]
    file.write_bytes(b"".join(subprocess.run(c, check=True, capture_output=True).stdout for c in commands))
    return [replace(job, traits={}) for job in read_past_jobs(file)]


def measured(options: argparse.Namespace, folder: Path) -> Measured:
    """All policies."""
    here, texts = machine(), tpch_queries()
    native, data = folder / f"tpch-{options.scale:g}.duckdb", folder / f"tpch-{options.scale:g}-prepared.duckdb"
    generated(options.scale, native, data)
    able = accepted(data, texts)
    by_seed = {seed: drawn(seed, options.queries, able) for seed in options.seeds}
    cores = Cores(options.parallel, options.cores)
    homes = Path(tempfile.mkdtemp(prefix="homes-", dir=folder))  # Journals of an earlier run would be gone on with.

    def submitting(controller: Any) -> Submitter:
        return Submitter(controller, data, texts, options.mem)

    with ThreadPoolExecutor(options.parallel) as pool:
        coming = sorted({q.query for queries in by_seed.values() for q in queries}, key=lambda q: int(q[1:]))
        shares = [share for n in range(options.parallel) if (share := coming[n :: options.parallel])]
        sizes = sorted({1, options.cores})
        calls = [
            pool.submit(cores.run, run_alone, homes / f"alone-{size}-{n}", share, submitting, size)
            for size in sizes
            for n, share in enumerate(shares)
        ]
        alone = lone_runs([call.result() for call in calls])
        file = folder / "past.jsonl"
        past = history([homes / f"alone-1-{n}" for n in range(len(shares))], file)
        starts_s = start_s(alone.values())
        everything = [q for queries in by_seed.values() for q in queries]
        work_s = sum(alone[q.query, 1].run_s for q in everything) / len(everything)
        # A process that starts keeps a core busy, too.
        gap_s = options.gap or (work_s + starts_s) / (options.cores * options.load)
        sooner = {seed: faster(queries, gap_s) for seed, queries in by_seed.items()}
        order = [(seed, n, named) for seed in options.seeds for n, named in enumerate(options.policies)]
        runs = []
        for seed, n, named in order:
            bound = bound_policy(named)
            home = homes / f"{seed}-{n}-{bound.policy.name}"
            call = pool.submit(cores.run, run_live, home, bound, sooner[seed], file, submitting)
            runs.append((seed, named, call, partial(_simulated, named, sooner[seed], alone, starts_s, past, options)))
        compared = []
        for seed, named, call, simulate in runs:
            found, arrived_s = call.result()
            compared.append(Compared(named, seed, found, simulate(arrived_s)))
    return Measured(
        f"python -m benchmarks.rotary_live {options.said}", here, options.scale, options.cores, options.parallel,
        round(gap_s, 2), round(starts_s, 2), round(work_s, 2),
        process_sizes(list(alone.values())),
        sorted({f"q{n}" for n in texts} - able), compared,
    )  # fmt: skip


def _simulated(
    named: str, queries: Sequence[Drawn], alone: dict[tuple[str, int], LoneRun], starts_s: float,
    past: Sequence[PastJob], options: argparse.Namespace, arrived_s: Sequence[float],
) -> Ran:  # fmt: skip
    mem_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 20)
    return simulated(bound_policy(named), queries, arrived_s, alone, starts_s, past, options.cores, mem_mib)


# -- as a page ----------------------------------------------------------------------------------------------------


def text(found: Measured) -> str:
    """One page."""
    here = found.machine
    lines = [
        f"{found.command}; {here.cores} cores, load {here.load} when it began, {here.date}",
        f"TPC-H at scale factor {found.scale:g}, {found.cores} cores for each controller, {found.parallel} at a time; "
        f"a query every {found.gap_s:g} s, which takes {found.work_s:g} s on one core in the mean; a process starts in "
        f"{found.start_s:g} s",
        "a process without its state has {:g} MiB after its first batch, {:g} before its last one, at most {:g}".format(
            *found.process_mib
        ),
        f"left out, for a goal is refused: {', '.join(found.refused) or 'none'}",
        "",
    ]
    policies = list(dict.fromkeys(each.policy for each in found.compared))
    rows = []
    for policy in policies:
        of = [each for each in found.compared if each.policy == policy]
        for how, runs in (("live", [e.live for e in of]), ("simulated", [e.simulated for e in of])):
            rows.append((policy, how, *_row(runs)))
    titles = ("policy", "", "attained", *CLASSES, "pauses", "made way", "restarts", "lost by pauses, s", "mean s")
    lines += [*table(titles, rows), ""]
    rows = []
    for policy in policies:
        of = [each for each in found.compared if each.policy == policy]
        parts = [each.live.lost for each in of if each.live.lost is not None]
        alike, jobs = sum(e.alike for e in of), sum(len(e.live.verdicts) for e in of)
        later = median(
            took_s - e.simulated.times_s[job]
            for e in of
            for job, took_s in e.live.times_s.items()
            if job in e.simulated.times_s
        )
        rows.append(
            (
                policy, f"{alike} of {jobs}", f"{later:+.1f}", f"{sum(p.leaving_s for p in parts):.1f}",
                f"{sum(p.going_on_s for p in parts):.1f}", f"{sum(p.redone_s for p in parts):.1f}",
                str(sum(e.live.failed for e in of)),
            )
        )  # fmt: skip
    titles = (
        "live", "end as simulated", "later by, median s", "leaving, s", "going on, s", "batches redone, s", "broke",
    )  # fmt: skip
    lines += table(titles, rows)
    if len({each.seed for each in found.compared}) > 1 and len(policies) > 1:
        lines += ["", *_differences(found, policies)]
    return "\n".join(lines)


def _row(runs: Sequence[Ran]) -> tuple[str, ...]:
    pauses: dict[str, int] = {}
    for ran in runs:
        for where, count in ran.pauses.items():
            pauses[where] = pauses.get(where, 0) + count
    kept = ", ".join(f"{count} {where}" for where, count in sorted(pauses.items())) or "none"
    attained, jobs = sum(len(ran.attained) for ran in runs), sum(len(ran.verdicts) for ran in runs)
    classes = [
        f"{sum(ran.of_class(name)[0] for ran in runs)} of {sum(ran.of_class(name)[1] for ran in runs)}"
        for name in CLASSES
    ]
    return (
        f"{attained} of {jobs}", *classes, kept, str(sum(ran.made_way for ran in runs)),
        str(sum(ran.restarts for ran in runs)), f"{sum(ran.lost_s for ran in runs):.1f}",
        f"{sum(ran.mean_s for ran in runs) / len(runs):.1f}",
    )  # fmt: skip


def _differences(found: Measured, policies: Sequence[str]) -> list[str]:
    """What the first policy attains more than each other, and loses less, by seed; live."""
    live = {(each.policy, each.seed): each.live for each in found.compared}
    seeds = sorted({each.seed for each in found.compared})
    rows = []
    for other in policies[1:]:
        both = [(live[policies[0], seed], live[other, seed]) for seed in seeds]
        gains = mean_interval([float(len(a.attained) - len(b.attained)) for a, b in both])
        saved = mean_interval([b.lost_s - a.lost_s for a, b in both])
        assert gains is not None
        assert saved is not None
        rows.append((other, *(f"{m.mean:.1f} ± {m.half_width or 0.0:.1f}" for m in (gains, saved))))
    return table((f"live, by seed: {policies[0]} against", "attains more", "loses less, s"), rows)


def main(arguments: list[str] | None = None) -> int:
    """Prepare, run, and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rotary_live",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("policies", nargs="*", default=list(POLICIES), metavar="POLICY")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--queries", type=int, default=12, help="of Table 3.1, from 1 up (12)")
    parser.add_argument("--cores", type=int, default=2, help="of each controller (2)")
    parser.add_argument("--parallel", type=int, default=1, help="controllers at a time (1)")
    parser.add_argument("--load", type=float, default=1.0, help="work that comes over what the cores can do (1)")
    parser.add_argument("--gap", type=float, default=0.0, help="mean seconds between arrivals, instead of a load")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--mem", default="", metavar="SIZE", help="of each thread of a query; not limited by default")
    parser.add_argument("--keep", type=Path, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    options.said = " ".join(str(w) for w in (arguments if arguments is not None else sys.argv[1:]))
    if min(options.queries, options.cores, options.parallel) < 1 or options.gap < 0:
        parser.error("--queries, --cores and --parallel must be from 1 up, --gap from 0")
    if min(options.scale, options.load) <= 0:
        parser.error("--scale and --load must be above 0")
    for named in options.policies:
        try:
            bound_policy(named)
        except ValueError as error:
            parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="hocket-rotary-") as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        found = measured(options, folder)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode(found))
    print(text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
