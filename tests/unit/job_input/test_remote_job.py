"""A job that was described on another machine: nothing of this one goes into it, and each field says what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hocket.job_input.read_job import FieldProblem, as_field_problem, read_remote_job, remote_problems


def problem(**said: Any) -> str:
    with pytest.raises(FieldProblem) as found:
        read_remote_job({"command": ["true"]} | said)
    return str(found.value)


def test_it_brings_its_own_environment_and_folder() -> None:
    found = read_remote_job({"command": "true", "env": ["A=1"], "cwd": "/data/../x"}).spec
    assert (found["env"], found["cwd"]) == ({"A": "1"}, "/x")
    assert read_remote_job({"command": "true"}).spec["cwd"] == ""
    assert problem(env=["PATH"]) == "env must be NAME=VALUE or the name of a variable that is set, and 'PATH' is not"
    for path in ("sub", "~/x"):
        assert problem(cwd=path) == f"cwd must be an absolute path on the node where it runs, not '{path}'"


def test_no_file_of_this_machine_is_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret")
    assert problem(secret=[f"KEY=@{tmp_path}/key"]) == "secret must be texts by name"
    assert read_remote_job({"command": "true", "secret": {"KEY": "@x"}}).spec["secrets"] == {"KEY": "@x"}
    launcher = tmp_path / "torchrun"
    launcher.write_text("#!/bin/sh\n")  # Read here, it would be no torchrun that is known.
    found = read_remote_job({"command": [str(launcher), "--nproc_per_node=2", "train.py"]}).spec
    assert (found["sizes"], found["gpus"], found["max_nodes"]) == ([2], 1, 1)


def test_every_field_that_is_wrong_is_told_at_once() -> None:
    found = remote_problems(
        {
            "gpus": "none",
            "mem": "much",
            "until": "acc > 1",
            "urgency": 11,
            "name": "x" * 201,
            "colour": 1,
            "time": "2h",
            "progress": "csv",
            "gpu_kind": ["x" * 201],
            "secret": {"9": "s3cret"},
        }
    )
    assert set(found) == {"gpus", "mem", "until", "urgency", "name", "colour", "progress", "gpu_kind", "secret"}
    assert found["progress"] == "progress.file must be given with kind 'csv', and is missing"
    assert found["secret"] == "must have names of letters, digits and _, not '9'"
    assert found["mem"] == "must be an amount of memory such as 512M or 8G, not 'much'"
    assert found["until"].startswith("at column 5 expected")
    assert "10" in found["urgency"]
    assert remote_problems({"export_all": True})["export_all"].startswith("must be said where there is a shell")


def test_a_field_is_not_wrong_for_what_others_do_not_say_yet() -> None:
    assert remote_problems({"stop": "required", "kind": "query", "replica_gpus": "4", "threads": "2"}) == {}


def test_a_refusal_of_the_controller_names_the_field_as_users_do() -> None:
    found = as_field_problem("job 'it's': sizes must fit the cluster; its smallest needs 8 GPUs", "it's")
    assert (found.field, found.problem) == ("gpus", "must fit the cluster; its smallest needs 8 GPUs")
    assert as_field_problem("job 'a': gpu_mem_mib must be less", "a").field == "gpu_mem"
    assert as_field_problem("nothing is known").field == ""


def test_a_line_that_would_take_minutes_to_part_is_refused() -> None:
    problems = remote_problems({"command": "x" * 1_000_000})
    assert problems["command"].startswith("must be a line of at most 32,768 characters, or a list of words, not 'xxx")
    assert len(problems["command"]) < 300
    assert remote_problems({"command": ["x" * 100_000]}) == {}, "words need not be parted"
