"""A checkpoint folder belongs to the latest attempt of its job: an earlier one is refused, or ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hocket.agent.sidecar.attempt_file import AttemptFile


def kept(path: Path) -> tuple[str, int]:
    found = json.loads(path.read_text())
    return found["job"], found["attempt"]


def test_the_latest_attempt_has_the_folder(tmp_path: Path) -> None:
    path = tmp_path / ".j.attempt"
    first, second = AttemptFile(str(path), "j", 1), AttemptFile(str(path), "j", 2)
    assert first.newer() == 0
    assert kept(path) == ("j", 1)
    assert first.newer() == 0, "it is its own"
    assert second.newer() == 0
    assert kept(path) == ("j", 2)
    assert first.newer() == 2
    assert kept(path) == ("j", 2), "a stale one changes nothing"


def test_an_attempt_of_another_job_that_goes_on_from_the_same_folder_takes_it_over(tmp_path: Path) -> None:
    path = tmp_path / ".j.attempt"
    AttemptFile(str(path), "j", 7).newer()
    assert AttemptFile(str(path), "k", 1).newer() == 0
    assert kept(path) == ("k", 1)


@pytest.mark.parametrize(
    "content", ["", "{", "[1]", '{"job": "j"}', '{"job": 3, "attempt": 9}', '{"job": "j", "attempt": true}', "9" * 9000]
)
def test_nonsense_in_the_file_fences_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / ".j.attempt"
    path.write_text(content)
    assert AttemptFile(str(path), "j", 2).newer() == 0
    assert kept(path) == ("j", 2)


def test_a_file_that_cannot_be_written_fences_nothing(tmp_path: Path) -> None:
    assert AttemptFile(str(tmp_path / "missing" / "file"), "j", 2).newer() == 0
    assert AttemptFile(None, "j", 2).newer() == 0


def test_a_stale_attempt_does_not_start(run_python: Any, tmp_path: Path) -> None:
    path = tmp_path / ".j.attempt"
    AttemptFile(str(path), "j", 5).newer()
    job = run_python("open('ran', 'w')", attempt=4, attempt_file=str(path))
    assert job.finish()["fenced_by"] == 5
    assert not (tmp_path / "ran").exists()
    assert job.story() == ["exited"]


def test_an_attempt_is_killed_when_a_later_one_has_its_checkpoints(run_python: Any, tmp_path: Path) -> None:
    path = tmp_path / ".j.attempt"
    job = run_python("import time\nwhile True: time.sleep(0.01)", attempt=4, attempt_file=str(path))
    job.wait_for("started")
    assert kept(path) == ("j", 4)
    AttemptFile(str(path), "j", 5).newer()
    event = job.finish()
    assert (event["fenced_by"], event["killed"], event["signal"]) == (5, True, "SIGKILL")
