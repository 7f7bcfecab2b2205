"""A simulated cluster: the real controller and the real agents, started, killed and started again on one clock."""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
from tests.faultsim.checks import Checks
from tests.faultsim.files import Disk, OpenFile, Pipe
from tests.faultsim.journal_store import SimulatedJournal, Store
from tests.faultsim.kernel import EPOCH_S, Kernel, Machine, Process
from tests.faultsim.network import Connection, Network
from tests.faultsim.scenario import JobPlan, Request, Scenario
from tests.faultsim.sidecar_model import Child, SidecarModel
from tests.faultsim.stand_ins import Poller, System, deliver

from hocket.agent.node import agent as agent_module
from hocket.agent.node.controller_link import Away, CallRefused
from hocket.agent.node.devices import Devices
from hocket.agent.run_folder import InUse
from hocket.control.ports import Facts, Header
from hocket.executors.agents.executor import agents
from hocket.executors.agents.standby_runs import ResizeBy
from hocket.executors.agents.unconfirmed_orders import UnconfirmedOrders
from hocket.model.event import JobAsked, JobRequest, JobSubmitted
from hocket.model.resources import Node
from hocket.policies.registry import bind
from hocket.service import agent_calls
from hocket.service.api import ApiError
from hocket.service.engine import Engine, Unavailable
from hocket.service.node_drain import DrainSpec, NodeError, drain, undrain
from hocket.service.request_guard import TOKEN
from hocket.service.tokens import Role, Token

_STATE, _TOKEN = "/state", "/token"
_PATIENCE_S = 60.0  # of a call, for a cycle to be written
_RESTLESS = {"every_s": 4.0, "paused": 0.05, "resized": 0.15}


class SimulatedNode:
    """A machine with an agent, which is started again whenever it ends."""

    def __init__(self, cluster: Cluster, name: str, gpus: int) -> None:
        self.cluster, self.name, self.gpus = cluster, name, gpus
        self.machine = Machine(cluster.kernel, name, Disk(lambda: cluster.kernel.now_s))
        if cluster.scenario.shared:
            self.machine.shared[f"{_STATE}/checkpoints"] = cluster.shared_disk
        self.machine.disk.put(_TOKEN, b"token")
        self.agent: Process | None = None
        self.signals = Pipe()
        self.down_until_s = 0.0  # its agent is not started again before
        self.start()

    def start(self) -> None:
        """Start the agent, unless it runs, or the machine is off."""
        kernel = self.cluster.kernel
        if not self.machine.is_on or kernel.now_s < self.down_until_s:
            return
        if self.agent is None or not self.agent.is_alive:
            self.signals = Pipe()
            self.agent = kernel.process(self.machine, f"agent {self.name}", self._main)
            self.agent.on_end.append(self._ended)
            self.agent.on_signal = self._signalled

    def _main(self) -> None:
        arguments = ["--url", "http://controller:1", "--token-file", _TOKEN, "--state", _STATE, "--name", self.name]
        arguments += ["--gpus", str(self.gpus), "--address", f"{self.name}.local"]
        try:
            agent = agent_module.NodeAgent(agent_module._options(arguments, "agent"))
        except (InUse, CallRefused, Away, OSError, ValueError):
            return
        agent.run()

    def _signalled(self, number: int) -> None:
        if self.signals.readers:
            self.signals.data.append(number)
            self.signals.told()

    def _ended(self) -> None:
        kernel = self.cluster.kernel
        kernel.at(max(kernel.now_s + self.cluster.rng.uniform(0.2, 1.5), self.down_until_s + 0.001), self.start)

    def lose_power(self, for_s: float) -> None:
        """All processes are gone, and what was not on the disk yet may be; it is switched on again after a while."""
        kernel = self.cluster.kernel
        self.machine.is_on = False
        for process in list(self.machine.processes.values()):
            if process.is_alive:
                process.end()
        self.machine.disk.lose_power(self.cluster.rng)
        self.cluster.checks.power_lost(self.name)

        def boot() -> None:
            self.machine.boot()
            self.start()

        kernel.at(kernel.now_s + for_s, boot)


class SimulatedController:
    """The controller's process, on a journal that outlives it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.machine = Machine(cluster.kernel, "controller", Disk(lambda: cluster.kernel.now_s))
        self.store = Store()
        self.engine: Engine | None = None
        self.process: Process | None = None
        self.down_until_s = 0.0
        self.start()

    def start(self) -> None:
        """Start it, unless it runs."""
        kernel = self.cluster.kernel
        if kernel.now_s >= self.down_until_s and (self.process is None or not self.process.is_alive):
            self.process = kernel.process(self.machine, "controller", self._main)
            self.process.on_end.append(self._ended)

    @property
    def is_serving(self) -> bool:
        """Can it be asked something?"""
        return self.engine is not None and self.process is not None and not self.process.is_stopped

    def _main(self) -> None:
        cluster, kernel = self.cluster, self.cluster.kernel
        kernel.sleep(cluster.rng.uniform(0.05, 0.5))
        name = cluster.scenario.policy
        policy = bind(name, _RESTLESS if name == "restless" else {})
        executor = agents(cluster.scenario.lease_s, ResizeBy.EARLY, lambda: kernel.now_s + EPOCH_S)
        engine = Engine("simulated", executor, policy)
        engine.on_cycle.append(cluster.checks.cycle_written)
        serve = routes(engine, cluster)
        self.engine = engine
        cluster.checks.controller_restored(engine, self.store)
        engine.start()
        cluster.network.server, cluster.network.serve = self.process, serve
        engine.over.wait()
        kernel.errors.append(f"the controller ended by itself: {engine.trouble}")

    def _ended(self) -> None:
        process, engine = self.process, self.engine
        assert process is not None
        self.engine = None
        if engine is not None:
            self.cluster.checks.controller_ended(engine, self.store)
        self.cluster.network.server_ended(process)
        kernel = self.cluster.kernel
        kernel.at(max(kernel.now_s + self.cluster.rng.uniform(0.2, 1.5), self.down_until_s + 0.001), self.start)


class Cluster:
    """All of it."""

    def __init__(self, scenario: Scenario, kernel: Kernel, system: System) -> None:
        self.scenario, self.kernel, self.system = scenario, kernel, system
        self.rng = random.Random(f"cluster {scenario.seed}")
        self.network = Network(kernel, str(scenario.seed))
        self.network.late, self.network.late_s = scenario.late, scenario.late_s
        self.network.twice, self.network.lossy = scenario.twice, scenario.lossy
        self.shared_disk = Disk(lambda: kernel.now_s)
        self.checks = Checks(self)
        self._plans = {plan.job.id: plan for plan in scenario.jobs}
        self.unanswered = 0  # requests of users

    def start(self) -> None:
        """Start every machine, and the users."""
        self.controller = SimulatedController(self)
        self.nodes = {name: SimulatedNode(self, name, gpus) for name, gpus in self.scenario.nodes.items()}
        self._users = Machine(self.kernel, "users", Disk(lambda: self.kernel.now_s))
        for plan in self.scenario.jobs:
            self.ask(plan.at_s, f"submit {plan.job.id}", lambda plan=plan: self._submit(plan))  # type: ignore[misc]
        for name in dict.fromkeys(request.name for request in self.scenario.requests):
            requests = [r for r in self.scenario.requests if r.name == name]
            self.ask(requests[0].at_s, f"requests for {name}", lambda rs=requests: self._request_all(rs))  # type: ignore[misc]

    def release_all(self) -> None:
        """With a journal that was restored, what users asked may be lost: they ask once more."""
        for plan in self.scenario.jobs:
            request = Request(self.kernel.now_s, str(JobRequest.RESUME), plan.job.id)
            if plan.job.id in self.checks.accepted:
                self.ask(request.at_s, f"resume {plan.job.id}", lambda r=request: self._request(r))  # type: ignore[misc]
        for node in self.scenario.nodes:
            request = Request(self.kernel.now_s, "undrain", node)
            self.ask(request.at_s, f"undrain {node}", lambda r=request: self._request(r))  # type: ignore[misc]

    def plan_of(self, job: str) -> JobPlan:
        """What the process of a job does."""
        return self._plans[job]

    # -- for the sidecars -----------------------------------------------------------------------------------------

    def launch(self, folder: str, _secrets: Any = None) -> Child:
        """As `run_folder.launch`."""
        self.kernel.call()
        agent = self.system.process
        if agent.machine.disk.is_full and self.rng.random() < 0.5:
            raise OSError(28, "No space left on device")
        return Child(self, SidecarModel(self, folder, agent), agent)

    def deliver(self, process: Process, number: int) -> None:
        """Send a signal."""
        deliver(process, number)

    def marked(self, machine: Machine, mark: str) -> list[Process]:
        """The processes that bear a mark."""
        return [p for p in machine.processes.values() if p.mark == mark and p.is_alive]

    def kill_marked(self, machine: Machine, mark: str) -> list[int]:
        """End them."""
        for process in self.marked(machine, mark):
            process.end()
        return []

    # -- what takes the place of product code ---------------------------------------------------------------------

    def replaced(self) -> dict[tuple[str, str], Any]:
        """(module, name) → what it is in a simulation, beside the standard library."""
        node, sidecar = "hocket.agent.node", "hocket.agent.sidecar"
        clock = self.system.time.monotonic

        def kill_orphans(mark: str, _sessions: Any = (), _below: Any = None, **_: Any) -> list[int]:
            self.kernel.call()
            return self.kill_marked(self.system.machine, mark)

        def orphans(mark: str, _sessions: Any = (), _below: Any = None, _cgroup: Any = None) -> list[int]:
            return [p.pid for p in self.marked(self.system.machine, mark)]

        def signal_pipe() -> int:
            process = self.system.process
            opened = OpenFile(self.nodes[process.machine.name].signals, 0)
            opened.of.readers.append(opened)  # type: ignore[union-attr]
            process.next_fd += 1
            process.files[process.next_fd] = opened
            return process.next_fd

        def discover(name: str, declared: Any, _visible: Any) -> Devices:
            return Devices(Node(name, declared.gpus, cores=16.0, mem_mib=64_000.0), ())

        async def run_sync(call: Callable[..., Any], *given: Any, limiter: Any) -> Any:  # noqa: ARG001
            return call(*given)

        def open_to_append(_store: str, header: Header) -> SimulatedJournal:
            return SimulatedJournal(self.kernel, self.controller.store, header)

        return {
            ("hocket.agent.run_folder", "launch"): self.launch,
            (f"{node}.agent", "Poller"): Poller,
            (f"{node}.agent", "_signal_pipe"): signal_pipe,
            (f"{node}.agent", "discover"): discover,
            (f"{node}.agent", "GpuUsage"): lambda _state: SimpleNamespace(added=lambda report: report),
            (f"{node}.controller_link", "connection"): lambda _url, s, _ca: Connection(self.network, s),
            (f"{node}.runs", "kill_orphans"): kill_orphans,
            (f"{sidecar}.process_suspension", "orphans"): orphans,
            ("hocket.executors.agents.executor", "UnconfirmedOrders"): lambda: UnconfirmedOrders(clock),
            ("hocket.service.agent_calls", "run_sync"): run_sync,
            ("hocket.service.engine", "open_to_append"): open_to_append,
        }

    # -- users ------------------------------------------------------------------------------------------------------

    def ask(self, at_s: float, name: str, what: Callable[[], None]) -> None:
        """A user asks for something, until it is answered."""
        self.unanswered += 1

        def run() -> None:
            self.kernel.sleep(max(at_s - self.kernel.now_s, 0.0))
            what()
            self.unanswered -= 1

        self.kernel.process(self._users, f"user, {name}", run)

    def _submit(self, plan: JobPlan) -> None:
        def is_there(engine: Engine) -> bool:
            return engine.catalogue.get(plan.job.id) is not None

        def make(_snapshot: Any, now_s: float) -> list[Any]:
            return [JobSubmitted(now_s, plan.job)]

        while True:
            engine = self._answering()
            if is_there(engine):  # An answer was lost, and it is there.
                break
            refused = self._posted(engine, make, lambda refused: dict(refused))
            if refused == {}:
                break
            self.kernel.sleep(2.0)  # It does not fit yet: no node is there. Or the controller is gone.
        self.checks.submitted(plan)

    def _request_all(self, requests: list[Request]) -> None:
        """One after the other: the next is asked when the last is answered."""
        for request in requests:
            if self.kernel.now_s < request.at_s:
                self.kernel.sleep(request.at_s - self.kernel.now_s)
            self._request(request)

    def _request(self, request: Request) -> None:
        if request.what in ("drain", "undrain"):
            self._drain(request)
            return

        def make(_snapshot: Any, now_s: float) -> list[Any]:
            return [JobAsked(now_s, request.name, JobRequest(request.what))]

        while True:
            engine = self._answering()
            record = engine.catalogue.get(request.name)
            if record is not None and record.ended_s is not None:
                return
            if record is None and self.checks.is_journal_cut and request.name in self.checks.accepted:
                return  # The journal that was restored does not know the job.
            self.checks.asked(request)  # It may take place though it is not answered.
            if record is not None and self._posted(engine, make, lambda _: {}) is not None:
                return
            self.kernel.sleep(1.0)

    def _drain(self, request: Request) -> None:
        while True:
            engine = self._answering()
            if request.what == "drain":
                future = drain(engine.executor, request.name, DrainSpec(now=self.rng.random() < 0.5))
            else:
                future = undrain(engine.executor, request.name, "")
            if self._answer(future) is not _NO_ANSWER:
                return
            self.kernel.sleep(1.0)

    def _answering(self) -> Engine:
        while not self.controller.is_serving:
            self.kernel.sleep(0.5)
        assert self.controller.engine is not None
        return self.controller.engine

    def _posted(self, engine: Engine, make: Facts, result: Callable[[Any], Any]) -> Any:
        answer = self._answer(engine.executor.post(make, result))
        return None if answer is _NO_ANSWER else answer

    def _answer(self, future: Future[Any]) -> Any:
        try:
            return self.result(future, _PATIENCE_S)
        except NodeError:
            return None
        except (TimeoutError, Unavailable, RuntimeError):
            return _NO_ANSWER

    def result(self, future: Future[Any], within_s: float) -> Any:
        """The result of a future, which a thread waits for; TimeoutError."""
        kernel = self.kernel
        me, until_s = kernel.current, kernel.now_s + within_s
        assert me is not None
        future.add_done_callback(lambda _: kernel.wake(me))
        while not future.done():
            if not kernel.park(until_s) and not future.done():
                raise TimeoutError
        return future.result()


_NO_ANSWER = object()


class _RecordingApp:
    """Takes the place of `HttpApp`: it keeps the functions that answer calls, by method and last word of the path."""

    def __init__(self) -> None:
        self.handlers: dict[tuple[str, str], Callable[..., Awaitable[Any]]] = {}

    def post(self, path: str, **_: Any) -> Callable[[Any], Any]:
        return lambda handler: self.handlers.setdefault(("POST", _word(path)), handler)

    def get(self, path: str, **_: Any) -> Callable[[Any], Any]:
        return lambda handler: self.handlers.setdefault(("GET", _word(path)), handler)


_ADMIN = Token("home", Role.ADMIN, "")


def _word(path: str) -> str:
    parts = path.split("/")
    return parts[4] if len(parts) > 4 else parts[3]


def routes(engine: Engine, cluster: Cluster) -> Callable[[str, str, bytes], tuple[int, bytes]]:
    """The calls of agents as the service answers them, without HTTP."""

    async def is_accepted(future: Future[Any], _shown_by: str = "") -> Any:
        try:
            return cluster.result(future, _PATIENCE_S)
        except TimeoutError as error:
            raise ApiError(503, "too late") from error
        except (Unavailable, RuntimeError) as error:
            raise ApiError(503, str(error)) from error

    app = _RecordingApp()
    tokens = SimpleNamespace(is_valid=lambda _token: True)
    api = SimpleNamespace(engine=engine, is_accepted=is_accepted, polls=None, logs={}, tokens=tokens)
    agent_calls.add_agents(app, api)  # type: ignore[arg-type]

    parameters = {handler: frozenset(inspect.signature(handler).parameters) for handler in app.handlers.values()}

    def serve(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        url = urlsplit(path)
        parts = url.path.split("/")

        async def whole() -> bytes:
            return body

        request = SimpleNamespace(body=whole, headers={}, scope={TOKEN: _ADMIN}, state=SimpleNamespace())
        given: dict[str, Any] = {"request": request, "session": unquote(parts[3])}
        given |= {name: int(values[0]) for name, values in parse_qs(url.query).items()}
        if len(parts) > 5:
            given["log_request"] = unquote(parts[5])
        handler = app.handlers[method, _word(url.path)]
        wanted = parameters[handler]
        try:
            answered = handler(**{name: value for name, value in given.items() if name in wanted})
            answered.send(None)  # type: ignore[attr-defined]
        except StopIteration as done:
            return done.value.status_code, done.value.body
        except ApiError as error:
            return error.status_code, msgspec.json.encode({"error": str(error.detail)})
        raise AssertionError(f"{method} {path} awaits something that is not simulated")

    return serve
