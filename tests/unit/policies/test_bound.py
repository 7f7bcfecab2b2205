"""A policy's functions, with its parameters given."""

from functools import wraps

import pytest

from hocket.policies.registry import Params, _bound


class Knobs(Params, frozen=True):
    x: int = 1


def rank(view, now_s, params):
    return view, now_s, params.x


def with_defaults(view, now_s=3.0, params=None):
    return view, now_s, params.x


def by_name_alone(view, now_s=3.0, *, params):
    return view, now_s, params.x


@wraps(rank)
def wrapped(*args, **named):
    return rank(*args, **named)


class Called:
    def __call__(self, view, now_s, params):
        return view, now_s, params.x


@pytest.mark.parametrize("function", [rank, with_defaults, by_name_alone, wrapped, Called()])
def test_every_sort_of_function_gets_its_parameters(function):
    one, two = _bound(function, Knobs()), _bound(function, Knobs(x=2))
    assert (one("v", 3.0), two("v", 3.0)) == (("v", 3.0, 1), ("v", 3.0, 2))


@pytest.mark.parametrize("function", [with_defaults, by_name_alone])
def test_other_defaults_stay(function):
    assert _bound(function, Knobs(x=5))("v") == ("v", 3.0, 5)


def test_the_function_itself_is_as_it_was():
    _bound(rank, Knobs())
    with pytest.raises(TypeError, match="params"):
        rank("v", 3.0)


def test_a_function_that_sees_names_around_it_still_does():
    around = "here"

    def inner(view, params):
        return view, around, params.x

    assert _bound(inner, Knobs())("v") == ("v", "here", 1)
