"""A real controller in a folder of its own: `hocket up` as a child process that can be killed and started again."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, closing, contextmanager
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.live.processes import end_all
from tests.unit.cli.typed import hocket

from hocket.agent.address import connection as connection_to


class NoAnswer(Exception):
    """The controller is not there, or cannot do it now."""


class LiveController:
    """Everything is under `root`: its home, its log, and where it and its jobs keep temporary files.

    Within `with`; whatever happens there, of what was started under `root` nothing is left afterwards.
    """

    def __init__(self, root: Path, *options: str) -> None:
        self.root = root
        self.home, self.log, self.temporary = root / "home", root / "controller.log", root / "tmp"
        self.temporary.mkdir(parents=True, exist_ok=True)
        # No node is lost because the machine stood still for a while; the last of two leases counts.
        self._options = ("--lease", "120", *options)
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        end_all(self.root)

    @property
    def url(self) -> str:
        """Where it listens."""
        return (self.home / "url").read_text().strip()

    @property
    def pid(self) -> int | None:
        """Its process, while that lives."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    @property
    def code(self) -> int | None:
        """How it ended, if it did."""
        return self._child.poll() if self._child is not None else None

    def start(self) -> None:
        """Start it, again if it has ended; returns at once."""
        command = [sys.executable, "-m", "hocket", "up", "--home", str(self.home), *self._options]
        # Whatever it starts inherits the name of this folder, and is found by that.
        env = {**os.environ, "TMPDIR": str(self.temporary)}
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)

    def begin(self) -> None:
        """Start it, and wait until it answers."""
        self.start()
        awaited(self.answers, "the controller answers")

    def kill(self) -> None:
        """End it as a power cut would, and leave the agent and the jobs."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def answers(self) -> bool:
        """Is it this process that listens, and does it know its agent's node?"""
        try:
            if self.pid is None or self.call("GET", "/v1/health")["pid"] != self.pid:
                return False
            # On a slow machine it may listen before its agent has said hello.
            return "--no-agent" in self._options or bool(self.call("GET", "/v1/nodes")["nodes"])
        except NoAnswer:
            return False

    def call(self, method: str, path: str, body: Any = None, within_s: float = 60.0) -> Any:
        """The answer to a call, or NoAnswer; an answer that says no is a ValueError."""
        try:
            url, ca = self.url, self.home / "ca.pem"
            headers = {"Authorization": f"Bearer {(self.home / 'token').read_text().strip()}"}
            with closing(connection_to(url, within_s, str(ca) if ca.exists() else "")) as connection:
                connection.request(method, path, None if body is None else json.dumps(body), headers)
                answer = connection.getresponse()
                said = json.loads(answer.read())
        except (OSError, HTTPException, ValueError) as error:
            raise NoAnswer(f"{method} {path}: {error!r}") from error
        if answer.status >= 500:
            raise NoAnswer(f"{method} {path}: {said}")
        if answer.status >= 400:
            raise ValueError(f"{method} {path}: {answer.status} {said}")
        return said

    def jobs(self) -> dict[str, dict[str, Any]]:
        """All jobs there ever were, by id."""
        return {row["id"]: row for row in self.call("GET", "/v1/jobs?all=true")["jobs"]}

    def types(self, *words: str, code: int = 0, folder: Path | None = None, **env: str) -> Any:
        """What a command of its user prints, typed in this `folder`; it must end with this `code`.

        The command runs in this process. To start one for each would take most of the time; that they run as
        processes too, test_cli_walk.py shows.
        """
        with chdir(folder or Path.cwd()):
            done = hocket(*words, **{"HOCKET_HOME": str(self.home), "COLUMNS": "300", **env})
        assert done.exit_code == code, (words, done.stdout, done.stderr, done.exception)
        return done

    def down(self, grace_s: float = 10.0) -> None:
        """Stop the jobs and the controller, and wait until it has ended."""
        assert self._child is not None
        self.call("POST", "/v1/down", {"grace_s": grace_s})
        self._child.wait(grace_s + 300)


@contextmanager
def running(root: Path, *options: str) -> Iterator[LiveController]:
    """A controller that answers, and goes down at the end."""
    with LiveController(root, *options) as controller:
        controller.begin()
        yield controller
        controller.down(grace_s=0.0)


def awaited(holds: Callable[[], bool], what: str, within_s: float = 300.0, every_s: float = 0.05) -> None:
    """Wait until something holds; AssertionError if it does not in time."""
    until = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < until, f"after {within_s:g} s: not {what}"
        time.sleep(every_s)
