"""What an account says of a simulated run must agree with the run's own state."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hocket.executors.simulated import Simulation, simulate
from hocket.policies.registry import find
from hocket.reports.account import Account, account
from hocket.reports.comparison import time_series
from hocket.reports.summary import summarise, utilisation
from hocket.workloads import load


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
