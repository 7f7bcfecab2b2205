"""Which nodes no job needs: those that may be given back to what lent them."""

from hocket.model.event import JobAsked, JobFailed, JobRequest, NodeDrained, NodeReserved
from hocket.model.job import Job
from hocket.model.reservation import NodeReservation
from hocket.model.resources import Demand, Node
from hocket.policies.registry import bind
from hocket.service.idle_nodes import idle_nodes
from hocket.testing.builders import submitted
from hocket.testing.harness import Harness

NODES = [Node("a", 2, cores=4.0, mem_mib=64.0), Node("b", 2, cores=4.0, mem_mib=64.0)]
H100 = Job("kind", gpu_kinds=("H100",))


def cluster(*jobs: Job) -> Harness:
    """Two nodes; fifo has given the jobs what they get, and nothing was started yet."""
    harness = Harness.of(bind("fifo", {}), NODES)
    harness.tell(*map(submitted, jobs))
    return harness


def test_a_node_is_needed_from_the_plan_on_until_its_last_job_has_left() -> None:
    assert idle_nodes(cluster().snapshot, {}) == {"a": False, "b": False}
    harness = cluster(Job("one"))
    assert idle_nodes(harness.snapshot, {}) == {"b": False}
    harness.settle()
    harness.tell(JobAsked(1.0, "one", JobRequest.PAUSE))
    assert idle_nodes(harness.snapshot, {}) == {"b": False}  # It still saves its state.
    harness.settle()
    assert idle_nodes(harness.snapshot, {}) == {"a": False, "b": False}


def test_a_node_with_the_only_state_of_a_job_that_may_go_on_is_needed() -> None:
    harness = cluster(Job("one"))
    harness.settle()
    files = {"one": frozenset({"a", "b"})}
    assert idle_nodes(harness.snapshot, files) == {"b": False}  # It runs on the other one, where its state is.
    harness.tell(JobAsked(1.0, "one", JobRequest.PAUSE))
    harness.settle()
    assert idle_nodes(harness.snapshot, files) == {}
    assert idle_nodes(harness.snapshot, {"one": frozenset({"a"})}) == {"b": False}


def test_a_node_is_needed_while_a_job_waits_that_it_could_serve() -> None:
    large = Node("large", 8, "H100", cores=4.0, mem_mib=640.0)
    of_memory = Job("memory", demand=Demand(gpus=1, mem_mib=65.0))
    for waits, idle in ((Job("wide", sizes=(8,)), set()), (of_memory, {"a", "b"}), (H100, {"a", "b"})):
        harness = Harness.of(bind("fifo", {}), [*NODES, large])
        harness.tell(submitted(Job("all", sizes=(8,), gpu_kinds=("H100",))), submitted(waits))
        assert len(harness.snapshot.waiting) == 1
        assert idle_nodes(harness.snapshot, {}).keys() == idle


def test_a_job_that_rests_after_a_failure_needs_a_node_soon() -> None:
    harness = cluster(Job("breaks", backoff_s=5.0))
    harness.settle()
    harness.tell(JobFailed(1.0, "breaks", "exit code 1"))
    assert harness.snapshot.jobs["breaks"].held is not None
    assert idle_nodes(harness.snapshot, {}) == {}


def test_a_drained_node_is_told_from_others_and_a_reserved_or_lost_one_is_not_given_back() -> None:
    harness = cluster()
    harness.tell(NodeDrained(1.0, "a"))
    assert idle_nodes(harness.snapshot, {}) == {"a": True, "b": False}
    harness.tell(NodeReserved(2.0, NodeReservation("demo", "b", ("ana",), 2.0)))
    assert idle_nodes(harness.snapshot, {}) == {"a": True}
