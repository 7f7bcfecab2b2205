"""A job that counts from 0 is understood after a restart, though it names no epoch 0 any more."""

import json
from pathlib import Path

import pytest

from hocket.agent.node.known_run import learnt


def attempt(job: Path, number: int, *progress: dict[str, object], spec: dict[str, object] | None = None) -> None:
    folder = job / str(number)
    folder.mkdir(parents=True)
    (folder / "spec.over").write_text(json.dumps({"job": "a", "progress": spec or {}}))
    facts = [
        {"n": 1, "at": 1.0, "event": "started"},
        *({"n": 2, "at": 2.0, "event": "progress", **p} for p in progress),
    ]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(fact)}\n" for fact in facts))


def test_what_an_attempt_has_shown_the_next_one_knows_and_hands_on(tmp_path: Path) -> None:
    attempt(tmp_path, 1, {"epoch": 1, "first_epoch": 0}, {"epoch": 2, "first_epoch": 0})
    assert learnt({"kind": "json"}, str(tmp_path), 2) == {"kind": "json", "first_epoch": 0}
    attempt(tmp_path, 2, {"epoch": 3}, spec={"first_epoch": 0})
    attempt(tmp_path, 4)  # It was killed before it said anything.
    assert learnt({}, str(tmp_path), 5) == {"first_epoch": 0}


@pytest.mark.parametrize("first", [0, 1])
def test_what_the_user_says_goes_before(tmp_path: Path, first: int) -> None:
    attempt(tmp_path, 1, {"epoch": 1, "first_epoch": 0})
    assert learnt({"first_epoch": first}, str(tmp_path), 2) == {"first_epoch": first}


def test_a_job_that_counts_from_1_or_has_not_run_shows_nothing(tmp_path: Path) -> None:
    assert learnt({}, str(tmp_path), 1) == {}
    attempt(tmp_path, 1, {"epoch": 1})
    assert learnt({}, str(tmp_path), 2) == {}
