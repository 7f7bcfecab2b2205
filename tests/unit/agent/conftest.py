"""Real sidecars with real jobs, and nothing of them left behind."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from hocket.agent import run_folder
from hocket.agent.logs import log_files
from hocket.agent.node.cgroup_hierarchies import hierarchies
from hocket.agent.node.containment import Containment, Wanted
from hocket.agent.node.events_reader import facts
from hocket.agent.orphan_cleanup import kill_orphans

PATIENCE_S = 120.0  # far more than anything here takes


def wait_until(condition: Callable[[], Any], what: str = "it") -> Any:
    """Wait for a condition; what it came to."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE_S} s for {what}")
        time.sleep(0.01)
    return found


class Run:
    """One attempt in a run folder."""

    def __init__(self, folder: Path, spec: dict[str, Any]) -> None:
        self.folder, self.mark = folder, spec["mark"]
        run_folder.create(str(folder), spec)
        self.sidecars: list[Popen[bytes]] = []

    def launch(self) -> Run:
        self.sidecars.append(run_folder.launch(str(self.folder)))
        return self

    @property
    def sidecar(self) -> Popen[bytes]:
        """The one that was launched last."""
        return self.sidecars[-1]

    @property
    def pid(self) -> int:
        return self.sidecar.pid

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        found = facts(str(self.folder / run_folder.EVENTS), 0)
        return [e for e, _ in found if kind in (None, e["event"])]

    def story(self) -> list[str]:
        """What happened, but what it used: of that, a slow machine tells more often."""
        return [e["event"] for e in self.events() if e["event"] != "use"]

    def wait_for(self, kind: str) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            there = self.events(kind)
            if not there and self.ended() is not None and not self.events(kind):
                raise AssertionError(f"the sidecar ended without '{kind}': {self.events()}, {self.complaints()}")
            return there

        event: dict[str, Any] = wait_until(found, kind)[0]
        return event

    def wait_for_text(self, text: str) -> None:
        wait_until(lambda: text in self.log(), f"{text!r} in the log")

    def wait_for_file(self, name: str) -> Path:
        path = self.folder.parent / name
        wait_until(path.exists, name)
        return path

    def send(self, do: str, **more: Any) -> None:
        assert run_folder.send(str(self.folder), {"do": do, **more})

    def send_when_up(self, do: str) -> None:
        """Send an order as soon as a sidecar reads."""
        wait_until(lambda: run_folder.send(str(self.folder), {"do": do}), "a listener")

    def ended(self) -> int | None:
        """The sidecar's exit code, if it has ended."""
        return self.sidecar.poll()

    def finish(self) -> dict[str, Any]:
        """Wait for the end of it all; the event `exited`."""
        event = self.wait_for("exited")
        assert self.sidecar.wait(PATIENCE_S) == 0, self.complaints()
        assert self.events()[-1] == event
        assert not self.complaints()
        return event

    def log(self) -> str:
        parts = []
        for _place, path in log_files(str(self.folder)):
            with suppress(FileNotFoundError):  # not there yet, or renamed or removed meanwhile
                parts.append(Path(path).read_bytes())
        return b"".join(parts).decode(errors="replace")

    def complaints(self) -> str:
        path = self.folder / run_folder.STDERR
        return path.read_text() if path.exists() else ""


@pytest.fixture
def until() -> Callable[..., Any]:
    """Waits for a condition."""
    return wait_until


Runs = Callable[..., Run]


@pytest.fixture
def prepared_run(tmp_path: Path) -> Iterator[Runs]:
    """Makes run folders; `run.launch()` starts the sidecar."""
    made: list[Run] = []

    def make(*argv: str, **fields: Any) -> Run:
        spec = {"job": "j", "mark": uuid.uuid4().hex, "argv": list(argv), "cwd": str(tmp_path), **fields}
        made.append(Run(tmp_path / f"run{len(made)}", spec))
        return made[-1]

    yield make
    for run in made:
        for sidecar in run.sidecars:
            sidecar.kill()
            sidecar.wait()
    assert [left for run in made for left in kill_orphans(run.mark)] == []


@pytest.fixture
def run(prepared_run: Runs) -> Runs:
    """Starts a sidecar for a command."""
    return lambda *argv, **fields: prepared_run(*argv, **fields).launch()


@pytest.fixture
def run_python(run: Runs) -> Runs:
    """Starts a sidecar for a few lines of Python."""
    return lambda program, **fields: run(sys.executable, "-u", "-c", program, **fields)


@pytest.fixture(params=["as the machine has them", "version 1"])
def containment(request: pytest.FixtureRequest) -> Iterator[Containment]:
    """One that makes real cgroups; with version 1 alone where there is that."""
    found = [h for h in hierarchies() if request.param != "version 1" or not h.is_v2]
    made = Containment(Wanted.AUTO, uuid.uuid4().hex, found=found)
    if not made.limits_all:
        made.close()
        pytest.skip(f"no cgroups can be made here, {request.param}: {made.text}")
    yield made
    made.remove_all_but([])
    made.close()
