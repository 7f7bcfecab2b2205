"""Bounds that no scheduler can beat, and how a gap to the paper is divided by them."""

from random import Random

import pytest

from hocket.reports.mean_interval import MeanInterval
from hocket.reproductions import Finding, Gap
from hocket.reproductions.bounds import JobNeeds, least_makespan_s, least_mean_jct_s, shortest_first


def test_the_one_with_the_least_left_is_served_first():
    # The job of 1 s overtakes the one of 5 s, of which 2 s are done; the one of 9 s comes when nothing is left to do.
    assert shortest_first([(0.0, 5.0), (2.0, 1.0), (10.0, 9.0)]) == [3.0, 6.0, 19.0]


def test_bounds_are_the_tightest_of_those_by_resource_and_by_job():
    works = [JobNeeds(0.0, (1.0, 4.0), 5.0), JobNeeds(0.0, (2.0, 4.0), 20.0)]
    assert least_makespan_s(works) == 20.0
    assert least_mean_jct_s(works) == (5.0 + 20.0) / 2
    busy = [JobNeeds(0.0, (6.0,), 6.0), JobNeeds(0.0, (6.0,), 6.0)]
    assert least_makespan_s(busy) == 12.0
    assert least_mean_jct_s(busy) == (6.0 + 12.0) / 2
    late = [JobNeeds(0.0, (1.0,), 1.0), JobNeeds(100.0, (1.0,), 3.0)]
    assert least_makespan_s(late) == 103.0
    assert least_mean_jct_s(late) == 2.0
    assert least_makespan_s([]) == least_mean_jct_s([]) == 0.0


def test_no_schedule_in_any_order_beats_the_bounds():
    rng = Random("bounds")
    for _ in range(200):
        jobs = [(rng.randrange(10), rng.randint(1, 9), rng.randint(1, 3)) for _ in range(rng.randint(1, 6))]
        works = [JobNeeds(float(at), (need / 3,), need / most) for at, need, most in jobs]
        ends = _served_at_random(jobs, rng)
        jct_s = sum(end - at for end, (at, _need, _most) in zip(ends, jobs, strict=True)) / len(jobs)
        assert max(ends) >= least_makespan_s(works) - 1e-9
        assert jct_s >= least_mean_jct_s(works) - 1e-9


def _served_at_random(jobs: list[tuple[int, int, int]], rng: Random) -> list[int]:
    """When jobs of (submission, seconds on one machine, most machines) end on three, by lot in every second."""
    left, ends, now = [need for _at, need, _most in jobs], [0] * len(jobs), 0
    while any(left):
        free = 3
        here = [n for n, (at, _need, _most) in enumerate(jobs) if at <= now and left[n]]
        for n in rng.sample(here, len(here)):
            took = min(free, jobs[n][2], left[n])
            free, left[n] = free - took, left[n] - took
            if not left[n]:
                ends[n] = now + 1
        now += 1
    return ends


@pytest.mark.parametrize(
    ("ours", "bound", "gap"),
    [
        (1.5, 1.75, Gap(0.25, 0.25)),  # 2 is out of reach: a half of the gap is the set-up's
        (1.5, 3.0, Gap(0.0, 0.5)),  # reachable as far as we know
        (2.5, 3.0, None),  # no gap
        (1.5, None, None),
        (1.5, 1.25, Gap(0.5, 0.0)),  # noise can take us beyond a bound on means
    ],
)
def test_a_gap_is_the_set_ups_as_far_as_no_scheduler_reaches_the_figure(ours, bound, gap):
    limit = None if bound is None else MeanInterval(bound)
    assert Finding("what", "2.00×", MeanInterval(ours), "×", bound=limit).gap == gap
    for other in ("–", "32 % of the gain", "≤ 2.00×", "2.00 s"):  # not to be compared with ours
        assert Finding("what", other, MeanInterval(ours), "×", bound=limit).gap is None
