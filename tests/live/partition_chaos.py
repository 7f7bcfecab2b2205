"""Jobs on two machines while machines, networks and the controller fail for longer than the lease, at random.

Clocks are set by hours, connections hang, and the journal is replaced by an older copy, too.

    python -m tests.live.partition_chaos --seconds 600 --seed 7

Every job tells in a ledger of its own when it runs, on a clock that all processes share. What must hold afterwards: no
two attempts of a job ever ran at once, all jobs ended as they should and lost no retry, and nothing is left of any.
"""

import os
import random
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.live.agent import LiveAgent
from tests.live.cable import Cable
from tests.live.chaos_command import chaos_command
from tests.live.controller import LiveController, NoAnswer, awaited
from tests.live.processes import Found, below
from tests.live.test_restored_journal import backed_up, restore
from tests.whole_lines import json_lines

LEASE_S = 8.0
_REST_S = 600.0  # for all jobs to end once the faults have stopped
_MOST_WAITING = 20  # jobs: what is submitted must end in the end
_SUSPENDED_S = 5.0  # for which a job may run when a whole machine wakes, on a busy machine
_NODES = ("left", "right")
# It saves as it runs, and goes on from what it saved.
JOB = """
import json, os, sys, time
ledger, saves, units = sys.argv[1], sys.argv[2], int(sys.argv[3])
attempt = int(os.environ["HOCKET_ATTEMPT"])
done = int(open(saves).read()) if os.path.exists(saves) else 0
with open(ledger, "a", buffering=1) as told:
    while done < units:
        told.write(json.dumps({"attempt": attempt, "at": time.clock_gettime(time.CLOCK_BOOTTIME)}) + "\\n")
        time.sleep(0.05)
        done += 1
        with open(f"{saves}.{attempt}.part", "w") as part:
            part.write(str(done))
        os.replace(f"{saves}.{attempt}.part", saves)
"""


# Python imports it first of all, in every process: the time of day is off by what a file says.
_SET_CLOCK = """
import os, time
real = time.time
def off():
    try:
        return float(open(os.environ["CHAOS_CLOCK"]).read())
    except (OSError, ValueError, KeyError):
        return 0.0
time.time = lambda: real() + off()
time.time_ns = lambda: int(time.time() * 1e9)
"""
_HANGING = 300  # connections


class PartitionChaos:
    """One run: `torment` for a while, then `check`."""

    def __init__(self, root: Path, seed: int, within: ExitStack) -> None:
        self.root, self.faults, self.wrongs = root, Counter[str](), list[str]()
        self._random, self._jobs = random.Random(seed), 0
        self._suspended: list[tuple[float, str]] = []  # when a whole machine woke, and which
        self._ledgers = root / "ledgers"
        self._ledgers.mkdir()
        (root / "job.py").write_text(JOB)
        self._set_clock_of_children()
        self._backup: Path | None = None
        self._hanging: list[socket.socket] = []
        self.controller = within.enter_context(LiveController(root, "--no-agent", "--lease", str(LEASE_S)))
        self.controller.begin()
        self._cables = {node: within.enter_context(Cable(self.controller.url)) for node in _NODES}
        self._agents = {}
        for node, cable in self._cables.items():
            agent = LiveAgent(self.controller, node, "--gpus", "2", url=cable.url)
            self._agents[node] = within.enter_context(agent)
            agent.begin()

    def _set_clock_of_children(self) -> None:
        (self.root / "python").mkdir()
        (self.root / "python" / "sitecustomize.py").write_text(_SET_CLOCK)
        os.environ.update(PYTHONPATH=str(self.root / "python"), CHAOS_CLOCK=str(self.root / "clock"))

    def torment(self, seconds: float) -> None:
        """Submit jobs, and let one thing fail after the other."""
        kinds = list(self._faults())
        until = time.monotonic() + seconds
        while time.monotonic() < until or len(self.faults) < len(kinds):
            self._submit_some()
            if self._random.random() < 0.3:
                self._backup = backed_up(self.controller, "backup.db")
            name = next((k for k in kinds if k not in self.faults), None) or self._random.choice(kinds)
            begin, end = self._faults()[name]
            self.faults[name] += 1
            node = self._random.choice(_NODES)
            for_s = LEASE_S * self._random.choice((0.3, 0.9, 1.5, 3.0))
            print(f"{name} ({node}) for {for_s:.0f} s", flush=True)
            begin(node)
            time.sleep(for_s)
            end(node)
            time.sleep(self._random.uniform(0.0, LEASE_S))

    def check(self) -> None:
        """All must be well by itself now."""
        awaited(self._all_over, "all jobs have ended", _REST_S)
        rows = self.controller.jobs()
        self.wrongs += [f"job '{j}' has ended as {r['state']}" for j, r in rows.items() if r["state"] != "finished"]
        for job_id in rows:
            self.wrongs += list(self._ran_twice(job_id, json_lines(self._ledgers / job_id)))
        awaited(lambda: not self._training(), "nothing is left of any job", _REST_S)

    def _faults(self) -> dict[str, tuple[Callable[[str], None], Callable[[str], None]]]:
        """Name → how it begins, and how it ends."""

        def cut(*directions: str) -> Callable[[str], None]:
            return lambda node: self._cables[node].cut(*directions)

        def mend(node: str) -> None:
            self._cables[node].mend()

        return {
            "network cut": (cut("up", "down"), mend),
            "agent unheard": (cut("up"), mend),
            "controller unheard": (cut("down"), mend),
            "agent stopped": (self._signal("agent", signal.SIGSTOP), self._signal("agent", signal.SIGCONT)),
            "agent killed": (lambda node: self._agents[node].kill(), lambda node: self._agents[node].start()),
            "machine suspended": (self._signal("", signal.SIGSTOP), self._wake),
            "controller killed": (lambda _: self.controller.kill(), lambda _: self.controller.begin()),
            "controller stopped": (self._signal_controller(signal.SIGSTOP), self._signal_controller(signal.SIGCONT)),
            "clock set": (self._set_clock, lambda _: None),
            "connections hang": (self._hang, lambda _: self._hang_up()),
            "older journal": (self._restore, lambda _: self.controller.begin()),
        }

    def _set_clock(self, _node: str) -> None:
        (self.root / "clock").write_text(str(self._random.choice((-86400.0, -3600.0, 0.0, 3600.0, 86400.0))))

    def _hang(self, _node: str) -> None:
        """Connections that begin a request and never end it."""
        address = urlsplit(self.controller.url)
        for _ in range(_HANGING):
            with suppress(OSError):
                made = socket.create_connection((address.hostname, address.port), 5.0)
                made.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n")
                self._hanging.append(made)

    def _hang_up(self) -> None:
        while self._hanging:
            self._hanging.pop().close()

    def _restore(self, _node: str) -> None:
        """Jobs that were submitted since the backup are no more; those that ended since may run again."""
        restore(self.controller, self._backup or backed_up(self.controller, "backup.db"))

    def _signal(self, kind: str, number: int) -> Callable[[str], None]:
        def send(node: str) -> None:
            for found in below(self.root / node):
                if not kind or found.kind == kind:
                    _send(found.pid, number)

        return send

    def _signal_controller(self, number: int) -> Callable[[str], None]:
        def send(_node: str) -> None:
            if self.controller.pid is not None:
                _send(self.controller.pid, number)

        return send

    def _wake(self, node: str) -> None:
        self._suspended.append((time.clock_gettime(time.CLOCK_BOOTTIME), node))
        self._signal("training", signal.SIGCONT)(node)  # Jobs first: the sidecar must catch up with them.
        self._signal("", signal.SIGCONT)(node)

    def _submit_some(self) -> None:
        try:
            waiting = sum(row["ended_s"] is None for row in self.controller.call("GET", "/v1/jobs")["jobs"])
        except NoAnswer:
            return
        for _ in range(self._random.randrange(2, 6) if waiting < _MOST_WAITING else 0):
            job_id, units = f"j{self._jobs}", self._random.choice((100, 400, 800))
            self._jobs += 1
            command = [sys.executable, str(self.root / "job.py"), str(self._ledgers / job_id)]
            command += [str(self.root / f"{job_id}.saved"), str(units)]
            job = {"id": job_id, "command": command, "cwd": "/", "retries": 0, "preempt": "always"}
            try:
                self.controller.call("POST", "/v1/jobs", {"jobs": [job]})
            except NoAnswer:
                self._jobs -= 1
                return

    def _all_over(self) -> bool:
        try:
            return all(row["ended_s"] is not None for row in self.controller.jobs().values())
        except NoAnswer:
            return False

    def _training(self) -> list[Found]:
        return [found for node in _NODES for found in below(self.root / node) if found.kind == "training"]

    def _ran_twice(self, job_id: str, lines: list[dict[str, Any]]) -> list[str]:
        """An attempt that told that it runs after a later one had begun."""
        began: dict[int, float] = {}
        for line in lines:
            began.setdefault(line["attempt"], line["at"])
        found = []
        for line in lines:
            later = [at for attempt, at in began.items() if attempt > line["attempt"] and at < line["at"]]
            woke = any(0 <= line["at"] - at <= _SUSPENDED_S for at, _node in self._suspended)
            if later and not woke:
                found.append(
                    f"job '{job_id}': attempt {line['attempt']} ran {line['at'] - min(later):.2f} s into a later one"
                )
        return found[-1:]


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def run(root: Path, seconds: float, seed: int) -> PartitionChaos:
    """All of it; raises AssertionError with what is wrong."""
    with ExitStack() as within:
        chaos = PartitionChaos(root, seed, within)
        chaos.torment(seconds)
        chaos.check()
        jobs = chaos.controller.jobs()
        runs = sum(len(chaos.controller.call("GET", f"/v1/jobs/{job}")["attempt_list"]) for job in jobs)
    told = ", ".join(f"{count} × {name}" for name, count in sorted(chaos.faults.items()))
    print(f"{len(jobs)} jobs in {runs} runs; {told}; {len(chaos.wrongs)} wrongs")
    assert not chaos.wrongs, "\n".join(chaos.wrongs)
    return chaos


if __name__ == "__main__":
    chaos_command("partition_chaos", __doc__, run)
