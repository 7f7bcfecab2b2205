"""What load control watches from one decision to the next is what it would find by looking at everything."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hocket.executors.simulated import simulate
from hocket.model.criterion import parse
from hocket.model.event import EpochEnded, JobEnded
from hocket.model.job import Stop
from hocket.policies import find
from hocket.policies.kit.load_watch import LoadWatch
from hocket.testing import strategies as some
from hocket.testing.builders import cluster, job, submitted
from hocket.testing.harness import Harness
from hocket.workloads.mlfs import mlfs_workload

GOAL = parse("acc >= 0.7 within 80 epochs")


def found(watch, snapshot, since_s):
    watch.follow(snapshot)
    return (
        watch.reported,
        watch.lowerable,
        watch.lacking,
        set(watch.reported_since(since_s)),
        watch.mean_load(snapshot.capacity),
    )


def assert_same(watch, snapshot, since_s):
    assert found(watch, snapshot, since_s) == found(LoadWatch(), snapshot, since_s)


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_happens_it_is_what_a_look_at_everything_finds(data):
    nodes = data.draw(some.nodes())
    watch, decide = LoadWatch(), data.draw(st.sampled_from((some.chaos, some.sharing_chaos)))

    def watching(snapshot):
        if data.draw(st.booleans()):  # It is asked at every decision, or at some.
            assert_same(watch, snapshot, data.draw(st.sampled_from((0.0, snapshot.now_s, snapshot.now_s - 10.0))))
        return decide(snapshot)

    harness = Harness(watching, nodes)
    some.play(harness, data.draw(some.histories(nodes, 25)), nodes)
    assert_same(watch, harness.snapshot, 0.0)


def test_task_graphs_lack_tasks_and_get_them_back():
    workload = mlfs_workload(30, 2500.0, 3600.0, 1.0, seed=3)
    watch, lacked, reported = LoadWatch(), 0, 0
    bound = find("mlf_h").bound({"whole": False})

    def watching(snapshot):
        nonlocal lacked, reported
        assert_same(watch, snapshot, snapshot.now_s - 60.0)
        lacked += bool(watch.lacking)
        reported += len(watch.reported)
        return bound.decide(snapshot)

    simulate(workload, workload.nodes, replace(bound, decide=watching))
    assert lacked > 20
    assert reported > 20


def test_a_job_of_the_same_name_is_another_one():
    harness, watch = Harness.of(find("fifo").bound(), cluster("1x2")), LoadWatch()
    harness.tell(submitted(job("a", target=GOAL, may_lower=Stop.REQUIRED)))
    harness.settle()
    harness.tell(EpochEnded(5.0, "a", 1, {"acc": 0.1}))
    assert found(watch, harness.snapshot, 5.0)[:4] == ({"a": 5.0}, {"a"}, set(), {"a"})
    harness.tell(JobEnded(6.0, "a"), submitted(job("a", target=GOAL, stop=Stop.OPTSTOP), 6.0))
    harness.settle()
    assert_same(watch, harness.snapshot, 5.0)
    assert "a" not in watch.lowerable
