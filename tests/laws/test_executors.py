"""Every executor there is keeps every law, but for those that it is exempt from."""

from pathlib import Path

import pytest
from tests.laws.executors_under_test import EXECUTORS, PreparedAgents

import hocket.executors
from hocket.testing import executor_laws
from hocket.testing.executor_harness import ExecutorHarness, ExecutorUnderTest

AWAY = "a_node_that_was_away_for_a_moment_goes_on"
NODES = {"a_lost_node_costs_its_own_jobs_one_run", "a_node_that_returns_runs_nothing_twice", AWAY}
NODES |= {"a_lost_node_costs_a_job_over_two_nodes_one_run"}
ONE_PROCESS = {"a_job_that_was_prepared_starts_warm", "a_job_paused_in_memory_goes_on_in_its_process"}
EXEMPT = {"simulated": {AWAY}, "inprocess": NODES | ONE_PROCESS, "agents": set()}


def tried(name):
    """The laws that are tried on the executor of that name."""
    beside = EXEMPT[name] if EXECUTORS[name].is_live else EXEMPT[name] | executor_laws.LIVE
    return [law for law in executor_laws.LAWS if law not in beside]


@pytest.mark.parametrize(("name", "law"), [(name, law) for name in EXECUTORS for law in tried(name)])
def test_every_executor_keeps_the_law(name, law):
    executor_laws.keep(law, EXECUTORS[name]())


@pytest.mark.parametrize(
    "law", ["a_resize_ends_on_the_new_gpus_with_the_work_kept", "a_move_ends_in_the_new_place_with_the_work_kept"]
)
def test_jobs_that_are_prepared_beforehand_keep_the_law(law):
    executor_laws.keep(law, PreparedAgents())


def test_executors_are_exempt_from_these_laws_and_say_why():
    assert {name: set(under.exempt) for name, under in EXECUTORS.items()} == EXEMPT
    assert all(len(why.split()) > 5 for under in EXECUTORS.values() for why in under.exempt.values())
    assert not PreparedAgents.exempt


def test_every_executor_of_the_product_is_tried():
    folders = {path.parent.name for path in Path(hocket.executors.__path__[0]).glob("*/executor.py")}
    assert set(EXECUTORS) == folders


def test_a_law_that_an_executor_is_exempt_from_is_not_tried():
    executor_laws.keep(AWAY, EXECUTORS["simulated"]())


def test_laws_for_live_executors_are_not_tried_on_others():
    executor_laws.keep("a_report_that_comes_again_changes_nothing", EXECUTORS["simulated"]())


def test_an_executor_under_test_is_ended_even_if_it_cannot_be_closed():
    under = CannotBeClosed()
    with pytest.raises(OSError, match="its socket is gone"), ExecutorHarness(under, nodes=0):
        pass
    assert under.called == ["close", "fail", "refuse", "end"]


class CannotBeClosed(ExecutorUnderTest):
    """A live executor with nothing in it, whose `close` raises."""

    name = "cannot be closed"
    is_live = True

    def __init__(self):
        self.called = []

    def begin(self, _nodes, _jobs):
        return self

    def wait(self, until_s):
        return until_s or 0.0, ()

    def apply(self, actions):
        assert not list(actions)

    def observe(self, _snapshot):
        pass

    def settle(self, _events):
        pass

    def close(self):
        self.called.append("close")
        raise OSError("its socket is gone")

    def fail(self, _failure):
        self.called.append("fail")

    def refuse(self, _failure):
        self.called.append("refuse")

    def end(self):
        self.called.append("end")
