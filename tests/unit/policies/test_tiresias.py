"""Tiresias: the Gittins index, and what it changes within a level."""

from math import exp, inf, log, log1p, sqrt
from random import Random

import pytest

from hocket.model.action import Pause, Start
from hocket.model.event import JobEnded
from hocket.policies import find
from hocket.policies.tiresias import gittins
from hocket.testing.builders import cluster, job, submitted
from hocket.testing.harness import Harness


def starts(*events, **knobs) -> list[str]:
    harness = Harness.of(find("tiresias").bound(knobs), cluster("1x1"))
    for event in events:
        harness.tell(event)
        harness.settle()
    return [a.job for a in harness.log if isinstance(a, Start)]


FIRST = (submitted(job("first"), 0, 50), submitted(job("long"), 1, 3000), submitted(job("short"), 2, 100))


def test_within_a_level_the_likeliest_to_end_soon_goes_first():
    assert starts(*FIRST, JobEnded(50, "first")) == ["first", "short"]


def test_the_variant_las_keeps_the_order_of_submission():
    assert starts(*FIRST, JobEnded(50, "first"), variant="las") == ["first", "long"]


def test_within_a_level_no_job_is_swapped():
    harness = Harness.of(find("tiresias").bound(), cluster("1x1"))
    harness.tell(submitted(job("long"), 0, 3000))
    harness.settle()
    harness.tell(submitted(job("short"), 10, 5))
    assert not [a for a in harness.log if isinstance(a, Pause)]


def test_a_job_that_sank_makes_way_as_with_las():
    harness = Harness.of(find("tiresias").bound({"levels_gpu_s": [100]}), cluster("1x1"))
    harness.tell(submitted(job("a"), 0, 500))
    harness.settle()
    harness.tell(submitted(job("b"), 150, 500))
    assert [a.job for a in harness.log if isinstance(a, Pause)] == ["a"]


def test_jobs_of_which_nothing_is_believed_come_last_in_their_level():
    assert starts(submitted(job("first"), 0, 50), submitted(job("unknown"), 1), FIRST[1], JobEnded(50, "first")) == [
        "first",
        "long",
    ]


@pytest.mark.parametrize(("attained", "until"), [(0.0, 3600.0), (3600.0, 36000.0), (36000.0, inf)])
def test_the_index_is_the_chance_to_end_over_the_service_expected(attained, until):
    mean, sd, dice = 5000.0, 8000.0, Random(7)
    variance = log1p((sd / mean) ** 2)
    drawn = [dice.lognormvariate(log(mean) - variance / 2, sqrt(variance)) for _ in range(200_000)]
    alive = [s for s in drawn if s > attained]
    ends = sum(s <= until for s in alive) / len(alive)
    spent = sum(min(s, until) - attained for s in alive) / len(alive)
    assert gittins(mean, sd, attained, until) == pytest.approx(ends / spent, rel=0.05)


def test_a_run_time_that_is_certain_counts_if_it_ends_within_the_level():
    assert gittins(1000.0, 0.0, 0.0, 3600.0) == pytest.approx(1 / 1000)
    assert gittins(5000.0, 0.0, 0.0, 3600.0) == 0.0
    assert gittins(5000.0, 0.0, 3600.0, 36000.0) == pytest.approx(1 / 1400)


def test_one_that_outlived_all_belief_has_still_an_index():
    assert 0 < gittins(10.0, 0.1, 3600.0, 36000.0) <= 1 / 3600
    assert 0 < gittins(10.0, 0.0, 3600.0, 36000.0) <= exp(-1)
