"""What a COMM needs is what the fastest of the last ones took, for as many bytes."""

import pytest

from hocket.runtimes.paramserver.comm_demand import CommDemand


def test_a_comm_that_shared_the_network_counts_as_if_it_had_not() -> None:
    demand = CommDemand()
    assert demand.needed_s(1_000_000, 0.5) == 0.5
    assert demand.needed_s(1_000_000, 0.4) == 0.4
    assert demand.needed_s(800_000, 0.9) == pytest.approx(0.32)


def test_a_network_that_is_slower_for_long_is_slower() -> None:
    demand = CommDemand()
    demand.needed_s(1_000_000, 0.1)
    assert [demand.needed_s(1_000_000, 0.2) for _ in range(20)] == pytest.approx([0.1] * 19 + [0.2])


def test_small_ones_wait_rather_than_move_and_are_compared_with_small_ones() -> None:
    demand = CommDemand()
    demand.needed_s(1_000_000, 0.1)
    assert demand.needed_s(1_000, 0.01) == 0.01
    assert demand.needed_s(0, 0.02) == 0.02
