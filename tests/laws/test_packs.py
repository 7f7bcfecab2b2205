"""The laws for policies that pack models: with hyperparameters, memory, believed steps, and jobs that are no models."""

import pytest
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.laws.drawing import over

from hocket.control.admission import refusal
from hocket.model.capacity import Capacity
from hocket.model.curve import Curve, Point
from hocket.model.job import Kind
from hocket.model.partition import Sharing
from hocket.model.resources import Demand
from hocket.model.versioned import versioned
from hocket.policies import find
from hocket.testing import laws
from hocket.testing import strategies as some
from hocket.testing.harness import Harness
from hocket.workloads.truth import Submission

CASES = [
    ("pack_none", {}),
    ("pack_random", {}),
    ("pack_random", {"most": 3, "enter": True}),
    ("pack_batch_size", {"trait": "b"}),
    ("pack_knn", {"threshold": 2, "enter": True}),
    ("pack_knn", {"metric": "euclid"}),
    ("pack_gain", {}),
    ("pack_gain", {"enter": False, "most": 2, "saves": 0}),
]
traits = st.dictionaries(st.sampled_from("bcr"), st.sampled_from([0.0, 1.0, 4.0, "sgd", "adam"]))
seconds = st.sampled_from([0.001, 0.5, 1.0, 30.0])


@st.composite
def models(draw, job, cluster):
    """The job as a model for packs, most of the time; with memory if the cluster has any."""
    if not draw(st.integers(0, 5)):
        return job
    mem_mib = draw(st.sampled_from([0.0, 100.0, 3000.0, 30_000.0])) if any(n.mem_mib for n in cluster) else 0.0
    gpus = draw(st.sampled_from([1, 1, 1, 0])) if any(n.cores for n in cluster) else 1
    demand = Demand(gpus, 0.0 if gpus else 1.0, mem_mib)
    model = replace(job, kind=Kind.MODEL, sizes=(1,), demand=demand, max_nodes=0, traits=draw(traits))
    return job if refusal(versioned(), model, Capacity.of(cluster)) else model


@st.composite
def steps_with_models(draw, cluster):
    steps = []
    for step in draw(some.histories(cluster)):
        if step.what == "submit":
            job, beliefs, costs = step.value
            if draw(st.booleans()):
                slower = Curve((Point(0.0, 1.0), Point(2.0, draw(st.sampled_from([0.5, 1.0, 2.0, 5.0])))))
                beliefs = replace(beliefs, comp_s=Curve((Point(1.0, draw(seconds)),)), slowdown=slower)
            step = replace(step, value=(draw(models(job, cluster)), beliefs, costs))
        steps.append(step)
    return steps


@st.composite
def workloads_with_models(draw, cluster):
    workload = draw(some.workloads(cluster))
    submissions = [
        Submission(s.at_s, draw(models(s.job, cluster)), replace(s.truth, comp_s=draw(seconds), reference_size=1))
        for s in workload.submissions
    ]
    return replace(workload, submissions=tuple(submissions))


SCENES = some.nodes().flatmap(
    lambda cluster: st.tuples(st.just(cluster), steps_with_models(cluster), st.integers(0, 3))
)
WORKLOADS = some.nodes().flatmap(lambda cluster: st.tuples(workloads_with_models(cluster), st.just(cluster)))


@pytest.mark.parametrize(("name", "knobs"), CASES, ids=[f"{n}-{k}" for n, k in CASES])
@over(SCENES)
def test_every_decision_over_packs_keeps_the_laws(name, knobs, example):
    bound = find(name).bound(knobs)
    cluster, steps, seed = example
    harness = Harness.of(bound, cluster, seed=seed)
    some.play(harness, steps, cluster)
    for snapshot in [s for s, _plan in harness.asked[-8:]] + [harness.snapshot]:
        plan = laws.hold(bound, snapshot)
        packs_keep_to_one_device(snapshot, plan, knobs.get("most", 32))


@pytest.mark.parametrize(("name", "knobs"), CASES, ids=[f"{n}-{k}" for n, k in CASES])
@over(WORKLOADS, turns=laws.BESIDES)
def test_every_run_with_packs_keeps_the_laws(name, knobs, example, turn):
    workload, cluster = example
    laws.hold_in_a_run(find(name).bound(knobs), workload, cluster, besides=(turn,))


def packs_keep_to_one_device(snapshot, plan, most):
    for partition in snapshot.partitions_of(plan):
        if partition.sharing is Sharing.PACKED:
            (device,) = partition.slices
            assert len(device.gpus) <= 1
            assert len(partition.tenants) <= most
            assert all(snapshot.jobs[t.job].job.kind is Kind.MODEL for t in partition.tenants)
            needs = sum(snapshot.jobs[t.job].job.demand.mem_mib for t in partition.tenants)
            assert needs <= device.mem_mib + 1e-6
