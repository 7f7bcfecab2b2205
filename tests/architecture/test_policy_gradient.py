"""The policy gradient that evolution is compared with: what it sums is the gradient of what was drawn."""

from math import exp, log

import numpy as np
import pytest
from benchmarks.policy_gradient import GPU, ORDER, SERVER, Ascent, Chances, DrawnEpisode, explore
from msgspec.structs import replace

from hocket.learn.windows import Window
from hocket.policies.mlfs.weights_file import SHIPPED, read_weights

NETWORK = read_weights(SHIPPED["mlf_rl"], "mlf_rl").network
RNG = np.random.default_rng(7)


def slopes(function, numbers):
    """By finite differences."""
    steps = 1e-5 * np.eye(len(numbers))
    return np.array([(function(numbers + s) - function(numbers - s)) / 2e-5 for s in steps])


def test_an_order_is_made_likelier_by_its_gradient():
    scaled = RNG.normal(size=(5, 12))
    chances = Chances(NETWORK, 3)
    order = np.argsort(-chances.order(scaled @ NETWORK.linear, scaled))

    def log_chance(linear):
        scores = (scaled @ linear / ORDER)[order]
        return sum(scores[k] - log(np.exp(scores[k:]).sum()) for k in range(5))

    assert chances.gradient["linear"] == pytest.approx(slopes(log_chance, NETWORK.linear), rel=1e-4, abs=1e-6)


def test_a_server_is_made_likelier_by_its_gradient_and_one_without_room_is_never_drawn():
    distance, features = RNG.uniform(0, 0.1, 4), RNG.uniform(0, 1, (4, 6))
    distance[2] = np.inf
    hosts, chances = np.full(6, 0.02), Chances(NETWORK, 3)
    taken = chances.server(distance + features @ hosts, features)

    def log_chance(hosts):
        logits = -(distance + features @ hosts) / SERVER
        return logits[taken] - log(np.exp(logits).sum())

    assert chances.gradient["hosts"] == pytest.approx(slopes(log_chance, hosts), rel=1e-4, abs=1e-6)
    assert {Chances(NETWORK, n).server(distance, features) for n in range(40)} == {0, 1, 3}


def test_a_yes_is_made_likelier_by_its_gradient():
    for seed in range(4):
        chances = Chances(NETWORK, seed)
        sign = 1 if chances.yes("gpu", 0.3, 1.0, GPU) else -1
        (slope,) = slopes(lambda x, sign=sign: -log(1 + exp(-sign * x[0] / GPU)), np.array([0.3]))
        assert chances.gradient["gpu"] == pytest.approx(slope, rel=1e-4)


def test_the_ascent_goes_up():
    goal, at = np.array([1.0, -0.5]), Ascent(0, [0.0, 0.0], [0.0, 0.0], [0.0, 0.0])
    for _ in range(30):
        at = at.step(goal - np.array(at.mean))
    assert np.abs(goal - np.array(at.mean)).max() < 0.3


def test_an_episode_draws_its_choices_by_its_seed():
    unguarded = replace(NETWORK, low=NETWORK.low - np.inf, high=NETWORK.high + np.inf)
    once, again, other = (explore(DrawnEpisode(Window("w", 5, 12, 2, 1.6), unguarded, n, 0.95)) for n in (1, 1, 2))
    assert not once.goals.unfinished
    assert replace(once.goals, decision_ms=0.0) == replace(again.goals, decision_ms=0.0)
    for name, gradient in once.gradient.items():
        np.testing.assert_array_equal(gradient, again.gradient[name])
    assert not np.array_equal(once.gradient["hosts"], other.gradient["hosts"])
    assert once.gradient["hosts"].any()
