"""Weights of MLF-RL as a file: what is not sound is refused in one line."""

import json

import numpy as np
import pytest

from hocket.policies.mlfs.network import JOB_FEATURES, PolicyNetwork, shapes
from hocket.policies.mlfs.weights_file import (
    SHIPPED,
    LearnedWeights,
    MadeBy,
    WeightsError,
    decoded,
    encoded,
    learned_weights,
    read_weights,
)


def network(units=3, **arrays):
    dice = np.random.default_rng(1)
    drawn = {name: dice.normal(size=shape) for name, shape in shapes(units).items()}
    return PolicyNetwork(**(drawn | {"scale": np.ones(len(JOB_FEATURES))} | arrays))


def as_file(**changes):
    data = json.loads(encoded(LearnedWeights(network(), MadeBy("hocket learn mlf_rl", "none", 0, "2026-11-18"))))
    for key, value in changes.items():
        target = data
        *path, last = key.split("__")
        for part in path:
            target = target[part]
        target[last] = value
    return json.dumps(data).encode()


def test_weights_come_back_as_they_were_written():
    weights = LearnedWeights(network(5), MadeBy("c", "d", 7, "2026-11-18", {"gain": 0.1}))
    again = decoded(encoded(weights), "w", "mlf_rl")
    assert again.made_by == weights.made_by
    for name in shapes(5):
        np.testing.assert_array_equal(getattr(again.network, name), getattr(weights.network, name))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (as_file(format=2), "weights 'w': format must be 1, not 2"),
        (as_file(kind="other"), "weights 'w': kind must be 'mlf_rl weights', not 'other'"),
        (as_file()[:-40], "weights 'w': Input data was truncated"),
        (b"", "weights 'w': Input data was truncated"),
        (as_file(arrays__linear=[float("nan")] * len(JOB_FEATURES)), "weights 'w': JSON is malformed"),
        (as_file(arrays__linear=[None] * len(JOB_FEATURES)), "linear must be finite numbers, and one is not"),
        (as_file(arrays__linear=[0.0]), r"linear must have the shape \(12,\), not \(1,\)"),
        (as_file(arrays__hidden=[[0.0], [0.0, 1.0]]), r"hidden must be numbers in the shape \(12, 3\)"),
        (as_file(arrays__out="many"), "out must be numbers in the shape"),
        (as_file(arrays__bias=[]), "bias must have from 1 to 256 numbers, not 0"),
        (as_file(arrays__scale=[0.0] * len(JOB_FEATURES)), "scale must be above 0, not 0"),
        (as_file(features__jobs=["priority"]), "features of jobs must be priority, learning"),
    ],
)
def test_what_is_not_sound_is_refused_in_one_line(data, words):
    with pytest.raises(WeightsError, match=words) as refused:
        decoded(data, "w", "mlf_rl")
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(WeightsError, match=r"weights 'none\.json': cannot be read: No such file"):
        read_weights(tmp_path / "none.json", "mlf_rl")
    assert isinstance(learned_weights(str(tmp_path / "none.json"), "mlf_rl"), WeightsError)


@pytest.mark.parametrize("policy", SHIPPED)
def test_the_shipped_weights_say_what_made_them(policy):
    made_by = read_weights(SHIPPED[policy], policy).made_by
    assert made_by.command.startswith(f"hocket learn {policy} ")
    assert made_by.data
    assert made_by.date >= "2026-11-18"
    assert SHIPPED[policy].stat().st_size < 64 << 10


def test_weights_of_another_policy_are_refused():
    with pytest.raises(
        WeightsError, match=r"weights 'rl_weights\.json': kind must be 'mlf_rl weights', not 'rl weights'"
    ):
        read_weights(SHIPPED["rl"], "mlf_rl")
