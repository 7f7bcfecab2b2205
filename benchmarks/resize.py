"""What a change of size costs live: `python -m benchmarks.resize [--quick] [--json] [--only PART …]`.

Real PyTorch jobs (torchrun, gloo, `examples/train_torch.py`) on four virtual devices, by early initialisation and by
termination with a cold start, in one run. All times are the jobs' own: each worker stamps each of its steps.

`hand-over`: a newcomer makes a job on four devices shrink to two, and that grows again when the newcomer ends. A device
is idle from the last step of its old holder to the first of its new one.
`workload`: twelve short jobs, and the share of their run time in which they did not train because their size changed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from benchmarks.machine import Machine, machine, median

EXAMPLE = Path(__file__).parents[1] / "examples" / "train_torch.py"
MECHANISMS = ("early", "terminate")
PARTS = ("hand-over", "workload")
DEVICES = 4
PATIENCE_S = 300.0
STAGES = ("asked", "saved", "gone", "given", "joined", "loaded", "step")


class HandOver(Struct, frozen=True):
    """One change of holders; `idle_s` is the longest of its devices."""

    change: str
    idle_s: float
    untrained_s: float  # of the job that was resized, from its last step to its next
    stages_s: dict[str, float]  # what that consists of


class Side(Struct, frozen=True):
    """One mechanism."""

    mechanism: str
    hand_overs: list[HandOver]


class Load(Struct, frozen=True):
    """Twelve short jobs by one mechanism."""

    mechanism: str
    jobs: int
    makespan_s: float
    resizes: int
    untrained_s: float
    run_s: float  # of all jobs, from their first step to their last

    @property
    def share(self) -> float:
        """Of the run time, spent on resizing."""
        return self.untrained_s / self.run_s


class Measured(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    policy: str
    hand_overs: list[Side] = []
    workload: list[Load] = []


class Cluster:
    """A real controller with four virtual devices, in a folder of its own."""

    def __init__(self, home: Path, policy: str, mechanism: str) -> None:
        self.home = home
        name, *params = policy.split(":")
        options = [word for param in params for word in ("--param", param)]
        command = [sys.executable, "-m", "hocket", "up", "--home", str(home), "--gpus", str(DEVICES), "--policy", name]
        with open(home / "bench.log", "ab") as log:
            self._process = subprocess.Popen([*command, *options, "--resize", mechanism], stdout=log, stderr=log)
        self.wait_for((home / "url").exists, "a controller")

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The answer of its API."""
        connection = HTTPConnection((self.home / "url").read_text().strip().removeprefix("http://"), timeout=60)
        token = (self.home / "token").read_text().strip()
        connection.request(method, path, json.dumps(body), {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        said = answer.read()
        connection.close()
        if answer.status != 200:
            raise HTTPException(said.decode())
        return json.loads(said)

    def submit(self, name: str, sizes: list[int], epochs: int, *pace: str) -> None:
        """A job of several processes that stamps its steps, and saves when it is told to."""
        torchrun = str(Path(sys.executable).parent / "torchrun")
        command = [torchrun, str(EXAMPLE), "--epochs", str(epochs), "--checkpoint-every", "1000000", *pace]
        spec = {
            "id": name, "owner": name, "command": [*command, "--steps", "--ledger", str(self.home / f"{name}.jsonl")],
            "sizes": sizes, "warm": True, "cwd": str(self.home), "env": {"PATH": os.environ["PATH"]},
        }  # fmt: skip
        (said,) = self.call("POST", "/v1/jobs", {"jobs": [spec]})["jobs"]
        assert not said["refused"], said

    def lines(self, name: str, *events: str) -> list[dict[str, Any]]:
        """What a job noted down."""
        path = self.home / f"{name}.jsonl"
        whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
        return [line for text in whole.splitlines() if (line := json.loads(text))["event"] in events]

    def run_event(self, name: str, run: int, event: str) -> float:
        """When a sidecar noted something of a run."""
        path = self.home / "agent" / "runs" / name / str(run) / "events.jsonl"
        return next(e["at"] for e in map(json.loads, path.read_text().splitlines()) if e["event"] == event)

    def wait_for(self, holds: Callable[[], Any], what: str) -> None:
        """Wait for something."""
        until = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < until, f"{what} did not come"
            assert self._process.poll() is None, (self.home / "bench.log").read_text()
            time.sleep(0.05)

    def down(self) -> None:
        """Stop everything."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(120)


@contextmanager
def cluster(policy: str, mechanism: str) -> Iterator[Cluster]:
    """One that is there for a while."""
    with tempfile.TemporaryDirectory(prefix="hocket-resize-") as folder:
        made = Cluster(Path(folder), policy, mechanism)
        try:
            yield made
        finally:
            made.down()


# -- one hand-over after another ------------------------------------------------------------------------------


def hand_overs(policy: str, mechanism: str, rounds: int) -> Side:
    """Newcomers come and go beside one job; each makes it shrink, and lets it grow."""
    found: list[HandOver] = []
    with cluster(policy, mechanism) as here:
        here.submit("first", [2, 4], 1_000_000, "--pace", "5")
        for n in range(rounds):
            here.wait_for(lambda n=n: len(here.lines("first", "start")) == 2 * n + 1, "the first job on all devices")
            _await_calm(here, 2 * n + 1)
            name = f"newcomer-{n}"
            here.submit(name, [2], 4, "--pace", "5")
            here.wait_for(lambda name=name: here.lines(name, "step"), f"the first step of '{name}'")
            found.append(_measured(here, 2 * n + 2, "shrinks", "first", name))
            _await_calm(here, 2 * n + 2)
            here.wait_for(lambda n=n: len(here.lines("first", "start")) == 2 * n + 3, "the first job to grow again")
            here.wait_for(lambda n=n: len(_by_run(here, "first")) == 2 * n + 3, "its first step")
            found.append(_measured(here, 2 * n + 3, "grows", name, "first"))
    return Side(mechanism, found)


def _await_calm(here: Cluster, runs: int) -> None:
    """Until some steps are done and nothing is being prepared, in either mechanism."""
    run = here.home / "agent" / "runs" / "first"
    here.wait_for(lambda: len(_by_run(here, "first")) == runs and len(_by_run(here, "first")[-1]) > 40, "some steps")
    following = run / str(runs + 1) / "events.jsonl"
    here.wait_for(lambda: not following.exists() or '"prepared"' in following.read_text(), "calm")


def _by_run(here: Cluster, name: str) -> list[list[dict[str, Any]]]:
    """A job's steps, run by run: those after each of its starts, as time goes."""
    starts = [line["time"] for line in here.lines(name, "start")]
    ends = [*starts[1:], float("inf")]
    steps = here.lines(name, "step")
    runs = [[s for s in steps if start <= s["time"] < end] for start, end in zip(starts, ends, strict=True)]
    return [run for run in runs if run]


def _measured(here: Cluster, run: int, change: str, giver: str, taker: str) -> HandOver:
    here.wait_for(lambda: len(_by_run(here, "first")) >= run, "its first step")
    before, after = _by_run(here, "first")[run - 2], _by_run(here, "first")[run - 1]
    given = before if giver == "first" else here.lines(giver, "step")
    taken = after if taker == "first" else here.lines(taker, "step")
    passed = {s["device"] for s in given} & {s["device"] for s in taken}
    passed -= {s["device"] for s in after} if change == "shrinks" else {s["device"] for s in before}
    assert len(passed) == 2, passed
    idle_s = max(_first_on(taken, device) - _last_on(given, device) for device in passed)
    last, first = before[-1]["time"], after[0]["time"]
    start, stop = here.lines("first", "start")[run - 1], here.lines("first", "stop")[run - 2]
    times = {
        "asked": stop["asked"], "saved": stop["time"], "gone": here.run_event("first", run - 1, "exited"),
        "given": start["began"], "joined": start["joined"], "loaded": start["time"], "step": first,
    }  # fmt: skip
    marks = [last, *(times[stage] for stage in STAGES)]
    stages = {stage: round(b - a, 3) for stage, (a, b) in zip(STAGES, pairwise(marks), strict=True)}
    return HandOver(change, round(idle_s, 3), round(first - last, 3), stages)


def _first_on(steps: list[dict[str, Any]], device: str) -> float:
    return min(s["time"] for s in steps if s["device"] == device)


def _last_on(steps: list[dict[str, Any]], device: str) -> float:
    return max(s["time"] for s in steps if s["device"] == device)


# -- a workload -----------------------------------------------------------------------------------------------


def workload(policy: str, mechanism: str, jobs: int, epoch_s: float, every_s: float) -> Load:
    """Short jobs that come one after another, of three lengths, each able to use one, two or all devices."""
    with cluster(policy, mechanism) as here:
        names = [f"job-{n}" for n in range(jobs)]
        began_s = time.monotonic()
        for n, name in enumerate(names):
            time.sleep(max(0.0, began_s + n * every_s - time.monotonic()))
            here.submit(name, [1, 2, 4], 2 + n % 3, "--shared-pace", str(epoch_s))
        here.wait_for(lambda: all(here.lines(name, "end") for name in names), "the end of all jobs")
        makespan_s = time.monotonic() - began_s
        resizes, untrained_s, run_s = 0, 0.0, 0.0
        for name in names:
            runs = _by_run(here, name)
            run_s += runs[-1][-1]["time"] - runs[0][0]["time"]
            resizes += len(runs) - 1
            untrained_s += sum(after[0]["time"] - before[-1]["time"] for before, after in pairwise(runs))
        return Load(mechanism, jobs, round(makespan_s, 1), resizes, round(untrained_s, 2), round(run_s, 1))


# -- what is printed ------------------------------------------------------------------------------------------


def page(found: Measured) -> str:
    """For people."""
    here = found.machine
    lines = [f"{found.command}  ({here.cores} cores, load {here.load}, Python {here.python}, {here.date})"]
    lines.append(f"policy '{found.policy}', {DEVICES} virtual devices")
    if found.hand_overs:
        lines += ["", f"{'s, medians (largest)':22} {'times':>5} {'device idle':>17} {'job untrained':>17}   of that"]
        for change in ("shrinks", "grows"):
            for side in found.hand_overs:
                lines.append(_row(side, change))
            early, late = (_idle(side, change) for side in found.hand_overs)
            lines.append(f"{change}: {late / early:.1f} times less idle (goal 10), {early:.2f} s (goal 1)")
    if found.workload:
        heads = f"{'resizes':>8} {'untrained s':>12} {'run s':>8} {'share':>7} {'makespan s':>11}"
        lines += ["", f"{f'{found.workload[0].jobs} short jobs':22} {heads}"]
        for load in found.workload:
            share = f"{load.share:7.1%} {load.makespan_s:11}"
            lines.append(f"{load.mechanism:22} {load.resizes:8} {load.untrained_s:12} {load.run_s:8} {share}")
        lines.append("goal: at most 2 %")
    return "\n".join(lines)


def _idle(side: Side, change: str) -> float:
    return median([one.idle_s for one in side.hand_overs if one.change == change])


def _row(side: Side, change: str) -> str:
    some = [one for one in side.hand_overs if one.change == change]
    idle, untrained = [one.idle_s for one in some], [one.untrained_s for one in some]
    stages = ", ".join(f"{stage} {median([one.stages_s[stage] for one in some]):.2f}" for stage in STAGES)
    shown = (f"{median(times):8.2f} ({max(times):.2f})" for times in (idle, untrained))
    return f"{f'{change}, {side.mechanism}':22} {len(some):5} " + " ".join(f"{s:>17}" for s in shown) + f"   {stages}"


def main(arguments: list[str]) -> None:
    """Measure, and print one page or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resize", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one newcomer, and four jobs instead of twelve")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--policy", default="reshape", help="with parameters as NAME:KEY=VALUE")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    chosen = parser.parse_args(arguments)
    here = machine()
    sides, loads = [], []
    for mechanism in MECHANISMS:
        if "hand-over" in chosen.only:
            print(f"benchmarks: hand-over, {mechanism} …", file=sys.stderr)
            sides.append(hand_overs(chosen.policy, mechanism, 1 if chosen.quick else 5))
        if "workload" in chosen.only:
            print(f"benchmarks: workload, {mechanism} …", file=sys.stderr)
            loads.append(workload(chosen.policy, mechanism, 4 if chosen.quick else 12, 20.0, 12.0))
    command = " ".join(["python -m benchmarks.resize", *arguments])
    found = Measured(command, here, chosen.policy, sides, loads)
    print(msgspec.json.encode(found).decode() if chosen.json else page(found))


if __name__ == "__main__":
    main(sys.argv[1:])
