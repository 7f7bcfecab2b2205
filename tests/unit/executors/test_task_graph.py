"""Iterations over task graphs, against times computed by hand."""

from itertools import pairwise
from math import inf

import pytest

from hocket.executors.simulated.executor import SimulatedExecutor
from hocket.executors.simulated.task_graph import (
    MEGABITS_PER_MIB,
    Iteration,
    Seat,
    left_after,
    length_s,
    link_mbps,
    parts_of,
)
from hocket.model.action import Move, Start
from hocket.model.event import JobEnded
from hocket.model.job import Edge, Job, Task, TaskGraph
from hocket.model.partition import NOW, Holding, Partition, Tenant
from hocket.model.resources import Demand, Node, Slice
from hocket.model.view import Costs
from hocket.workloads.truth import Submission, Truth, Workload

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
    assert length_s(PARTS, HERE) == 7.0


def test_a_slow_task_off_the_longest_path_costs_nothing_until_it_is_on_it():
    half = {**HERE, "c": [Seat("n0", 0.5)]}
    assert length_s(PARTS, half) == 7.0
    tenth = {**HERE, "c": [Seat("n0", 0.1)]}
    assert length_s(PARTS, tenth) == 4.0 + 10.0 + 1.0


def test_what_goes_to_another_node_takes_time_by_the_slower_end():
    apart = {**HERE, "a": [Seat("n1", mbps=1000.0)], "b": [Seat("n0", mbps=100.0)], "c": [Seat("n0", mbps=1000.0)]}
    sent_s = 10.0 * MEGABITS_PER_MIB / 100.0
    assert length_s(PARTS, apart) == pytest.approx(4.0 + sent_s + 2.0 + 1.0)


def test_of_several_replicas_the_first_to_be_done_counts():
    copies = {**HERE, "a": [Seat("n0", 0.5), Seat("n1", 1.0)]}  # n1 has no limit to its network
    assert length_s(PARTS, copies) == 7.0


def test_a_waiting_task_holds_up_only_its_dependants():
    without_b = {name: HERE[name] for name in "acd"}
    assert length_s(PARTS, without_b) == inf
    assert left_after(PARTS, without_b, 4.5).work_s == (0.0, 2.0, 0.5, 1.0)
    assert left_after(PARTS, without_b, 100.0).work_s == (0.0, 2.0, 0.0, 1.0)


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


def test_a_task_that_has_run_in_this_iteration_may_leave_without_delaying_others():
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


# -- tasks without work ----------------------------------------------------------------------------------------


def chain(*shares, megabits=0.0):
    """a → b → c …, each of which sends so much to the next."""
    names = "abcdef"[: len(shares)]
    edges = tuple(Edge(source, target, megabits / MEGABITS_PER_MIB) for source, target in pairwise(names))
    return TaskGraph(tuple(Task(name, Demand(1), share) for name, share in zip(names, shares, strict=True)), edges)


def test_a_task_without_work_comes_after_what_it_depends_on():
    at = Iteration.of(chain(0.5, 0.0, 0.5), Truth(100.0, comp_s=10.0), 0.0)
    # a computes for 5 s, b for none, c for 5 s: 10 s, as alone.
    assert at.change(0.0, 0.0, {name: Seat("n0") for name in "abc"}) == (1.0, 0.0)


def test_what_is_sent_to_and_from_a_task_without_work_takes_its_time():
    at = Iteration.of(chain(0.5, 0.0, 0.5, megabits=300.0), Truth(100.0, comp_s=10.0), 0.0)
    seats = {name: Seat(f"n{n}", mbps=100.0) for n, name in enumerate("abc")}
    # 5 s, 300 Mb at 100 Mbps: 3 s, no work, 3 s, 5 s: 16 s instead of 10 s.
    assert at.change(0.0, 0.0, seats) == (pytest.approx(10.0 / 16.0), 0.0)


def test_a_waiting_task_without_work_holds_up_its_dependants():
    at = Iteration.of(chain(0.5, 0.0, 0.5), Truth(100.0, comp_s=10.0), 0.0)
    seats = {name: Seat("n0") for name in "abc"}
    assert at.change(0.0, 0.0, {name: seats[name] for name in "ac"}) == (0.0, 0.0)
    # a has run by 100 s. c, which gets its input through b, has not: its 5 s are left.
    assert at.change(100.0, 0.0, seats) == (1.0, 5.0)


# -- tasks that leave in the middle of a transfer --------------------------------------------------------------

# a computes for 1 s, sends 8000 Mb, and b computes for 1 s. Apart, at 100 Mbps, that is 1 + 80 + 1 = 82 s.
A, B = Seat("n0", mbps=100.0), Seat("n1", mbps=100.0)
IN_THE_MIDDLE_S = 21.0  # 20 s of the 80 s are over, 6000 Mb are left


def sending(*seats_and_times, shares=(1.0, 1.0)):
    """When the first iteration ends if tasks are where they are said to be from given times on."""
    at = Iteration.of(chain(*shares, megabits=8000.0), Truth(20.0, comp_s=len(shares) * 1.0), 0.0)
    rate = done_s = before_s = 0.0
    for now_s, seats in seats_and_times:
        rate, done_s = at.change(now_s, done_s + rate * (now_s - before_s), seats)
        before_s = now_s
    return before_s + (at.parts.alone_s - done_s) / rate


def test_apart_a_transfer_takes_its_time():
    assert sending((0.0, {"a": A, "b": B})) == pytest.approx(82.0)


@pytest.mark.parametrize("left", ["a", "b"])
def test_a_task_that_leaves_during_a_transfer_and_comes_back_continues_it(left):
    both = {"a": A, "b": B}
    stays = {name: seat for name, seat in both.items() if name != left}
    ends_s = sending((0.0, both), (IN_THE_MIDDLE_S, stays), (500.0, both))
    assert ends_s == pytest.approx(500.0 + 60.0 + 1.0)  # Nothing is sent while one end of it is away.


@pytest.mark.parametrize(
    ("to", "rest_s"),
    [
        (Seat("n2", mbps=100.0), 60.0 + 1.0),  # as before
        (Seat("n2", mbps=50.0), 120.0 + 1.0),  # 6000 Mb at 50 Mbps
        (Seat("n0", mbps=50.0), 0.0 + 1.0),  # where the sender is
    ],
)
def test_a_receiver_that_moves_gets_the_rest_where_it_is_then(to, rest_s):
    moves = (IN_THE_MIDDLE_S, {"a": A}), (30.0, {"a": A, "b": to})
    assert sending((0.0, {"a": A, "b": B}), *moves) == pytest.approx(30.0 + rest_s)


@pytest.mark.parametrize(
    ("to", "rest_s"),
    [(Seat("n2", mbps=50.0), 120.0 + 1.0), (Seat("n1", mbps=50.0), 0.0 + 1.0)],  # elsewhere, and to the receiver
)
def test_a_sender_that_moves_sends_the_rest_from_where_it_is_then(to, rest_s):
    moves = (IN_THE_MIDDLE_S, {"b": B}), (30.0, {"a": to, "b": B})
    assert sending((0.0, {"a": A, "b": B}), *moves) == pytest.approx(30.0 + rest_s)


def test_a_receiver_that_waits_from_the_beginning_is_sent_all_of_it():
    assert sending((0.0, {"a": A}), (500.0, {"a": A, "b": B})) == pytest.approx(500.0 + 80.0 + 1.0)


def test_a_move_to_a_slow_link_before_anything_is_sent_costs_all_of_the_transfer():
    here = {"a": A, "b": Seat("n0")}
    moves = (0.9, {"a": A}), (0.95, {"a": A, "b": B})
    # b leaves after 0.9 s of 2 s, and a goes on: when b is back, 0.05 s of a, 80 s and 1 s are left.
    assert sending((0.0, here), *moves) == pytest.approx(0.95 + 0.05 + 80.0 + 1.0)


def test_a_transfer_goes_on_while_a_third_task_waits():
    three = {"a": A, "b": B, "c": B}
    # b, at the other end of it, has run by 500 s. Within n1 it sends to c in no time, so that c's 1 s is left.
    ends_s = sending((0.0, three), (IN_THE_MIDDLE_S, {"a": A, "b": B}), (500.0, three), shares=(1.0, 1.0, 1.0))
    assert ends_s == pytest.approx(500.0 + 1.0)


def test_a_task_gets_what_is_ready_while_another_that_it_needs_waits():
    # a → c and b → c, each 1 s and 8000 Mb; a, b and c are apart.
    graph = TaskGraph(
        tuple(Task(name, Demand(1), 1.0) for name in "abc"),
        tuple(Edge(source, "c", 8000.0 / MEGABITS_PER_MIB) for source in "ab"),
    )
    at = Iteration.of(graph, Truth(20.0, comp_s=2.0), 0.0)
    at.change(0.0, 0.0, {"b": Seat("n2", mbps=100.0), "c": B})
    # By 500 s b has run and sent. a's 1 s, 1 s for its 8000 Mb at 8000 Mbps and c's 1 s are left, of 1 + 80 + 1 s.
    everyone = {"a": Seat("n0", mbps=8000.0), "b": Seat("n2", mbps=100.0), "c": Seat("n1", mbps=8000.0)}
    assert at.change(500.0, 0.0, everyone) == (pytest.approx(2.0 / 82.0), pytest.approx(2.0 * (1.0 - 3.0 / 82.0)))


def test_two_moves_in_one_iteration_forget_nothing():
    beside = TaskGraph((Task("a", Demand(1), 1.0), Task("b", Demand(1), 1.0)), ())  # 10 s each, at the same time
    fast, slow = Seat("n0"), Seat("n0", 0.1)
    at = Iteration.of(beside, Truth(100.0, comp_s=10.0), 0.0)
    rate, done_s = at.change(0.0, 0.0, {"a": fast, "b": slow})
    at.change(10.0, 10.0 * rate, {"a": fast})  # a has run, b has done 1 s of its work.
    rate, done_s = at.change(10.0, 10.0 * rate, {"a": slow, "b": fast})  # b's 9 s are left …
    assert (10.0 - done_s) / rate == pytest.approx(9.0)
    at.change(13.0, done_s + 3.0 * rate, {"a": slow})  # … and now 6 s; a goes on to have run.
    rate, done_s = at.change(13.0, done_s + 3.0 * rate, {"a": fast, "b": slow})
    assert (10.0 - done_s) / rate == pytest.approx(60.0)


def test_the_iteration_after_one_that_was_interrupted_is_a_whole_one():
    at = Iteration.of(chain(1.0, 1.0), Truth(20.0, comp_s=2.0), 0.0)
    here = {"a": Seat("n0"), "b": Seat("n0")}
    at.change(0.0, 0.0, here)
    at.change(0.5, 0.5, {"a": here["a"]})
    assert at.change(10.0, 0.5, here) == (1.0, 1.0)  # a has run.
    at.change(11.5, 2.5, {"a": here["a"]})  # 0.5 s into the next one
    assert at.change(11.6, 2.5, here) == (1.0, pytest.approx(2.6))


def test_a_job_that_lost_its_iteration_goes_on_from_what_it_had_saved():
    at = Iteration.of(chain(1.0, 1.0), Truth(20.0, comp_s=2.0), 0.0, done_s=3.5)
    assert at.change(0.0, 3.5, {"a": Seat("n0")}) == (0.0, 3.5)
    assert at.change(5.0, 3.5, {"a": Seat("n0"), "b": Seat("n0")}) == (1.0, pytest.approx(3.5))


def test_a_simulated_task_that_moves_in_the_middle_of_a_transfer_gets_the_rest_of_it():
    graph = chain(1.0, 1.0, megabits=8000.0)
    truth = Truth(2.0, comp_s=2.0, costs=Costs(checkpoint_s=3.0, start_s=4.0))
    nodes = [Node(f"n{n}", 1, net_mbps=100.0) for n in range(3)]
    world = SimulatedExecutor(Workload("test", (Submission(0.0, Job("j", tasks=graph), truth),)), nodes)

    def place(task, node):
        slices = (Slice(node, (0,), net_mbps=100.0),)
        tenants = (Tenant("j", (1,), task),)
        return Holding(f"{node}/0", slices, (1,), NOW), Partition(f"{node}/0", slices, tenants)

    world.wait(None)
    world.apply([Start("j", task, *place(task, node)) for task, node in (("a", "n0"), ("b", "n1"))])
    while world.now_s < 25.0:
        world.wait(25.0)
    world.apply([Move("j", "b", *place("b", "n2"))])
    ends_s = [e.at_s for _ in range(3) for e in (world.wait(None) or (0.0, ()))[1] if isinstance(e, JobEnded)]
    # Both start within 4 s; a runs until 5 s, sends for 20 s of its 80 s; the move takes 3 + 4 s: 25 + 7 + 60 + 1.
    assert ends_s == [pytest.approx(93.0)]
