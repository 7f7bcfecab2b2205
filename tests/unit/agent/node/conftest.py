"""Real agents with real sidecars and jobs, a small controller that speaks the protocol, and nothing left behind."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
import pytest
from tests.live.processes import end_all
from tests.whole_lines import whole_lines

from hocket.agent import run_folder
from hocket.agent.node import known_run
from hocket.agent.orphan_cleanup import kill_orphans
from hocket.agent.protocol import Hello, Numbered, Order, PrepareRun, Report, ReportsAccepted, RunKey, StartRun, Welcome

PATIENCE_S = 120.0  # far more than anything here takes
TOKEN = "a-token"
SPECS = (run_folder.SPEC, known_run.CLOSED)


class ControllerAddress:
    """Hands out orders and writes reports down; it can be away, forgetful or strict."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.token = TOKEN
        self.hellos: list[Hello] = []
        self.reports: list[Report] = []  # as they were said, with repetitions
        self.heard_at: list[float] = []
        self.calls: list[list[Report]] = []
        self.logs: dict[str, tuple[dict[str, str], bytes]] = {}
        self.answer_with: dict[str, int] = {}  # hello, reports, orders → a status instead of an answer
        self.refuse: Callable[[list[Report]], int] = lambda _: 0
        self.poll_s = 0.5
        self.fence_s = 0.0
        self.first_orders: list[Order] = []  # that wait when an agent says hello
        self.orders_take_s = 0.0  # until they are handed out
        self.raw_orders = b""  # come before all others, as they are
        self.nonsense = b""  # is the answer to a call for orders
        self._orders: list[Numbered] = []
        self._connections: list[Any] = []
        self._port = 0
        self.start()

    # -- on the wire --------------------------------------------------------------------------------------------

    def start(self) -> None:
        controller = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                controller._connections.append(self.connection)

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                self._answer(b"")

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers["Content-Length"])))

            def _answer(self, body: bytes) -> None:
                status, answer = 401, b'{"error": "no token"}'
                if self.headers["Authorization"] == f"Bearer {controller.token}":
                    status, answer = controller.answer(self.path, body, dict(self.headers.items()))
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)
                except OSError:
                    self.close_connection = True

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                pass

        def listening() -> Server | None:
            try:
                return Server(("127.0.0.1", self._port), Handler)
            except OSError:  # In the meantime another connection was given this port.
                return None

        self._server = wait_until(listening, "our port")
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Be away: nothing listens, and connections are cut."""
        self._server.shutdown()
        self._server.server_close()
        while self._connections:
            try:
                self._connections.pop().shutdown(2)
            except OSError:
                continue

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def answer(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        parts = urlsplit(path)
        words = [unquote(word) for word in parts.path.split("/")[3:]]
        with self.changed:
            if status := self.answer_with.get(words[-1], 0):
                return status, b'{"error": "as the test wants it"}'
            if words == ["hello"]:
                self.hellos.append(msgspec.json.decode(body, type=Hello))
                self._orders = [Numbered(n, order) for n, order in enumerate(self.first_orders, 1)]
                self.changed.notify_all()
                waiting = len(self._orders)
                return 200, msgspec.json.encode(Welcome(self.session, 10.0, self.poll_s, self.fence_s, waiting))
            if words[0] != self.session:
                return 410, b""
            if words[1] == "reports":
                return self._take_reports(msgspec.json.decode(body, type=list[Report]))
            if words[1] == "alive":
                return 200, b"{}"
            if words[1] == "orders":
                self.changed.wait_for(lambda: False, self.orders_take_s)
                after = int(parse_qs(parts.query)["after"][0])
                mine = len(self.hellos)
                self.changed.wait_for(lambda: self._after(after) or len(self.hellos) != mine, self.poll_s)
                raw = b"" if after else self.raw_orders
                return 200, self.nonsense or b"[" + raw + msgspec.json.encode(self._after(after))[1:]
            self.logs[words[2]] = (headers, body)
            self.changed.notify_all()
            return 200, b""

    def _take_reports(self, reports: list[Report]) -> tuple[int, bytes]:
        if status := self.refuse(reports):
            return status, b'{"error": "as the test wants it"}'
        self.calls.append(reports)
        self.reports += reports
        self.heard_at += [time.time()] * len(reports)
        self.changed.notify_all()
        return 200, msgspec.json.encode(ReportsAccepted(len(reports)))

    def _after(self, n: int) -> list[Numbered]:
        return [order for order in self._orders if order.n > n]

    # -- for tests ----------------------------------------------------------------------------------------------

    @property
    def session(self) -> str:
        return f"s{len(self.hellos)}"

    def order(self, *orders: Order) -> None:
        with self.changed:
            for order in orders:
                raw = self.raw_orders.count(b'"n":')
                self._orders.append(Numbered(raw + len(self._orders) + 1, order))
            self.changed.notify_all()

    def run(self, job: str, number: int = 1, *argv: str, env: dict[str, str] | None = None, **fields: Any) -> RunKey:
        key = RunKey(job, number)
        self.order(StartRun(key, {"argv": list(argv), **fields}, env or {}))
        return key

    def run_python(self, job: str, program: str, number: int = 1, **more: Any) -> RunKey:
        return self.run(job, number, sys.executable, "-u", "-c", program, **more)

    def prepare(self, job: str, number: int, *argv: str, **fields: Any) -> RunKey:
        key = RunKey(job, number)
        self.order(PrepareRun(key, {"argv": list(argv), **fields}))
        return key

    def of(self, key: RunKey, event: str | None = None) -> list[Report]:
        with self.changed:
            return [r for r in self.reports if r.run == key and event in (None, r.event)]

    def wait_for(self, key: RunKey, event: str, count: int = 1) -> Report:
        """The report of this kind that comes as the so-many-th."""
        return self.wait_until(lambda: self.of(key, event)[count - 1 : count], f"{event} of {key}")[0]

    def wait_until(self, holds: Callable[[], Any], what: str) -> Any:
        with self.changed:
            found = self.changed.wait_for(holds, PATIENCE_S)
        assert found, f"waited for {what}; there are {self.reports}"
        return found

    def wait_for_hellos(self, count: int) -> Hello:
        self.wait_until(lambda: len(self.hellos) >= count, f"{count} hellos")
        return self.hellos[count - 1]


def wait_until(condition: Callable[[], Any], what: str = "it") -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.005)
    return found


class Agent:
    """An agent's process; may be started anew in the same folder."""

    def __init__(self, controller: ControllerAddress, folder: Path) -> None:
        self.controller, self.state = controller, folder / "state"
        self.token_file = folder / "token"
        self.token_file.write_text(TOKEN + "\n")
        self.complaints = folder / "agent.err"
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, *more: str) -> Agent:
        command = [sys.executable, "-m", "hocket.agent.node", "--url", self.controller.url, "--name", "n0"]
        command += ["--token-file", str(self.token_file), "--state", str(self.state), *more]
        with self.complaints.open("ab") as stderr:
            self.process = subprocess.Popen(command, stderr=stderr)
        self._processes.append(self.process)
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def leave(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def said(self) -> str:
        return self.complaints.read_text()

    def folders(self) -> list[Path]:
        """Of all runs; a spec that is renamed meanwhile is seen twice."""
        return sorted({path.parent for name in SPECS for path in self.state.glob(f"runs/*/*/{name}")})

    def folder(self, number: int = 1) -> Path:
        return next(path for path in self.folders() if path.name == str(number))

    def sidecar(self, number: int = 1) -> int:
        return int(wait_until(lambda: whole_lines(self.folder(number) / run_folder.LOCK), "a sidecar")[0])

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        end_all(self.state)  # Sidecars bear its name, even those that have only just begun.
        specs = [folder / name for folder in self.folders() for name in SPECS if (folder / name).exists()]
        assert [left for spec in specs for left in kill_orphans(json.loads(spec.read_text())["mark"])] == []


@pytest.fixture
def controller() -> Iterator[ControllerAddress]:
    made = ControllerAddress()
    yield made
    made.stop()


@pytest.fixture
def idle_agent(controller: ControllerAddress, tmp_path: Path) -> Iterator[Agent]:
    """Not started yet."""
    made = Agent(controller, tmp_path)
    yield made
    made.end()


@pytest.fixture
def agent(controller: ControllerAddress, idle_agent: Agent) -> Agent:
    """Started, and known to the controller."""
    idle_agent.start("--gpus", "4")
    controller.wait_for_hellos(1)
    return idle_agent


@pytest.fixture
def until() -> Callable[..., Any]:
    return wait_until
