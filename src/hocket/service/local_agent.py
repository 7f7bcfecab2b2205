"""The agent of this machine, as a child of the controller that outlives it: its jobs must not notice a restart."""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from threading import Event as Flag
from threading import Lock, Thread
from time import monotonic, sleep

from hocket.agent.process_tree import processes, read
from hocket.service.home import Home

_log = logging.getLogger("hocket.service")
_RESTART_S = 0.5
_LEAVE_S = 10.0  # for an agent that was told to leave
_KILL_S = 40.0  # for one that was told to kill: it may have to do without its sidecars, and without a controller
_ATTEMPTS = 3  # to have the jobs stopped
_SIGNALS = {signal.SIGINT, signal.SIGTERM}


class LocalAgent:
    """Starts the agent, and starts it again when it dies."""

    def __init__(
        self, home: Home, url: str, options: list[str], journal_lock: str = "", open_files: int | None = None
    ) -> None:
        """`journal_lock` is a file of this machine that every controller of the journal holds; empty: there is none.

        `open_files` is how many files the agent and its jobs may open; None: as many as the controller.
        """
        self._home, self._open_files = home, open_files
        module = [
            sys.executable,
            "-P",
            "-m",
            "hocket.agent.node",
        ]  # -P: no module is imported from the working directory.
        where = ["--url", url, "--token-file", str(home.token_file), "--state", str(home.agent)]
        where += ["--ca", str(home.ca_file)] if home.ca_file.exists() else []
        where += ["--log-file", str(home.log), *(["--controller-lock", journal_lock] if journal_lock else [])]
        self._command = [*module, *where, *options]
        self._stopping = Flag()
        self._launching = Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = Thread(target=self._watch, name="agent", daemon=True)

    def start(self) -> None:
        """Take the place of an agent that an earlier controller left; the jobs run on."""
        self._launch()
        self._thread.start()

    def stop(self, grace_s: float) -> None:
        """Stop the jobs and the agent. If it dies, before or meanwhile, another one does that."""
        self._stopping.set()
        with self._launching:  # From here on, no other thread starts one.
            child = self._child
        for _ in range(_ATTEMPTS):
            if child is None:
                return
            if child.poll() is not None:
                child = self._launch()
            if self._is_done(child, grace_s):
                return
        _log.error("the agent dies whenever it is to stop the jobs; they may run on")

    def _is_done(self, child: subprocess.Popen[bytes], grace_s: float) -> bool:
        """Ask an agent to stop the jobs, then to kill them, then kill it; False if it died over that by itself."""
        for wait_s in (grace_s, _KILL_S):
            child.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                return child.wait(wait_s) == 0
        _log.error("the agent did not leave in time")
        child.kill()
        child.wait()
        return True

    def _launch(self) -> subprocess.Popen[bytes]:
        self._end_others()
        was = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # They wait until the agent is ready for them.
        try:
            with open(self._home.log, "ab") as log:
                # A session of its own: Ctrl-C is for the controller, which then asks the agent.
                self._child = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, was)
        if self._open_files is not None:
            with suppress(OSError, ValueError):
                _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
                resource.prlimit(self._child.pid, resource.RLIMIT_NOFILE, (self._open_files, hard))
        _log.info("the agent of this machine starts: process %d, log '%s'", self._child.pid, self._home.log)
        return self._child

    def _watch(self) -> None:
        while not self._stopping.is_set():
            child = self._child
            assert child is not None
            code = child.wait()
            if self._stopping.is_set():
                return
            _log.warning("the agent ended with %s; another takes its place", code, extra={"code": code})
            sleep(_RESTART_S)
            with self._launching:
                if not self._stopping.is_set():
                    self._launch()

    def _end_others(self) -> None:
        """End agents of earlier controllers. What those wrote down may be missing, so all processes are looked at."""
        folder = str(self._home.agent)
        for pid in agents_of(folder):
            _log.info("the agent of an earlier controller is told to leave: process %d", pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        until = monotonic() + _LEAVE_S
        while (left := agents_of(folder)) and monotonic() < until + _LEAVE_S:
            if monotonic() > until:
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            sleep(0.02)


def agents_of(folder: str) -> list[int]:
    """The processes that are agents of that folder."""
    found = []
    for process in processes():
        words = (read(f"/proc/{process.pid}/cmdline") or b"").decode(errors="replace").split("\0")
        if "hocket.agent.node" in words and folder in words:
            found.append(process.pid)
    return found
