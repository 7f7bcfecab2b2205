"""What the page asks of the past: the same numbers as `hocket whatif`, both schedules, and only the time asked for."""

from __future__ import annotations

import errno
import io
import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.cli.typed import hocket

from hocket.control.journal import JournalError, SqliteJournal, open_to_read
from hocket.model.event import JobSubmitted
from hocket.reports import whatif_worker
from hocket.reports.whatif_worker import WhatIfRequest, what_if
from hocket.service.compaction import compact


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("whatif") / "run.db"
    assert hocket("simulate", "demo", "--policy", "fifo", "--journal", str(path), "--json").exit_code == 0
    return str(path)


def silent(_done: int, _what: str) -> None:
    pass


def test_it_says_what_the_command_says(journal: str) -> None:
    steps: list[tuple[int, str]] = []
    found = what_if(WhatIfRequest(journal, "fair"), lambda done, what: steps.append((done, what)))
    told = json.loads(hocket("whatif", journal, "--policy", "fair", "--json").stdout)
    assert steps == [(0, "reads the journal"), (1, "runs fifo again"), (2, "runs fair")]
    for row, expected in zip(found["rows"], (told["recorded"], told["again"], told["whatif"][0]), strict=True):
        assert row["jct_mean_s"] == expected["jct_mean_s"]
        assert row["deadlines_met"] == expected["deadlines_met"]
        assert row["utilisation"] == expected["utilisation"]["gpus"]
    assert found["band"].share == told["band"]["share"]
    assert [row["label"] for row in found["rows"]] == ["fifo, recorded", "fifo, run again", "fair, what if"]
    assert found["in_both"] == {
        "jobs": 61,
        "recorded_s": pytest.approx(told["recorded"]["jct_mean_s"]),
        "whatif_s": pytest.approx(told["whatif"][0]["jct_mean_s"]),
    }
    changes = [abs(job["whatif_s"] - job["recorded_s"]) for job in found["jobs"]]
    assert changes == sorted(changes, reverse=True)
    assert changes[0] > 0


def test_schedules_hold_each_gpu_once_within_the_time_shown(journal: str) -> None:
    found = what_if(WhatIfRequest(journal, "fifo"), silent)
    gpus = {f"{node['id']}:{n}" for node in found["nodes"] for n in range(len(node["gpus"]))}
    first_s, last_s = found["range_s"]
    for schedule in found["schedules"]:
        ends: dict[str, float] = {}
        for span in schedule["held"]:
            assert first_s <= span["from_s"] < span["until_s"] <= last_s
            for gpu in span["gpus"]:
                assert gpu in gpus
                assert ends.get(gpu, 0.0) <= span["from_s"] + 1e-6
                ends[gpu] = span["until_s"]


def test_of_a_live_journal_only_the_time_that_is_asked_for_is_run(tmp_path: Path, journal: str) -> None:
    live = tmp_path / "live.db"
    kept = open_to_read(journal)
    header = kept.header
    cycles = list(kept)
    kept.close()
    from msgspec.structs import replace

    from hocket.model.event import NodeJoined

    # As a controller writes it: nodes join, and times are those of the day.
    zero_s = 1_700_000_000.0
    joined = tuple(NodeJoined(zero_s, node) for node in header.nodes)
    made = SqliteJournal(live, replace(header, nodes=(), workload="live"))
    made.extend([replace(cycles[0], at_s=zero_s, events=joined, plan=None)])
    made.extend([_later(cycle, zero_s) for cycle in cycles])
    made.close()
    whole = what_if(WhatIfRequest(str(live), "srtf"), silent)
    assert whole["rows"][0]["jobs"] == 61
    assert whole["range_s"][0] >= zero_s
    middle_s = zero_s + 5 * 3600.0
    late = what_if(WhatIfRequest(str(live), "srtf", since_s=middle_s), silent)
    came = [e for c in cycles if c.at_s >= 5 * 3600.0 for e in c.events if isinstance(e, JobSubmitted)]
    assert len(came) < late["rows"][0]["jobs"] < 61, "those that came since, and those that were there"
    assert late["range_s"][0] >= middle_s - 3600.0
    assert min(span["from_s"] for span in late["schedules"][1]["held"]) >= late["range_s"][0]
    with pytest.raises(ValueError, match="no job was there"):
        what_if(WhatIfRequest(str(live), "srtf", since_s=zero_s + 9e6), silent)


def _later(cycle: Any, by_s: float) -> Any:
    from msgspec.structs import replace

    plan = cycle.plan
    if plan is not None:
        wake = replace(plan.wake, at_s=None if plan.wake.at_s is None else plan.wake.at_s + by_s)
        plan = replace(plan, wake=wake, reviews={job: at_s + by_s for job, at_s in plan.reviews.items()})
    events = tuple(replace(event, at_s=event.at_s + by_s) for event in cycle.events)
    return replace(cycle, at_s=cycle.at_s + by_s, events=events, plan=plan)


def test_cycles_in_the_archive_are_run_again_too(tmp_path: Path, journal: str) -> None:
    store, archive = tmp_path / "run.db", tmp_path / "archive"
    shutil.copy(journal, store)
    with closing(SqliteJournal(store, goes_on=True)) as kept:
        middle_s = next(cycle.at_s for n, cycle in enumerate(kept, 1) if n == len(kept) // 2)
        compact(kept, len(kept) // 2, str(archive), lambda _s: None)
    whole = what_if(WhatIfRequest(str(store), "fair", archives=str(archive)), silent)
    assert whole["rows"] == what_if(WhatIfRequest(journal, "fair"), silent)["rows"]
    assert not any("earlier ones" in note for note in whole["notes"])
    rest = what_if(WhatIfRequest(str(store), "fair"), silent)
    assert rest["rows"][0]["jobs"] < 61
    assert any("earlier ones are kept neither" in note for note in rest["notes"])
    late = what_if(WhatIfRequest(str(store), "fair", since_s=middle_s + 60, archives=str(archive)), silent)
    assert not any("earlier ones" in note for note in late["notes"]), "all that was asked for is there"
    shutil.rmtree(archive)
    assert what_if(WhatIfRequest(str(store), "fair", archives=str(archive)), silent)["rows"] == rest["rows"]


def answer_to(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The last line that the worker writes."""
    out, given = io.BytesIO(), io.BytesIO(json.dumps(asked).encode() + b"\n")
    monkeypatch.setattr(whatif_worker.os, "nice", lambda _by: None)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=given))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=out))
    whatif_worker.main()
    return json.loads(out.getvalue().splitlines()[-1])


def test_a_run_that_needs_too_much_memory_says_so(journal: str) -> None:
    asked = json.dumps({"store": journal, "policy": "fair", "limit_mib": 1}).encode() + b"\n"
    command = [sys.executable, "-m", "hocket.reports.whatif_worker"]
    told = subprocess.run(command, input=asked, capture_output=True, check=False).stdout.splitlines()
    assert json.loads(told[-1]) == {"error": "it needs more than 1 MiB of memory: choose fewer days"}


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        sqlite3.OperationalError("out of memory"),
        ImportError("x.so: cannot map: Cannot allocate memory"),
    ],
)
def test_every_error_for_want_of_memory_is_told_as_such(
    journal: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_args: object) -> None:
        try:
            raise error
        except Exception as first:
            raise JournalError("the journal cannot be read") from first

    monkeypatch.setattr(whatif_worker, "what_if", breaks)
    told = answer_to({"store": journal, "policy": "fair"}, monkeypatch)
    assert "memory: choose fewer days" in told["error"]


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"policy": "nope"}, "policy 'nope' is unknown"),
        ({"policy": "las", "params": {"levels_gpu_s": "x"}}, "policy 'las'"),
        ({"policy": "las", "store": "/nowhere.db"}, "/nowhere.db"),
    ],
)
def test_the_process_answers_in_lines(
    journal: str, asked: dict[str, Any], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert error in answer_to({"store": journal} | asked, monkeypatch)["error"]
