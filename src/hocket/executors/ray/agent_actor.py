"""The actor of a node: it has the node's agent run, in a process that survives the actor's restart.

Ray kills the children of an actor that ends. So the agent is started by `agent_keeper.py`, which leaves this process at
once and goes on alone: when Ray starts the actor again, the next keeper takes the agent's place and adopts the jobs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from threading import Event as Flag
from threading import Lock, Thread
from time import sleep

import msgspec
import ray
from msgspec.structs import replace

import hocket
from hocket.agent.node.devices import VISIBLE
from hocket.agent.node.state_folder import safe_name
from hocket.agent.process_tree import read
from hocket.executors.ray.messages import LEAVE, AgentSpec, encoded

_CALLS = ("RAY_AUTH_", "RAY_USE_TLS", "RAY_TLS_")  # variables that a process needs to call a secured Ray
_RESTART_S = 1.0
_LEAVE_S = 140.0  # for jobs to be stopped; less than `Cluster.leave` waits


class AgentActor:
    """Runs a keeper (`agent_keeper.py`) as long as the actor exists, and starts another one if it ends."""

    def __init__(self, spec: bytes) -> None:
        known = msgspec.json.decode(spec, type=AgentSpec)
        self._spec = replace(
            known,
            ray_address=ray.get_runtime_context().gcs_address,
            ray_environment={name: value for name, value in os.environ.items() if name.startswith(_CALLS)},
            raylet_pid=int(os.environ.get("RAY_RAYLET_PID") or os.getppid()),
            visible=os.environ.get(VISIBLE) if known.reserved.gpus else "",
        )
        self._lock = Lock()
        self._keeper: subprocess.Popen[bytes] | None = None
        self._leaves, self._over = Flag(), Flag()
        Thread(target=self._watch, name="keeper", daemon=True).start()

    def version(self) -> str:
        """The version of Hocket on this node."""
        return hocket.__version__

    def leave(self) -> bool:
        """Stop the node's jobs and its agent for good; whether that was done in time."""
        self._leaves.set()
        with self._lock:
            if self._keeper is not None and self._keeper.stdin is not None:
                try:
                    self._keeper.stdin.write(LEAVE)
                    self._keeper.stdin.flush()
                except OSError:  # It ended just now.
                    pass
        return self._over.wait(_LEAVE_S)

    def _watch(self) -> None:
        env = agent_environment(read("/proc/self/environ") or b"", self._spec.visible)
        # -P: no module is imported from the working directory.
        command = [sys.executable, "-P", "-m", "hocket.executors.ray.agent_keeper", node_folder(self._spec)]
        while True:
            with self._lock:
                self._keeper = keeper = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env=env
                )
                assert keeper.stdin is not None
                assert keeper.stdout is not None
                keeper.stdin.write(encoded(self._spec))
                keeper.stdin.flush()
            keeper.wait()  # This was only its first process, which leaves at once.
            last = keeper.stdout.read()  # until it ends
            if b"over" in last:
                self._over.set()
                return
            with self._lock:
                keeper.stdin.close()
            keeper.stdout.close()
            sleep(_RESTART_S)


def node_folder(spec: AgentSpec) -> str:
    """The folder of a node's agent, on this machine."""
    root = os.path.abspath(os.path.expanduser(spec.settings.state))
    return os.path.join(root, safe_name(spec.settings.namespace), safe_name(spec.name))


def agent_environment(initial: bytes, visible: str | None) -> dict[str, str]:
    """The environment that Ray was started with on this node, which jobs inherit, without what Ray adds for actors.

    `initial` is that of the actor's process when it began, as /proc shows it.
    """
    entries = (entry.partition(b"=") for entry in initial.split(b"\0") if b"=" in entry)
    env = {os.fsdecode(name): os.fsdecode(value) for name, _, value in entries}
    env = {name: value for name, value in env.items() if not name.startswith("RAY_") and name != VISIBLE}
    return env if visible is None else {**env, VISIBLE: visible}
