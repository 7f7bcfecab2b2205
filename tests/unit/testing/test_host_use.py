"""What a host used where no cgroup counts it."""

import os

import pytest

from hocket.testing.hosts.launcher import busy_s

STAT = """cpu  900 0 0 900 0 0 0 0 0 0
cpu0 100 10 20 1000 50 1 2 3 7 0
cpu1 200 0 0 1000 0 0 0 0 0 0
cpu10 5000 0 0 0 0 0 0 0 0 0
intr 2951327 0 0 0
ctxt 17
"""


def test_the_busy_time_of_cores_is_all_but_idling_and_waiting_for_disks() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    assert busy_s(STAT, {0}) == pytest.approx(136 / ticks)
    assert busy_s(STAT, {0, 1}) == pytest.approx(336 / ticks)
    assert busy_s(STAT, {7}) == 0.0  # There is none.
