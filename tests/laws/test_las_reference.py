"""LAS on one pool against a reference that keeps no index, no review and no memory: all jobs, at every moment."""

from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.executors.simulated import simulate
from hocket.model.event import JobEnded
from hocket.model.job import Job
from hocket.model.resources import Node
from hocket.policies import find
from hocket.workloads import Submission, Truth, Workload

LEVELS = (64.0, 512.0, 2048.0)


class Row:
    """One job of the reference."""

    def __init__(self, number, submitted_s, size, run_s):
        self.number, self.submitted_s, self.size, self.left_s = number, submitted_s, size, run_s
        self.served, self.started_s, self.runs = 0.0, None, False

    @property
    def rank(self):
        """By level, then by first start or submission; ties by submission."""
        level = bisect_right(LEVELS, self.served + 1e-3)
        return level, self.submitted_s if self.started_s is None else self.started_s, self.number


def reference(jobs, gpus):
    """(submitted, size, run time) in order → when each ends."""
    rows = [Row(i, *job) for i, job in enumerate(jobs)]
    ends, now, free = {}, 0.0, gpus

    def start(row):
        nonlocal free
        row.runs, free = True, free - row.size
        row.started_s = now if row.started_s is None else row.started_s

    while len(ends) < len(rows):
        live = [r for r in rows if r.submitted_s <= now and r.number not in ends]
        for row in live:
            if row.runs and row.left_s <= 1e-6:
                ends[row.number], row.runs, free = now, False, free + row.size
        live = [r for r in live if r.number not in ends]
        before, paused = [r for r in live if r.runs], []
        ranks = {r.number: r.rank for r in live}
        lowest = max((ranks[r.number][0] for r in before), default=0)
        for row in sorted((r for r in live if not r.runs), key=lambda r: ranks[r.number]):
            if paused and ranks[row.number][0] >= lowest:
                break
            if row.size <= free:
                start(row)
                continue
            going, room = [], free
            for other in sorted(before, key=lambda r: ranks[r.number], reverse=True):
                if room >= row.size or ranks[other.number][0] <= ranks[row.number][0]:
                    break
                if other.runs and other not in paused:
                    going.append(other)
                    room += other.size
            if room < row.size:
                continue
            for other in reversed(going):
                if room - other.size >= row.size:
                    going.remove(other)
                    room -= other.size
            for other in going:
                other.runs, free = False, free + other.size
                paused.append(other)
            start(row)
        if paused:  # Free resources go to jobs that fit, in order, including paused ones.
            for row in sorted((r for r in live if not r.runs), key=lambda r: ranks[r.number]):
                if row.size <= free:
                    start(row)
        moments = [r.submitted_s for r in rows if r.submitted_s > now]
        for row in (r for r in live if r.runs):
            moments.append(now + row.left_s)
            at = bisect_right(LEVELS, row.served + 1e-3)
            if at < len(LEVELS):
                moments.append(now + (LEVELS[at] - row.served) / row.size)
        if len(ends) == len(rows):
            break
        then = min(moments)
        for row in (r for r in live if r.runs):
            row.left_s -= then - now
            row.served += (then - now) * row.size
        now = then
    return [ends[i] for i in range(len(rows))]


def simulated(jobs, gpus):
    submissions = tuple(
        Submission(at_s, Job(str(i), sizes=(size,)), Truth(run_s, size)) for i, (at_s, size, run_s) in enumerate(jobs)
    )
    bound = find("las").bound({"levels_gpu_s": LEVELS, "promote": 0})
    run = simulate(Workload("test", submissions), [Node("pool", gpus)], bound)
    ends = {e.job: e.at_s for cycle in run.journal for e in cycle.events if isinstance(e, JobEnded)}
    return [ends[str(i)] for i in range(len(jobs))]


traces = st.lists(
    st.tuples(st.integers(0, 400), st.sampled_from([1, 1, 2, 4]), st.integers(1, 900)), min_size=1, max_size=25
).map(lambda rows: [(float(at), size, float(run)) for at, size, run in sorted(rows, key=lambda row: row[0])])


@settings(max_examples=150, deadline=None)
@given(traces, st.sampled_from([4, 5, 8]))
def test_las_on_one_pool_equals_a_brute_force_reference(jobs, gpus):
    assert simulated(jobs, gpus) == pytest.approx(reference(jobs, gpus), abs=1e-3)
