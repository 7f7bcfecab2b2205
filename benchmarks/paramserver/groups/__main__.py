"""`python -m benchmarks.paramserver.groups [--repetitions 3] [--length 1] [--mbit N] [--out DIR] [--policies …] [--json]`

Eight real jobs on four hosts of this machine, through a real controller and its agents, under each policy. Needs root.
Journals and the picture are written to DIR; `python -m benchmarks.paramserver.groups.replay DIR` plays them again.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.machine import machine
from benchmarks.paramserver.groups.comparison import as_json, compare, draw, text
from benchmarks.paramserver.groups.policy_run import POLICIES, RunFailed
from hocket.testing.hosts import network

_QUICK = 0.3  # of the jobs' epochs


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paramserver.groups", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3, metavar="N")
    parser.add_argument("--length", type=float, default=1.0, help="share of the jobs' epochs; default: 1")
    parser.add_argument("--mbit", type=float, help="of each host's link; default: as the jobs need it to balance")
    parser.add_argument("--quick", action="store_true", help=f"one repetition of {_QUICK:g} of the epochs")
    parser.add_argument("--policies", nargs="+", choices=list(POLICIES), default=list(POLICIES))
    parser.add_argument("--data", type=Path, default=Path("/tmp/hocket-groups-data"), help="where jobs' input is kept")
    parser.add_argument("--out", type=Path, default=Path("groups-out"), help="for journals and pictures")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    if chosen.repetitions < 1 or not 0 < chosen.length <= 100:
        parser.error(f"--repetitions must be 1 or more and --length above 0, not {chosen.repetitions}, {chosen.length}")
    if chosen.mbit is not None and not 1 <= chosen.mbit <= 100_000:
        parser.error(f"--mbit must be from 1 to 100,000, not {chosen.mbit:g}")
    if why := network.why_no_namespaces():
        parser.error(f"hosts with links of their own are needed: {why}")
    repetitions, share = (1, _QUICK) if chosen.quick else (chosen.repetitions, chosen.length)
    here = machine()
    try:
        found = compare(chosen.policies, repetitions, share, chosen.mbit, chosen.data, chosen.out)
    except RunFailed as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    pictures = draw(found, chosen.out)
    if chosen.json:
        print(json.dumps(as_json(found)))
        return 0
    print(f"{here.date}, {here.cores} cores, {here.memory_gib:g} GiB, Python {here.python}; load average {here.load:g}")
    print("\n".join([*text(found), f"  pictures: {', '.join(map(str, pictures))}"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
