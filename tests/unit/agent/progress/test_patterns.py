"""The user's own patterns, and what a configuration may say."""

from __future__ import annotations

from typing import Any

import pytest

from hocket.agent.progress import check_config, open_reader
from hocket.agent.progress.reader import StepReport


def test_named_groups_are_the_epoch_and_its_metrics(opened: Any) -> None:
    reader = opened(patterns=[r"Runde (?P<epoch>\d+): Güte (?P<acc>[\d.]+)"])
    assert reader.feed("Runde 3: Güte 0.91\nepoch 4 acc=0.95\n".encode()) == [(3, {"acc": 0.91})]


def test_a_pattern_without_an_epoch_speaks_of_the_one_named_last(opened: Any) -> None:
    reader = opened(patterns=[r"^E(?P<epoch>\d+)$", r"^score (?P<Score>\S+)"])
    assert reader.feed(b"score 1\nE1\nscore 2\nE2\n") == [(1, {"Score": 2.0})]


def test_a_group_before_a_percent_sign_is_a_fraction(opened: Any) -> None:
    reader = opened(patterns=[r"E(?P<epoch>\d+) (?P<acc>[\d.]+) ?%"])
    assert reader.feed(b"E1 91.2 %\n") == [(1, {"acc": 0.912})]


def test_a_group_that_took_no_number_or_no_part_is_left_out(opened: Any) -> None:
    reader = opened(patterns=[r"E(?P<epoch>\d+) (?P<acc>\S+)(?: (?P<loss>\S+))?"])
    assert reader.feed(b"E1 good\nE2 0.5\n") == [(1, {}), (2, {"acc": 0.5})]


def test_bars_are_followed_by_their_epoch(opened: Any) -> None:
    reader = opened(patterns=[r"E(?P<epoch>\d+) (?P<loss>\S+)"])
    assert reader.feed(b"\rE1 0.9\rE1 0.8\rE2 0.7\rE2 0.6\n") == [(1, {"loss": 0.8}), (2, {"loss": 0.6})]


GOOD: tuple[dict[str, Any], ...] = (
    {},
    {"kind": "stdout", "epoch": "iteration", "epoch_length": 1000, "first_epoch": 0},
    {"kind": "stdout", "patterns": [r"(?P<epoch>\d+)"]},
    {"kind": "stdout", "epoch": "step", "patterns": [r"(?P<step>\d+)", r"(?P<acc>\d+)"]},
    {"kind": "json"},
    {"kind": "json", "file": "log.jsonl"},
    {"kind": "csv", "file": "$HOCKET_CHECKPOINT_DIR/log.csv"},
    {"kind": "tensorboard", "folder": "runs", "epoch_length": 0.5},
    {"kind": "report"},
)
BAD: tuple[tuple[dict[str, Any], str], ...] = (
    ({"kind": "yaml"}, "progress.kind must be one of stdout, json, csv, tensorboard, report, not 'yaml'"),
    ({"kind": ["csv"]}, "progress.kind must be one of stdout, json, csv, tensorboard, report, not ['csv']"),
    ({"fiel": "x"}, "progress.fiel is no field; did you mean 'file'?"),
    ({"kind": "csv"}, "progress.file must be given with kind 'csv', and is missing"),
    ({"kind": "tensorboard"}, "progress.folder must be given with kind 'tensorboard', and is missing"),
    ({"file": "x"}, "progress.file must be given with another kind than 'stdout', not as 'x'"),
    ({"kind": "csv", "file": ""}, "progress.file must be a path of at most 1000 characters, not ''"),
    ({"kind": "csv", "file": "a\0b"}, "progress.file must be a path of at most 1000 characters, not 'a\\x00b'"),
    ({"kind": "csv", "file": 3}, "progress.file must be a path of at most 1000 characters, not 3"),
    ({"epoch": "two words"}, "progress.epoch must be a name in lower case (letters, digits and _), not 'two words'"),
    ({"epoch_length": 0}, "progress.epoch_length must be a finite number above 0, not 0"),
    ({"epoch_length": float("inf")}, "progress.epoch_length must be a finite number above 0, not inf"),
    ({"epoch_length": float("nan")}, "progress.epoch_length must be a finite number above 0, not nan"),
    ({"epoch_length": True}, "progress.epoch_length must be a finite number above 0, not True"),
    ({"first_epoch": 2}, "progress.first_epoch must be 0 or 1, not 2"),
    ({"first_epoch": False}, "progress.first_epoch must be 0 or 1, not False"),
    ({"patterns": []}, "progress.patterns must be a list of 1 to 20 texts of at most 1000 characters, not []"),
    ({"patterns": "x"}, "progress.patterns must be a list of 1 to 20 texts of at most 1000 characters, not 'x'"),
    (
        {"patterns": ["("]},
        "progress.patterns[0] must be a regular expression (missing ), unterminated subpattern at position 0), not '('",
    ),
    (
        {"patterns": ["(?P<epoch>.)", "loss"]},
        "progress.patterns[1] must be a pattern with named groups such as (?P<epoch>\\d+), not 'loss'",
    ),
    (
        {"patterns": ["(?P<acc>.)"]},
        "progress.patterns must be at least one with the group (?P<epoch>...) or (?P<step>...), not ['(?P<acc>.)']",
    ),
    (
        {"patterns": ["(?P<epoch>a+)+b"]},
        "progress.patterns[0] must be without a repetition in a repetition, unless it is atomic as in (?>(?:a+b)*), "
        "not '(?P<epoch>a+)+b'",
    ),
)


@pytest.mark.parametrize("config", GOOD)
def test_a_good_configuration_has_no_problem_and_opens(config: dict[str, Any], opened: Any) -> None:
    opened(**config)


@pytest.mark.parametrize(("config", "message"), BAD)
def test_a_problem_is_one_sentence_with_field_rule_and_value(config: dict[str, Any], message: str) -> None:
    assert check_config(config) == message


def test_a_long_value_is_shown_shortened() -> None:
    assert len(check_config({"epoch": "x" * 10_000})) < 200
    assert len(check_config({"x" * 10_000: 1})) < 250


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?P<epoch>\d+)(?:,\s*\d+)*+",
        r"(?P<epoch>\d{1,9}).*acc=(?P<acc>\S+)",
        r"(?P<epoch>(?>a+)b)+",
        "(?P<epoch>a{2})+",
    ],
)
def test_repetitions_that_cannot_explode_are_allowed(pattern: str) -> None:
    assert check_config({"patterns": [pattern]}) == ""


@pytest.mark.parametrize(
    "pattern",
    [r"(?P<epoch>(?:a|b+)*)", r"(?P<epoch>\d)(?=(x*)*)", r"(?P<epoch>x)?(?(epoch)(?:y+)*|z)", r"(?P<epoch>(?:a+?)+?)"],
)
def test_repetitions_that_can_explode_are_refused(pattern: str) -> None:
    assert "without a repetition in a repetition" in check_config({"patterns": [pattern]})


def test_an_unknown_kind_is_refused_when_it_is_opened() -> None:
    with pytest.raises(ValueError, match="'yaml'"):
        open_reader({"kind": "yaml"}, ".", "")


def test_a_pattern_may_name_a_step_instead(opened: Any) -> None:
    reader = opened(patterns=[r"it (?P<step>\d+) L=(?P<loss>\S+)", r"dev (?P<dev_loss>\S+)"])
    assert reader.feed(b"dev 0.9\nit 5 L=0.5\ndev 0.6\n") == [
        StepReport(5, {"loss": 0.5}),
        StepReport(5, {"loss": 0.5, "dev_loss": 0.6}),
    ]
