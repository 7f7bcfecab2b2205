"""Which of the idle nodes are given back to Ray. With Ray, tests/ray/test_autoscale.py shows it."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from hocket.executors.ray.messages import Reserved
from hocket.executors.ray.node_changes import NodeGroup, RayNode

LENT = {name: NodeGroup(name, f"id-{name}", Reserved(1.0), digest="d") for name in ("a", "b", "c")}
NODES = [RayNode(group.node_id, name, "10.0.0.1") for name, group in LENT.items()]


class Calls:
    """In place of the link to a controller: what is asked of it, and which nodes are up there."""

    def __init__(self, drained_file: Path, *up: str) -> None:
        self.made: list[str] = []
        self._file, self._up = drained_file, up

    def call(self, method: str, path: str, _body: bytes = b"") -> bytes:
        if method == "GET":
            return json.dumps({"nodes": [{"id": node, "up": node in self._up} for node in LENT]}).encode()
        node, what = path.split("/")[-2:]
        assert node in json.loads(self._file.read_text())  # It is kept as long as it may be drained.
        self.made.append(f"{what} {node}")
        return b"{}"


def idle_nodes() -> Any:
    """Not imported above: it imports Ray, which takes each of pytest's workers a second."""
    pytest.importorskip("ray", reason="Ray is not installed: `make test` installs it")
    return import_module("hocket.executors.ray.idle_nodes")


def watched(drained_file: Path, calls: Calls, idle_s: float = 1e-9) -> Any:
    nobody: Any = None  # No agent is asked to leave here.
    link: Any = calls
    return idle_nodes().IdleNodes(nobody, link, idle_s, str(drained_file))


def test_nodes_that_were_idle_long_enough_are_due() -> None:
    due = idle_nodes().due
    assert due({"a": 1.0, "b": 5.0}, 4.0, LENT, set(), set()) == ["a"]
    assert due({"a": 1.0, "b": 4.0}, 4.0, LENT, set(), set()) == ["a", "b"]


def test_one_node_is_always_left_and_that_of_rays_head_stays() -> None:
    due = idle_nodes().due
    idle = dict.fromkeys(LENT, 1.0)
    assert due(idle, 4.0, LENT, set(), set()) == ["a", "b"]
    assert due(idle, 4.0, LENT, {"id-a"}, set()) == ["b", "c"]
    assert due(idle, 4.0, LENT, set(), {"a", "b"}) == []


def test_a_node_is_drained_first_and_opened_again_if_a_job_comes_to_need_it(tmp_path: Path) -> None:
    file = tmp_path / "drained.json"
    calls = Calls(file, *LENT)
    idle = watched(file, calls)
    idle.look(NODES, LENT.values(), {"a": False, "b": True})  # A user has drained the other one.
    assert calls.made == []  # Nothing at once.
    idle.look(NODES, LENT.values(), {"a": False, "b": True})
    assert calls.made == ["drain a"]
    idle.look(NODES, LENT.values(), {})
    assert calls.made == ["drain a", "undrain a"]
    assert json.loads(file.read_text()) == []


def test_what_was_drained_by_a_process_that_was_killed_is_opened_when_it_is_away(tmp_path: Path) -> None:
    file = tmp_path / "drained.json"
    file.write_text('["a"]')
    rest = [group for name, group in LENT.items() if name != "a"]
    still_up = Calls(file, *LENT)
    watched(file, still_up).look(NODES, rest, {})
    assert still_up.made == []  # A job could get it.
    away = Calls(file, "b", "c")
    watched(file, away).look(NODES, rest, {})
    assert away.made == ["undrain a"]
    file.write_text('["a"]')
    never = Calls(file, *LENT)
    watched(file, never, idle_s=0.0).look(NODES, LENT.values(), {})  # --ray-idle never, from now on
    assert never.made == ["undrain a"]
