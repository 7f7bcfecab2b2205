"""Iterations over task graphs, against times computed by hand."""

from math import inf

import pytest

from hocket.executors.simulated.task_graph import (
    MEGABITS_PER_MIB,
    Iteration,
    Seat,
    left_after,
    length_s,
    link_mbps,
    parts_of,
)
from hocket.model.job import Edge, Task, TaskGraph
from hocket.model.resources import Demand, Node, Slice
from hocket.workloads.truth import Truth

# a → b → d, a → c → d: 4, 2, 1 and 1 parts of the work, so an iteration of 7 s is 4 s, then 2 s beside 1 s, then 1 s.
DIAMOND = TaskGraph(
    tuple(Task(name, Demand(1), share) for name, share in (("a", 4.0), ("b", 2.0), ("c", 1.0), ("d", 1.0))),
    (Edge("a", "b", 10.0), Edge("a", "c", 10.0), Edge("b", "d", 5.0), Edge("c", "d", 5.0)),
)
PARTS = parts_of(DIAMOND, 7.0)
HERE = {name: [Seat("n0")] for name in "abcd"}


def tenants(seats):
    return {name: one for name, (one,) in seats.items()}


def test_an_iteration_alone_takes_its_longest_path():
    assert PARTS.work_s == (4.0, 2.0, 1.0, 1.0)
    assert length_s(PARTS, PARTS.work_s, HERE) == 7.0


def test_a_slow_task_off_the_longest_path_costs_nothing_until_it_is_on_it():
    half = {**HERE, "c": [Seat("n0", 0.5)]}
    assert length_s(PARTS, PARTS.work_s, half) == 7.0
    tenth = {**HERE, "c": [Seat("n0", 0.1)]}
    assert length_s(PARTS, PARTS.work_s, tenth) == 4.0 + 10.0 + 1.0


def test_what_goes_to_another_node_takes_time_by_the_slower_end():
    apart = {**HERE, "a": [Seat("n1", mbps=1000.0)], "b": [Seat("n0", mbps=100.0)], "c": [Seat("n0", mbps=1000.0)]}
    sent_s = 10.0 * MEGABITS_PER_MIB / 100.0
    assert length_s(PARTS, PARTS.work_s, apart) == pytest.approx(4.0 + sent_s + 2.0 + 1.0)


def test_of_several_replicas_the_first_to_be_done_counts():
    copies = {**HERE, "a": [Seat("n0", 0.5), Seat("n1", 1.0)]}  # n1 has no limit to its network
    assert length_s(PARTS, PARTS.work_s, copies) == 7.0


def test_a_waiting_task_holds_up_only_its_dependants():
    without_b = {name: HERE[name] for name in "acd"}
    assert length_s(PARTS, PARTS.work_s, without_b) == inf
    assert left_after(PARTS, PARTS.work_s, without_b, 4.5) == (0.0, 2.0, 0.5, 1.0)
    assert left_after(PARTS, PARTS.work_s, without_b, 100.0) == (0.0, 2.0, 0.0, 1.0)


def test_when_the_waiting_task_is_back_only_the_rest_of_the_iteration_is_left():
    at = Iteration.of(DIAMOND, Truth(70.0, comp_s=7.0), 0.0)
    without_b = {name: HERE[name] for name in "acd"}
    assert at.change(0.0, 0.0, tenants(without_b)) == (0.0, 0.0)
    # a and c have run by 10 s; of the first 7 s, b's 2 s and d's 1 s are left.
    assert at.change(10.0, 0.0, tenants(HERE)) == (1.0, 4.0)


def test_a_task_that_leaves_in_the_middle_of_an_iteration_finds_the_others_done_with_it():
    at = Iteration.of(DIAMOND, Truth(70.0, comp_s=7.0), 0.0)
    at.change(0.0, 0.0, tenants(HERE))
    without_d = {name: HERE[name] for name in "abc"}
    assert at.change(12.0, 12.0, tenants(without_d)) == (0.0, 12.0)  # 5 s into the second iteration: b has 1 s left
    rate, done_s = at.change(20.0, 12.0, tenants(HERE))
    assert (rate, done_s) == (1.0, 13.0)  # b ran meanwhile


def test_a_task_that_has_run_in_this_iteration_may_leave_without_holding_up_anybody():
    at = Iteration.of(DIAMOND, Truth(70.0, comp_s=7.0), 0.0)
    at.change(0.0, 0.0, tenants(HERE))
    without_a = {name: HERE[name] for name in "bcd"}
    at.change(4.0, 4.0, tenants(without_a))
    assert at.change(6.5, 4.0, tenants(HERE)) == (1.0, 6.5)


def test_other_speeds_change_the_rate_and_keep_the_work():
    at = Iteration.of(DIAMOND, Truth(70.0, comp_s=7.0), 0.0)
    at.change(0.0, 0.0, tenants(HERE))
    slow_a = {**HERE, "a": [Seat("n0", 0.5)]}
    assert at.change(3.0, 3.0, tenants(slow_a)) == (pytest.approx(7.0 / 11.0), 3.0)


def test_a_replica_stands_in_for_its_task_that_waits():
    at = Iteration.of(DIAMOND, Truth(70.0, comp_s=7.0), 0.0)
    seats = {name: Seat("n0") for name in ("a#2", "b", "c", "d")}
    assert at.change(0.0, 0.0, seats) == (1.0, 0.0)


def test_replicas_of_one_task_do_not_stand_in_for_another():
    at = Iteration.of(DIAMOND, Truth(70.0, comp_s=7.0), 0.0)
    seats = {name: Seat("n0") for name in ("a", "a#2", "b", "c")}
    assert at.change(0.0, 0.0, seats) == (0.0, 0.0)


def test_tasks_without_a_share_compute_alike():
    chain = TaskGraph((Task("a", Demand(1), 0.0), Task("b", Demand(1), 0.0)), (Edge("a", "b"),))
    assert parts_of(chain, 2.0).work_s == (1.0, 1.0)


def test_a_cycle_is_refused_by_name():
    with pytest.raises(ValueError, match=r"no cycle, and \['a', 'b'\]"):
        parts_of(TaskGraph(DIAMOND.tasks, (Edge("a", "b"), Edge("b", "a"))), 1.0)


@pytest.mark.parametrize(
    ("asks", "has", "all_ask", "expected"),
    [(0.0, 0.0, 0.0, 10_000.0), (100.0, 500.0, 300.0, 100.0), (100.0, 200.0, 400.0, 50.0)],
)
def test_tenants_that_ask_for_more_network_than_there_is_share_it(asks, has, all_ask, expected):
    node = Node("n0", 4, net_mbps=10_000.0)
    assert link_mbps(Demand(1, net_mbps=asks), Slice("n0", (0,), net_mbps=has), node, all_ask) == expected


def test_a_node_without_a_stated_network_sends_in_no_time():
    assert link_mbps(Demand(1), Slice("n0", (0,)), Node("n0", 4), 0.0) == inf
