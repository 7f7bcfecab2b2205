"""`python -m benchmarks [--quick] [--json] [--only PART …]`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import msgspec
from msgspec import Struct

from benchmarks.controller import Decisions, Journalling, Summing, decisions, journalling, summing
from benchmarks.machine import Compiled, Machine, machine, table
from benchmarks.simulator import Growth, Speed, StartUp, growth, speeds, start_up, trace

PARTS = ("simulator", "decisions", "summary")  # start-up is always measured


class Measured(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    trace: str
    start_up: StartUp
    speeds: list[Speed] = []
    growth: list[Growth] = []
    decisions: list[Decisions] = []
    summing: Summing | None = None
    journalling: Journalling | None = None


def main(arguments: list[str]) -> None:
    """Measure, and print one page or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measured, side by side in one run.")
    parser.add_argument("--quick", action="store_true", help="small inputs: seconds instead of minutes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    chosen = parser.parse_args(arguments)
    found = measured(chosen.quick, chosen.only, " ".join(["python -m benchmarks", *arguments]))
    print(msgspec.json.encode(found).decode() if chosen.json else text(found))


def measured(quick: bool, parts: tuple[str, ...], command: str) -> Measured:
    """Run the parts, one after another: nothing else of ours runs meanwhile."""
    here, chosen = machine(), trace(quick)
    found: dict[str, Any] = {}
    python = Compiled()
    try:
        say("start-up")
        beginning = start_up(quick, python)
        if "simulator" in parts:
            say("simulator")
            found["speeds"] = speeds(chosen, quick, python)
            say("growth")
            found["growth"] = growth(chosen, found["speeds"], quick, python)
    finally:
        python.close()
    if "decisions" in parts:
        say("decisions")
        found["decisions"] = decisions(quick)
    if "summary" in parts:
        say("summary and journal")
        found["summing"], found["journalling"] = summing(quick), journalling(quick)
    return Measured(command, here, chosen.shown, beginning, **found)


def text(m: Measured) -> str:
    """The measurements as tables."""
    here = m.machine
    lines = [
        f"{m.command}",
        f"{here.date}, {here.cores} cores, {here.memory_gib:g} GiB, Python {here.python}; "
        f"load average {here.load:g} when it began",
        f"trace: {m.trace}",
        "peers' figures are those of the project's design notes, section 8; they are not run again here",
        "",
        "START-UP (CPU-seconds of the whole process, bytecode compiled beforehand)",
    ]
    s = m.start_up
    lines += table(
        ("command", "CPU-s", "× bare python", "goal"),
        [
            ("python -c pass", f"{s.python_s:.3f}", "1.0", ""),
            ("hocket --help", f"{s.help_s:.3f}", f"{s.help_ratio:.1f}", f"{s.goal_help_s:g}"),
            ("hocket simulate, one job", f"{s.one_job_s:.3f}", f"{s.one_job_s / s.python_s:.1f}", ""),
        ],
    )
    if m.speeds:
        lines += ["", "SIMULATOR (jobs per CPU-second of the whole process)"]
        lines += table(
            ("policy", "cluster", "jobs", "finished", "CPU-s", "jobs/CPU-s", "best peer", "× peer", "goal", "MiB"),
            [
                (
                    v.policy, v.cluster, f"{v.jobs:,}", f"{v.finished:,}", f"{v.cpu_s:.2f}", f"{v.jobs_per_cpu_s:,.0f}",
                    f"{v.best_peer} {v.best_peer_jobs_per_cpu_s:g}", f"{v.ratio:.1f}", f"{v.goal_jobs_per_cpu_s:,}",
                    f"{v.peak_mib:.0f}",
                )
                for v in m.speeds
            ],
        )  # fmt: skip
        lines += [f"  {v.command}" for v in m.speeds]
    if m.growth:
        lines += ["", "GROWTH (CPU-µs per job; net: less the CPU time of the same trace with one job)"]
        lines += table(
            ("what", "jobs", "µs/job", "net µs/job", "net, × the fewer"),
            [
                (
                    g.what,
                    f"{g.jobs[0]:,} → {g.jobs[1]:,}",
                    f"{g.cpu_us_per_job[0]:.0f} → {g.cpu_us_per_job[1]:.0f}",
                    f"{g.net_us_per_job[0]:.0f} → {g.net_us_per_job[1]:.0f}",
                    f"{g.ratio:.2f}",
                )
                for g in m.growth
            ],
        )
    if m.decisions:
        lines += [
            "",
            "DECISIONS (ms of wall time; a full 160x8 cluster; each cycle one job ends and one comes)",
            *_decisions(m.decisions),
        ]
    if m.summing is not None and m.journalling is not None:
        a, j = m.summing, m.journalling
        lines += ["", f"SUMMARY (CPU-seconds, {a.jobs:,} generated jobs, las, 160x8)"]
        lines += table(
            ("simulate", "account", "summarise", "account and summary of all"),
            [(f"{a.simulate_s:.2f}", f"{a.account_s:.2f}", f"{a.summarise_s:.2f}", f"{a.share:.0%}")],
        )
        lines += ["", "JOURNAL ON DISK (submissions per second through the controller, each synced; no service)"]
        lines += table(
            ("submissions", "per second", "Kueue's admissions", "×"),
            [(f"{j.submissions:,}", f"{j.per_s:,.0f}", "43", f"{j.ratio:.0f}")],
        )
    return "\n".join(lines)


def _decisions(found: list[Decisions]) -> list[str]:
    return table(
        ("policy", "waiting", "asked", "median", "p99", "whole cycle", "× MLFS (40 ms)"),
        [
            (
                d.policy,
                f"{d.waiting:,}",
                f"{d.asked:,}",
                f"{d.decision_ms:.3f}",
                f"{d.decision_p99_ms:.3f}",
                f"{d.cycle_ms:.3f}",
                "" if d.ratio is None else f"{d.ratio:,.0f}",
            )
            for d in found
        ],
    )


def say(part: str) -> None:
    """What is being measured, where it does not get into the results."""
    print(f"benchmarks: {part} …", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
