"""What a resize takes in the simulated world: early initialisation, termination, and other hosts."""

import pytest

from hocket.executors.simulated import SimulatedExecutor
from hocket.model.action import Resize, Start
from hocket.model.event import JobResized, JobStarted
from hocket.model.job import Kind
from hocket.model.partition import Holding, Partition, Tenant
from hocket.model.resources import Slice
from hocket.model.view import Costs
from hocket.testing.builders import cluster, job, submission, workload

COSTS = Costs(prepare_s=100.0, start_s=20.0, checkpoint_s=3.0, stop_s=2.0)
HOME, WIDER, AWAY, BOTH = (
    (Slice("n0", (0, 1)),),
    (Slice("n0", (0, 1, 2, 3)),),
    (Slice("n1", (0, 1, 2, 3)),),
    (Slice("n0", (0, 1)), Slice("n1", (0, 1))),
)


def of(slices):
    replicas = tuple(len(s.gpus) for s in slices)
    return Holding("a", slices, replicas), Partition("a", slices, (Tenant("a", replicas),))


def wait_for(executor, kind):
    while (moment := executor.wait(None)) is not None:
        for event in moment[1]:
            if isinstance(event, kind):
                return event.at_s
    raise AssertionError(f"no {kind.__name__} came")


@pytest.mark.parametrize(
    ("warm", "was", "to", "takes_s"),
    [
        (True, HOME, WIDER, 25.0),
        (True, WIDER, HOME, 25.0),
        (True, BOTH, HOME, 25.0),
        (False, HOME, WIDER, 125.0),
        (True, HOME, AWAY, 125.0),
        (True, HOME, BOTH, 125.0),
    ],
    ids=["up", "down", "down to one host", "by termination", "to another host", "beyond its host"],
)
def test_a_resize_is_warm_only_where_the_job_is_and_stays_on_its_hosts(warm, was, to, takes_s):
    one = submission(job("a", 2, 4, warm=warm), run_s=10_000.0, costs=COSTS)
    executor = SimulatedExecutor(workload(one), cluster("2x4"))
    executor.wait(None)
    executor.apply([Start("a", "", *of(was))])
    started_s = wait_for(executor, JobStarted)
    executor.apply([Resize("a", "", *of(to))])
    assert wait_for(executor, JobResized) - started_s == pytest.approx(takes_s)


@pytest.mark.parametrize(("to", "takes_s", "in_place"), [(WIDER, 0.0, True), (AWAY, 125.0, False)])
def test_a_query_on_its_host_goes_on_in_its_process(to, takes_s, in_place):
    one = submission(job("a", 2, 4, kind=Kind.QUERY), run_s=10_000.0, costs=COSTS)
    executor = SimulatedExecutor(workload(one), cluster("2x4"))
    executor.wait(None)
    executor.apply([Start("a", "", *of(HOME))])
    started_s = wait_for(executor, JobStarted)
    executor.apply([Resize("a", "", *of(to))])
    (resized,) = [e for e in executor.wait(None)[1] if isinstance(e, JobResized)]
    assert (resized.at_s - started_s, resized.in_place) == (pytest.approx(takes_s), in_place)
