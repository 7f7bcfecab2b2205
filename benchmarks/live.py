"""The live controller: `python -m benchmarks.live`. Real processes, real HTTP, a real journal.

Prints, each with what is asked of it: submissions a second in batches of 100 and one by one, recovery of 10,000 queued
jobs after kill -9, `hocket jobs` on them, the time from submit to the first line of a program, cold and prepared, and
what an idle controller with running jobs costs.
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
import time
from http.client import HTTPConnection
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
    began = time.perf_counter()
    for n in range(0, count, 100):
        jobs = [{"id": f"b{n + i}", "command": ["true"], "cwd": "/"} for i in range(100)]
        said = controller.call(link, "POST", "/v1/jobs", {"jobs": jobs})
        assert not any(job["refused"] for job in said["jobs"])
    batched = count / (time.perf_counter() - began)
    print(f"submissions, batches of 100     {batched:9,.0f} a second   (asked: 1,000)")
    print(f"submissions, one by one         {one_by_one:9,.0f} a second")
    controller.kill()
    took = controller.start()
    link = controller.connect()
    known = {row["id"] for row in controller.call(link, "GET", "/v1/jobs")["jobs"]}
    assert {f"b{n}" for n in range(count)} <= known, "an acknowledged job was lost"
    print(f"recovery of {count + singles:,} queued jobs    {took:9.2f} s          (asked: 2 s), all there")
    began = time.perf_counter()
    env = {**os.environ, "HOCKET_HOME": str(home)}
    subprocess.run([*HOCKET, "jobs"], env=env, stdout=subprocess.DEVNULL, check=True)
    print(f"hocket jobs on them             {time.perf_counter() - began:9.2f} s          (asked: 1 s)")
    controller.down()


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
        (latency, (5 if quick else 30,)),
        (idle, (10 if quick else 100, 5.0 if quick else 30.0)),
    ):
        with tempfile.TemporaryDirectory(prefix="hocket-live-") as folder:
            part(Path(folder), *arguments)


if __name__ == "__main__":
    main()
