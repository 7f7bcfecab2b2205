"""The network between agents and the controller: calls that are late, overtake each other, come twice or not at all.

A call is one HTTP request with its answer. Each direction of a node's connection can be cut for itself. What is on its
way when it is cut arrives when it is mended, as TCP sends again what was not acknowledged, or never; so a call may come
to the controller long after its caller has given it up.
"""

from __future__ import annotations

import http.client
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.faultsim.kernel import Kernel, Process, Thread

UP, DOWN = "up", "down"
Serve = Callable[[str, str, bytes], tuple[int, bytes]]  # method, path, body → status, body


class Call:
    """One request, and what came of it."""

    def __init__(self, node: str, method: str, path: str, body: bytes) -> None:
        self.node, self.method, self.path, self.body = node, method, path, body
        self.caller: Thread | None = None
        self.answer: tuple[int, bytes] | None = None
        self.is_broken = False  # its connection was closed by the other side


class Network:
    """Brings calls to the controller and answers to the agents."""

    def __init__(self, kernel: Kernel, seed: str) -> None:
        self.kernel = kernel
        self.rng = random.Random(f"network {seed}")
        self.server: Process | None = None
        self.serve: Serve | None = None
        self.late = 0.0  # how likely it is that a message takes seconds
        self.late_s = 5.0
        self.twice = 0.0  # how likely it is that a request comes twice
        self.lossy = 0.5  # how likely it is that what is under way when a connection is cut is lost
        self.cut: set[tuple[str, str]] = set()  # node, direction
        self.counts: dict[str, int] = {"calls": 0, "late": 0, "twice": 0, "lost": 0, "held": 0}
        self._held: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self._served: dict[Call, Process] = {}

    def mend(self, node: str, direction: str) -> None:
        """A connection is whole again: some of what was under way comes through."""
        self.cut.discard((node, direction))
        for deliver in self._held.pop((node, direction), []):
            self.kernel.at(self.kernel.now_s + self.rng.uniform(0.0, 2.0), deliver)

    def is_cut(self, node: str) -> bool:
        """In any direction?"""
        return (node, UP) in self.cut or (node, DOWN) in self.cut

    def send(self, call: Call) -> None:
        """A request leaves its agent."""
        self.counts["calls"] += 1
        self._carry(call.node, UP, lambda: self._arrive(call))
        if self.rng.random() < self.twice:
            self.counts["twice"] += 1
            again = Call(call.node, call.method, call.path, call.body)
            self.kernel.at(
                self.kernel.now_s + self.rng.random() * 2 * self.late_s,
                lambda: self._carry(call.node, UP, lambda: self._arrive(again)),
            )

    def _carry(self, node: str, direction: str, deliver: Callable[[], None]) -> None:
        delay_s = self.rng.uniform(0.0005, 0.01)
        if self.rng.random() < self.late:
            self.counts["late"] += 1
            delay_s += self.rng.random() * self.late_s

        def arrive() -> None:
            if (node, direction) not in self.cut:
                deliver()
            elif self.rng.random() < self.lossy:
                self.counts["lost"] += 1
            else:
                self.counts["held"] += 1
                self._held.setdefault((node, direction), []).append(deliver)

        self.kernel.at(self.kernel.now_s + delay_s, arrive)

    def _arrive(self, call: Call) -> None:
        server, serve = self.server, self.serve
        if server is None or serve is None or not server.is_alive:
            self._carry(call.node, DOWN, lambda: self._break(call))
            return
        self._served[call] = server

        def handle() -> None:
            answer = serve(call.method, call.path, call.body)
            self._served.pop(call, None)
            self.kernel.call()
            self._carry(call.node, DOWN, lambda: self._answer(call, answer))

        self.kernel.thread(server, f"{call.method} {call.path}", handle)

    def server_ended(self, server: Process) -> None:
        """All connections to it are closed."""
        for call in [c for c, by in self._served.items() if by is server]:
            del self._served[call]
            self._carry(call.node, DOWN, lambda call=call: self._break(call))  # type: ignore[misc]

    def _answer(self, call: Call, answer: tuple[int, bytes]) -> None:
        if call.caller is not None and call.answer is None:
            call.answer = answer
            self.kernel.wake(call.caller)

    def _break(self, call: Call) -> None:
        if call.caller is not None:
            call.is_broken = True
            self.kernel.wake(call.caller)


class Connection:
    """As `http.client.HTTPConnection`, of an agent."""

    def __init__(self, network: Network, timeout_s: float) -> None:
        self._network, self._timeout_s = network, timeout_s
        self._kernel = network.kernel
        self._server: Process | None = None
        self._call: Call | None = None
        self.sock: Any = None

    def _node(self) -> str:
        assert self._kernel.current is not None
        return self._kernel.current.process.machine.name

    def connect(self) -> None:
        """Reach the controller, or raise OSError."""
        kernel, network, node = self._kernel, self._network, self._node()
        kernel.call()
        until_s = kernel.now_s + self._timeout_s
        kernel.sleep(network.rng.uniform(0.0005, 0.01))
        while network.is_cut(node):
            if kernel.now_s >= until_s:
                raise TimeoutError("timed out")
            kernel.sleep(min(0.5, until_s - kernel.now_s))
        if network.server is None or not network.server.is_alive:
            raise ConnectionRefusedError(111, "Connection refused")
        self._server = network.server
        self.sock = SimpleNamespace(settimeout=self._set_timeout, getsockname=lambda: (f"10.0.0.{node}", 4000))

    def _set_timeout(self, seconds: float) -> None:
        self._timeout_s = seconds

    def request(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> None:  # noqa: ARG002
        """Send it."""
        self._kernel.call()
        if self._server is not self._network.server or self._server is None or not self._server.is_alive:
            raise ConnectionResetError(104, "Connection reset by peer")
        self._call = Call(self._node(), method, path, body or b"")
        self._call.caller = self._kernel.current
        self._network.send(self._call)

    def getresponse(self) -> Any:
        """Wait for the answer."""
        kernel, call = self._kernel, self._call
        assert call is not None
        until_s = kernel.now_s + self._timeout_s
        while call.answer is None and not call.is_broken:
            if not kernel.park(until_s) and call.answer is None:
                call.caller = None
                raise TimeoutError("timed out")
        call.caller = None
        kernel.call()
        if call.answer is None:
            raise http.client.RemoteDisconnected("Remote end closed connection without response")
        status, body = call.answer
        return SimpleNamespace(status=status, read=lambda: body)

    def close(self) -> None:
        """Hang up."""
        self.sock = None
