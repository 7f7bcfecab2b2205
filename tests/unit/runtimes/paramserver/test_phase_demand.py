"""What a phase needs, by what the last ones took."""

import time

import pytest

from hocket.runtimes.paramserver.phase_demand import CommDemand, CompDemand


def test_a_comm_counts_as_long_as_it_took() -> None:
    demand = CommDemand()
    assert [demand.needed_s(1_000_000, took_s) for took_s in (0.5, 0.4, 0.6)] == [0.5, 0.4, 0.6]


def test_a_single_comm_that_was_in_the_way_of_a_start_counts_as_twice_the_median() -> None:
    demand = CommDemand()
    for _ in range(5):
        demand.needed_s(1_000_000, 0.4)
    assert demand.needed_s(800_000, 9.0) == pytest.approx(2 * 0.32)
    assert demand.needed_s(1_000_000, 0.79) == 0.79


def test_a_network_that_is_slower_for_long_is_slower() -> None:
    demand = CommDemand()
    for _ in range(10):
        demand.needed_s(1_000_000, 0.1)
    needed_s = [demand.needed_s(1_000_000, 0.5) for _ in range(11)]
    assert needed_s[0] == pytest.approx(0.2)
    assert needed_s[-1] == 0.5


def test_small_ones_wait_rather_than_move_and_are_compared_with_small_ones() -> None:
    demand = CommDemand()
    demand.needed_s(1_000_000, 0.1)
    assert demand.needed_s(1_000, 0.01) == 0.01
    assert demand.needed_s(0, 0.02) == 0.02


def test_a_comp_that_others_slowed_down_takes_alone_as_long_as_its_processor_time_says():
    demand = CompDemand()
    for _ in range(8):
        assert demand.needed_s(0.4, 1.0) == pytest.approx(1.0)  # It has 0.4 of a core.
    assert demand.needed_s(0.4, 2.6) == pytest.approx(1.0)
    assert demand.needed_s(0.8, 2.6) == pytest.approx(2.0)  # There was more to do.


def test_a_single_comp_that_was_lucky_does_not_count():
    demand = CompDemand()
    for _ in range(10):
        demand.needed_s(0.4, 1.0)
    assert demand.needed_s(0.4, 0.5) == pytest.approx(0.5)
    assert demand.needed_s(0.4, 1.2) == pytest.approx(1.0)


def test_comps_follow_hosts_that_become_slower():
    demand = CompDemand()
    for took_s in [1.0] * 10 + [2.0] * 20:
        needed_s = demand.needed_s(0.4, took_s)
    assert needed_s == pytest.approx(2.0)


def test_a_comp_without_processor_time_takes_what_it_took():
    assert CompDemand().needed_s(0.0, 0.3) == 0.3


def test_a_comp_is_measured_with_the_processor_time_of_all_threads():
    demand = CompDemand()
    with demand.measure() as first:
        until_s = time.perf_counter() + 0.05
        while time.perf_counter() < until_s:
            pass
    assert first.took_s == pytest.approx(first.needed_s)
    assert first.took_s >= 0.05
    with demand.measure() as waited:
        time.sleep(0.05)
    assert waited.took_s >= 0.05
    assert waited.needed_s < waited.took_s / 2
