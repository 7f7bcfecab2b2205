"""A controller under load: `python -m benchmarks.service_load [--quick]`. Real processes, real HTTP, a real journal.

Each figure is measured at N and at 10·N live jobs, so that its growth is seen. CPU-seconds are those of the controller,
for commands those of the command too; times that other calls waited are wall time, and mean little on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from benchmarks.live import HOCKET, Controller, cpu_s
from benchmarks.machine import NOT_AS_USERS_HAVE_IT, machine, median, table

CLIENTS = 8
_BATCH = 1000
_TOKEN = "HOCKET_BENCHMARK_TOKEN"  # a token may begin with a dash

Figures = dict[str, tuple[float, str]]  # what was measured → the figure and its unit


class Load:
    """A controller with a queue of so many jobs."""

    def __init__(self, home: Path, jobs: int) -> None:
        self.home, self.jobs = home, jobs
        self.controller = Controller(home, "--gpus", "4", "--policy", "fifo")
        self.link = self.controller.connect()
        self.found: Figures = {}

    def measure(self, quick: bool) -> Figures:
        """All figures, in the order in which a user would meet them."""
        blockers = [{"id": f"blocker{n}", "command": ["sleep", "1000"], "cwd": "/"} for n in range(4)]
        self.call("POST", "/v1/jobs", {"jobs": blockers})
        began = self.cpu_s()
        for first in range(0, self.jobs, _BATCH):
            count = min(_BATCH, self.jobs - first)
            self.call("POST", "/v1/jobs", {"jobs": [_job(f"q{first + n}") for n in range(count)]})
        self.say("submissions in batches", 1e6 * (self.cpu_s() - began) / self.jobs, "CPU-µs a job")
        singles = 50 if quick else 200
        began, waited = self.cpu_s(), []
        for n in range(singles):
            waited.append(_took_s(lambda n=n: self.call("POST", "/v1/jobs", {"jobs": [_job(f"s{n}")]})))
        self.say("one submission", 1000 * (self.cpu_s() - began) / singles, "CPU-ms")
        self.say("one submission, its caller waits", 1000 * median(waited), "ms")
        self.from_clients(25 if quick else 125)
        self.large_submissions(2 if quick else 10)
        self.listings()
        self.restart()
        self.stop_all()
        self.controller.down()
        return self.found

    def from_clients(self, each: int) -> None:
        """Single submissions of several clients at once; the clients are one process, and use a core too."""
        began = self.cpu_s()
        place, token = (self.home / "url").read_text().strip().removeprefix("http://"), self.controller.token
        command = [sys.executable, "-m", "benchmarks.service_load", "--client", place, str(each)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ | {_TOKEN: token})
        took_s, count = float(done.stdout), CLIENTS * each
        self.say(f"submissions of {CLIENTS} clients", 1000 * (self.cpu_s() - began) / count, "CPU-ms each")
        self.say(f"submissions of {CLIENTS} clients, rate", count / took_s, "a second")

    def large_submissions(self, count: int) -> None:
        """Calls with 1,000 jobs each, one after the other, and how long others wait meanwhile."""
        over = threading.Event()
        looks: dict[str, list[float]] = {"GET /v1/health": [], "GET /v1/jobs?limit=20": [], "POST /v1/jobs": []}
        threads = []
        for words, took in looks.items():
            name = "beside" if words.startswith("POST") else None
            threads.append(threading.Thread(target=self.repeat, args=(over, took, *words.split(), name)))
        link = self.controller.connect()
        for thread in threads:
            thread.start()
        calls = [{"jobs": [_job(f"l{n}-{k}") for k in range(_BATCH)]} for n in range(count)]
        took_s = [_took_s(lambda call=call: self.raw("/v1/jobs", link, "POST", call)) for call in calls]
        over.set()
        for thread in threads:
            thread.join()
        self.say(f"{_BATCH:,} jobs in one call, its caller waits", 1000 * median(took_s), "ms")
        for words, took in looks.items():
            self.say(f"{_BATCH:,} jobs in one call, {words} waits at most", 1000 * max(took), "ms")

    def listings(self) -> None:
        """What lists all jobs, each the best of three."""
        self.link = self.controller.connect()  # The last one was idle for some seconds, and may be closed.
        env = {**os.environ, "HOCKET_HOME": str(self.home)}
        tries = []
        for _ in range(3):
            before = self.cpu_s()
            self.raw("/v1/jobs")
            tries.append(self.cpu_s() - before)
        self.say("GET /v1/jobs", min(tries), "CPU-s")
        for words in (("jobs",), ("jobs", "--json"), ("top",)):
            own, theirs = [], []
            for _ in range(3):
                before = self.cpu_s()
                process = subprocess.Popen([*HOCKET, *words], env=env, stdout=subprocess.DEVNULL)
                _pid, status, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                assert process.returncode == 0, words
                own.append(used.ru_utime + used.ru_stime)
                theirs.append(self.cpu_s() - before)
            self.say(f"hocket {' '.join(words)}", min(own), "CPU-s")
            self.say(f"hocket {' '.join(words)}, controller", min(theirs), "CPU-s")

    def restart(self) -> None:
        """After kill -9: all that the controller does until it has answered with its jobs."""
        self.controller.kill()
        self.controller.start()
        self.link = self.controller.connect()
        assert len(json.loads(self.raw("/v1/jobs"))["jobs"]) >= self.jobs
        self.say("restart", self.cpu_s(), "CPU-s")

    def stop_all(self) -> None:
        """`stop --all`, and how long others wait meanwhile who look, and who submit."""
        over = threading.Event()
        looks: list[float] = []
        submissions: list[float] = []
        threads = [
            threading.Thread(target=self.repeat, args=(over, looks, "GET", "/v1/jobs?limit=1", None)),
            threading.Thread(target=self.repeat, args=(over, submissions, "POST", "/v1/jobs", "late")),
        ]
        count = _counted(self.call("GET", "/v1/status")["jobs"])  # with what was submitted since
        before = self.cpu_s()
        for thread in threads:
            thread.start()
        self.link.timeout = 300
        took_s = _took_s(lambda: self.raw("/v1/job-requests", None, "POST", {"request": "stop", "all": True}))
        left = _counted(self.call("GET", "/v1/status")["jobs"])
        while left > len(submissions) + 5:
            left = _counted(self.call("GET", "/v1/status")["jobs"])
        over.set()
        for thread in threads:
            thread.join()
        used_s = self.cpu_s() - before
        self.say("stop --all", count, "jobs stopped")
        self.say("stop --all, CPU", used_s, "CPU-s")
        self.say("stop --all, each", 1e6 * used_s / count, "CPU-µs a job")
        self.say("stop --all, its caller waits", took_s, "s")
        self.say("stop --all, a listing waits at most", 1000 * max(looks), "ms")
        self.say("stop --all, a submission waits at most", 1000 * max(submissions), "ms")

    def repeat(self, over: threading.Event, took: list[float], method: str, path: str, name: str | None) -> None:
        link, n = self.controller.connect(), 0
        link.timeout = 300
        while not over.is_set():
            body = None if name is None else {"jobs": [_job(f"{name}{n}")]}
            took.append(_took_s(lambda: self.raw(path, link, method, body)))  # noqa: B023 - called at once
            n += 1
            over.wait(0.02)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        return self.controller.call(self.link, method, path, body)

    def raw(self, path: str, link: HTTPConnection | None = None, method: str = "GET", body: Any = None) -> bytes:
        """An answer, whatever it says, not decoded."""
        link = link or self.link
        data = None if body is None else json.dumps(body)
        link.request(method, path, data, {"Authorization": f"Bearer {self.controller.token}"})
        return link.getresponse().read()

    def cpu_s(self) -> float:
        return cpu_s(self.controller.process.pid)

    def say(self, what: str, value: float, unit: str) -> None:
        self.found[what] = value, unit
        print(f"benchmarks: {self.jobs:,} jobs: {what}: {_shown(value)} {unit}", file=sys.stderr)


def _job(name: str) -> dict[str, Any]:
    return {"id": name, "command": ["true"], "cwd": "/"}


def _took_s(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _counted(jobs: dict[str, int]) -> int:
    """Live ones."""
    return sum(count for state, count in jobs.items() if state not in ("stopped", "finished", "failed"))


def client(place: str, token: str, each: int) -> None:
    """Several connections, each of which submits one job after another; prints how long all of it took."""
    failed: list[BaseException] = []

    def submit(number: int) -> None:
        link = HTTPConnection(place, timeout=120)
        headers = {"Authorization": f"Bearer {token}"}
        try:
            for n in range(each):
                link.request("POST", "/v1/jobs", json.dumps({"jobs": [_job(f"c{os.getpid()}-{number}-{n}")]}), headers)
                answer = link.getresponse()
                answer.read()
                assert answer.status == 200
        except (OSError, HTTPException, AssertionError) as error:
            failed.append(error)

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(CLIENTS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise SystemExit(f"benchmarks.service_load: {failed[0]!r}")
    print(time.perf_counter() - began)


def main() -> None:
    """Measure at both sizes, and print them side by side."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service_load", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100 and 1,000 jobs")
    parser.add_argument("--jobs", type=int, default=10_000, metavar="N", help="the larger size (default: 10,000)")
    parser.add_argument("--client", nargs=2, metavar=("PLACE", "EACH"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.client:
        place, each = chosen.client
        client(place, os.environ[_TOKEN], int(each))
        return
    for name in NOT_AS_USERS_HAVE_IT:
        os.environ.pop(name, None)
    many = 1_000 if chosen.quick else chosen.jobs
    found = []
    for jobs in (max(1, many // 10), many):
        with tempfile.TemporaryDirectory(prefix="hocket-load-") as folder:
            load = Load(Path(folder), jobs)
            try:
                found.append(load.measure(chosen.quick))
            finally:
                with suppress(ProcessLookupError):
                    load.controller.down()
    here = machine()
    print(f"{here.date}, {here.cores} cores, Python {here.python}; load average {here.load:g} when it ended")
    few, more = found
    titles = ("live jobs", f"{many // 10:,}", f"{many:,}", "×", "")
    rows = [
        (what, _shown(few[what][0]), _shown(value), f"{value / few[what][0]:.1f}" if few[what][0] else "–", unit)
        for what, (value, unit) in more.items()
    ]
    print("\n".join(table(titles, rows)))


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
