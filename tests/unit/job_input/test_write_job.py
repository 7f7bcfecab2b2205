"""A job as it was described, written as a command line and as a file: both mean the same job."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.cli.typed import hocket

from hocket.job_input.read_job import read_job, read_remote_job
from hocket.job_input.write_job import command_line, toml

SHELL = {"TOKEN": "s3cret"}
SAID: list[dict[str, Any]] = [
    {"command": "python train.py --lr '0.1 0.2'"},
    {"command": ["echo", "$HOME; rm -rf /", "--", "-x"], "name": "a b'c\"d", "priority": "-2"},
    {"command": "true", "name": "--", "model": "-x"},
    {"command": "true", "gpus": [1, 2, 4], "gpu_kind": ["a100", "h100"], "env": ["A=b c", "B="], "warm": True},
    {"command": "true", "gpus": "1-4", "until": "acc >= 92% within 2h", "time": "2h30m", "warm": False},
    {"command": "true", "resume": ["sh", "-c", "exit 'x'"], "notify": ["https://example.org/?a=b&c"], "cpus": 1.5},
    {"command": "true", "env": {"A": "1\t\\", "ü": "\x7f\x01"}, "secret": {"TOKEN": "s3cret"}},
    {"query": "SELECT avg(x)\nFROM t -- 'all'", "data": "/data", "threads": "1-4", "until": "acc >= 99%"},
]


def spec(said: dict[str, Any]) -> dict[str, Any]:
    return read_remote_job(said).spec


@pytest.mark.parametrize("said", SAID, ids=str)
def test_the_file_means_the_same_job(said: dict[str, Any]) -> None:
    assert read_job(tomllib.loads(toml(said)), "/", SHELL).spec | {"cwd": ""} == spec(said)


@pytest.mark.parametrize("said", SAID, ids=str)
def test_the_command_line_means_the_same_job(said: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    program, command, *words = shlex.split(command_line(said))
    assert (program, command) == ("hocket", "submit")
    told = hocket("submit", "--dry-run", *words)
    assert told.exit_code == 0, told.output
    (sent,) = msgspec.json.decode(told.stdout)["jobs"]
    expected = spec(said) | {"cwd": str(Path.cwd())}
    assert expected["env"].items() <= sent["env"].items()
    assert list(sent.get("secrets", {})) == list(expected.get("secrets", {}))
    for each in (sent, expected):
        each.pop("env")  # What the shell has goes with a job, too.
        each.pop("secrets", None)
    assert sent == expected


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXTS, min_size=1), st.dictionaries(TEXTS.filter(lambda name: "=" not in name), TEXTS))
def test_any_text_is_written_so_that_it_is_read_again(words: list[str], env: dict[str, str]) -> None:
    said = {"command": words, "env": env}
    assert tomllib.loads(toml(said)) == said
    assert shlex.split(command_line({"command": words}))[3:] == words


def test_no_text_has_the_value_of_a_secret() -> None:
    said = SAID[6]
    assert "s3cret" not in toml(said) + command_line(said)
    assert "--secret TOKEN" in command_line(said)
