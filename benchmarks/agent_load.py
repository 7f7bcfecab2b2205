"""Many nodes: `python -m benchmarks.agent_load --nodes 200,1000`. One process speaks the protocol of all agents.

A real controller, real HTTP and a real journal; the agents say hello, wait for orders and give signs of life as real
ones do, and report that their jobs start and end, but run nothing. Printed for each number of nodes: how long the nodes
take to join, what the idle controller costs, what a job costs it from submission to end, the mean time of a cycle, and
memory. CPU-seconds are those of the controller: what a job costs should not depend on the number of nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.live import Controller, cpu_s, pss_mib
from benchmarks.machine import machine, table

_LEASE_S = 60.0
_BEAT_S = _LEASE_S / 4  # between signs of life
_IDLE_S = 20.0


class Caller:
    """One connection, kept open."""

    def __init__(self, place: str, token: str) -> None:
        self._host, _, port = place.rpartition(":")
        self._port, self._token = int(port), token
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nAuthorization: Bearer {self._token}\r\n"
        request = f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
        for _ in range(2):  # A server may have closed a connection that was idle.
            if self._open is None:
                self._open = await asyncio.open_connection(self._host, self._port)
            reader, writer = self._open
            try:
                writer.write(request)
                await writer.drain()
                answer = await reader.readuntil(b"\r\n\r\n")
            except (OSError, asyncio.IncompleteReadError):
                self._open = None
                continue
            length = next(
                int(x.split(b":")[1]) for x in answer.split(b"\r\n") if x.lower().startswith(b"content-length")
            )
            said = await reader.readexactly(length)
            assert answer.split(b" ", 2)[1] == b"200", (method, path, answer, said)
            return json.loads(said)
        raise AssertionError(f"{method} {path}: the controller is away")


class Agent:
    """A node with one GPU, whose jobs are over as soon as they are told to start."""

    def __init__(self, name: str, place: str, token: str) -> None:
        self.name = name
        self._orders, self._reports = Caller(place, token), Caller(place, token)
        self._session = ""

    async def join(self) -> None:
        node = {"id": self.name, "gpus": 1, "cores": 8.0, "mem_mib": 1000.0}
        hello = {"node": node, "address": "127.0.0.1", "state": self.name, "start": 1, "number": 1}
        self._session = (await self._reports.call("POST", "/v1/agents/hello", hello))["session"]

    async def work(self) -> None:
        after = 0
        while True:
            for order in await self._orders.call("GET", f"/v1/agents/{self._session}/orders?after={after}"):
                after = order["n"]
                if order["order"]["order"] == "run":
                    run, at_s = order["order"]["run"], time.time()
                    for n, (event, fields) in enumerate((("started", {}), ("exited", {"code": 0})), 1):
                        report = {"run": run, "n": n, "at_s": at_s, "event": event, "fields": fields}
                        await self._reports.call("POST", f"/v1/agents/{self._session}/reports", [report])

    async def beat(self, first_s: float) -> None:
        await asyncio.sleep(first_s)
        while True:
            await self._reports_free(f"/v1/agents/{self._session}/alive")
            await asyncio.sleep(_BEAT_S)

    async def _reports_free(self, path: str) -> None:
        link = Caller(f"{self._orders._host}:{self._orders._port}", self._orders._token)
        await link.call("POST", path)
        assert link._open is not None
        link._open[1].close()


async def measure(nodes: int, jobs: int, quick: bool) -> tuple[str, ...]:
    """One row of the table."""
    with tempfile.TemporaryDirectory(prefix="hocket-agent-load-") as home:
        controller = Controller(Path(home), "--no-agent", "--policy", "fifo", "--lease", f"{_LEASE_S:g}")
        try:
            controller.connect()
            return await _measure(controller, nodes, jobs, quick)
        finally:
            controller.kill()


async def _measure(controller: Controller, nodes: int, jobs: int, quick: bool) -> tuple[str, ...]:
    place, pid = (controller.home / "url").read_text().strip().removeprefix("http://"), controller.process.pid
    user, agents = Caller(place, controller.token), [Agent(f"n{n}", place, controller.token) for n in range(nodes)]
    bare_mib, began_s, before_s = pss_mib(pid), time.perf_counter(), cpu_s(pid)
    for first in range(0, nodes, 50):
        await asyncio.gather(*(agent.join() for agent in agents[first : first + 50]))
    joined_s, joined_cpu_s = time.perf_counter() - began_s, cpu_s(pid) - before_s
    tasks = [asyncio.create_task(agent.work()) for agent in agents]
    tasks += [asyncio.create_task(a.beat(n / nodes * _BEAT_S)) for n, a in enumerate(agents)]
    await asyncio.sleep(3.0)
    idle_s = 5.0 if quick else _IDLE_S
    before_s = cpu_s(pid)
    await asyncio.sleep(idle_s)
    idle_cpu = (cpu_s(pid) - before_s) / idle_s
    before_s, before = cpu_s(pid), await _cycles(controller)
    began_s, waits = time.perf_counter(), []
    for n in range(jobs):  # one by one, as users come
        job = {"id": f"j{n}", "command": ["true"], "cwd": "/"}
        asked_s = time.perf_counter()
        await user.call("POST", "/v1/jobs", {"jobs": [job]})
        while (await user.call("GET", f"/v1/jobs/j{n}"))["state"] != "finished":
            await asyncio.sleep(0.005)
        waits.append(time.perf_counter() - asked_s)
    per_job = (cpu_s(pid) - before_s - idle_cpu * (time.perf_counter() - began_s)) / jobs
    after = await _cycles(controller)
    cycle_ms = 1000 * (after[0] - before[0]) / max(after[1] - before[1], 1)
    memory = pss_mib(pid)
    for task in tasks:
        failed = task.done() and not task.cancelled() and task.exception()
        assert not failed, failed
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    waits.sort()
    return (
        f"{nodes:,}", f"{joined_s:.1f} s", f"{1000 * joined_cpu_s / nodes:.1f} ms", f"{100 * idle_cpu:.1f} %",
        f"{1000 * per_job:.1f} ms", f"{cycle_ms:.2f} ms", f"{1000 * waits[len(waits) // 2]:.0f} ms",
        f"{memory:.0f} MiB", f"{1024 * (memory - bare_mib) / nodes:.0f} KiB",
    )  # fmt: skip


async def _cycles(controller: Controller) -> tuple[float, float]:
    """The seconds of all cycles, and how many there were."""
    link = controller.connect()
    link.request("GET", "/metrics", headers={"Authorization": f"Bearer {controller.token}"})
    text = link.getresponse().read().decode()
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("hocket_cycle_duration_seconds_"))
    name = "hocket_cycle_duration_seconds"
    return float(found[f"{name}_sum"]), float(found[f"{name}_count"])


def main() -> int:
    """Measure each number of nodes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent_load", description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="50,200,1000", help="numbers of nodes, one after the other")
    parser.add_argument("--jobs", type=int, default=200, help="jobs that are run at each")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65_536)), hard))
    counts = [int(text) for text in options.nodes.split(",")]
    rows = []
    for count in counts:
        print(f"{count:,} nodes …", file=sys.stderr, flush=True)
        rows.append(asyncio.run(measure(count, options.jobs, options.quick)))
    titles = (
        "nodes",
        "join",
        "CPU a join",
        "idle, of a core",
        "CPU a job",
        "a cycle",
        "submit to end",
        "memory",
        "a node",
    )
    print("\n".join(table(titles, rows)))
    print(machine())
    return 0


if __name__ == "__main__":
    sys.exit(main())
