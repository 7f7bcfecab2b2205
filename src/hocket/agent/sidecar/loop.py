"""Runs one attempt of a job on one machine: `python -m hocket.agent.sidecar RUN_FOLDER`.

It takes orders from the folder and writes facts into it (see `run_folder`), so it lives on when the agent dies. It
sleeps until something happens: the job prints or ends, an order comes, or a time is up.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from hocket.agent import run_folder
from hocket.agent.cgroup import Cgroup
from hocket.agent.orphan_cleanup import kill_orphans
from hocket.agent.run_folder import InUse
from hocket.agent.sidecar.attempt import Attempt
from hocket.agent.sidecar.events_writer import Events
from hocket.agent.sidecar.spec import Spec, is_count, is_duration, is_environment, read_spec
from hocket.agent.sidecar.workers import adopt_orphans

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BAD_SPEC, IN_USE, OVER = 2, 3, 4  # exit codes beside 0
_LEAVE = {signal.SIGTERM, signal.SIGINT}
_DISK_S = 1.0  # between attempts to write facts that a full disk did not take


class Sidecar:
    """Waits for whatever comes, and passes it on to the attempt."""

    def __init__(self, folder: str, spec: Spec, events: Events) -> None:
        self._spec, self._events = spec, events
        self._control = run_folder.Control(folder)
        self._signals = _signal_pipe()
        self._attempt = Attempt(folder, spec, events)

    def run(self) -> None:
        """From the beginning of the attempt to its end."""
        self._attempt.begin()
        while not self._attempt.is_over:
            self._wait()
            self._attempt.tick(time.monotonic())
        while not self._events.flush():  # The end is worth waiting for, until a signal says otherwise.
            if select.select([self._signals], [], [], _DISK_S)[0] and set(os.read(self._signals, 4096)) & _LEAVE:
                return
        self._events.sync()

    def _wait(self) -> None:
        next_s = self._attempt.next_s()
        if not self._events.flush():
            next_s = min(next_s or float("inf"), time.monotonic() + _DISK_S)
        timeout_ms = None if next_s is None else min(max(next_s - time.monotonic(), 0) * 1000 + 1, 1e9)
        sources = {self._control.fd: self._take_orders, self._signals: self._take_signals, **self._attempt.sources()}
        poll = select.poll()
        for fd in sources:
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(timeout_ms):
            if not self._attempt.is_over:
                sources[fd]()

    def _take_signals(self) -> None:
        came = os.read(self._signals, 4096)
        if signal.SIGCHLD in came:
            self._wait_for_children()
        if set(came) & _LEAVE and not self._attempt.is_over:
            self._attempt.stop(self._spec.grace_s)

    def _wait_for_children(self) -> None:
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._attempt.ended(pid, status, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)

    def _take_orders(self) -> None:
        for order in self._control.orders():
            if not self._attempt.is_over:
                trouble = order if isinstance(order, str) else self._carry_out(order)
                if trouble:
                    self._attempt.warn(trouble)

    def _carry_out(self, order: dict[str, Any]) -> str | None:
        """Do it; what is wrong with it otherwise."""
        match order.get("do"):
            case "start":
                env, workers = order.get("env", {}), order.get("workers")
                if not is_environment(env):
                    return "order 'start': env must be texts by name"
                if workers is not None and not is_count(workers):
                    return f"order 'start': workers must be a count from 1, not {workers!r}"
                self._attempt.start(env, workers)
            case "checkpoint":
                self._attempt.checkpoint()
            case "stop":
                grace_s = order.get("grace_s", self._spec.grace_s)
                if not is_duration(grace_s):
                    return f"order 'stop': grace_s must be a number of seconds, not {grace_s!r}"
                self._attempt.stop(grace_s)
            case "suspend":
                grace_s = order.get("grace_s", 0.0)
                if not is_duration(grace_s):
                    return f"order 'suspend': grace_s must be a number of seconds, not {grace_s!r}"
                self._attempt.suspend(grace_s)
            case "continue":
                self._attempt.go_on()
            case "kill":
                self._attempt.kill(asked=True)
            case other:
                return f"order {other!r} is unknown"
        return None


def _signal_pipe() -> int:
    """Signals become bytes that can be waited for like everything else."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *_LEAVE):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return read_end


def main(arguments: list[str] | None = None) -> int:
    """Run the attempt that a folder describes; 0 once its end is written down."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if len(arguments) != 1:
        print("usage: python -m hocket.agent.sidecar RUN_FOLDER", file=sys.stderr)
        return BAD_SPEC
    folder = os.path.abspath(arguments[0])
    os.closerange(3, 1 << 16)  # The agent must not wait for us because of a pipe.
    try:
        run_folder.lock(folder)
        events = Events(os.path.join(folder, run_folder.EVENTS))
    except InUse as error:
        print(f"sidecar: {error}", file=sys.stderr)
        return IN_USE
    except OSError as error:
        print(f"sidecar: run folder '{folder}' cannot be used: {error}", file=sys.stderr)
        return BAD_SPEC
    if any(e["event"] in ("exited", "cannot-start") for e in events.before):
        print(f"sidecar: the attempt in '{folder}' is over", file=sys.stderr)
        return OVER
    try:
        spec = read_spec(os.path.join(folder, run_folder.SPEC))
        spec.env = {**spec.env, **run_folder.take_secrets(spec.secrets)}
    except ValueError as error:
        events.add("cannot-start", reason=str(error))
        print(f"sidecar: {error}", file=sys.stderr)
        return BAD_SPEC
    os.chdir("/")
    adopt_orphans()
    if any(e["event"] != run_folder.LET_GO for e in events.before):
        _clean_up_after_another(spec, events)
    Sidecar(folder, spec, events).run()
    return 0


def _clean_up_after_another(spec: Spec, events: Events) -> None:
    """A sidecar before us died. Nothing of the job may run twice at once."""
    sessions = [pid for e in events.before for pid in e.get("pids", ())]
    left = kill_orphans(spec.mark, sessions, cgroup=Cgroup(spec.cgroup) if spec.cgroup is not None else None)
    events.add("warning", about="an earlier sidecar of this attempt died; the attempt begins again")
    if left:
        events.add("warning", about=f"processes that cannot be killed are left behind: {left}")
