"""Strict FIFO on one pool is a queue that a dozen lines compute; the simulator gives the same, to the second."""

import os
from heapq import heappop, heappush
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.executors.simulated import simulate
from hocket.model.event import JobEnded
from hocket.model.job import Job
from hocket.model.resources import Node
from hocket.policies import find
from hocket.workloads import Submission, Truth, Workload, load

DATA = Path(os.environ.get("HOCKET_DATA", Path(__file__).parents[3] / "shared" / "data"))
PHILLY = DATA / "philly" / "philly_jobs.csv.gz"


def recurrence(jobs, gpus):
    """(submitted, size, run time) in order → when each ends."""
    free, now, running, ends = gpus, 0.0, [], []
    for submitted_s, size, run_s in jobs:
        now = max(now, submitted_s)  # no job starts before the one ahead of it
        while running and running[0][0] <= now:
            free += heappop(running)[1]
        while free < size:
            now, freed = heappop(running)
            free += freed
        free -= size
        ends.append(now + run_s)
        heappush(running, (now + run_s, size))
    return ends


def simulated(jobs, gpus):
    submissions = tuple(
        Submission(at_s, Job(str(i), sizes=(size,)), Truth(run_s, size)) for i, (at_s, size, run_s) in enumerate(jobs)
    )
    run = simulate(Workload("test", submissions), [Node("pool", gpus)], find("fifo").bound())
    ends = {e.job: e.at_s for cycle in run.journal for e in cycle.events if isinstance(e, JobEnded)}
    return [ends[str(i)] for i in range(len(jobs))]


traces = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 6), st.integers(0, 60)), min_size=1, max_size=60).map(
    lambda rows: [(float(at), size, float(run)) for at, size, run in sorted(rows, key=lambda row: row[0])]
)


@settings(deadline=None)
@given(traces, st.integers(6, 12))
def test_fifo_on_one_pool_is_the_queue_recurrence(jobs, gpus):
    assert simulated(jobs, gpus) == recurrence(jobs, gpus)


@pytest.mark.skipif(not PHILLY.exists(), reason="the Philly table is not here (HOCKET_DATA names its folder)")
def test_fifo_is_exact_on_every_virtual_cluster_of_the_philly_table():
    clusters: dict[str, list[tuple[float, int, float]]] = {}
    for s in load(f"philly:{PHILLY}").submissions:
        jobs = clusters.setdefault(s.job.owner, [])
        if len(jobs) < 1000:  # The largest have some 20,000: more of the same.
            jobs.append((s.at_s, s.job.sizes[0], s.truth.run_s))
    assert len(clusters) > 10
    for jobs in clusters.values():
        work = sum(size * run_s for _at, size, run_s in jobs)
        span_s = max(at_s for at_s, _size, _run in jobs) - jobs[0][0] or 1.0
        gpus = max(max(size for _at, size, _run in jobs), int(work / span_s / 0.9))  # a load at which queues form
        assert simulated(jobs, gpus) == pytest.approx(recurrence(jobs, gpus), abs=1e-3)
