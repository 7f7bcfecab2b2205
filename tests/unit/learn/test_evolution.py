"""CMA-ES: it finds what is best, and goes on after a stop as if there had been none."""

import msgspec
import numpy as np

from hocket.learn.evolution import Evolution, candidates, initial, selected

GOAL = np.array([2.0, -1.0, 0.5, 0.0, 3.0])


def reward(tried):
    return -((tried - GOAL) ** 2 * np.array([1.0, 10.0, 1.0, 0.1, 1.0])).sum(axis=1)


def evolved(at, generations, seed=0):
    for _ in range(generations):
        tried = candidates(at, 10, seed)
        at = selected(at, tried, reward(tried))
    return at


def test_it_finds_the_best():
    found = evolved(initial(5, 0.5), 120)
    assert reward(np.array([found.mean]))[0] > -1e-3 > reward(np.zeros((1, 5)))[0]


def test_it_goes_on_from_a_file_as_if_it_had_never_stopped():
    half = evolved(initial(5, 0.5), 7)
    again = msgspec.json.decode(msgspec.json.encode(half), type=Evolution)
    assert evolved(again, 8) == evolved(initial(5, 0.5), 15)


def test_another_seed_draws_others():
    assert not np.array_equal(candidates(initial(5, 0.5), 4, 0), candidates(initial(5, 0.5), 4, 1))
