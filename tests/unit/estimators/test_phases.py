from math import inf, nan

import pytest

from hocket.estimators.phases import is_news, observe
from hocket.executors.simulated.phases import foresee
from hocket.model.curve import NO_BELIEFS, Beliefs, Curve, Point
from hocket.model.event import PhasesObserved
from hocket.model.phases import Profile, predict, profile_of, unsound


def test_a_round_takes_as_long_as_the_busiest_processor():
    found = predict([Profile(40.0, 2.0), Profile(60.0, 3.0)], machines=10)
    assert found.iteration_s.mean == pytest.approx(10.0)
    assert (found.cpu, found.net) == pytest.approx((1.0, 0.5))


def test_a_round_takes_as_long_as_the_busiest_link():
    found = predict([Profile(10.0, 4.0), Profile(10.0, 6.0)], machines=10)
    assert found.iteration_s.mean == pytest.approx(10.0)
    assert (found.cpu, found.net) == pytest.approx((0.2, 1.0))


def test_a_round_takes_as_long_as_the_longest_job_alone():
    found = predict([Profile(60.0, 6.0), Profile(5.0, 1.0)], machines=10)
    assert found.iteration_s.mean == pytest.approx(12.0)
    assert found.cpu < 1
    assert found.net < 1


def seen(beliefs, machines, comp_s, comm_s, iterations, **more):
    return observe(beliefs, PhasesObserved(0.0, "j", machines, comp_s, comm_s, iterations, **more))


def test_barriers_cost_more_on_more_machines():
    beliefs = seen(NO_BELIEFS, 8, 10.0, 3.0, 5, slowest=1.2)
    profile = profile_of(beliefs)
    assert profile is not None
    assert foresee([profile], 8).round_s == pytest.approx(1.2 * 13.0)
    assert foresee([profile], 64).round_s > 1.3 * profile.iteration_s(64)
    assert foresee([profile], 1).round_s == pytest.approx(83.0)


def test_comp_scales_with_machines_and_comm_does_not():
    profile = profile_of(seen(NO_BELIEFS, machines=4, comp_s=10.0, comm_s=3.0, iterations=5))
    assert profile is not None
    assert profile.comp_s(8) == pytest.approx(5.0)
    assert profile.iteration_s(8) == pytest.approx(8.0)


def test_a_profile_is_a_moving_average_that_follows_a_change():
    beliefs = seen(NO_BELIEFS, 4, 10.0, 3.0, 100)
    for _ in range(30):
        beliefs = seen(beliefs, 4, 20.0, 3.0, 5)
    profile = profile_of(beliefs)
    assert profile is not None
    assert 78 < profile.comp_machine_s <= 80


@pytest.mark.parametrize(("comp_s", "comm_s"), [(7.4, 3.0), (10.0, 2.2)])
def test_what_is_much_shorter_than_the_average_is_news_and_starts_it_anew(comp_s, comm_s):
    before = seen(NO_BELIEFS, 4, 10.0, 3.0, 100)
    after = seen(before, 4, comp_s, comm_s, 3)
    assert is_news(before, after)
    profile = profile_of(after)
    assert profile is not None
    assert (profile.comp_s(4), profile.comm_s) == pytest.approx((comp_s, comm_s))
    assert max(profile.comp_sd, profile.comm_sd) > 0.3  # It may be chance.
    assert not is_news(after, seen(after, 4, comp_s, comm_s, 3))


@pytest.mark.parametrize(("comp_s", "comm_s"), [(7.6, 3.0), (10.0, 2.3), (40.0, 3.0), (10.0, 12.0)])
def test_what_is_a_little_shorter_or_any_longer_moves_the_average(comp_s, comm_s):
    """Longer, as other work may be in the way just now."""
    before = seen(NO_BELIEFS, 4, 10.0, 3.0, 100)
    after = seen(before, 4, comp_s, comm_s, 3)
    assert not is_news(before, after)
    profile = profile_of(after)
    assert profile is not None
    assert (profile.comp_s(4), profile.comm_s) == pytest.approx((10.0 + 0.2 * (comp_s - 10), 3.0 + 0.2 * (comm_s - 3)))


def test_the_first_measurement_is_news_and_one_like_it_is_none():
    first = seen(NO_BELIEFS, 4, 10.0, 3.0, 3)
    assert is_news(NO_BELIEFS, first)
    assert not is_news(first, seen(first, 4, 8.0, 2.4, 3))
    assert not is_news(first, seen(first, 2, 20.0, 3.0, 3))
    told = Beliefs(comp_s=Curve((Point(1.0, 40.0),)), comm_s=Curve((Point(1.0, 3.0),)))
    assert not is_news(told, first)
    assert is_news(told, seen(told, 4, 5.0, 3.0, 3))


def test_comm_is_shorter_on_fewer_machines_where_each_keeps_a_part_of_the_model():
    profile = profile_of(seen(NO_BELIEFS, 4, 10.0, 3.0, 5, own_part=1.0))
    assert profile is not None
    assert [profile.comm_on(m) for m in (1, 2, 4)] == pytest.approx([0.2, 2.0, 3.0])
    assert profile.iteration_s(2) == pytest.approx(22.0)
    assert predict([profile], 2).iteration_s.mean == pytest.approx(22.0)
    assert foresee([profile], 2).round_s == pytest.approx(22.0)
    assert predict([profile] * 2, 2).net == pytest.approx(4.0 / 40.0)


def test_comm_on_several_numbers_of_machines_is_compared_as_on_very_many():
    beliefs = seen(seen(NO_BELIEFS, 4, 10.0, 3.0, 5, own_part=1.0), 2, 20.0, 2.0, 5, own_part=1.0)
    profile = profile_of(beliefs)
    assert profile is not None
    assert (profile.comm_s, profile.comm_sd) == pytest.approx((4.0, 0.0))


def test_one_machine_alone_says_nothing_of_what_several_send():
    alone = seen(NO_BELIEFS, 1, 40.0, 0.1, 5, own_part=1.0)
    profile = profile_of(alone)
    assert profile is not None
    assert (profile.comm_on(1), profile.comm_on(4)) == (0.1, 0.1)
    profile = profile_of(seen(alone, 4, 10.0, 3.0, 5, own_part=1.0))
    assert profile is not None
    assert profile.comm_on(4) == pytest.approx(3.0)


def test_profiles_that_vary_give_a_wide_interval():
    steady = shaky = NO_BELIEFS
    for n in range(10):
        steady, shaky = seen(steady, 4, 10.0, 1.0, 3), seen(shaky, 4, 10.0 + (-1) ** n * 5, 1.0, 3)
    sure, unsure = (predict([p], 4).interval_s for b in (steady, shaky) if (p := profile_of(b)) is not None)
    assert sure[1] - sure[0] == pytest.approx(0.0, abs=1e-9)
    assert unsure[1] - unsure[0] > 5


def test_too_few_iterations_are_no_profile():
    assert profile_of(seen(NO_BELIEFS, 4, 1.0, 1.0, 2), least=3) is None
    assert profile_of(seen(NO_BELIEFS, 4, 1.0, 1.0, 3), least=3) is not None


def test_what_was_told_gives_way_to_what_is_seen():
    told = Beliefs(comp_s=Curve((Point(4.0, 100.0),)), comm_s=Curve((Point(4.0, 100.0),)))
    assert profile_of(told) == Profile(400.0, 100.0)
    assert profile_of(seen(told, 8, 10.0, 3.0, 5)) == Profile(80.0, 3.0)


@pytest.mark.parametrize(("comp_s", "comm_s"), [(0.0, 0.0), (nan, 1.0), (1.0, nan), (inf, 1.0), (-1.0, 2.0)])
def test_a_profile_of_nothing_or_nonsense_is_none_and_says_why(comp_s, comm_s):
    beliefs = seen(NO_BELIEFS, 4, comp_s, comm_s, 9)
    assert profile_of(beliefs) is None
    assert "phases are said to take" in unsound(beliefs)


def test_a_job_without_one_of_the_phases_has_a_profile():
    for comp_s, comm_s in ((0.0, 5.0), (5.0, 0.0)):
        profile = profile_of(seen(NO_BELIEFS, 4, comp_s, comm_s, 9))
        assert profile is not None
        assert predict([profile], 4).iteration_s.mean == pytest.approx(5.0)
