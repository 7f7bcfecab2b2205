"""What can be searched, and what cannot."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.tune import SpaceError, choice, loguniform, randint, uniform
from hocket.tune.sampling import RandomSampler
from hocket.tune.space import check, drawn, space_of_options, space_of_table

WRONG = [
    ({}, "needs at least one hyperparameter"),
    ([1], "is a dict or a function, not a list"),
    ({"a": choice([])}, "hyperparameter 'a': a choice needs at least one value"),
    ({"a": choice([object])}, "hyperparameter 'a': a choice is of numbers, text"),
    ({"a": choice([float("nan")])}, "hyperparameter 'a': a choice is of numbers, text"),
    ({"a": 3}, "hyperparameter 'a': choice, uniform, loguniform or randint is needed, not 3"),
    ({"a": uniform(1, 1)}, "hyperparameter 'a': uniform needs low < high, not 1 and 1"),
    ({"a": uniform(0, float("inf"))}, "uniform needs low < high, not 0 and inf"),
    ({"a": loguniform(-1, 1)}, "hyperparameter 'a': loguniform needs 0 < low < high, not -1 and 1"),
    ({"a": loguniform(0, 1)}, "loguniform needs 0 < low < high, not 0 and 1"),
    ({"a": randint(3, 1)}, "hyperparameter 'a': randint needs low <= high, not 3 and 1"),
    ({"a": randint(0.5, 2)}, "randint needs whole numbers, not 0.5 and 2"),
    ({"a": uniform("x", "y")}, "hyperparameter 'a': uniform needs low < high, not x and y"),
    ({"a": loguniform(None, 1)}, "hyperparameter 'a': loguniform needs 0 < low < high, not None and 1"),
    ({1: choice([2])}, "a hyperparameter's name is text, not 1"),
    (lambda _trial: None, "the search space's function asks for no hyperparameter"),
    (lambda _trial: 1 / 0, "the search space's function fails: ZeroDivisionError: division by zero"),
    (lambda trial: trial.suggest_float("a", 0, 1, step=0.1), "function fails: TypeError: .* argument 'step'"),
    (lambda trial: trial.suggest_categorical("a", []), "hyperparameter 'a': a choice needs at least one value"),
    (lambda trial: trial.suggest_int(3, 0, 1), "a hyperparameter's name is text, not 3"),
]


@pytest.mark.parametrize(("space", "said"), WRONG, ids=[said for _space, said in WRONG])
def test_a_space_that_nothing_can_be_drawn_from_is_refused(space, said):
    with pytest.raises(SpaceError, match=said.replace("(", r"\(")):
        check(space)


@given(st.integers(0, 10_000))
def test_what_is_drawn_lies_where_it_was_asked_for(seed):
    dice = Random(seed)
    for domain, holds in (
        (choice(["a", 2, None]), lambda v: v in ("a", 2, None)),
        (uniform(-1, 2), lambda v: -1 <= v <= 2),
        (loguniform(1e-5, 1e-1), lambda v: 1e-5 <= v <= 1e-1),
        (randint(3, 5), lambda v: v in (3, 4, 5)),
    ):
        assert holds(domain.draw(dice))


def test_half_of_a_log_range_is_below_its_geometric_mean():
    found = [loguniform(1e-4, 1.0).draw(Random(n)) for n in range(2000)]
    assert 0.45 < sum(v < 1e-2 for v in found) / 2000 < 0.55


def test_numbers_have_places_and_anything_else_is_a_category():
    assert choice([40, 20, 30]).trait(30) == 1.0
    assert choice(["sgd", "adam"]).trait("adam") == "adam"
    assert choice([True, False]).trait(True) == "True"
    assert uniform(0, 2).trait(1.0) == 5.0
    assert loguniform(1e-4, 1.0).trait(1e-2) == pytest.approx(5.0)
    assert randint(1, 4).trait(3) == 2.0
    assert randint(0, 1000).trait(500) == 5.0


def asked(trial):
    if trial.suggest_categorical("kind", ["sgd", "adam"]) == "sgd":
        trial.suggest_float("momentum", 0, 1)
    trial.suggest_float("rate", 1e-3, 1e-1, log=True)
    trial.suggest_int("layers", 1, 3)


def test_a_function_may_ask_for_more_by_what_was_chosen():
    found = [drawn(asked, lambda _name, domain, n=n: domain.draw(Random(n))) for n in range(20)]
    assert {"momentum" in f.config for f in found} == {True, False}
    assert all(("momentum" in f.config) == (f.config["kind"] == "sgd") for f in found)
    assert all(f.traits.keys() == f.config.keys() for f in found)


def test_a_function_that_asks_for_one_name_in_two_ways_is_refused():
    def twice(trial):
        trial.suggest_int("n", 1, 3)
        trial.suggest_int("n", 1, 4)

    with pytest.raises(SpaceError, match="'n' is asked for twice"):
        drawn(twice, lambda _name, domain: domain.draw(Random(0)))
    with pytest.raises(SpaceError, match="asks for no hyperparameter"):
        drawn(lambda _trial: None, lambda _name, domain: domain.draw(Random(0)))


def test_the_same_seed_draws_the_same_trials_in_any_order():
    space = {"rate": loguniform(1e-3, 1), "size": choice([1, 2, 3])}
    some, others = RandomSampler(space, 7), RandomSampler(space, 7)
    forward = [some.ask(n).config for n in range(8)]
    assert [others.ask(n).config for n in reversed(range(8))] == forward[::-1]
    assert RandomSampler(space, 8).ask(0).config != forward[0]


def test_no_configuration_comes_twice_while_there_are_others():
    space = {"a": choice([1, 2, 3]), "b": choice(["x", "y"])}
    dice = RandomSampler(space, 0)
    first = [tuple(dice.ask(n).config.values()) for n in range(6)]
    assert len(set(first)) == 6
    assert tuple(dice.ask(6).config.values()) in first


def test_a_space_can_be_typed_and_written():
    typed = space_of_options(["rate=loguniform:1e-4,0.1", "size=choice:16,32", "act=choice:relu,tanh", "n=randint:1,4"])
    written = space_of_table(
        {"rate": {"loguniform": [1e-4, 0.1]}, "size": {"choice": [16, 32]}, "act": {"choice": ["relu", "tanh"]},
         "n": {"randint": [1, 4]}}
    )  # fmt: skip
    assert typed == written
    assert typed["rate"] == loguniform(1e-4, 0.1)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("rate", "must be NAME=KIND:VALUES"),
        ("rate=normal:0,1", "'normal' is not one of choice, uniform, loguniform, randint"),
        ("rate=uniform:1", "uniform needs two numbers"),
        ("rate=uniform:a,b", "uniform needs two numbers"),
        ("rate=loguniform:-1,1", "loguniform needs 0 < low < high"),
        ("size=choice:", "a choice needs at least one value"),
    ],
)
def test_a_space_that_is_typed_wrong_is_refused(option, said):
    with pytest.raises(SpaceError, match=said):
        space_of_options([option])
    with pytest.raises(SpaceError):
        space_of_table({"rate": 3})
