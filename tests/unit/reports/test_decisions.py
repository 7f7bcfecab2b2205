"""What is recorded of decisions is what was decided."""

import json
from math import isnan, nan

import numpy as np

from hocket.control.ports import Header
from hocket.model.job import Edge, Job, Task, TaskGraph
from hocket.model.resources import Demand
from hocket.model.view import JobView, Observation
from hocket.policies import find
from hocket.reports.decisions import DecisionRecord, _losses
from hocket.testing.builders import cluster, submitted
from hocket.testing.harness import Harness

GRAPH = TaskGraph(
    (Task("a", Demand(1, gpu_share=0.5), 0.6), Task("b", Demand(1, gpu_share=0.25), 0.4)), (Edge("a", "b", 7.0),)
)


def recorded(tmp_path, *steps, nodes="2x2", **knobs):
    nodes = cluster(nodes)
    record = DecisionRecord(Header("mlf_h", {"alpha": 0.3}, tuple(nodes)))
    bound = find("mlf_h").bound({"round_s": 0, **knobs})
    world = Harness(record.watching(bound.decide), nodes, bound.order)
    for events in steps:
        world.tell(*events)
        world.settle()
    files = {path.stem: path for path in record.write(tmp_path / "out")}
    loaded = {name: dict(np.load(files[name])) for name in ("decisions", "rows", "jobs")}
    return world, loaded, json.loads(files["about"].read_text())


def test_every_task_that_gets_a_gpu_has_a_row_with_it(tmp_path):
    world, found, _about = recorded(
        tmp_path, [submitted(Job("j", tasks=GRAPH, urgency=4, deadline_s=100.0), 0.0, 50.0)]
    )
    rows = found["rows"]
    gpus = {
        t.task: 2 * int(p.slices[0].node[1:]) + p.slices[0].gpus[0]
        for p in world.snapshot.partitions.values()
        for t in p.tenants
    }
    assert dict(zip(rows["task"].tolist(), rows["to_gpu"].tolist(), strict=True)) == {0: gpus["a"], 1: gpus["b"]}
    assert set(rows["from_gpu"].tolist()) == {-1}
    assert set(rows["urgency"].tolist()) == {4}
    assert set(rows["to_deadline_s"].tolist()) == {100}
    assert rows["gpu_load"].tolist() == [0.5, 0.25]


def test_jobs_that_still_wait_have_a_row_each(tmp_path):
    _world, found, _about = recorded(tmp_path, [submitted(Job(f"j{i}", sizes=(1,))) for i in range(3)], nodes="1x2")
    rows = found["rows"]
    waits = [job for job, gpu in zip(rows["job"].tolist(), rows["to_gpu"].tolist(), strict=True) if gpu == -1]
    assert set(waits) == {2}
    assert found["decisions"]["waiting"][0] == 3  # before the first decision


def test_the_use_of_servers_is_that_before_the_decision(tmp_path):
    one = [submitted(Job("j", tasks=GRAPH))]
    _world, found, about = recorded(tmp_path, one, [submitted(Job("k"), 10.0)])
    use = found["decisions"]["use"]
    assert use.shape[1:] == (2, 4)
    assert use[0].sum() == 0.0
    assert use[-1, :, 0].sum() == 0.375  # three quarters of a GPU, on servers of two
    assert about["policy"] == "mlf_h"
    assert about["decisions"] == len(use)


def test_losses_are_those_that_the_job_reported():
    seen = tuple(Observation(float(e), e, {"loss": x}) for e, x in ((1, 3.0), (2, nan), (3, 2.0), (4, 1.5)))
    assert _losses(JobView(Job("j"), 0, 0.0, observations=seen)) == (1.5, 0.5, 1.5)
    assert all(isnan(x) for x in _losses(JobView(Job("j"), 0, 0.0)))


def test_graphs_are_kept_once_for_each_job(tmp_path):
    _world, found, _about = recorded(tmp_path, [submitted(Job("j", tasks=GRAPH, model="m"))])
    jobs = found["jobs"]
    assert (jobs["edge_source"].tolist(), jobs["edge_target"].tolist(), jobs["edge_mib"].tolist()) == ([0], [1], [7])
    assert jobs["task_share"].tolist() == [np.float32(0.6), np.float32(0.4)]
    assert jobs["model"].tolist() == ["m"]


def test_a_record_of_nothing_can_be_written(tmp_path):
    record = DecisionRecord(Header("mlf_h"))
    assert len(record) == 0
    assert len(record.write(tmp_path)) == 4
