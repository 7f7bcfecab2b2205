"""`python -m benchmarks.paramserver [MEASUREMENT …] [--quick] [--json]`: all of them, or those that are named."""

from __future__ import annotations

import argparse
import json
from importlib import import_module

from benchmarks.machine import machine

MEASUREMENTS = ("pull_push", "kernels", "link", "regroup", "spill")


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print a page or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paramserver", description=__doc__)
    parser.add_argument("measurements", nargs="*", metavar="MEASUREMENT", help=", ".join(MEASUREMENTS))
    parser.add_argument("--quick", action="store_true", help="small inputs: seconds instead of a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    for name in chosen.measurements:
        if name not in MEASUREMENTS:
            parser.error(f"there is no measurement '{name}'; there are: {', '.join(MEASUREMENTS)}")
    here = machine()
    told = f"{here.date}, {here.cores} cores, {here.memory_gib:g} GiB, Python {here.python}; load average {here.load:g}"
    if not chosen.json:
        print(told)
    found = {}
    for name in chosen.measurements or MEASUREMENTS:
        module = import_module(f"benchmarks.paramserver.{name}")
        found[name] = module.measured(chosen.quick)
        if not chosen.json:
            print("\n".join(["", *module.text(found[name])]), flush=True)
    if chosen.json:
        print(json.dumps({"machine": told, **found}))


if __name__ == "__main__":
    main()
