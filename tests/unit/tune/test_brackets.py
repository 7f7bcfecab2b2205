"""Brackets as the papers have them, and which trials continue."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.model.event import EpochEnded, JobFailed, JobSubmitted
from hocket.model.job import Job
from hocket.tune import Asha, Hyperband, RandomSearch, SuccessiveHalving
from hocket.tune.brackets import total_units
from hocket.tune.promotion import dropped, due
from hocket.tune.trials import Trials, job_id


def rungs(search):
    return [[(r.trials, r.units) for r in b.rungs] for b in search.brackets()]


def test_hyperband_is_the_table_of_its_paper():
    assert rungs(Hyperband(units=81, eta=3)) == [
        [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
        [(34, 3), (11, 9), (3, 27), (1, 81)],
        [(15, 9), (5, 27), (1, 81)],
        [(8, 27), (2, 81)],
        [(5, 81)],
    ]
    assert [b.first for b in Hyperband(units=81).brackets()] == [0, 81, 115, 130, 138]


@given(st.integers(1, 300), st.integers(2, 5))
def test_every_bracket_ends_at_the_full_resource_with_ever_fewer_trials(units, eta):
    for bracket in Hyperband(units=units, eta=eta).brackets():
        assert bracket.rungs[-1].units == units
        assert [r.units for r in bracket.rungs] == sorted({r.units for r in bracket.rungs})
        assert [r.trials for r in bracket.rungs] == sorted((r.trials for r in bracket.rungs), reverse=True)


def test_halving_and_asha_have_one_bracket_and_random_search_one_rung():
    assert rungs(SuccessiveHalving(trials=9, units=9)) == [[(9, 1), (3, 3), (1, 9)]]
    assert rungs(SuccessiveHalving(trials=9, units=36, least=4)) == [[(9, 4), (3, 12), (1, 36)]]
    assert rungs(SuccessiveHalving(trials=2, units=9)) == [[(2, 9)]]
    assert rungs(Asha(trials=9, units=9)) == rungs(SuccessiveHalving(trials=9, units=9))
    assert rungs(RandomSearch(trials=4, units=7)) == [[(4, 7)]]


def test_a_trial_goes_on_from_where_it_stands_so_its_units_count_once():
    assert total_units(SuccessiveHalving(trials=9, units=9).brackets()) == 9 * 1 + 3 * 2 + 1 * 6


class Played:
    """A search whose trials are worth what a function of their number says."""

    def __init__(self, search, worth=lambda n: n, goal="min", fails=()):
        self.search, self.worth, self.fails = search, worth, fails
        self.trials = Trials("loss", goal)
        self.submitted = []

    def submit(self):
        found = due(self.search, self.trials)
        config = (msgspec.json.encode({"x": 1}).decode(),)
        self.trials.take(JobSubmitted(0.0, Job(job_id(n, u), command=config)) for n, u in found)
        self.submitted += found
        return found

    def end(self, *stretches):
        for number, units in stretches:
            if number in self.fails:
                self.trials.take([JobFailed(1.0, job_id(number, units), "broke", final=True)])
            else:
                self.trials.take([EpochEnded(1.0, job_id(number, units), units, {"loss": float(self.worth(number))})])

    def play(self):
        while found := self.submit():
            self.end(*found)
        return self


@given(st.permutations(range(9)))
def test_halving_ends_with_the_best_of_all(order):
    played = Played(SuccessiveHalving(trials=9, units=9), worth=lambda n: order[n]).play()
    best = order.index(0)
    assert [n for n, u in played.submitted if u == 9] == [best]
    assert {n for n, u in played.submitted if u == 3} == {order.index(k) for k in (0, 1, 2)}
    assert played.trials.best[0].number == best


def test_more_is_better_if_the_goal_says_so():
    assert Played(SuccessiveHalving(trials=9, units=9), goal="max").play().trials.best[0].number == 8


def test_a_rung_waits_for_the_last_of_the_one_below():
    played = Played(SuccessiveHalving(trials=3, units=3))
    first = played.submit()
    played.end(*first[:2])
    assert played.submit() == []
    played.end(first[2])
    assert played.submit() == [(0, 3)]


def test_a_trial_that_failed_does_not_go_on_and_delays_no_other():
    played = Played(SuccessiveHalving(trials=9, units=9), fails={0, 1}).play()
    assert [n for n, u in played.submitted if u == 9] == [2]
    assert Played(SuccessiveHalving(trials=3, units=3), fails={0, 1, 2}).play().trials.best is None


def test_a_metric_that_is_no_number_is_a_failure():
    played = Played(SuccessiveHalving(trials=3, units=3), worth=lambda n: float("nan") if n == 0 else n).play()
    assert played.trials.best[0].number == 1
    assert "nan" in played.trials.all[0].failed


def test_all_brackets_begin_at_once_or_one_after_another():
    assert len(Played(Hyperband(units=9)).submit()) == 9 + 5 + 3
    in_turn = Hyperband(units=9, in_turn=True)
    assert len(Played(in_turn).submit()) == 9
    assert sorted(Played(in_turn).play().submitted) == sorted(Played(Hyperband(units=9)).play().submitted)


def test_asha_promotes_as_soon_as_a_trial_is_among_the_best_third():
    played = Played(Asha(trials=9, units=9, at_once=2))
    assert played.submit() == [(0, 1), (1, 1)]
    played.end((0, 1))
    assert played.submit() == [(2, 1)]
    played.end((1, 1), (2, 1))
    assert played.submit() == [(0, 3), (3, 1)], "three were seen, the best goes on without waiting for the others"


@given(st.permutations(range(12)), st.integers(1, 12))
def test_asha_ends_and_never_has_more_under_way_than_it_may(order, at_once):
    played = Played(Asha(trials=12, units=9, at_once=at_once), worth=lambda n: order[n])
    under_way = []
    while True:
        under_way += played.submit()
        if not under_way:
            break
        assert len(under_way) <= at_once
        played.end(under_way.pop(0))
    assert len(played.trials.all) == 12
    assert len(set(played.submitted)) == len(played.submitted), "no stretch twice"
    assert order.index(0) in {n for n, u in played.submitted if u == 3}


def test_what_is_kept_of_a_trial_is_dropped_once_it_cannot_go_on():
    played = Played(SuccessiveHalving(trials=9, units=9))
    first = played.submit()
    played.end(*first)
    assert dropped(played.search, played.trials) == set(), "any of them may be promoted"
    played.submit()
    assert dropped(played.search, played.trials) == set(range(3, 9))


@pytest.mark.parametrize("search", [Hyperband(units=27), SuccessiveHalving(trials=9, units=9), RandomSearch(trials=3)])
def test_in_the_end_all_are_dropped(search):
    played = Played(search).play()
    assert dropped(search, played.trials) == set(played.trials.all)
