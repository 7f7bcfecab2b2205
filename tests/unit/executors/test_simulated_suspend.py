"""What a pause in memory takes in the simulated world, and what is lost with it."""

import pytest

from hocket.executors.simulated import SimulatedExecutor
from hocket.model.action import Pause, Resume, Start, Store
from hocket.model.event import JobEnded, JobPaused, JobStarted, NodeLost, StateStored, WorkLost
from hocket.model.job import Kind
from hocket.model.partition import Holding, Partition, Tenant
from hocket.model.resources import Node, Slice
from hocket.model.view import Costs, Tier
from hocket.testing.builders import job, submission, workload

COSTS = Costs(prepare_s=100.0, start_s=20.0, checkpoint_s=3.0, stop_s=2.0)
SLICES = (Slice("n0", cores=1.0, mem_mib=512.0),)
HOME = (Holding("a", SLICES, (1,)), Partition("a", SLICES, (Tenant("a", (1,)),)))


@pytest.fixture
def world():
    query = job("a", 1, gpus=0, cores=1.0, mem_mib=512.0, kind=Kind.QUERY)
    executor = SimulatedExecutor(
        workload(submission(query, run_s=1000.0, costs=COSTS)), [Node("n0", cores=4.0, mem_mib=4096.0)]
    )
    executor.wait(None)
    executor.apply([Start("a", "", *HOME)])
    assert wait_for(executor, JobStarted).at_s == 120.0
    executor.wait(220.0)  # It has done a tenth.
    return executor


def wait_for(executor, kind):
    """The first of these events, and none before it: several may come at one moment."""
    executor.left = getattr(executor, "left", [])
    while not any(isinstance(event, kind) for event in executor.left):
        moment = executor.wait(None)
        assert moment is not None, f"no {kind.__name__} came"
        executor.left += moment[1]
    at = next(n for n, event in enumerate(executor.left) if isinstance(event, kind))
    found, executor.left = executor.left[at], executor.left[at + 1 :]
    return found


def suspend(executor):
    executor.apply([Pause("a", tier=Tier.MEMORY)])
    return wait_for(executor, JobPaused)


def test_it_takes_no_time_and_its_process_keeps_its_memory(world):
    assert suspend(world) == JobPaused(220.0, "a", tier=Tier.MEMORY, node="n0", mem_mib=512.0)
    world.wait(500.0)
    world.apply([Resume("a", "", *HOME)])
    assert wait_for(world, JobStarted) == JobStarted(500.0, "a", in_place=True)
    assert wait_for(world, JobEnded).at_s == pytest.approx(500.0 + 900.0)


def test_a_state_that_is_brought_to_disk_is_read_by_a_new_process(world):
    suspend(world)
    world.apply([Store("a", Tier.DISK)])
    assert wait_for(world, StateStored) == StateStored(225.0, "a", Tier.DISK)
    world.apply([Resume("a", "", *HOME)])
    assert wait_for(world, JobStarted) == JobStarted(345.0, "a")
    assert wait_for(world, JobEnded).at_s == pytest.approx(345.0 + 900.0)


def test_a_state_that_is_dropped_is_done_again(world):
    suspend(world)
    world.apply([Store("a", Tier.NONE)])
    assert wait_for(world, WorkLost).lost_s == 100.0
    assert wait_for(world, StateStored) == StateStored(222.0, "a", Tier.NONE)
    world.apply([Start("a", "", *HOME)])
    assert wait_for(world, JobStarted) == JobStarted(342.0, "a")
    assert wait_for(world, JobEnded).at_s == pytest.approx(342.0 + 1000.0)


def test_what_is_in_memory_is_lost_with_its_node(world):
    suspend(world)
    world._push(world.now_s, None, NodeLost(world.now_s, "n0", "power cut"))
    wait_for(world, NodeLost)
    world.apply([Start("a", "", *HOME)])
    assert wait_for(world, JobStarted) == JobStarted(340.0, "a")
    assert wait_for(world, JobEnded).at_s == pytest.approx(340.0 + 1000.0)


def test_a_query_that_is_on_disk_is_not_brought_into_memory_as_in_live_runs(world):
    world.apply([Pause("a", tier=Tier.DISK)])
    wait_for(world, JobPaused)
    world.apply([Store("a", Tier.MEMORY)])
    assert wait_for(world, StateStored).tier is Tier.DISK


def test_a_pause_that_keeps_nothing_takes_no_time_to_save_and_the_work_is_done_again(world):
    world.apply([Pause("a", tier=Tier.NONE)])
    lost = wait_for(world, WorkLost)
    assert (lost.at_s, lost.lost_s) == (220.0, 100.0)
    assert wait_for(world, JobPaused) == JobPaused(222.0, "a", tier=Tier.NONE)
    world.apply([Start("a", "", *HOME)])
    assert wait_for(world, JobStarted) == JobStarted(342.0, "a")
    assert wait_for(world, JobEnded).at_s == pytest.approx(342.0 + 1000.0)


def test_a_state_on_disk_takes_time_to_read_and_none_where_there_is_none():
    query = job("a", 1, gpus=0, cores=1.0, mem_mib=512.0, kind=Kind.QUERY)
    jobs = workload(submission(query, run_s=1000.0, costs=COSTS, load_s=7.0))
    world = SimulatedExecutor(jobs, [Node("n0", cores=4.0, mem_mib=4096.0)])
    world.wait(None)
    world.apply([Start("a", "", *HOME)])
    assert wait_for(world, JobStarted).at_s == 120.0
    world.wait(220.0)
    world.apply([Pause("a", tier=Tier.DISK)])
    assert wait_for(world, JobPaused).at_s == 225.0
    world.apply([Resume("a", "", *HOME)])
    assert wait_for(world, JobStarted).at_s == 225.0 + 120.0 + 7.0
