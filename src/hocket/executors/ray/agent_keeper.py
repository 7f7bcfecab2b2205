"""`python -m hocket.executors.ray.agent_keeper FOLDER`: runs the agent of a node of Ray, and ends it with the node.

What Ray has reserved for us is ours as long as Ray runs there and the actor is in its place. An agent alone would not
know, and jobs that are frozen would hold their GPUs for ever. So this process watches:

| what happens | the agent and its jobs |
| --- | --- |
| the actor is restarted by Ray | the next keeper takes over: jobs run on |
| the actor ends and is not restarted within a minute | jobs are asked to save, then end |
| Ray's own process on this node ends | the same, at once |
| no controller has answered for `keep_s` | the same; then what was reserved is given back to Ray |
| the actor says so (`hocket down`) | the same |

It imports nothing of Ray. It is not a child of the actor, for Ray would kill it with that.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from time import monotonic

import msgspec
from msgspec.structs import replace

from hocket.agent.lease_file import NAME as LEASE
from hocket.agent.lease_file import boot_s, read_lease
from hocket.agent.log_setup import set_up_logging
from hocket.agent.node.devices import Declared, discover
from hocket.agent.node.state_folder import share_checkpoints
from hocket.agent.process_tree import process, read
from hocket.agent.run_folder import LOCK, InUse, take_lock
from hocket.executors.ray.messages import LEAVE, AgentSpec

_log = logging.getLogger("hocket.agent")
_MODULE = "hocket.executors.ray.agent_keeper"
_LOOK_S = 1.0
_RESTART_S, _LONGEST_RESTART_S = 0.5, 10.0  # between two attempts to start the agent
_ACTOR_S = 60.0  # for Ray to start its actor again
_TAKE_OVER_S = 20.0  # for an earlier keeper to leave
_STOP_S = 60.0  # for jobs to save; then they are killed
_FROZEN_S = 1.0  # between the signal to stop jobs and the one to kill them, where they are frozen anyway
_KILL_S = 40.0
# No controller answers there: an agent that is to stop its jobs must not be refused by its controller before.
_NO_CONTROLLER = "http://127.0.0.1:9"
_PR_SET_PDEATHSIG = 1


def why_stop(actor_gone_s: float | None, raylet_lives: bool, silent_s: float, keep_s: float) -> str:
    """Why the agent must leave this node; empty if it may stay.

    `actor_gone_s`: for how many seconds the actor has been gone; None: it is there. No controller has renewed the lease
    for `silent_s` beyond its end.
    """
    if not raylet_lives:  # Its actor may live on for a while, when Ray's head was killed.
        return "Ray has ended on this node"
    if actor_gone_s is not None and actor_gone_s > _ACTOR_S:
        return f"Ray has not started the agent's actor again within {_ACTOR_S:g} s"
    if silent_s > keep_s:
        return f"no controller has answered for {keep_s:g} s"
    return ""


class AgentKeeper:
    """Starts a node's agent, and ends it when it must leave the node."""

    def __init__(self, spec: AgentSpec, folder: str) -> None:
        self._spec, self._folder = spec, folder
        self._began_s = boot_s()
        self._sees_raylet = process(spec.raylet_pid) is not None  # not from within another container
        self._actor_gone_at: float | None = None
        self._agent: subprocess.Popen[bytes] | None = None
        self._restart_at, self._delay_s = 0.0, _RESTART_S
        self._signals, write_end = os.pipe()
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)

    def run(self) -> bool:
        """Run the agent until it must leave the node (True), or another keeper takes over (False)."""
        received, inputs = b"", [0, self._signals]
        while True:
            self._keep_agent_running()
            readable, _, _ = select.select(inputs, [], [], _LOOK_S)
            if self._signals in readable and signal.SIGTERM in os.read(self._signals, 4096):
                _log.info("another keeper takes over")
                self._end_agent()
                return False
            if 0 in readable:
                part = os.read(0, 4096)
                received += part
                if not part:
                    _log.warning("the actor has ended; Ray may start it again")
                    self._actor_gone_at, inputs = monotonic(), [self._signals]
            gone_s = None if self._actor_gone_at is None else monotonic() - self._actor_gone_at
            raylet_lives = not self._sees_raylet or process(self._spec.raylet_pid) is not None
            why = why_stop(gone_s, raylet_lives, self._silent_s(), self._spec.settings.keep_s)
            if LEAVE in received or why:
                _log.log(logging.WARNING if why else logging.INFO, "leaves: %s", why or "the controller goes down")
                self._stop_jobs()
                if why and raylet_lives:
                    self._give_back()
                return True

    def _silent_s(self) -> float:
        until_s = read_lease(os.path.join(self._folder, "state", LEASE)) or 0.0
        return boot_s() - max(until_s, self._began_s)

    def _keep_agent_running(self) -> None:
        """Start the agent, again if it has ended."""
        if self._agent is not None and (code := self._agent.poll()) is not None:
            _log.warning("the agent ended with %s; another takes its place in %g s", code, self._delay_s)
            self._agent, self._restart_at = None, monotonic() + self._delay_s
            self._delay_s = min(2 * self._delay_s, _LONGEST_RESTART_S)
        if self._agent is None and monotonic() >= self._restart_at:
            self._agent = self._launched()

    def _launched(self, url: str = "") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "hocket.agent.node", *self._spec.agent_options(self._folder, url)]
        # A session of its own, so that it does not end with us but is told to leave: its jobs run on.
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True, preexec_fn=_end_with_parent
        )

    def _end_agent(self) -> None:
        """End the agent; its jobs run on."""
        if self._agent is not None:
            self._agent.terminate()
            try:
                self._agent.wait(_TAKE_OVER_S / 2)
            except subprocess.TimeoutExpired:
                self._agent.kill()
                self._agent.wait()

    def _stop_jobs(self) -> None:
        """Ask the jobs to save and end, then kill them; the agent ends with them."""
        is_frozen = self._silent_s() > 0  # Without a lease they stand still, and cannot save.
        if self._agent is None or self._agent.poll() is not None:
            self._agent = self._launched(_NO_CONTROLLER)
        for wait_s in (_FROZEN_S if is_frozen else _STOP_S, _KILL_S):
            self._agent.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._agent.wait(wait_s)
                return
        _log.error("the agent did not end in time; jobs may run on")
        self._agent.kill()
        self._agent.wait()

    def _give_back(self) -> None:
        spec = self._spec
        command = [sys.executable, "-P", "-m", "hocket.executors.ray.remove"]
        command += [spec.ray_address, spec.settings.namespace, spec.actor]
        env = {**os.environ, **spec.ray_environment}
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2, check=False, env=env)


def _end_with_parent() -> None:
    """In the agent's process, before it begins: SIGTERM when the keeper is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def make_folder(folder: str, spec: AgentSpec) -> None:
    """The folder of a node's agent, with its token, log and state. Raises OSError."""
    settings = spec.settings
    state = os.path.join(folder, "state")
    os.makedirs(state, 0o700, exist_ok=True)
    for name, text in (("token", spec.token), ("ca.pem", settings.ca)):
        fd = os.open(os.path.join(folder, f"{name}.new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "w", encoding="ascii") as file:
            file.write(text)
        os.replace(os.path.join(folder, f"{name}.new"), os.path.join(folder, name))
    if settings.checkpoints and not os.path.islink(os.path.join(state, "checkpoints")):
        share_checkpoints(state, settings.checkpoints)


def take_over(folder: str) -> int:
    """The lock on the folder; an earlier keeper is told to leave, and killed if it does not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        holder = (read(os.path.join(folder, LOCK)) or b"").strip().decode(errors="replace")
        if holder.isdecimal() and _MODULE.encode() in (read(f"/proc/{holder}/cmdline") or b""):
            with suppress(ProcessLookupError):
                os.kill(int(holder), number)
        with suppress(InUse):
            return take_lock(folder, f"folder '{folder}' has an agent already", _TAKE_OVER_S)
    return take_lock(folder, f"folder '{folder}' has an agent already", _TAKE_OVER_S)


def with_usable_gpus(spec: AgentSpec) -> tuple[AgentSpec, str]:
    """As many GPUs as there are, if Ray was told of more than the machine has; and what is wrong, in words.

    Where there are none at all, they are virtual: for tests.
    """
    found = len(discover(spec.name, Declared(), spec.visible).gpus)
    if not 0 < found < spec.reserved.gpus:
        return spec, ""
    wrong = f"Ray says that node '{spec.name}' has {spec.reserved.gpus} GPUs for us, and {found} can be used"
    return replace(spec, reserved=replace(spec.reserved, gpus=found)), wrong


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        if not (part := os.read(0, 1)):  # not a byte more: what comes next is for `run`
            raise SystemExit(2)
        line += part
    return line


def main() -> None:
    """Leave the actor's process behind, then keep the agent."""
    if os.fork():
        os._exit(0)
    spec = msgspec.json.decode(_first_line(), type=AgentSpec)
    folder = sys.argv[1]
    make_folder(folder, spec)
    log = os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    options = spec.settings.options
    level = options[options.index("--log-level") + 1] if "--log-level" in options else "info"
    set_up_logging(level, "--log-json" in options, os.path.join(folder, "log"), node=spec.name)
    lock = take_over(folder)
    spec, wrong = with_usable_gpus(spec)
    if wrong:
        _log.error("%s", wrong)
    if AgentKeeper(spec, folder).run():
        with suppress(OSError):  # The actor is gone.
            os.write(1, b"over\n")
    os.close(lock)


if __name__ == "__main__":
    main()
