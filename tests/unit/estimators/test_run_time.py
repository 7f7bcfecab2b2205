"""How long will it run? Beliefs from ended jobs of the same sort."""

from __future__ import annotations

from math import exp, isfinite, log
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.estimators.run_time import believe, learn
from hocket.model.curve import NO_BELIEFS, Beliefs, Curve, Point
from hocket.model.job import Job
from hocket.model.snapshot import History
from hocket.model.versioned import OpenMap
from hocket.testing.builders import job

ENOUGH = 5
Histories = OpenMap[Any, History]


def history_of(*ended: tuple[Job, float]) -> Histories:
    history: Histories = OpenMap({})
    for what, ran_s in ended:
        learn(history, what, ran_s)
    return history


def run_s(history: Histories, what: Job) -> float | None:
    found = believe(history, what, NO_BELIEFS).run_s
    return None if found is None else found.mean


def test_nothing_is_believed_before_enough_jobs_have_ended() -> None:
    mine = job("new", 2, owner="ana")
    few = history_of(*[(job(f"j{n}", 2, owner="ana"), 100.0) for n in range(ENOUGH - 1)])
    assert believe(few, mine, NO_BELIEFS) is NO_BELIEFS
    learn(few, mine, 100.0)
    assert run_s(few, mine) == pytest.approx(100.0)


def test_jobs_that_all_ran_alike_leave_no_doubt() -> None:
    history = history_of(*[(job(f"j{n}"), 100.0) for n in range(10)])
    found = believe(history, job("new"), NO_BELIEFS)
    assert found.run_s is not None
    assert found.run_s.mean == pytest.approx(100.0)
    assert found.run_s.sd == pytest.approx(0.0, abs=1e-3)


def test_an_owners_own_jobs_count_before_those_of_all() -> None:
    anas = [(job(f"a{n}", owner="ana"), 10.0) for n in range(ENOUGH)]
    bens = [(job(f"b{n}", owner="ben"), 1000.0) for n in range(ENOUGH)]
    history = history_of(*anas, *bens)
    assert run_s(history, job("new", owner="ana")) == pytest.approx(10.0)
    assert run_s(history, job("new", owner="ben")) == pytest.approx(1000.0)


def test_a_newcomer_is_believed_to_be_like_others_of_its_size() -> None:
    history = history_of(*[(job(f"a{n}", 4, owner="ana"), 50.0) for n in range(ENOUGH)])
    assert run_s(history, job("new", 4, owner="cleo")) == pytest.approx(50.0)
    assert run_s(history, job("new", 8, owner="cleo")) is None


def test_the_belief_is_about_the_largest_size() -> None:
    history = history_of(*[(job(f"a{n}", 1, 2, 4), 50.0) for n in range(ENOUGH)])
    assert believe(history, job("new", 2, 4), NO_BELIEFS).reference_size == 4


def test_what_was_believed_of_other_things_stays() -> None:
    history = history_of(*[(job(f"a{n}"), 50.0) for n in range(ENOUGH)])
    before = Beliefs(quality=Curve((Point(1.0, 0.5),)))
    assert believe(history, job("new"), before).quality == before.quality


def test_times_that_differ_make_the_belief_unsure() -> None:
    # A lognormal of logarithms ±1 about log 100: its mean is 100·√e.
    history = history_of(*[(job(f"a{n}"), 100.0 * exp(1 if n % 2 else -1)) for n in range(20)])
    found = believe(history, job("new"), NO_BELIEFS).run_s
    assert found is not None
    assert found.mean == pytest.approx(100.0 * exp(0.5))
    assert found.sd == pytest.approx(found.mean * (exp(1.0) - 1) ** 0.5)


def test_outliers_do_not_promise_years() -> None:
    history = history_of(*[(job(f"a{n}"), 1.0 if n else 1e9) for n in range(ENOUGH)])
    believed = run_s(history, job("new"))
    assert believed is not None
    assert believed <= exp(log(1e9) / ENOUGH + 9.0 / 2) * (1 + 1e-9)


def test_what_a_snapshot_knew_does_not_grow_with_what_is_learned_later() -> None:
    history = history_of((job("a"), 10.0))
    before = history.seal()
    learn(history, job("b"), 20.0)
    assert before[1].count == 1
    assert history.seal()[1].count == 2


@given(st.lists(st.floats(0.0, 1e9), min_size=ENOUGH, max_size=30))
def test_a_belief_is_finite_and_from_one_second_up(times: list[float]) -> None:
    found = believe(history_of(*[(job(f"j{n}"), t) for n, t in enumerate(times)]), job("new"), NO_BELIEFS).run_s
    assert found is not None
    assert isfinite(found.mean)
    assert found.mean >= 1.0 - 1e-9  # shorter ones count as a second
    assert isfinite(found.sd)
    assert found.sd >= 0.0


@given(st.lists(st.floats(1.0, 1e6), min_size=ENOUGH, max_size=12), st.randoms(use_true_random=False))
def test_the_order_in_which_jobs_ended_does_not_matter(times: list[float], dice: Any) -> None:
    shuffled = times[:]
    dice.shuffle(shuffled)
    one, other = (run_s(history_of(*[(job("j"), t) for t in ts]), job("new")) for ts in (times, shuffled))
    assert one == pytest.approx(other)
