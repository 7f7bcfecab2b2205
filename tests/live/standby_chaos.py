"""Two controllers on one journal in PostgreSQL, of which the one that leads is killed, stopped or cut off at random.

    python -m tests.live.standby_chaos --seconds 600 --seed 7

What must hold: a controller leads again soon, no job is started a second time or lost, and no two controllers lead.
"""

import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.live.agent import LiveAgent
from tests.live.chaos_command import chaos_command
from tests.live.controller import LiveController, NoAnswer, awaited
from tests.live.partition_chaos import JOB
from tests.whole_lines import json_lines

from hocket.testing.postgresql import PostgresServer

LEASE_S = 30.0  # All faults are shorter: no job has a reason to be started again.
_TAKEOVER_S = 3.0
_REST_S = 600.0
_MOST_WAITING = 20  # jobs
_NODES = ("left", "right")


class StandbyChaos:
    """One run: `torment` for a while, then `check`."""

    def __init__(self, root: Path, seed: int, within: ExitStack) -> None:
        self.root, self.faults, self.wrongs = root, Counter[str](), list[str]()
        self._random, self._submitted = random.Random(seed), 0
        (root / "job.py").write_text(JOB)
        (root / "ledgers").mkdir()
        self._server = within.enter_context(PostgresServer())
        options = ("--no-agent", "--store", self._server.url, "--standby", "--lease", str(LEASE_S))
        options = (*options, "--takeover", str(_TAKEOVER_S))
        self._both = [within.enter_context(LiveController(root / name, *options)) for name in ("1", "2")]
        self._both[0].begin()
        self._both[1].home.mkdir(mode=0o700)
        shutil.copy(self._both[0].home / "token", self._both[1].home / "token")
        self._both[1].start()
        for node in _NODES:
            within.enter_context(LiveAgent(self._both[0], node, "--gpus", "2")).begin()
        self.longest_s = 0.0  # without a controller that leads

    def torment(self, seconds: float) -> None:
        """Submit jobs, and let one controller fail after the other."""
        until = time.monotonic() + seconds
        kinds = ("killed", "stopped", "both killed", "database killed")
        while time.monotonic() < until or len(self.faults) < len(kinds):
            self._submit_some()
            time.sleep(self._random.uniform(0.0, 4.0))
            kind = next((k for k in kinds if k not in self.faults), None) or self._random.choice(kinds)
            self.faults[kind] += 1
            print(kind, flush=True)
            began_s = time.monotonic()
            self._fail(kind)
            awaited(lambda: self._leader() is not None, "a controller leads", _REST_S)
            if kind != "database killed":
                self.longest_s = max(self.longest_s, time.monotonic() - began_s)
            self._mend()

    def _fail(self, kind: str) -> None:
        awaited(lambda: self._leader() is not None, "a controller leads", _REST_S)
        leader = self._leader()
        if kind == "database killed":
            self._server.kill()
            time.sleep(self._random.uniform(0.0, LEASE_S / 3))
            self._server.start()
        elif kind == "both killed":
            for controller in self._both:
                controller.kill()
            for controller in self._random.sample(self._both, 2):
                controller.start()
        elif leader is not None and leader.pid is not None:
            os.kill(leader.pid, signal.SIGKILL if kind == "killed" else signal.SIGSTOP)

    def _mend(self) -> None:
        """Both run again: what was stopped finds that it has lost, and stands by."""
        for controller in self._both:
            if controller.pid is None:
                controller.start()
            else:
                with suppress(ProcessLookupError):
                    os.kill(controller.pid, signal.SIGCONT)

    def _leads(self, controller: LiveController) -> bool:
        try:
            return controller.pid is not None and controller.call("GET", "/v1/health", within_s=1.0)["ok"]
        except (NoAnswer, ValueError):
            return False

    def _leader(self) -> LiveController | None:
        leaders = [controller for controller in self._both if self._leads(controller)]
        return leaders[0] if len(leaders) == 1 else None  # One that wakes up says so for a moment, until it has looked.

    def _submit_some(self) -> None:
        for _ in range(self._random.randrange(1, 4) if not self._has_many() else 0):
            name = f"j{self._submitted}"
            ledger, saved = self.root / "ledgers" / name, self.root / f"{name}.saved"
            units = str(self._random.choice((100, 400)))
            job = {"id": name, "command": [sys.executable, str(self.root / "job.py"), str(ledger), str(saved), units]}
            leader = self._leader()
            try:
                if leader is not None:
                    leader.call("POST", "/v1/jobs", {"jobs": [{**job, "cwd": "/", "retries": 0}]})
                    self._submitted += 1
            except NoAnswer:  # It may be accepted all the same: the next one has another name.
                self._submitted += 1

    def _has_many(self) -> bool:
        try:
            leader = self._leader()
            return leader is None or len(leader.call("GET", "/v1/jobs")["jobs"]) > _MOST_WAITING
        except NoAnswer:
            return True

    def check(self) -> None:
        """All must be well by itself now."""
        self._mend()
        awaited(self._all_over, "all jobs have ended", _REST_S)
        leader = self._leader()
        assert leader is not None
        for name, row in leader.jobs().items():
            if row["state"] != "finished":
                self.wrongs.append(f"job '{name}' has ended as {row['state']}")
            attempts = {line["attempt"] for line in json_lines(self.root / "ledgers" / name)}
            if attempts != {1}:
                self.wrongs.append(f"job '{name}' was started again: attempts {sorted(attempts)}")

    def _all_over(self) -> bool:
        try:
            leader = self._leader()
            return leader is not None and all(row["ended_s"] is not None for row in leader.jobs().values())
        except NoAnswer:
            return False


def run(root: Path, seconds: float, seed: int) -> StandbyChaos:
    """All of it; raises AssertionError with what is wrong."""
    with ExitStack() as within:
        chaos = StandbyChaos(root, seed, within)
        chaos.torment(seconds)
        chaos.check()
    told = ", ".join(f"{count} × {name}" for name, count in sorted(chaos.faults.items()))
    longest = f"at most {chaos.longest_s:.1f} s without a controller (but for the database)"
    print(f"{chaos._submitted} jobs; {told}; {longest}; {len(chaos.wrongs)} wrongs")
    assert not chaos.wrongs, "\n".join(chaos.wrongs)
    return chaos


if __name__ == "__main__":
    chaos_command("standby_chaos", __doc__, run)
