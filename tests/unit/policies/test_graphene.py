"""Graphene: which job goes first, which tasks are troublesome, and where they go."""

import pytest
from msgspec.structs import replace

from hocket.model.action import Start
from hocket.model.event import JobAsked, JobRequest, NodeLost, ProgressReported
from hocket.model.job import Edge, Task, TaskGraph
from hocket.model.resources import Demand
from hocket.model.view import Use
from hocket.policies import find
from hocket.policies.graphene import by_trouble
from hocket.testing import laws
from hocket.testing.builders import cluster, job, submitted
from hocket.testing.harness import Harness
from hocket.workloads import load

SMALL, LARGE = Demand(1, 1.0, 100.0, 0.0, 0.4), Demand(1, 3.0, 800.0, 0.0, 0.8)


def chain(*demands) -> TaskGraph:
    tasks = tuple(Task(f"t{k}", d) for k, d in enumerate(demands))
    return TaskGraph(tasks, tuple(Edge(f"t{k}", f"t{k + 1}", 10.0) for k in range(len(demands) - 1)))


def run(*events, nodes=None, **knobs) -> Harness:
    nodes = nodes or cluster("2x2", cores=8.0, mem_mib=2000.0)
    harness = Harness.of(find("graphene").bound(knobs), nodes)
    for event in events:
        harness.tell(event)
        harness.settle()
    return harness


def placed(harness, job_id) -> dict[str, str]:
    """Task → GPU."""
    found = {}
    for partition in harness.snapshot.partitions.values():
        for tenant in partition.tenants:
            if tenant.job == job_id:
                found[tenant.task] = partition.id
    return found


def test_tasks_with_more_dependants_are_more_troublesome():
    assert by_trouble(chain(SMALL, SMALL, SMALL)) == (0, 1, 2)


def test_a_large_demand_makes_up_for_few_dependants():
    assert by_trouble(chain(SMALL, LARGE))[0] == 0
    graph = TaskGraph(tuple(Task(f"t{k}", d) for k, d in enumerate((SMALL, LARGE))))
    assert by_trouble(graph) == (1, 0)


def test_dependants_of_dependants_count_too():
    tasks = tuple(Task(n, SMALL) for n in ("leaf", "fan", "a", "b", "root"))
    edges = (Edge("root", "fan"), Edge("fan", "a"), Edge("fan", "b"))
    assert by_trouble(TaskGraph(tasks, edges))[:2] == (4, 1)


def test_a_job_starts_with_all_its_tasks_or_not_at_all():
    harness = run(
        submitted(job("a", tasks=chain(LARGE, LARGE, LARGE))), submitted(job("b", tasks=chain(LARGE, LARGE)), 1)
    )
    assert len(placed(harness, "a")) == 3
    assert placed(harness, "b") == {}
    assert harness.snapshot.jobs["b"].state == "waiting"


def test_tasks_share_a_gpu_up_to_the_load():
    harness = run(
        submitted(job("a", tasks=chain(SMALL, SMALL, SMALL))), nodes=cluster("1x2", cores=8.0, mem_mib=2000.0)
    )
    gpus = list(placed(harness, "a").values())
    assert len(gpus) == 3
    assert max(gpus.count(g) for g in gpus) == 2  # three would ask for 1.2


def test_a_task_goes_where_what_is_free_is_most_like_what_it_needs():
    nodes = [*cluster("1x2", cores=32.0, mem_mib=1000.0), *cluster("2x2", cores=4.0, mem_mib=9000.0)[1:]]
    hungry = TaskGraph((Task("t0", Demand(1, 4.0, 900.0)),))
    harness = run(submitted(job("a", tasks=hungry)), nodes=nodes)
    assert placed(harness, "a")["t0"].startswith("n1/")  # as a share of what n1 has, its cores are most


def test_little_work_age_and_size_make_the_order():
    full = submitted(job("full", 4), 0, 10)
    short, long = submitted(job("short", 1), 60, 600), submitted(job("long", 1), 30, 36_000)
    wide = submitted(job("wide", 2), 60, 300)

    def order(**knobs):
        harness = Harness.of(find("graphene").bound(knobs), cluster("1x4"))
        for event in (full, long, short, wide):
            harness.tell(event)
        return [e[-1] for e in harness.snapshot.waiting]

    assert order()[0] in ("wide", "short")
    assert order(jct=0.0, packing=0.0)[0] == "long"
    assert order(jct=0.0, fairness=0.0, packing=1.0)[0] == "wide"


def test_a_job_that_loses_a_task_gets_it_back_elsewhere_or_waits():
    nodes = cluster("2x2", cores=8.0, mem_mib=2000.0)
    harness = run(submitted(job("a", tasks=chain(LARGE, LARGE, LARGE))), nodes=nodes)
    by_node = {pid.split("/")[0] for pid in placed(harness, "a").values()}
    assert by_node == {"n0", "n1"}
    harness.tell(NodeLost(10, "n0"))
    harness.settle()
    assert placed(harness, "a") == {}  # Two GPUs are too few for three such tasks.


def test_jobs_without_tasks_are_placed_as_one():
    harness = run(submitted(job("a", 2)), submitted(job("b", 1, 2), 1), nodes=cluster("1x4"))
    assert [a.job for a in harness.log if isinstance(a, Start)] == ["a", "b"]
    assert harness.snapshot.jobs["b"].size == 2


@pytest.mark.parametrize("policy", ["graphene", "gandiva"])
def test_the_laws_hold_for_partitioned_models(policy):
    work = load("mlfs?jobs=12&over=2h", seed=3)
    laws.hold_in_a_run(find(policy).bound(), work, work.nodes[:8])


def test_what_was_measured_counts_where_a_job_is_tried_again():
    def graph(name, *shares):
        return replace(job(name), tasks=chain(*(Demand(1, gpu_share=share) for share in shares)))

    run = Harness.of(find("graphene").bound(), cluster("1x1"))
    for name, uses in (("much", 1.2), ("little", 0.4)):  # Both ask for as much.
        run.tell(submitted(graph(name, 0.4, 0.4), run.now_s))
        run.settle()
        run.tell(ProgressReported(run.now_s + 1, name, 1, {}, Use(uses)))
        run.tell(JobAsked(run.now_s + 1, name, JobRequest.PAUSE))
        run.settle()
    run.tell(submitted(graph("other", 0.45), run.now_s))
    run.settle()
    run.tell(*(JobAsked(run.now_s + 1, name, JobRequest.RESUME) for name in ("much", "little")))
    run.settle()
    assert {v.job.id for v in run.snapshot.jobs.values() if v.partitions} == {"other", "little"}
