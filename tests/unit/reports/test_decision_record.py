"""What is recorded of decisions is what was decided."""

import json
from math import isnan, nan
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from hocket.control.ports import Cycle, Header
from hocket.model.criterion import Epochs, Goal
from hocket.model.event import EpochEnded, JobEnded, ProgressReported
from hocket.model.job import Edge, Job, Task, TaskGraph
from hocket.model.partition import Partition, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Demand, Slice
from hocket.model.view import RECENT_OBSERVATIONS, JobView, Observation, Use
from hocket.policies import find
from hocket.policies.kit.load_table import placements_of
from hocket.reports.decision_record import UNKNOWN, DecisionRecord, _losses, job_outcomes
from hocket.testing.builders import cluster, submitted
from hocket.testing.harness import Harness, simulated
from hocket.workloads.mlfs import mlfs_workload

GRAPH = TaskGraph(
    (Task("a", Demand(1, gpu_share=0.5), 0.6), Task("b", Demand(1, gpu_share=0.25), 0.4)), (Edge("a", "b", 7.0),)
)


def loaded_from(path):
    with np.load(path) as file:
        return dict(file)


def recorded(tmp_path, *steps, nodes="2x2", **knobs):
    nodes = cluster(nodes)
    record = DecisionRecord(Header("mlf_h", {"alpha": 0.3}, tuple(nodes)))
    bound = find("mlf_h").bound({"round_s": 0, **knobs})
    world = Harness(record.watching(bound.decide), nodes, bound.order)
    for events in steps:
        world.tell(*events)
        world.settle()
    files = {path.stem: path for path in record.write(tmp_path / "out", world.journal)}
    loaded = {name: loaded_from(files[name]) for name in ("decisions", "rows", "servers", "jobs")}
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
    servers, decisions = found["servers"], found["decisions"]
    assert servers["decision"].min() > 0  # Before the first one nothing is used.
    last = {}  # A node's latest row at or before a decision says what is used of it.
    for decision, node, gpus in zip(servers["decision"], servers["node"], servers["gpus"], strict=True):
        last[int(node)] = float(gpus)
        assert decision < about["decisions"]
    assert sum(last.values()) == 0.375  # three quarters of a GPU, on servers of two
    first = decisions["first_server_row"]
    assert (servers["decision"][first[1] :] >= 1).all()
    assert about["policy"] == "mlf_h"
    assert about["decisions"] == len(decisions["at_s"])


def test_the_use_of_a_server_is_noted_when_it_changes_only(tmp_path):
    steps = [[submitted(Job("j", tasks=GRAPH))], *([submitted(Job(f"q{i}", sizes=(9,)), 10.0 + i)] for i in range(5))]
    _world, found, _about = recorded(tmp_path, *steps)
    servers = found["servers"]
    rows = list(zip(servers["node"], servers["gpus"], strict=True))
    assert len(rows) == len(set(servers["node"].tolist()))


def task_of(share):
    return TaskGraph((Task("t", Demand(1, gpu_share=share)),))


def test_what_a_migration_rested_on_is_recorded_as_it_was_measured(tmp_path):
    jobs = [submitted(Job(n, tasks=task_of(share))) for n, share in (("a", 0.4), ("b", 0.3), ("c", 0.2))]
    overloads = [ProgressReported(30.0, "a", 1, {}, Use(gpus=0.6))]
    review = [submitted(Job("wide", sizes=(9,)), 60.0)]
    _world, found, _about = recorded(tmp_path, jobs, overloads, review, nodes="1x1")
    rows, servers = found["rows"], found["servers"]
    (left,) = np.flatnonzero((rows["from_gpu"] == 0) & (rows["to_gpu"] == -1))
    there = (rows["decision"] == rows["decision"][left]) & (rows["from_gpu"] == 0)
    assert rows["job"][there].tolist().count(rows["job"][left]) == 1
    assert sorted(rows["job"][there].tolist()) == [0, 1, 2]  # those that stay, too
    stay = there & (rows["to_gpu"] == 0)
    assert (rows["from_size"][stay] == rows["to_size"][stay]).all()
    measured = dict(zip(rows["job"][there].tolist(), rows["gpu_load_measured"][there].tolist(), strict=True))
    assert measured[0] == np.float32(0.6)
    assert isnan(measured[1])
    before = servers["decision"] <= rows["decision"][left]
    assert servers["gpus"][before][-1] == np.float32(0.9)
    assert servers["gpus_measured"][before][-1] == np.float32(1.1)


def test_where_no_task_leaves_none_has_a_row_for_staying(tmp_path):
    steps = [[submitted(Job(n, tasks=task_of(0.3)), at_s)] for n, at_s in (("a", 0.0), ("b", 10.0), ("c", 20.0))]
    _world, found, _about = recorded(tmp_path, *steps, nodes="1x1")
    assert set(found["rows"]["from_gpu"].tolist()) == {-1}


def test_a_server_is_used_as_the_policy_that_relieves_it_has_it(tmp_path):
    run = mlfs_workload(25, 2400.0, 3600.0, 1.0, seed=2)
    record = DecisionRecord(Header("mlf_h", nodes=run.nodes))
    bound = find("mlf_h").bound()
    tables = []

    def decide(snapshot):
        tables.append(placements_of(snapshot, 0.9).table.use[:, 0].copy())
        return record.watching(bound.decide)(snapshot)

    simulated(replace(bound, decide=decide), run, run.nodes)
    record.write(tmp_path)
    servers = loaded_from(tmp_path / "servers.npz")
    used, differs = np.zeros(len(run.nodes)), 0
    for decision, table in enumerate(tables):
        of_it = servers["decision"] == decision
        used[servers["node"][of_it]] = servers["gpus_measured"][of_it]
        differs += int((servers["gpus"][of_it] != servers["gpus_measured"][of_it]).sum())
        assert used == pytest.approx(table, abs=1e-6)
    assert differs > 10


def test_losses_are_those_that_the_job_reported():
    seen = tuple(Observation(float(e), e, {"loss": x}) for e, x in ((1, 3.0), (2, nan), (3, 2.0), (4, 1.5)))
    assert _losses(JobView(Job("j"), 0, 0.0, observations=seen)) == (1.5, 0.5)
    assert all(isnan(x) for x in _losses(JobView(Job("j"), 0, 0.0)))


def test_a_loss_falls_since_the_first_report_however_long_ago_that_was(tmp_path):
    nodes = cluster("1x2")
    record = DecisionRecord(Header("p", nodes=tuple(nodes)))
    bound = find("fifo").bound({})
    world = Harness(bound.decide, nodes, bound.order)
    world.tell(submitted(Job("j")))
    world.settle()
    last = 2 * RECENT_OBSERVATIONS
    for epoch in range(1, last + 1):  # Nothing is decided meanwhile: no view that the record sees has the first one.
        world.tell(EpochEnded(float(epoch), "j", epoch, {"loss": nan if epoch == 1 else 1000.0 - epoch}))
    record.add(world.snapshot, Plan(drop=tuple(world.snapshot.partitions)))
    record.write(tmp_path, world.journal)
    rows = loaded_from(tmp_path / "rows.npz")
    assert rows["loss"].tolist() == [1000 - last]
    assert rows["loss_fell_in_all"].tolist() == [last - 2]


def test_graphs_are_kept_once_for_each_job(tmp_path):
    _world, found, _about = recorded(tmp_path, [submitted(Job("j", tasks=GRAPH, model="m"))])
    jobs = found["jobs"]
    assert (jobs["edge_source"].tolist(), jobs["edge_target"].tolist(), jobs["edge_mib"].tolist()) == ([0], [1], [7])
    assert jobs["task_share"].tolist() == [np.float32(0.6), np.float32(0.4)]
    assert jobs["model"].tolist() == ["m"]


def test_a_record_of_nothing_can_be_written(tmp_path):
    record = DecisionRecord(Header("mlf_h"))
    assert len(record) == 0
    assert len(record.write(tmp_path)) == 5


def test_a_job_that_a_decision_ends_has_a_row_that_says_so(tmp_path):
    nodes = cluster("1x2")
    record = DecisionRecord(Header("p", nodes=tuple(nodes)))
    bound = find("fifo").bound({})
    is_over = False

    def decide(snapshot):
        plan = bound.decide(snapshot)
        return Plan(ends={"j": "hopeless"}, reasons={"j": "stopped"}) if is_over and "j" in snapshot.jobs else plan

    world = Harness(record.watching(decide), nodes, bound.order)
    world.tell(submitted(Job("j", criterion=Goal("acc", ">=", 0.9))))
    world.settle()
    is_over = True
    world.tell(submitted(Job("k"), 5.0))
    world.settle()
    record.write(tmp_path)
    rows = loaded_from(tmp_path / "rows.npz")
    assert set(rows["job"][rows["ends"] == 1].tolist()) == {0}


def test_a_plan_that_names_a_job_that_is_not_there_is_left_to_the_check(tmp_path):
    nodes = cluster("1x2")
    record = DecisionRecord(Header("p", nodes=tuple(nodes)))
    world = Harness(find("fifo").bound({}).decide, nodes, find("fifo").bound({}).order)
    part = Partition("ghost", (Slice("n000", (0,)),), (Tenant("ghost", (1,)),))
    record.add(world.snapshot, Plan((part,), ends={"ghost": "hopeless"}))
    record.write(tmp_path)
    assert len(loaded_from(tmp_path / "rows.npz")["job"]) == 0


def test_a_job_that_changes_its_size_where_it_is_has_a_row(tmp_path):
    nodes = cluster("1x4")
    record = DecisionRecord(Header("p", nodes=tuple(nodes)))
    bound = find("fifo").bound({})
    world = Harness(record.watching(bound.decide), nodes, bound.order)
    world.tell(submitted(Job("j", sizes=(1, 2))))
    world.settle()
    (old,) = world.snapshot.partitions.values()
    (part,) = old.slices
    less = replace(old, slices=(replace(part, gpus=part.gpus[:1]),), tenants=(Tenant("j", (1,)),))
    record.add(world.snapshot, Plan((less,)))
    record.write(tmp_path)
    rows = loaded_from(tmp_path / "rows.npz")
    assert list(zip(rows["from_size"].tolist(), rows["to_size"].tolist(), strict=True))[-1] == (2, 1)
    assert rows["from_gpu"][-1] == rows["to_gpu"][-1]


def ran(*reports, deadline_s=None, ended_s=None, verdict="finished"):
    """What became of a job that reported these values, a minute apart."""
    goal = Goal("acc", ">=", 0.9, Epochs(5))
    events = [submitted(Job("j", target=goal, deadline_s=deadline_s), 0.0, 300.0)]
    events += [EpochEnded(60.0 * n, "j", n, {"acc": x}) for n, x in enumerate(reports, 1)]
    if ended_s is not None:
        events.append(JobEnded(ended_s, "j", verdict))
    header = Header("fifo", nodes=tuple(cluster("1x1")))
    return job_outcomes(header, [Cycle(n, (event,)) for n, event in enumerate(events)])["j", 0.0]


def test_the_outcome_of_a_job_is_recorded():
    fate = ran(0.5, 0.8, 0.95, deadline_s=200.0, ended_s=180.0)
    assert (fate.ended_s, fate.verdict, fate.deadline_met, fate.goal_met) == (180.0, "finished", 1, 1)
    assert (fate.best, fate.best_by_deadline) == (0.95, 0.95)


def test_what_comes_after_the_deadline_is_not_had_by_it():
    fate = ran(0.5, 0.95, deadline_s=90.0, ended_s=180.0)
    assert (fate.deadline_met, fate.best, fate.best_by_deadline) == (0, 0.95, 0.5)


def test_a_job_that_is_not_over_has_no_outcome_yet():
    fate = ran(0.5, nan)
    assert isnan(fate.ended_s)
    assert (fate.verdict, fate.deadline_met, fate.goal_met, fate.best) == ("", UNKNOWN, UNKNOWN, 0.5)


def test_every_column_is_documented(tmp_path):
    _world, found, about = recorded(tmp_path, [submitted(Job("j", tasks=GRAPH))])
    page = (Path(__file__).parents[3] / "docs" / "record.md").read_text(encoding="utf-8")
    names = [name for columns in found.values() for name in columns]
    assert len(names) > 40
    assert [name for name in names if f"`{name}`" not in page] == []
    assert {"policy", "params", "workload", "seed", "nodes", "decisions"} == set(about)
