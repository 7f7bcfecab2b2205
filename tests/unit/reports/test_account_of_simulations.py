"""What an account says of a simulated run must agree with the run's own state."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from hocket.executors.simulated import Simulation, simulate
from hocket.model.view import Costs
from hocket.policies.registry import find
from hocket.reports.account import Account, account
from hocket.reports.comparison import time_series
from hocket.reports.summary import summarise, utilisation
from hocket.workloads import load
from hocket.workloads.cluster import parse_cluster


@pytest.fixture(scope="module", params=["fifo", "las", "srtf"])
def run(request: pytest.FixtureRequest) -> tuple[Simulation, Account]:
    workload = load("demo")
    simulation = simulate(workload, workload.nodes, find(request.param).bound())
    return simulation, account(simulation.journal.header, simulation.journal)


def test_a_job_either_waits_or_runs(run: tuple[Simulation, Account]) -> None:
    _simulation, accounted = run
    for record in accounted.jobs:
        assert record.jct_s == pytest.approx(record.waited_s + record.ran_s)
        assert 0 <= record.stood_s <= record.ran_s


def test_no_gpu_is_held_by_two_at_once(run: tuple[Simulation, Account]) -> None:
    _simulation, accounted = run
    by_gpu: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for span in accounted.spans:
        for part in span.partition.slices:
            for gpu in part.gpus:
                by_gpu.setdefault((part.node, gpu), []).append((span.since_s, span.until_s))
    for spans in by_gpu.values():
        spans.sort()
        for (_since, until_s), (since_s, _until) in pairwise(spans):
            assert since_s >= until_s - 1e-6


def test_every_job_of_the_workload_is_accounted_for(run: tuple[Simulation, Account]) -> None:
    simulation, accounted = run
    summary = summarise(accounted, simulation.decision_s)
    assert summary.jobs == summary.finished + summary.failed + summary.refused + summary.unfinished
    assert summary.unfinished == len(simulation.final.jobs)
    assert summary.decisions == len(simulation.decision_s)


def test_the_mean_of_the_series_is_the_utilisation(run: tuple[Simulation, Account]) -> None:
    _simulation, accounted = run
    over_time = time_series(accounted, 50)
    for resource, share in utilisation(accounted).items():
        values = over_time.utilisation[resource]
        assert len(values) == 50
        assert sum(values) / 50 == pytest.approx(share)


def test_the_queue_adds_up_to_the_time_that_jobs_waited(run: tuple[Simulation, Account]) -> None:
    _simulation, accounted = run
    over_time = time_series(accounted, 50)
    waited_s = sum(r.waited_s for r in accounted.jobs)
    ran_s = sum(r.ran_s for r in accounted.jobs)
    assert sum(over_time.waiting) * over_time.interval_s == pytest.approx(waited_s)
    assert sum(over_time.running) * over_time.interval_s == pytest.approx(ran_s)


@pytest.mark.parametrize(
    ("policy", "knobs"), [("fair", {"quantum_s": 0}), ("round_robin", {"quantum_s": 60}), ("srtf", {}), ("reshape", {})]
)
def test_time_of_changes_that_were_superseded_is_no_training(policy: str, knobs: dict[str, Any]) -> None:
    """A job's training, at the speeds of the sizes that it had, is all its work."""
    drawn = load("poisson?jobs=25&gap=40&sigma=1&elastic=yes&owners=3", seed=0)
    submissions = tuple(replace(s, truth=replace(s.truth, costs=Costs(7.0, 11.0, 3.0, 5.0))) for s in drawn.submissions)
    workload = replace(drawn, submissions=submissions)
    run = simulate(workload, parse_cluster("1x8"), find(policy).bound(knobs))
    found = account(run.journal.header, run.journal)
    truths = {s.job.id: s.truth for s in submissions}
    done = dict.fromkeys(truths, 0.0)
    for span in found.spans:
        job_id = found.jobs[span.job].job.id
        speed = truths[job_id].speed
        if span.trains and speed is not None:
            done[job_id] += speed.at(span.partition.size_of(job_id)).mean * (span.until_s - span.since_s)
    assert done == pytest.approx({job_id: truth.run_s for job_id, truth in truths.items()}, abs=1e-3)
