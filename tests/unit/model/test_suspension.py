"""Where a suspended state is kept: the cheapest place by expected time, within the memory that is set aside."""

from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace

from hocket.model.job import Job, Kind
from hocket.model.suspension import (
    Suspension,
    chance_of_interruption,
    costs_of_keeping,
    suspension_of,
    where_to_keep,
)
from hocket.model.view import Costs, JobView, Observation, Tier

RUNNING = Suspension(state_mib=100.0, redo_s=60.0, write_s=1.0, read_s=0.5, start_s=2.0, interruption=0.01)
LEAVING = replace(RUNNING, leaves=True, memory_mib=0.0)


@pytest.mark.parametrize(
    ("suspension", "tier"),
    [
        (RUNNING, Tier.MEMORY),  # It is rarely interrupted: the process goes on, and nothing is written.
        (replace(RUNNING, interruption=0.02), Tier.DISK),
        (replace(RUNNING, redo_s=600.0), Tier.DISK),
        (replace(RUNNING, redo_s=600.0, write_s=10.0), Tier.MEMORY),
        (replace(RUNNING, interruption=0.0), Tier.MEMORY),
        (LEAVING, Tier.DISK),
        (replace(LEAVING, redo_s=1.0), Tier.NONE),  # It is done again sooner than it is written and read.
        (replace(LEAVING, memory_mib=100.0), Tier.MEMORY),
        (replace(LEAVING, memory_mib=99.0), Tier.DISK),
        (replace(LEAVING, memory_mib=100.0, interruption=0.9), Tier.MEMORY),  # It is written too, and may last.
    ],
)
def test_the_cheapest_place_is_taken(suspension: Suspension, tier: Tier) -> None:
    assert where_to_keep(suspension) is tier


def test_a_state_that_is_larger_than_the_memory_set_aside_is_not_kept_there() -> None:
    assert costs_of_keeping(replace(LEAVING, memory_mib=99.9))[Tier.MEMORY] == inf
    assert costs_of_keeping(replace(LEAVING, memory_mib=100.0))[Tier.MEMORY] < inf
    assert costs_of_keeping(replace(LEAVING, memory_mib=100.0, process_mib=101.0))[Tier.MEMORY] == inf


def test_interruptions_come_by_a_rate() -> None:
    assert chance_of_interruption(0.0, 100.0) == 0.0
    assert chance_of_interruption(1 / 3600, 36.0) == pytest.approx(0.00995, abs=1e-5)
    assert chance_of_interruption(10.0, 100.0) == pytest.approx(1.0)


def test_a_policy_asks_with_what_a_query_has_reported() -> None:
    view = JobView(Job("q", kind=Kind.QUERY), 0, 0.0, costs=Costs(start_s=2.0))
    assert suspension_of(view) is None
    metrics = {"acc": 0.9, "state_mib": 40.0, "redo_s": 30.0, "write_s": 1.0, "read_s": 0.5}
    seen = (Observation(1.0, 1, metrics), Observation(2.0, 2, {"acc": 0.95}))
    found = suspension_of(replace(view, observations=seen), interruption=0.1, memory_mib=64.0)
    assert found == Suspension(40.0, 30.0, 1.0, 0.5, 2.0, 0.1, leaves=True, memory_mib=64.0)
    assert where_to_keep(found) is Tier.MEMORY
    assert where_to_keep(replace(found, memory_mib=39.0)) is Tier.DISK
