"""A run of `hocket query` on a node: its Python, its resources, and its answer, which outlives it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.node.test_runs import FOR_EVER, Node

from hocket.agent import run_folder
from hocket.agent.node.query_run import as_query, is_query, last_answer, write_resources
from hocket.agent.node.state_folder import StateFolder
from hocket.agent.process_tree import process
from hocket.agent.protocol import ContinueRun, ResizeRun, RunKey, RunLimits, StopRun, SuspendRun


@pytest.fixture
def node(tmp_path: Path, until: Any) -> Any:
    made = Node(tmp_path / "state")
    yield made
    made.end(until)


def test_a_query_is_run_by_the_python_of_its_agent() -> None:
    spec = {"argv": ["hocket", "query", "SELECT 1", "--data", "d"], "env": {"A": "b"}}
    assert is_query(spec)
    assert not is_query({"argv": ["hocket", "simulate"]})
    found = as_query(spec, "/runs/q/1")
    assert found["argv"] == [sys.executable, "-m", "hocket", "query", "SELECT 1", "--data", "d"]
    assert found["env"] == {
        "A": "b", "HOCKET_ANSWER": "/runs/q/1/answer.json", "HOCKET_RESOURCES": "/runs/q/1/resources.json",
    }  # fmt: skip
    assert spec["env"] == {"A": "b"}


def test_resources_are_replaced_whole(tmp_path: Path) -> None:
    write_resources(str(tmp_path), {"HOCKET_SIZE": "2", "HOCKET_EPOCH_BATCHES": "3"}, RunLimits(512.0, 2.0))
    said = json.loads((tmp_path / run_folder.RESOURCES).read_text())
    assert said == {"size": 2, "mem_mib": 512.0, "epoch_batches": 3, "epoch_s": 0.0}
    assert os.listdir(tmp_path) == [run_folder.RESOURCES]


def test_a_run_is_resized_in_place_and_says_so(node: Node) -> None:
    key = node.run("q", 1, *FOR_EVER)
    pids = node.hear(key, "started").fields["pids"]
    node.runs.carry_out(ResizeRun(key, {"HOCKET_SIZE": "4"}, RunLimits(2048.0, 4.0)))
    report = node.hear(key, "resized")
    assert (report.n, report.fields) == (0, {"size": "4"})
    said = json.loads((Path(node.state.run("q", 1)) / run_folder.RESOURCES).read_text())
    assert (said["size"], said["mem_mib"]) == (4, 2048.0)
    assert os.path.exists(f"/proc/{pids[0]}")


def test_a_run_that_is_not_here_cannot_be_resized(node: Node) -> None:
    key = RunKey("q", 3)
    node.runs.carry_out(ResizeRun(key, {"HOCKET_SIZE": "4"}))
    assert node.hear(key, "lost").fields["reason"] == "it is not known here"


def test_a_run_is_suspended_and_goes_on_with_what_it_is_given(node: Node, until: Any) -> None:
    key = node.run("q", 1, *FOR_EVER)
    (pid,) = node.hear(key, "started").fields["pids"]
    until(lambda: (found := process(pid)) and found.mem_mib > 1)  # What has just become another program has no memory.
    folder = node.state.run("q", 1)
    write_resources(folder, {"HOCKET_SIZE": "1"}, RunLimits())
    node.runs.carry_out(SuspendRun(key, 0.0))
    assert node.hear(key, "suspended").fields["mem_mib"] > 0
    node.runs.carry_out(ContinueRun(key, {"HOCKET_SIZE": "3"}, RunLimits(2048.0, 3.0)))
    node.hear(key, "continued")
    said = json.loads((Path(folder) / run_folder.RESOURCES).read_text())
    assert (said["size"], said["mem_mib"]) == (3, 2048.0)
    assert os.path.exists(f"/proc/{pid}")


def test_a_suspended_run_that_is_to_leave_is_told_where_its_state_goes(node: Node) -> None:
    key = node.run("q", 1, *FOR_EVER)
    node.hear(key, "started")
    folder = node.state.run("q", 1)
    write_resources(folder, {"HOCKET_SIZE": "2"}, RunLimits())
    node.runs.carry_out(SuspendRun(key, 0.0))
    node.hear(key, "suspended")
    node.runs.carry_out(StopRun(key, 60.0, "disk"))
    assert node.hear(key, "exited").fields["asked"]
    said = json.loads((Path(folder) / run_folder.RESOURCES).read_text())
    assert (said["size"], said["keep"]) == (2, "disk")


@pytest.mark.parametrize("order", [SuspendRun(RunKey("q", 3), 0.0), ContinueRun(RunKey("q", 3), {})])
def test_a_run_that_is_not_here_is_told_as_lost(node: Node, order: SuspendRun | ContinueRun) -> None:
    node.runs.carry_out(order)
    assert node.hear(order.run, "lost").fields["reason"] == "it is not known here"


def test_the_answer_of_the_last_run_that_gave_one_is_kept_when_the_job_is_forgotten(tmp_path: Path) -> None:
    state = StateFolder(str(tmp_path))
    assert last_answer(state, "q") == (0, b"")
    for number in (1, 2, 3):
        folder = Path(state.make_run("q", number))
        (folder / "spec.json").write_text("{}")
        if number < 3:  # The third has just begun.
            (folder / run_folder.ANSWER).write_text(f'{{"run": {number}}}')
    assert last_answer(state, "q") == (2, b'{"run": 2}')
    state.forget("q")
    assert last_answer(state, "q") == (2, b'{"run": 2}')
    assert not os.path.exists(os.path.join(state.run("q", 2), "spec.json"))
