"""The runs of a node without an agent around them: real sidecars, watched by the test itself."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.whole_lines import whole_lines

from hocket.agent import run_folder
from hocket.agent.node import report_outbox as report_outbox
from hocket.agent.node import runs as runs_file
from hocket.agent.node.containment import Containment, Wanted
from hocket.agent.node.events_reader import facts, story
from hocket.agent.node.known_run import KnownRun
from hocket.agent.node.poller import Poller
from hocket.agent.node.runs import Runs
from hocket.agent.node.state_folder import RUNS_KEPT, StateFolder, safe_name
from hocket.agent.process_tree import process
from hocket.agent.protocol import ForgetJob, Report, RunKey, StartRun, StopRun

FOR_EVER = (sys.executable, "-c", "import time; time.sleep(600)")


class Node:
    """Runs, the thread that watches them, and a controller that hears at once."""

    def __init__(self, folder: Path, most_forgotten: int = 3, contains: Wanted = Wanted.NONE) -> None:
        self.state = StateFolder(str(folder), most_forgotten)
        self.watch = Poller()
        self.runs = Runs(self.state, self.watch, lambda env: env, Containment(contains, self.state.identity))
        self.heard: list[Report] = []
        self.calls: list[set[str]] = []  # what was said together
        self._ends = False
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        while not self._ends:
            self.watch.wait(self.runs.tick())

    def run(self, job: str, number: int, *argv: str, **fields: Any) -> RunKey:
        key = RunKey(job, number)
        self.runs.carry_out(StartRun(key, {"argv": list(argv), **fields}, {}))
        return key

    def hear(self, key: RunKey, event: str) -> Report:
        """Hear, until this comes."""
        while True:
            for report in self.heard:
                if (report.run, report.event) == (key, event):
                    return report
            batch = self.runs.next_batch()
            self.calls.append({report.event for report in batch.reports()})
            self.heard += batch.reports()
            self.runs.acknowledged(batch)

    def sidecar(self, key: RunKey, until: Callable[..., Any]) -> int:
        path = Path(self.state.run(key.job, key.number)) / run_folder.LOCK
        return int(until(lambda: whole_lines(path))[0])

    def end(self, until: Callable[..., Any]) -> None:
        self.runs.kill_all()
        until(lambda: self.runs.are_gone)
        self._ends = True
        self.watch.ring()
        self._thread.join()


@pytest.fixture
def node(tmp_path: Path, until: Any) -> Iterator[Node]:
    made = Node(tmp_path / "state", most_forgotten=3)
    yield made
    made.end(until)


def test_a_sidecar_that_does_not_do_what_it_is_told_is_killed_with_its_job(
    node: Node, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_file, "_STUCK_S", 0.1)
    key = node.run("j", 1, *FOR_EVER)
    pid = node.hear(key, "started").fields["pids"][0]
    os.kill(node.sidecar(key, until), signal.SIGSTOP)
    node.runs.carry_out(StopRun(key, 0.0))
    node.hear(key, "lost")
    assert process(pid) is None


def test_a_run_that_a_full_disk_has_no_place_for_cannot_start(node: Node) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        key = node.run("j", 1, "true")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    report = node.hear(key, "cannot-start")
    assert report.n == 0
    assert "File too large" in report.fields["reason"]
    assert report.fields["passing"]
    assert not os.path.exists(node.state.run("j", 1))
    node.hear(node.run("j", 2, "true"), "exited")


@pytest.mark.parametrize(
    ("error", "passing"), [(BlockingIOError(11, "no process left"), True), (TypeError("a bug"), False)], ids=repr
)
def test_what_keeps_an_agent_from_starting_a_sidecar_is_said_to_pass_unless_it_is_a_bug(
    node: Node, monkeypatch: pytest.MonkeyPatch, error: Exception, passing: bool
) -> None:
    def fail(_folder: str, _secrets: object) -> None:
        raise error

    with monkeypatch.context() as full:
        full.setattr(runs_file, "launched", fail)
        key = node.run("j", 1, "true")
    report = node.hear(key, "cannot-start")
    assert (report.n, report.fields["passing"]) == (0, passing)
    node.hear(node.run("j", 2, "true"), "exited")


def test_a_sidecar_that_cannot_be_watched_does_not_run(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, children = run_folder.launch, []  # type: ignore[var-annotated]

    def launch(folder: str, secrets: dict[str, str] | None) -> Any:
        children.append(plain(folder, secrets))
        return children[-1]

    def too_many_files(_pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as full:
        full.setattr(run_folder, "launch", launch)
        full.setattr(os, "pidfd_open", too_many_files)
        key = node.run("j", 1, *FOR_EVER)
    try:
        report = node.hear(key, "cannot-start")
        assert "Too many open files" in report.fields["reason"]
        assert children[0].poll() is not None
    finally:
        children[0].kill()
        children[0].wait()


def test_a_sidecar_that_cannot_be_launched_leaves_no_secrets_open(tmp_path: Path) -> None:
    def secrets() -> list[str]:
        links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
        return [link for link in links if os.path.islink(link) and "memfd:secrets" in os.readlink(link)]

    with pytest.raises(FileNotFoundError):
        run_folder.launch(str(tmp_path / "nothing"), {"TOKEN": "secret"})
    assert secrets() == []


def test_files_that_cannot_be_watched_are_looked_at(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.watch, "growing", lambda *_: None)
    key = node.run("j", 1, sys.executable, "-uc", "print('epoch 1 acc=0.5')", progress={"kind": "stdout"})
    node.hear(key, "exited")
    assert [r.event for r in node.heard if r.event != "use"] == ["started", "progress", "exited"]


def test_what_a_job_uses_waits_for_company(node: Node, until: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_outbox, "_LAZY_S", 3600.0)
    key = node.run("j", 1, *FOR_EVER)
    node.hear(key, "started")
    listening = threading.Thread(target=node.hear, args=(key, "exited"), daemon=True)
    listening.start()
    until(lambda: any(f["event"] == "use" for f, _ in facts(node.state.run("j", 1) + "/events.jsonl", 0)))
    listening.join(0.2)  # It would be said by then.
    node.runs.carry_out(StopRun(key, 0.0))
    listening.join()
    assert [r.event for r in node.heard][:2] == ["started", "use"]
    assert {"use"} not in node.calls, "it is never said alone"


def test_one_call_holds_a_bounded_part_of_a_long_silence(node: Node) -> None:
    key = node.run("j", 1, "true")
    node.hear(key, "exited")
    with open(node.state.run("j", 1) + "/events.jsonl", "a", encoding="utf-8") as file:
        for n in range(3, 2003):
            file.write(f'{{"n":{n},"at":1.5,"event":"progress","epoch":{n}}}\n')
        file.write('not a fact\n{"n":2003,"at":2,"event":"exited"}\n{"n":2004,"at":')
    node.heard.clear()
    node.runs.carry_out(StartRun(key, {"argv": ["true"]}, {}))
    sizes = []
    while len(node.heard) < 2003:
        batch = node.runs.next_batch()
        sizes.append(len(batch.reports()))
        node.heard += batch.reports()
        node.runs.acknowledged(batch)
    assert max(sizes) <= 250
    assert [r.n for r in node.heard] == list(range(1, 2004))


def test_of_a_job_that_goes_on_the_last_runs_are_kept(node: Node, until: Any) -> None:
    for number in range(1, RUNS_KEPT + 4):
        node.hear(node.run("j", number, "true"), "exited")
    last = RUNS_KEPT + 3
    until(lambda: story(node.state.run("j", last) + "/events.jsonl").ended)
    kept = sorted(int(name) for name in os.listdir(node.state.job("j")))
    assert kept[-1] == last
    assert RUNS_KEPT <= len(kept) <= RUNS_KEPT + 1


def test_of_forgotten_jobs_the_last_logs_are_kept(node: Node, until: Any) -> None:
    for name in "abcde":
        node.hear(node.run(name, 1, "echo", name), "exited")
        node.runs.carry_out(ForgetJob(name))
        until(lambda: not node.runs._by_job, "it is forgotten")  # in this order
    until(lambda: sorted(os.listdir(node.state.path + "/runs")) == ["c", "d", "e"])
    assert Path(node.state.run("e", 1), "log").read_text() == "e\n"
    assert os.listdir(node.state.path + "/checkpoints") == []
    node.heard.clear()
    node.hear(node.run("c", 1, "echo", "anew"), "exited")  # as if the controller had lost its journal
    assert Path(node.state.run("c", 1), "log").read_text() == "anew\n"


def test_what_a_job_saved_outlives_it(node: Node, until: Any) -> None:
    node.hear(node.run("j", 1, "sh", "-c", "touch $HOCKET_CHECKPOINT_DIR/model"), "exited")
    node.runs.carry_out(ForgetJob("j"))
    until(lambda: "j" not in node.runs._by_job, "it is forgotten")
    assert os.listdir(node.state.path + "/checkpoints/j") == ["model"]


def test_names_of_folders_are_distinct_and_tame() -> None:
    names = [
        "..",
        ".",
        "%2E",
        "a/b",
        "a b",
        "A",
        "a",
        "ü",
        "-",
        "+",
        "x" * 120,
        "x" * 121,
        "x" * 122,
        "é" * 200,
        "\ud800",
    ]
    safe = [safe_name(name) for name in names]
    assert len(set(safe)) == len(names)
    assert all(0 < len(name) <= 120 and "/" not in name and not name.startswith(".") for name in safe)


def test_that_a_run_was_told_to_start_survives_a_crash_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be taken for one that still stands prepared, and its job for one that runs."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    run = KnownRun(RunKey("j", 1), str(tmp_path), {"warm": True})
    assert run.stands_by
    assert run.hand_over() is None
    (tmp_path / "start.json").touch()  # An agent was killed before it wrote to it: it must be ordered again.
    assert run.hand_over() == {}
    run.keep_hand_over({"do": "start"})
    assert synced == [str(tmp_path / "start.json")]
    assert run.hand_over() == {"do": "start"}
    assert not KnownRun(RunKey("j", 1), str(tmp_path), {"warm": True}).stands_by
