"""Which of the idle nodes are given back to Ray. With Ray, tests/ray/test_autoscale.py shows it."""

import pytest

pytest.importorskip("ray", reason="Ray is not installed: `make test-ray` installs it")

from hocket.executors.ray.idle_nodes import due
from hocket.executors.ray.messages import Reserved
from hocket.executors.ray.node_changes import NodeGroup

LENT = {name: NodeGroup(name, f"id-{name}", Reserved(1.0)) for name in ("a", "b", "c")}


def test_nodes_that_were_idle_long_enough_are_due() -> None:
    assert due({"a": 1.0, "b": 5.0}, 4.0, LENT, set(), set()) == ["a"]
    assert due({"a": 1.0, "b": 4.0}, 4.0, LENT, set(), set()) == ["a", "b"]


def test_one_node_is_always_left_and_that_of_rays_head_stays() -> None:
    idle = dict.fromkeys(LENT, 1.0)
    assert due(idle, 4.0, LENT, set(), set()) == ["a", "b"]
    assert due(idle, 4.0, LENT, {"id-a"}, set()) == ["b", "c"]
    assert due(idle, 4.0, LENT, set(), {"a", "b"}) == []
