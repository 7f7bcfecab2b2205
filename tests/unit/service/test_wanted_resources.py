"""What a cluster that can grow is asked for."""

from hocket.control.admission import refusal
from hocket.model.action import Start
from hocket.model.capacity import Capacity
from hocket.model.job import Job
from hocket.model.resources import Demand, Node
from hocket.policies.registry import bind
from hocket.service.wanted_resources import wanted_resources
from hocket.testing.builders import submitted
from hocket.testing.harness import Harness


def test_waiting_jobs_are_asked_for_by_replica_and_running_ones_are_not() -> None:
    harness = Harness.of(bind("fifo", {}), [Node("n", 1, cores=4.0, mem_mib=64.0)])
    waits = Job("waits", sizes=(1, 2), demand=Demand(gpus=1, cores=2.0, mem_mib=1.0))
    harness.tell(submitted(Job("runs")), submitted(waits))
    assert wanted_resources(harness.snapshot) == [{"CPU": 2.0, "GPU": 1.0, "memory": 1048576.0}]
    assert harness.did(Start) == ["runs"]


def test_a_job_that_fits_no_node_is_refused_unless_the_cluster_grows() -> None:
    whole = Capacity.of([Node("n", 1)])
    large = Job("large", sizes=(2,))
    assert "must fit the cluster" in refusal((), large, whole)
    assert refusal((), large, whole, grows=True) == ""
