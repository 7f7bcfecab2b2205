"""The controller's side of `executors/ray`: the process that watches Ray, started again if it dies."""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Set
from contextlib import suppress
from hashlib import sha256
from threading import Event as Flag
from threading import Lock, Thread
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct

from hocket.executors.ray.messages import IDLE_S, KEEP_S, LEAVE, AgentSettings, NodeNeeds, WatchSpec, encoded
from hocket.model.snapshot import Snapshot
from hocket.service.home import Home
from hocket.service.idle_nodes import idle_nodes
from hocket.service.wanted_resources import wanted_resources

_log = logging.getLogger("hocket.service")
_CONNECT_S = 180.0  # for Ray to answer, or to start on this machine
_LEAVE_S = 240.0  # for agents to end, and for what they had to be given back
_END_S = 60.0  # for the process to end when it is left alone
_RESTART_S, _LONGEST_RESTART_S = 0.5, 30.0


class RayUnavailable(ValueError):
    """Ray cannot be used; says why, in one line."""


class RayOptions(Struct, frozen=True):
    """What a user says of Ray."""

    address: str  # HOST:PORT, auto or start
    gpus: int | None = None  # of each node at most; None: all that are free
    cores: float | None = None
    state: str = ""  # folder for the agents' folders on each node
    checkpoints: str = ""  # folder that all nodes share
    keep_s: float = KEEP_S  # how long agents stay without a controller
    autoscale: bool = False  # whether Ray's autoscaler is asked for nodes for waiting jobs
    idle_s: float = IDLE_S  # A node that no job needs for so long is given back to it; 0: none is.
    nodes: int = 1  # of a Ray that is started here
    agent_options: tuple[str, ...] = ()
    log_options: tuple[str, ...] = ()


class RayNodes:
    """Starts the process, connects it, and has it leave Ray as if it had never been there."""

    def __init__(self, home: Home, options: RayOptions) -> None:
        self._home, self._options = home, options
        self._namespace = f"hocket-{sha256(home.token.encode()).hexdigest()[:12]}"
        self._spec: WatchSpec | None = None
        self._trouble = ""
        self._needs = NodeNeeds([])
        self._seen: Snapshot | None = None  # what they were found in
        self._stopping = Flag()
        self._lock = Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = Thread(target=self._watch, name="ray", daemon=True)

    def connect(self) -> None:
        """See that Ray can be used; nothing is made there yet. Raises RayUnavailable."""
        self._child = self._launched()
        answer = self._answer(self._child, _CONNECT_S)
        if answer is None:
            self.close()
            raise RayUnavailable(f"Ray at {self._options.address} has not answered; see '{self._home.log}'")
        if "error" in answer:
            self.close()
            raise RayUnavailable(answer["error"])

    def start(self, url: str, is_local: bool) -> None:
        """Have agents on all nodes, which call the controller at this url."""
        options, ca = self._options, self._home.ca_file
        settings = AgentSettings(
            url,
            ca.read_text() if ca.exists() else "",
            self._namespace,
            options.state or AgentSettings.__struct_defaults__[2],
            options.checkpoints,
            (*options.agent_options, *options.log_options),
            options.keep_s,
        )
        ca_file = str(ca) if ca.exists() else ""
        self._spec = WatchSpec(
            settings, str(self._home.token_file), ca_file, is_local, options.gpus, options.cores,
            options.idle_s if options.autoscale else 0.0, str(self._home.path / "ray_drained.json"),
        )  # fmt: skip
        assert self._child is not None
        self._send(self._child, encoded(self._spec))
        self._thread.start()

    @property
    def grows(self) -> bool:
        """Whether nodes may come for jobs that wait."""
        return self._options.autoscale

    def look(self, snapshot: Snapshot, with_files: Mapping[str, Set[str]]) -> None:
        """Tell what jobs need, if nodes come for them and are given back; `with_files`: job → nodes with its files."""
        if snapshot is self._seen:
            return
        self._seen = snapshot
        local = {} if self._options.checkpoints else with_files
        up = [view.node.id for view in snapshot.nodes.values() if view.up]
        idle = idle_nodes(snapshot, local) if self._options.idle_s else {}
        needs = NodeNeeds(wanted_resources(snapshot), up, idle)
        if needs == self._needs:
            return
        with self._lock:
            self._needs = needs
            if self._child is not None:
                self._send(self._child, encoded(needs))

    def stop(self) -> None:
        """End all agents, and give back what was reserved."""
        self._stopping.set()
        with self._lock:
            child = self._child
        if child is None:
            return
        if child.poll() is not None:  # It died a moment ago.
            child = self._child = self._connected()
        if child is not None:
            self._send(child, LEAVE)
        if child is None or self._answer(child, _LEAVE_S) is None:
            _log.error("what is reserved in Ray may stay for %g s; see '%s'", self._options.keep_s, self._home.log)
        self.close()

    def close(self) -> None:
        """End the process; what it has in Ray stays, but for a Ray that it has just started."""
        self._stopping.set()
        child, self._child = self._child, None
        if child is not None:
            assert child.stdin is not None
            assert child.stdout is not None
            with suppress(OSError):
                child.stdin.close()
            try:
                child.wait(_END_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            child.stdout.close()

    def _launched(self) -> subprocess.Popen[bytes]:
        options = self._options
        command = [sys.executable, "-P", "-m", "hocket.executors.ray", options.address, self._namespace]
        command += [str(self._home.ray_head), "--log-file", str(self._home.log), *options.log_options]
        command += [] if options.gpus is None else ["--gpus", str(options.gpus)]
        command += [] if options.cores is None else ["--cores", f"{options.cores:g}"]
        command += ["--nodes", str(options.nodes)]
        with open(self._home.log, "ab") as log:
            # A session of its own: Ctrl-C is for the controller.
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )

    def _connected(self) -> subprocess.Popen[bytes] | None:
        """Another process, that does what this one did; None if Ray is away."""
        child = self._launched()
        answer = self._answer(child, _CONNECT_S)
        if answer is not None and "error" not in answer and self._spec is not None:
            self._send(child, encoded(self._spec) + (encoded(self._needs) if self._options.autoscale else b""))
            self._trouble = ""
            return child
        trouble = f"Ray at {self._options.address} does not answer" if answer is None else str(answer.get("error"))
        if trouble != self._trouble:
            self._trouble = trouble
            _log.warning("%s; trying again", trouble)
        child.kill()
        child.wait()
        return None

    def _watch(self) -> None:
        delay_s = _RESTART_S
        while not self._stopping.is_set():
            child = self._child
            if child is not None:
                code, delay_s = child.wait(), _RESTART_S
                if self._stopping.is_set():
                    return
                _log.warning("the process that watches Ray ended with %s; another takes its place", code)
            if self._stopping.wait(delay_s):
                return
            delay_s = min(2 * delay_s, _LONGEST_RESTART_S)
            with self._lock:
                if not self._stopping.is_set():
                    self._child = self._connected()

    @staticmethod
    def _send(child: subprocess.Popen[bytes], line: bytes) -> None:
        assert child.stdin is not None
        with suppress(OSError):  # It died: that is seen where it is waited for.
            child.stdin.write(line)
            child.stdin.flush()

    @staticmethod
    def _answer(child: subprocess.Popen[bytes], within_s: float) -> dict[str, Any] | None:
        """The next line that it says; None if it ends, or says nothing in time."""
        assert child.stdout is not None
        fd, line, until = child.stdout.fileno(), b"", monotonic() + within_s
        while not line.endswith(b"\n"):
            if not select.select([fd], [], [], max(0.0, until - monotonic()))[0] or not (part := os.read(fd, 1)):
                return None
            line += part
        found: dict[str, Any] = msgspec.json.decode(line)
        return found
