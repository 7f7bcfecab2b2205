"""Words of other schedulers, and typing errors, lead to the right command."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from hocket.cli import other_words
from hocket.cli.main import app


def said(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(args))
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("word", ["cancel", "kill", "scancel"])
def test_other_words_for_stopping_stop(controller: Any, word: str) -> None:
    controller.add("a", "running")
    code, out, _err = said(word, "a")
    assert (code, controller.jobs["a"]["state"]) == (0, "stopped")
    assert out == said_by_stop(controller)


def said_by_stop(controller: Any) -> str:
    controller.jobs["a"]["state"] = "running"
    return said("stop", "a")[1]


@pytest.mark.parametrize("word", ["ls", "list", "ps", "queue", "squeue"])
def test_other_words_for_the_list_of_jobs_list_them(controller: Any, word: str) -> None:
    controller.add("a", "running")
    controller.add("b", "finished")
    assert said(word) == said("jobs")
    assert "b " in said(word, "-a")[1]


@pytest.mark.parametrize(
    ("word", "right"),
    [
        ("sbatch", "there is no command 'sbatch' here; use hocket submit [options] -- COMMAND"),
        ("srun", "there is no command 'srun' here; use hocket run [options] -- COMMAND"),
        ("sinfo", "use hocket "),
        ("submti", "there is no command 'submti'; did you mean 'hocket submit'?"),
        ("cancle", "did you mean 'hocket stop'?"),
        ("sbach", "there is no command 'sbach'; use hocket submit [options] -- COMMAND"),
        ("xyzzy", "there is no command 'xyzzy'; see `hocket --help`"),
    ],
)
def test_a_word_that_is_no_command_names_the_right_one(word: str, right: str) -> None:
    code, out, err = said(word, "x")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert right in err


def test_no_word_hides_a_command_and_all_that_is_named_exists() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert not set(commands) & (set(other_words.ALIASES) | set(other_words._INSTEAD))
    named = [name for text in other_words._INSTEAD.values() for name in re.findall(r"hocket (\w+)", text)]
    assert set(named) | set(other_words.ALIASES.values()) <= set(commands)
