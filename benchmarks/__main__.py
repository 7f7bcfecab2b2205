"""`python -m benchmarks [--quick] [--json] [--only PART …]`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import msgspec
from msgspec import Struct

from benchmarks import page
from benchmarks.afterwards import Journalling, Summing, journalling, summing
from benchmarks.decisions import Decisions, decisions
from benchmarks.machine import Compiled, Machine, machine
from benchmarks.simulator import Growth, Speed, growth, speeds
from benchmarks.start_up import StartUp, start_up
from benchmarks.traces import trace

PARTS = ("simulator", "decisions", "afterwards")  # start-up is always measured


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
    print(msgspec.json.encode(found).decode() if chosen.json else page.text(found))


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
    if "afterwards" in parts:
        say("summary and journal")
        found["summing"], found["journalling"] = summing(quick), journalling(quick)
    return Measured(command, here, chosen.shown, beginning, **found)


def say(part: str) -> None:
    """What is being measured, where it does not get into the results."""
    print(f"benchmarks: {part} …", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
