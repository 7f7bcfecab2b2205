"""Commands with placeholders."""

import json

import pytest

from hocket.tune.command_template import check_command, environment, filled, placeholders
from hocket.tune.definition import StudyError


def test_values_take_the_places_of_their_names():
    command = ["python", "train.py", "--lr={lr}", "--kind", "{kind}", "{flag}", "-e", "{units}", "run-{lr}-{kind}"]
    config = {"lr": 1e-05, "kind": "adam w", "flag": True}
    assert filled(command, config, 27) == [
        "python", "train.py", "--lr=1e-05", "--kind", "adam w", "true", "-e", "27", "run-1e-05-adam w",
    ]  # fmt: skip


def test_other_braces_are_left_alone_and_doubled_ones_are_text():
    command = ['{"a": {"b": 1}}', "{{lr}}", "${HOME}x", "{}", "{lr}"]
    assert filled(command, {"lr": 2, "HOME": "h"}, 1) == ['{"a": {"b": 1}}', "{lr}", "$hx", "{}", "2"]
    assert placeholders(command) == ["HOME", "lr"]


def test_a_value_is_not_searched_for_placeholders():
    assert filled(["{a}"], {"a": "{b}", "b": 1}, 1) == ["{b}"]


@pytest.mark.parametrize(
    ("command", "names", "problem"),
    [
        (["x", "{rate}"], ["lr"], "placeholder {rate} is no hyperparameter of the space; there are lr"),
        (["x", "{lrr}", "{lr}"], ["lr"], "did you mean {lr}?"),
        (["x", "{lr}"], ["lr", "size"], "hyperparameter 'size' has no placeholder {size} in the command"),
        (["x", "{{lr}}"], ["lr"], "'lr' has no placeholder"),
        (["x", "{units}"], ["units"], "give it another name"),
        ([], ["lr"], "no command behind --"),
    ],
)
def test_a_command_that_does_not_belong_to_the_space_is_refused(command, names, problem):
    with pytest.raises(StudyError) as refused:
        check_command(command, names)
    assert problem in str(refused.value)


def test_a_program_may_read_its_environment_instead():
    check_command(["x", "{lr}"], ["lr", "batch-size"], reads_environment=True)
    given = environment({"lr": 0.1, "batch-size": 32})
    assert given["HOCKET_TUNE_LR"] == "0.1"
    assert given["HOCKET_TUNE_BATCH_SIZE"] == "32"
    assert json.loads(given["HOCKET_TUNE_CONFIG"]) == {"lr": 0.1, "batch-size": 32}
