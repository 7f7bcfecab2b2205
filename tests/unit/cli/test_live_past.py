"""`--at`: which moment is asked for, and what is shown of it."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

import pytest
from tests.unit.cli.typed import hocket, refused

from hocket.cli.live import past


@pytest.fixture
def asked(controller: Any) -> list[tuple[str, dict[str, str]]]:
    """What is asked of a controller that has a past of 1,234 cycles."""
    found: list[tuple[str, dict[str, str]]] = []
    job, ended, nodes = controller.add("a", reason="waits"), controller.add("b", "failed"), controller.nodes

    def answer(_method: str, path: str, query: dict[str, str], _body: Any) -> tuple[int, Any, dict[str, str]]:
        found.append((path, query))
        jobs = [job, ended] if query.get("all") == "true" else [job]
        parts = {"jobs": jobs} if query["parts"] == "jobs" else {"nodes": nodes}
        return 200, {"cycle": 1000, "last": 1234, "at_s": 1.8e9, **parts}, {}

    controller.answer = answer
    return found


def test_a_cycle_is_asked_for_by_its_number(asked: list[tuple[str, dict[str, str]]]) -> None:
    result = hocket("jobs", "--at", "1000", "--owner", "ann")
    assert asked == [("/v1/at/1000", {"owner": "ann", "parts": "jobs"})]
    assert result.stdout.splitlines()[1].split()[:3] == ["a", "ann", "waiting"]
    assert result.stderr.startswith("after cycle 1,000 of 1,234, at 2027-")
    result = hocket("nodes", "--at", "1000")
    assert asked[-1] == ("/v1/at/1000", {"parts": "nodes"})
    assert "n0" in result.stdout


def test_a_time_ago_and_a_date_are_asked_for_in_seconds(asked: list[tuple[str, dict[str, str]]]) -> None:
    before = time.time()
    hocket("jobs", "--at", "2h")
    path, query = asked[-1]
    assert path == "/v1/at"
    assert before - 7200 <= float(query["time"]) <= time.time() - 7200
    hocket("nodes", "--at", "2026-11-17 10:00")
    assert float(asked[-1][1]["time"]) == datetime(2026, 11, 17, 10).timestamp()
    hocket("jobs", "--at", "2026-11-17T10:00+01:00")
    assert float(asked[-1][1]["time"]) == datetime.fromisoformat("2026-11-17T10:00+01:00").timestamp()


def test_json_and_states_are_as_without_it(asked: list[tuple[str, dict[str, str]]]) -> None:
    assert json.loads(hocket("jobs", "--at", "9", "--json").stdout)["cycle"] == 1000
    failed = json.loads(hocket("jobs", "--at", "9", "--json", "--state", "failed").stdout)["jobs"]
    assert [job["id"] for job in failed] == ["b"]
    assert asked[-1][1]["all"] == "true"


@pytest.mark.parametrize("text", ["soon", "0", "-3", "1e3", "2026-13-01", "12 o'clock", "9" * 16, "٣"])
def test_what_is_no_moment_is_refused(asked: list[tuple[str, dict[str, str]]], text: str) -> None:
    said = refused("jobs", f"--at={text}")
    assert "--at must be the number of a cycle, a time ago such as 2h, or a date" in said
    assert not asked


def test_watch_is_for_the_present(asked: list[tuple[str, dict[str, str]]]) -> None:
    assert "--watch shows the present" in refused("jobs", "--at", "3", "--watch")
    assert not asked


def test_while_a_long_journal_is_read_it_is_asked_again(controller: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "_AGAIN_S", 0.0)
    answers = [
        (503, {"error": "the history is being read: up to cycle 3 of 9 so far; ask again"}, {}),
        (200, {"cycle": 7, "last": 9, "at_s": 1.0, "jobs": []}, {}),
    ]
    controller.answer = lambda *_: answers.pop(0)
    assert hocket("jobs", "--at", "7", "--json").exit_code == 0
    assert not answers
    controller.answer = lambda *_: (503, {"error": "the journal cannot be read"}, {})
    assert refused("jobs", "--at", "7") == "hocket: the journal cannot be read\n"
