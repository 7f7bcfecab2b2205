"""An agent that is not its controller's child, as other machines have one; it can be killed and started again."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.live.controller import LiveController, awaited
from tests.live.processes import end_all


class LiveAgent:
    """Its state and its log are under the controller's root. Of it and its jobs, nothing is left after `with`."""

    def __init__(
        self,
        controller: LiveController,
        name: str,
        *options: str,
        within: tuple[str, ...] = (),
        token: Path | None = None,
        url: str = "",
    ) -> None:
        self._controller, self._name, self._url = controller, name, url
        self.state, self.log = controller.root / name, controller.root / f"{name}.log"
        self._within, self._options, self._token = within, options, token or controller.home / "token"
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.cut()

    @property
    def lives(self) -> bool:
        """Is its process there?"""
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Start it, again if it was killed; returns at once."""
        command = [*self._within, sys.executable, "-m", "hocket.agent.node", "--url", self._url or self._controller.url]
        command += ["--token-file", str(self._token), "--state", str(self.state), "--name", self._name, *self._options]
        env = {**os.environ, "TMPDIR": str(self._controller.temporary)}
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)

    def begin(self) -> None:
        """Start it, and wait until the controller knows its node."""
        self.start()
        self.await_up()

    def await_up(self) -> None:
        """Wait until the controller knows its node, and that it is there."""
        awaited(self._is_up, f"node '{self._name}' is up")

    def _is_up(self) -> bool:
        nodes = self._controller.call("GET", "/v1/nodes")["nodes"]
        return any(node["id"] == self._name and node["up"] for node in nodes)

    def kill(self) -> None:
        """End it with -9, and leave its jobs."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def cut(self) -> None:
        """As if its machine's power were cut: the agent first, that it tells of nothing, and all that runs under it."""
        self.kill()
        end_all(self.state)


@contextmanager
def two_nodes(root: Path) -> Iterator[LiveController]:
    """A controller, and two agents of one GPU each."""
    controller = LiveController(root, "--no-agent", "--policy", "fifo")
    with (
        controller,
        LiveAgent(controller, "left", "--gpus", "1") as left,
        LiveAgent(controller, "right", "--gpus", "1") as right,
    ):
        controller.begin()
        left.start()
        right.begin()
        left.await_up()
        yield controller
        controller.down(grace_s=0.0)
