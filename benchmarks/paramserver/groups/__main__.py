"""`python -m benchmarks.paramserver.groups [--repetitions 3] [--seconds 120] [--cores 3 --workers 3] [--out DIR]`

Eight real jobs on four hosts of this machine, through a real controller and its agents, under each policy. Needs root.
Results, journals and the picture are written to DIR; the same command goes on where it was killed, and `--summary` says
what is there. `python -m benchmarks.paramserver.groups.replay DIR` plays them again.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from benchmarks.machine import machine
from benchmarks.paramserver.groups.comparison import Wanted, as_json, compared, draw, run_all, text
from benchmarks.paramserver.groups.job_mix import HostShape, RunFailed
from benchmarks.paramserver.groups.policy_run import POLICIES
from hocket.testing.hosts import network

_QUICK = 0.3  # of the jobs' epochs


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paramserver.groups", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3, metavar="N")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--length", type=float, help="share of the jobs' epochs; default: 1")
    length.add_argument("--seconds", type=float, help="the jobs' length, by what a run of `isolated` takes")
    length.add_argument("--quick", action="store_true", help=f"one repetition of {_QUICK:g} of the epochs")
    parser.add_argument(
        "--within", type=float, default=float("inf"), metavar="SECONDS", help="begin no run that ends later"
    )
    parser.add_argument("--cores", type=float, default=HostShape().cores, help="of each of the four hosts")
    parser.add_argument("--workers", type=int, default=HostShape().workers, help="threads of a job on each host")
    parser.add_argument("--cold", action="store_true", help="do not prepare jobs before they have hosts")
    parser.add_argument("--mbit", type=float, help="of each host's link; default: as the jobs need it to balance")
    parser.add_argument("--policies", nargs="+", choices=list(POLICIES), default=list(POLICIES))
    parser.add_argument("--data", type=Path, default=Path("/tmp/hocket-groups-data"), help="where jobs' input is kept")
    parser.add_argument("--out", type=Path, default=Path("groups-out"), help="for results, journals and pictures")
    parser.add_argument("--summary", action="store_true", help="run nothing: say what is in --out")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    share = _QUICK if chosen.quick else chosen.length
    if share is None and chosen.seconds is None:
        share = 1.0
    if chosen.repetitions < 1 or (share is not None and not 0 < share <= 1000):
        parser.error(f"--repetitions must be 1 or more and --length above 0, not {chosen.repetitions}, {share}")
    if chosen.seconds is not None and chosen.seconds <= 0:
        parser.error(f"--seconds must be above 0, not {chosen.seconds:g}")
    if chosen.mbit is not None and not 1 <= chosen.mbit <= 100_000:
        parser.error(f"--mbit must be from 1 to 100,000, not {chosen.mbit:g}")
    failed = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Hosts are taken down.
    if not chosen.summary:
        if why := network.why_no_namespaces():
            parser.error(f"hosts with links of their own are needed: {why}")
        shape = HostShape(chosen.cores, chosen.workers, not chosen.cold)
        repetitions = 1 if chosen.quick else chosen.repetitions
        wanted = Wanted(
            chosen.policies, repetitions, shape, share, chosen.seconds or 0.0, chosen.mbit, chosen.within
        )  # fmt: skip
        try:
            failed = run_all(wanted, chosen.data, chosen.out)
        except RunFailed as error:  # of those that balance the links
            print(error, file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
    if (found := compared(chosen.out)) is None:
        print(*failed, f"'{chosen.out}' has no result", sep="\n", file=sys.stderr)
        return 1
    try:
        pictures = ", ".join(map(str, draw(found, chosen.out)))
    except ModuleNotFoundError as error:
        pictures = f"none here ({error}); --summary draws them where there is"
    if chosen.json:
        print(json.dumps(as_json(found)))
    else:
        here = machine()
        print(f"{here.date}, {here.cores} cores, {here.memory_gib:g} GiB, Python {here.python}; load {here.load:g}")
        print("\n".join([*text(found), f"  pictures: {pictures}"]))
    print(*failed, sep="\n", file=sys.stderr, end="\n" if failed else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
