"""Every executor there is keeps every law, but for those that it is exempt from."""

from pathlib import Path

import pytest
from tests.laws.executors_under_test import EXECUTORS, PreparedAgents

import hocket.executors
from hocket.testing import executor_laws, live_executor_laws

LIVE = {law.__name__ for law in live_executor_laws.LAWS}
AWAY = "a_node_that_was_away_for_a_moment_goes_on"
NODES = {"a_lost_node_costs_its_own_jobs_one_run", "a_node_that_returns_runs_nothing_twice", AWAY}
EXEMPT = {"simulated": LIVE | {AWAY}, "inprocess": LIVE | NODES, "agents": set()}


@pytest.mark.parametrize(
    ("name", "law"), [(name, law) for name in EXECUTORS for law in executor_laws.LAWS if law not in EXEMPT[name]]
)
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
    executor_laws.keep("a_report_that_comes_again_changes_nothing", EXECUTORS["simulated"]())
