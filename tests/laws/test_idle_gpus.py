"""An elastic job that started small grows when others leave, under every policy that changes sizes."""

from __future__ import annotations

import pytest

from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header
from hocket.model.event import JobEnded
from hocket.model.view import Costs
from hocket.policies import find, policies
from hocket.testing import laws
from hocket.testing.builders import cluster, job, submission, submitted
from hocket.testing.harness import Harness, simulated
from hocket.workloads.truth import Workload

LENDING = [name for name, found in policies().items() if "lend" in found.params.__struct_fields__]
# All others that do not grow a job, and why. A new policy lends, or says here why not.
KEEPS_SIZES = {
    "bcf": "a device for an epoch at a time, as Rotary has it",
    "borg_fair": "a job keeps the size at which its share let it start",
    "drf": "a job keeps the size at which its owner's share let it start",
    "gandiva": "jobs of one size are packed and moved; sizes are not changed",
    "graphene": "tasks have fixed demands",
    "harmony": "sizes are numbers of machines, chosen for groups of jobs",
    "k8s_default": "pods have fixed demands",
    "mlf_h": "tasks have fixed demands",
    "mlf_rl": "tasks have fixed demands",
    "mlfs_c": "the policy inside decides; by default mlf_h",
    "naive": "a baseline of fixed sizes",
    "pack_batch_size": "trials of one size are packed",
    "pack_gain": "trials of one size are packed",
    "pack_knn": "trials of one size are packed",
    "pack_none": "trials of one size are packed",
    "pack_random": "trials of one size are packed",
    "rl": "tasks have fixed demands",
    "rotary_dlt": "a device for an epoch at a time, as Rotary has it",
    "round_robin": "jobs keep their size for a turn",
    "srf": "a device for an epoch at a time, as Rotary has it",
    "static": "a baseline of fixed sizes",
}
COSTS = Costs(prepare_s=20.0, start_s=10.0, checkpoint_s=5.0, stop_s=2.0)


def sizes_of_elastic(name: str) -> list[int]:
    """The sizes that an elastic job of long duration is given one after another, beside a job that ends soon."""
    nodes, bound = cluster("1x4"), find(name).bound()
    jobs = (
        submission(job("brief", 3), 0.0, 1000.0, costs=COSTS),
        submission(job("elastic", 1, 2, 4), 1.0, 20000.0, costs=COSTS),
    )
    journal = MemoryJournal(Header(name, bound.settings, tuple(nodes)))
    simulated(bound, Workload("two", jobs), nodes, journal=journal)
    plans = [cycle.plan for cycle in journal if cycle.plan is not None]
    return [size for plan in plans for partition in plan.put if (size := partition.size_of("elastic"))]


@pytest.mark.parametrize("name", [name for name in policies() if name != "smallest"])
def test_it_grows_when_others_end_or_the_table_says_why_not(name: str) -> None:
    sizes = sizes_of_elastic(name)
    assert sizes[0] == 1
    assert (sizes[-1] == 4) == (name not in KEEPS_SIZES)


def told(name: str, *jobs, costs: Costs = COSTS) -> Harness:
    bound = find(name).bound()
    harness = Harness(bound.decide, cluster("1x4"), bound.order, shifts=bound.shifts)
    for each in jobs:
        harness.tell(submitted(each, costs=costs))
        settle(harness)
    return harness


def settle(harness: Harness) -> None:
    while harness.pending:
        harness.answer()


def sizes(harness: Harness) -> dict[str, int]:
    return {view.id: view.size for view in harness.snapshot.jobs.values()}


@pytest.mark.parametrize("name", LENDING)
def test_it_shrinks_when_a_job_can_start_in_what_was_lent(name: str) -> None:
    soon = {"deadline_s": 1e4} if name == "edf" else {}  # Under edf only an earlier deadline makes another job smaller.
    harness = told(name, job("elastic", 1, 2, 4))
    assert sizes(harness) == {"elastic": 4}
    harness.tell(submitted(job("new", 2, **soon), at_s=harness.now_s, run_s=10.0))
    settle(harness)
    if name != "srtf":  # Of the first nothing is believed, so it has longer left.
        assert sizes(harness) == {"elastic": 2, "new": 2}
    assert "shrinks: 'new'" in harness.snapshot.jobs["elastic"].reason


@pytest.mark.parametrize("name", LENDING)
def test_nothing_shrinks_for_a_job_that_does_not_fit_all_the_same(name: str) -> None:
    harness = told(name, job("fixed", 2), job("elastic", 1, 2))
    assert sizes(harness) == {"fixed": 2, "elastic": 2}
    harness.tell(submitted(job("new", 4), at_s=harness.now_s))
    settle(harness)
    assert sizes(harness) == {"fixed": 2, "elastic": 2, "new": 0}


@pytest.mark.parametrize("name", LENDING)
def test_a_job_that_has_just_started_does_not_restart_to_grow(name: str) -> None:
    harness = told(name, job("fixed", 3), job("elastic", 1, 4))
    started_s = harness.now_s
    harness.tell(JobEnded(harness.now_s, "fixed"))
    settle(harness)
    assert sizes(harness) == {"elastic": 1}
    # A restart takes 5 + 2 + 20 + 10 s; at four times the speed that is gained in a third of them.
    assert harness.controller.next_timer_s() == pytest.approx(started_s + 37.0 / 3)


def test_the_law_finds_a_gpu_that_idles() -> None:
    bound = find("las").bound({"lend": False})
    harness = Harness(bound.decide, cluster("1x4"), bound.order, shifts=bound.shifts)
    for each in (job("fixed", 3), job("elastic", 1, 4)):
        harness.tell(submitted(each))
        settle(harness)
    harness.tell(JobEnded(harness.now_s, "fixed"))
    settle(harness)
    snapshot = harness.snapshot
    with pytest.raises(laws.Broken, match="'elastic' has 1 replicas while there is room for 4"):
        laws.idle_gpus_are_lent(snapshot, bound.decide(snapshot))
    laws.idle_gpus_are_lent(snapshot, find("las").bound({"restart_s": 0}).decide(snapshot))
    laws.idle_gpus_are_lent(snapshot, find("las").bound().decide(snapshot), assumed_s=30.0)  # It has just started.
