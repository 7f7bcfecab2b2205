"""The live controller: `python -m benchmarks.live`. Real processes, real HTTP, a real journal.

Prints, each with what is asked of it: submissions a second in batches of 100, killed with -9 in the middle, and one by
one; recovery of 10,000 queued jobs after kill -9, `hocket jobs` on them; what 100,000 jobs that are over cost; the time
from submit to the first line of a program, cold, and from the Start action to it, prepared; and what an idle controller
with running jobs costs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

HOCKET = (sys.executable, "-m", "hocket")


class Controller:
    """A real one, in a folder of its own."""

    def __init__(self, home: Path, *options: str) -> None:
        self.home, self.options = home, options
        self.start()

    def start(self) -> float:
        """Start it; how long until it answers with its devices."""
        (self.home / "url").unlink(missing_ok=True)
        began = time.perf_counter()
        with open(self.home / "bench.log", "ab") as log:
            self.process = subprocess.Popen(
                [*HOCKET, "up", "--home", str(self.home), *self.options], stdout=log, stderr=log, start_new_session=True
            )
        while not (self.home / "url").exists():
            assert self.process.poll() is None, (self.home / "bench.log").read_text()
            time.sleep(0.005)
        return time.perf_counter() - began

    def connect(self) -> HTTPConnection:
        place = (self.home / "url").read_text().strip().removeprefix("http://")
        self.token = (self.home / "token").read_text().strip()
        return HTTPConnection(place, timeout=60)

    def call(self, connection: HTTPConnection, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Authorization": f"Bearer {self.token}"})
        response = connection.getresponse()
        said = response.read()
        assert response.status == 200, said
        return json.loads(said)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def down(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def children(home: Path) -> dict[str, list[int]]:
    """The agent's process and those of the sidecars that work in this home."""
    found: dict[str, list[int]] = {"agent": [], "sidecar": []}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(home) in line:
                if "hocket.agent.node" in line:
                    found["agent"].append(int(entry.name))
                elif "hocket.agent.sidecar" in line:
                    found["sidecar"].append(int(entry.name))
    return found


class Client:
    """Submits batches, and keeps the ids of all that were acknowledged."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.link = controller.connect()
        self.acknowledged: list[str] = []

    def submit(self, names: list[str]) -> None:
        """One batch; HTTPException or OSError if no answer came."""
        jobs = [{"id": name, "command": ["true"], "cwd": "/"} for name in names]
        said = self.controller.call(self.link, "POST", "/v1/jobs", {"jobs": jobs})["jobs"]
        # What got no answer before may have been taken all the same.
        assert all(not job["refused"] or "must be unique" in job["refused"] for job in said), said
        self.acknowledged += [job["id"] for job in said]

    def listed(self) -> set[str]:
        """What the controller has."""
        return {row["id"] for row in self.controller.call(self.link, "GET", "/v1/jobs")["jobs"]}


def submissions(home: Path, count: int) -> None:
    controller = Controller(home, "--gpus", "1", "--policy", "fifo")
    link = controller.connect()
    blocker = {"id": "blocker", "command": ["sleep", "1000"], "cwd": "/"}
    controller.call(link, "POST", "/v1/jobs", {"jobs": [blocker]})
    began = time.perf_counter()
    singles = 300
    for n in range(singles):
        controller.call(link, "POST", "/v1/jobs", {"jobs": [{"id": f"s{n}", "command": ["true"], "cwd": "/"}]})
    one_by_one = singles / (time.perf_counter() - began)
    batches = [[f"b{n + i}" for i in range(100)] for n in range(0, count, 100)]
    client = Client(controller)
    took_s = _submitted(client, batches[: len(batches) // 2])
    took_s += _killed_in_the_middle(client, batches[len(batches) // 2 :], took_s / 3)
    print(f"submissions, batches of 100     {count / took_s:9,.0f} a second   (asked: 1,000)")
    print(f"submissions, one by one         {one_by_one:9,.0f} a second")
    assert len(set(client.acknowledged)) == count
    controller.kill()
    took = controller.start()
    client.link = controller.connect()
    assert not set(client.acknowledged) - client.listed(), "an acknowledged job was lost"
    print(f"recovery of {count + singles:,} queued jobs    {took:9.2f} s          (asked: 2 s), all there")
    began = time.perf_counter()
    env = {**os.environ, "HOCKET_HOME": str(home)}
    subprocess.run([*HOCKET, "jobs"], env=env, stdout=subprocess.DEVNULL, check=True)
    print(f"hocket jobs on them             {time.perf_counter() - began:9.2f} s          (asked: 1 s)")
    controller.down()


def _submitted(client: Client, batches: list[list[str]]) -> float:
    """Submit them; how long that took."""
    began = time.perf_counter()
    for batch in batches:
        client.submit(batch)
    return time.perf_counter() - began


def _killed_in_the_middle(client: Client, batches: list[list[str]], after_s: float) -> float:
    """The same, with kill -9 at some moment of it; what had no answer is sent again. Without the time it was away."""
    controller = client.controller
    timer = threading.Timer(after_s, controller.process.kill)
    began, done = time.perf_counter(), 0
    timer.start()
    try:
        for batch in batches:
            client.submit(batch)
            done += 1
    except (HTTPException, OSError) as error:
        took_s = time.perf_counter() - began
        said = f"{type(error).__name__} in batch {done + 1} of {len(batches)}"
    else:
        raise AssertionError("it was to be killed in the middle, and all was submitted before")
    finally:
        timer.join()
    controller.kill()
    controller.start()
    client.link = controller.connect()
    lost = set(client.acknowledged) - client.listed()
    assert not lost, f"acknowledged jobs were lost: {sorted(lost)[:5]}"
    kept = f"{len(lost):9,.0f} of {len(client.acknowledged):,} acknowledged jobs lost"
    print(f"kill -9 while they are sent     {kept} ({said})")
    return took_s + _submitted(client, batches[done:])


def history(home: Path, count: int) -> None:
    """A controller with many jobs behind it: what of its cost grows with them?"""
    few, many = count // 10, count
    figures = {}
    for jobs in (few, many):
        folder = home / str(jobs)
        folder.mkdir()
        _live_through(folder, jobs)
        controller = Controller(folder, "--no-agent", "--policy", "fifo")
        controller.kill()
        starts = []
        for _ in range(3):
            starts.append(controller.start())
            controller.kill()
        controller.start()
        link = controller.connect()
        counted = controller.call(link, "GET", "/v1/status")["jobs"]
        assert counted == {"finished": jobs}, counted
        times = []
        for _ in range(20):
            began = time.perf_counter()
            controller.call(link, "GET", "/v1/status")
            times.append(time.perf_counter() - began)
        figures[jobs] = min(starts), statistics.median(times), pss_mib(controller.process.pid)
        began = time.perf_counter()
        assert len(controller.call(link, "GET", "/v1/jobs?all=true")["jobs"]) == jobs
        listed_s = time.perf_counter() - began
        controller.down()
    for name, unit, n, scale in (("start", "s", 0, 1), ("GET /v1/status", "ms", 1, 1000), ("memory", "MiB", 2, 1)):
        now, then = figures[many][n] * scale, figures[few][n] * scale
        print(f"{name:24}        {now:9.2f} {unit:4} with {many:,} jobs that are over; {then:.2f} with {few:,}")
    print(f"all of them listed              {listed_s:9.2f} s")


def _live_through(home: Path, count: int) -> None:
    """A journal of so many jobs that ran and finished, told by an agent that only says so."""
    from hocket.agent.protocol import Hello, Report, StartRun
    from hocket.executors.agents.executor import agents
    from hocket.model.event import JobSubmitted
    from hocket.model.job import Job, Launch
    from hocket.model.resources import Node
    from hocket.policies import find
    from hocket.service.engine import Engine

    at_once = 1000
    engine = Engine(str(home / "journal.db"), agents(1e6), find("fifo").bound(), catalogue=home / "catalogue.db")
    engine.start()
    session, taken = engine.sessions.open("n", "127.0.0.1"), 0
    engine.executor.post(engine.executor.hello(Hello(Node("n", at_once), "127.0.0.1"))).result(60)
    for first in range(0, count, at_once):
        jobs = [Job(f"j{first + n}", command=("true",), launch=Launch(cwd="/")) for n in range(at_once)]
        engine.executor.post(lambda _state, now_s, jobs=jobs: [JobSubmitted(now_s, job) for job in jobs]).result(60)
        runs: list[Any] = []
        while len(runs) < at_once:
            orders = engine.sessions.orders(session, taken, 1.0)
            taken = orders[-1].n if orders else taken
            runs += [o.order.run for o in orders if isinstance(o.order, StartRun)]
        for n, event, fields in ((1, "started", {}), (2, "exited", {"code": 0, "asked": False})):
            engine.executor.report([Report(run, n, time.time(), event, fields) for run in runs], "n").result(60)
    engine.close()


def latency(home: Path, tries: int) -> None:
    controller = Controller(home, "--gpus", "2", "--policy", "fifo")
    link = controller.connect()
    stamp = home / "stamp"
    script = home / "first_line.py"
    script.write_text(f"import time; t = time.time(); open({str(stamp)!r}, 'w').write(repr(t))\n")
    bare = []
    for _ in range(tries):
        began = time.time()
        subprocess.run([sys.executable, str(script)], check=True)
        bare.append(float(stamp.read_text()) - began)
    cold = []
    for n in range(tries):
        stamp.unlink(missing_ok=True)
        began = time.time()
        controller.call(
            link, "POST", "/v1/jobs", {"jobs": [{"id": f"c{n}", "command": [sys.executable, str(script)], "cwd": "/"}]}
        )
        while not stamp.exists() or not stamp.read_text():
            time.sleep(0.001)
        cold.append(float(stamp.read_text()) - began)
    python, whole = statistics.median(bare), statistics.median(cold)
    print(
        f"submit to first line, cold      {1000 * (whole - python):9.0f} ms beyond Python's own "
        f"{1000 * python:.0f} ms (asked: 300)"
    )
    controller.down()


def prepared(home: Path, tries: int) -> None:
    """From the Start action to the first line, of a job that stood prepared while another made room for it.

    The action goes out in the cycle that takes in the end of the other one, and that one's moment is in the journal: so
    the time has the decision, the commit, the order over HTTP and the hand-over, but no report.
    """
    from hocket.control.journal import open_to_read
    from hocket.model.event import JobEnded, JobPrepared

    controller = Controller(home, "--gpus", "1", "--policy", "fifo")
    link = controller.connect()
    leaves = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1.5), sys.exit(0)))"
    holder = {"command": [sys.executable, "-c", f"{leaves}\nwhile True: time.sleep(1)"], "cwd": "/"}
    stamp, script = home / "stamp", home / "main.py"
    script.write_text(f"import json, time\nopen({str(stamp)!r}, 'a').write(repr(time.time()) + '\\n')\n")
    for n in range(tries):
        jobs = [
            {**holder, "id": f"holder{n}"},
            {"id": f"warm{n}", "command": [sys.executable, str(script)], "cwd": "/", "warm": True},
        ]
        controller.call(link, "POST", "/v1/jobs", {"jobs": jobs})
        while controller.call(link, "GET", f"/v1/jobs/holder{n}")["state"] != "running":
            time.sleep(0.02)
        time.sleep(0.3)  # Its handler stands by now.
        controller.call(link, "POST", f"/v1/jobs/holder{n}/stop")
        while controller.call(link, "GET", f"/v1/jobs/warm{n}")["ended_s"] is None:
            time.sleep(0.02)
    controller.down()
    first_lines = [float(line) for line in stamp.read_text().splitlines()]
    starts, ready = [], set()
    journal = open_to_read(home / "journal.db")
    for cycle in journal:
        starts += [cycle.at_s for e in cycle.events if isinstance(e, JobEnded) and e.job.startswith("holder")]
        ready |= {e.job for e in cycle.events if isinstance(e, JobPrepared)}
    journal.close()
    assert len(ready) == len(starts) == len(first_lines) == tries, (ready, starts, first_lines)
    took = sorted(line - start for line, start in zip(first_lines, starts, strict=True))
    print(
        f"Start to first line, prepared   {1000 * statistics.median(took):9.0f} ms (asked: 100); "
        f"the slowest of {tries}: {1000 * took[-1]:.0f} ms"
    )


def idle(home: Path, jobs: int, seconds: float) -> None:
    controller = Controller(home, "--gpus", str(jobs), "--policy", "fifo")
    link = controller.connect()
    for n in range(0, jobs, 100):
        batch = [{"id": f"i{n + i}", "command": ["sleep", "1000"], "cwd": "/"} for i in range(min(100, jobs - n))]
        controller.call(link, "POST", "/v1/jobs", {"jobs": batch})
    while sum(r["state"] == "running" for r in controller.call(link, "GET", "/v1/jobs")["jobs"]) < jobs:
        time.sleep(0.1)
    time.sleep(12)  # Sidecars look more often in the beginning.
    found = children(home)
    pids = [controller.process.pid, *found["agent"], *found["sidecar"]]
    before = {pid: cpu_s(pid) for pid in pids}
    time.sleep(seconds)
    used = {pid: cpu_s(pid) - before[pid] for pid in pids}
    share = sum(used.values()) / seconds
    parts = ", ".join(
        f"{name} {100 * sum(used[p] for p in some) / seconds:.2f} %"
        for name, some in (("controller", pids[:1]), ("agent", found["agent"]), ("sidecars", found["sidecar"]))
    )
    print(f"idle, {jobs} running jobs          {100 * share:9.2f} % of a core   (asked: 5 %): {parts}")
    each = statistics.median(pss_mib(pid) for pid in found["sidecar"])
    own = f"controller {pss_mib(pids[0]):.0f} MiB, agent {pss_mib(found['agent'][0]):.0f} MiB"
    print(f"memory of a sidecar             {each:9.1f} MiB (PSS); {own}")
    controller.down()


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    for part, arguments in (
        (submissions, (1_000 if quick else 10_000,)),
        (history, (2_000 if quick else 100_000,)),
        (latency, (5 if quick else 30,)),
        (prepared, (2 if quick else 10,)),
        (idle, (10 if quick else 100, 5.0 if quick else 30.0)),
    ):
        with tempfile.TemporaryDirectory(prefix="hocket-live-") as folder:
            part(Path(folder), *arguments)


if __name__ == "__main__":
    main()
