"""What may be left of an attempt that broke, and when its job may start again."""

import pytest

from hocket.agent.protocol import RunKey
from hocket.executors.agents.broken_parts import BrokenParts
from hocket.model.job import Job

WIDE, NARROW = Job("a", sizes=(4,)), Job("a", sizes=(1,))
RUN = RunKey("a", 1)


@pytest.fixture
def broken():
    found = BrokenParts()
    found.begin_anew(["left", "right"])
    return found


def test_a_job_that_may_span_nodes_waits_until_each_has_said_what_it_has(broken):
    assert broken.must_wait(WIDE)
    assert not broken.must_wait(NARROW), "nothing of it can be where it is not known to be"
    assert broken.must_wait(WIDE)
    broken.agent_connected("left", [], [])
    assert broken.released() == []
    broken.lost("right")
    assert broken.released() == ["a"]
    assert not broken.must_wait(WIDE)


@pytest.mark.parametrize(
    "end",
    [
        lambda broken: broken.gone("left", RUN),
        lambda broken: broken.agent_connected("left", [], []),
        lambda broken: broken.lost("left"),
    ],
    ids=["its agent says so", "its agent says hello without it", "its node is lost"],
)
def test_a_job_waits_until_a_part_is_gone(broken, end):
    for node in ("left", "right"):
        broken.agent_connected(node, [], [])
    broken.add("left", RUN)
    assert broken.must_wait(WIDE)
    broken.gone("right", RUN)
    broken.gone("left", RunKey("a", 2))
    broken.agent_connected("left", [RUN], [])
    broken.lost("right")
    assert broken.released() == []
    end(broken)
    assert broken.released() == ["a"]
    assert not broken.must_wait(WIDE)


def test_a_hello_with_a_run_that_is_to_end_makes_its_job_wait(broken):
    for node in ("left", "right"):
        broken.agent_connected(node, [RUN], [RUN] if node == "left" else [])
    assert broken.must_wait(WIDE)
    broken.forget("a")
    assert not broken.must_wait(WIDE)
