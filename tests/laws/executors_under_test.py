"""Every executor there is, as the laws want it: how its backend begins, and what an observer sees of it."""

# ruff: noqa: ARG002 - no executor needs all that the laws tell it

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import anyio
import uvicorn
from tests.live.processes import end_all

from hocket.agent.protocol import Report
from hocket.control.journal.memory import MemoryJournal
from hocket.control.ports import Executor, Header
from hocket.executors.agents.executor import AgentExecutor, agents
from hocket.executors.simulated import SimulatedExecutor
from hocket.model.event import Event, NodeJoined, NodeLost
from hocket.model.job import Job, Launch
from hocket.model.resources import Node
from hocket.model.snapshot import Snapshot, empty_snapshot
from hocket.model.view import NO_COSTS, Costs
from hocket.service.app import make_app
from hocket.service.listening import LOOPBACK, Listening
from hocket.service.secret_store import KeyFile
from hocket.testing.builders import submission, workload
from hocket.testing.executor_harness import ExecutorUnderTest, Gpu

STEPS = 100_000  # more than any law waits for
ONE_PROCESS = "its only node is its own process: when that is lost, so is the executor"
PREPARING = Costs(prepare_s=5.0)  # of simulated time, for jobs that may be prepared


def gpus_of(slices: Sequence[Any]) -> frozenset[Gpu]:
    return frozenset((part.node, gpu) for part in slices for gpu in part.gpus)


class Simulated(ExecutorUnderTest):
    """A step is a second of simulated time."""

    name = "simulated"
    exempt: Mapping[str, str] = {
        "a_node_that_was_away_for_a_moment_goes_on": "its nodes are there or lost: nothing in them can begin again"
    }

    def begin(self, nodes: Sequence[Node], jobs: Sequence[Job]) -> Executor:
        self.nodes = {node.id: node for node in nodes}
        truth = {"epochs": STEPS, "reference_size": 1}
        submissions = [
            submission(job, 0.0, float(STEPS), costs=PREPARING if job.warm else NO_COSTS, **truth) for job in jobs
        ]
        self.world = self.make(workload(*submissions), nodes)
        return self.world

    def make(self, *world: Any) -> SimulatedExecutor:
        return SimulatedExecutor(*world)

    def first_events(self, nodes: Sequence[Node], jobs: Sequence[Job]) -> Sequence[Event]:
        return [NodeJoined(0.0, node) for node in nodes]  # It reports the submissions itself.

    def saved(self, job: str) -> int:
        return int(self.world._runs[job].saved_s + 1e-6)

    def runs(self, job: str, snapshot: Snapshot) -> Sequence[frozenset[Gpu]]:
        run = self.world._runs.get(job)
        return [gpus_of(holding.slices) for holding, _ in run.tenancies.values()] if run is not None else []

    def started_cold(self, job: str, took_s: float) -> bool:
        return took_s >= PREPARING.prepare_s

    def lose(self, node: str) -> None:
        self.world._push(self.world.now_s, None, NodeLost(self.world.now_s, node, "power cut"))

    def bring_back(self, node: str) -> None:
        self.world._push(self.world.now_s, None, NodeJoined(self.world.now_s, self.nodes[node]))


class InProcess(ExecutorUnderTest):
    """A step is one of a model's, which counts them itself; the count is part of its state."""

    name = "inprocess"
    late_s = patience_s = 10_000.0  # by a clock that goes fifty times as fast, so that a burst of training is short
    exempt: Mapping[str, str] = {
        "a_job_that_was_prepared_starts_warm": "it prepares nothing: a model is made at the moment it starts",
        "a_job_paused_in_memory_goes_on_in_its_process": "its jobs are models, which have no process of their own",
        "a_lost_node_costs_its_own_jobs_one_run": ONE_PROCESS,
        "a_node_that_returns_runs_nothing_twice": ONE_PROCESS,
        "a_node_that_was_away_for_a_moment_goes_on": ONE_PROCESS,
        "a_lost_node_costs_a_job_over_two_nodes_one_run": ONE_PROCESS,
    }

    def begin(self, nodes: Sequence[Node], jobs: Sequence[Job]) -> Executor:
        from tests.laws.counting_models import CountingModels

        from hocket.executors.inprocess.executor import InProcessExecutor

        self.models = CountingModels(until=1 << 40)
        self.world = InProcessExecutor(self.models, lambda: 50 * time.monotonic(), mode="turn", checkpoint_s=1e9)
        return self.world

    def steps(self, job: str, events: Sequence[Event]) -> Sequence[int]:
        return self.models.steps[job]

    def saved(self, job: str) -> int:
        checkpoint = self.world.checkpoints.get(job)
        return 0 if checkpoint is None else checkpoint.step

    def runs(self, job: str, snapshot: Snapshot) -> Sequence[frozenset[Gpu]]:
        found = []
        for pid, pack in self.world._packs.items():
            partition = snapshot.partitions.get(pid)  # It has one device; which GPUs that is, the plan says.
            place = gpus_of(partition.slices) if partition is not None else frozenset({(pid, -1)})
            found += [place for name in pack.members if name == job]
        return found


class Agents(ExecutorUnderTest):
    """Real agents, which call the real API; what runs are processes."""

    name = "agents"
    is_live = True
    late_s = 60.0
    loads_into_memory = False  # Only a process that is suspended has its state in memory.
    patience_s = lease_s = 300.0  # The machine may stand still for a while.
    warm = False
    exempt: Mapping[str, str] = {}

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="hocket-laws-"))
        self.told = self.root / "told"
        self.told.mkdir()
        (self.root / "token").write_text("of-the-laws")
        self.agents: dict[str, subprocess.Popen[bytes]] = {}

    def job(self, name: str) -> Job:
        command = (sys.executable, str(Path(__file__).with_name("counting_job.py")), str(self.told))
        saves = str(self.told / f"{name}.saved")
        launch = Launch(cwd="/", checkpoint_signal="SIGUSR1", checkpoint=saves, grace_s=30.0)
        return Job(name, sizes=(1, 2), command=command, launch=launch, warm=self.warm)

    def make(self, snapshot: Snapshot) -> AgentExecutor:
        return agents(self.lease_s)(snapshot)

    def begin(self, nodes: Sequence[Node], jobs: Sequence[Job]) -> Executor:
        self.executor = self.make(empty_snapshot(()))
        self.api = Api(Delivering(self, self.executor), "of-the-laws")
        for node in nodes:
            self.bring_back(node.id)
        return self.executor

    def first_events(self, nodes: Sequence[Node], jobs: Sequence[Job]) -> Sequence[Event]:
        return [event for event in super().first_events(nodes, jobs) if not isinstance(event, NodeJoined)]

    def end(self) -> None:
        for agent in self.agents.values():
            agent.kill()
            agent.wait()
        end_all(self.root)
        self.api.close()
        shutil.rmtree(self.root)

    def steps(self, job: str, events: Sequence[Event]) -> Sequence[int]:
        return [int(line) for line in self._lines(f"{job}.steps")]

    def saved(self, job: str) -> int:
        return int(next(self._lines(f"{job}.saved"), "0"))

    def runs(self, job: str, snapshot: Snapshot) -> Sequence[frozenset[Gpu]]:
        found: dict[
            str, set[Gpu]
        ] = {}  # by attempt, which may have parts on several nodes, and as one process for each
        for line in self._lines(f"{job}.runs"):
            pid, attempt, node, gpus, _command = line.split()
            if lives(pid):
                part = {(node, int(gpu)) for gpu in gpus.split(",")}
                # The same part twice is two runs, whatever they say of themselves.
                same = f"{attempt} {pid}" if part <= found.get(attempt, set()) else attempt
                found.setdefault(same, set()).update(part)
        return [frozenset(gpus) for gpus in found.values()]

    def started_cold(self, job: str, took_s: float) -> bool:
        *_pid_and_place, program = list(self._lines(f"{job}.runs"))[-1].split()
        return program != "warm.py"  # What is prepared is this program, which becomes the job.

    def _lines(self, name: str) -> Iterator[str]:
        path = self.told / name
        return iter(path.read_text().splitlines() if path.exists() else ())

    def lose(self, node: str) -> None:
        self.isolate(node)
        end_all(self.root / node)

    def isolate(self, node: str) -> None:
        self.agents[node].kill()
        self.agents[node].wait()
        sessions = self.executor.sessions
        with sessions._lock:
            (name,) = [name for name, session in sessions._sessions.items() if session.node == node]
            session = sessions._sessions.pop(name)
            session.heard_at -= 2 * self.lease_s  # as if so much time had passed
            sessions._sessions[f"silent {name}"] = session  # A call that the agent made before has no effect.

    def restart(self, node: str) -> None:
        self.agents[node].kill()
        self.agents[node].wait()
        self.bring_back(node)

    def bring_back(self, node: str) -> None:
        state = self.root / node
        command = [sys.executable, "-m", "hocket.agent.node", "--url", self.api.url, "--gpus", "2"]
        command += ["--token-file", str(self.root / "token"), "--state", str(state), "--name", node]
        env = {**os.environ, "TMPDIR": str(self.root)}
        with (self.root / f"{node}.log").open("ab") as log:
            self.agents[node] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)


class PreparedAgents(Agents):
    """Jobs whose next run stands ready beside the present one."""

    name = "agents-prepared"
    warm = True


class Delivering:
    """The executor as the API sees it: reports go through the hands of the law."""

    def __init__(self, under: Agents, executor: AgentExecutor) -> None:
        self._under, self._executor = under, executor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def report(self, reports: Sequence[Report], node: str = "") -> Any:
        return self._executor.report(self._under.deliver(node, reports), node)


class Api:
    """The real API over an executor that the law drives; of an engine, agents need no more than this."""

    def __init__(self, executor: Any, token: str) -> None:
        journal = MemoryJournal(Header("none"))
        engine: Any = SimpleNamespace(
            executor=executor, sessions=executor.sessions, on_jobs_changed=[], on_cycle=[], on_cycle_timed=[],
            journal=journal, snapshot=empty_snapshot(()),
        )  # fmt: skip
        no_key = KeyFile(Path("/nowhere"), lambda _path, _text: None)
        app = make_app(engine, token, lambda _grace_s: None, secrets_key=no_key)
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1)
        self._server, self._listening = uvicorn.Server(config), Listening(LOOPBACK, None, 0)
        self.url = self._listening.url
        self._thread = Thread(target=lambda: anyio.run(self._serve))
        self._thread.start()

    async def _serve(self) -> None:
        await self._server._serve(sockets=[self._listening.socket])

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listening.close()


def lives(pid: str) -> bool:
    """Does the process live? One that is dead and not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


EXECUTORS = {kind.name: kind for kind in (Simulated, InProcess, Agents)}
