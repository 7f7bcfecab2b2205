"""The Philly trace as Microsoft publishes it; the entries here are written by hand in its format."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.typed import hocket

from hocket.workloads import WorkloadError, load


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, Any]:
    machines = [{"ip": f"m{n}", "gpus": [f"gpu{g}" for g in range(count)]} for n, count in enumerate(gpus)]
    return {"start_time": start, "end_time": end, "detail": machines}


def entry(name: str, submitted: str, *attempts: dict[str, Any], vc: str | None = "ee9e8c") -> dict[str, Any]:
    return {
        "status": "Pass", "vc": vc, "jobid": name, "attempts": list(attempts), "submitted_time": submitted,
        "user": "ce2f4c",
    }  # fmt: skip


LOG = [
    entry(
        "application_2", "2017-10-07 01:11:39",
        attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 8),
        attempt("2017-10-07 01:13:30", "2017-10-07 02:12:09", 8, 8),
    ),
    entry("application_1", "2017-10-06 23:59:59", attempt("2017-10-07 00:00:00", "2017-10-07 00:00:30", 1), vc=None),
    entry("never-ran", "2017-10-07 00:00:00"),
    entry("still-ran", "2017-10-07 00:00:00", attempt("2017-10-07 00:00:00", None, 1)),
    entry("no-start", "2017-10-07 00:00:00", attempt("None", "2017-10-07 00:00:01", 1)),
    entry("no-gpu", "2017-10-07 00:00:00", attempt("2017-10-07 00:00:00", "2017-10-07 00:00:01", 0)),
    entry("no-submission", "None", attempt("2017-10-07 00:00:00", "2017-10-07 00:00:01", 1)),
    entry(
        "one-start-missing", "2017-10-07 02:00:00",
        attempt(None, None, 2), attempt("2017-10-07 02:00:00", "2017-10-07 02:00:01", 2),
    ),
]  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "cluster_job_log"
    path.write_text(json.dumps(LOG, indent=4))
    return path


def test_a_logged_job_runs_from_its_first_start_to_its_last_end(log: Path) -> None:
    first, second, third = load(f"philly:{log}").submissions
    assert (first.job.id, first.job.owner, first.at_s, first.truth.run_s) == ("application_1", "", 0.0, 30.0)
    assert (second.job.id, second.job.owner, second.at_s, second.truth.run_s) == ("application_2", "ee9e8c", 4300, 3600)
    assert (second.job.sizes, second.truth.reference_size) == ((16,), 16)
    assert (third.job.id, third.truth.run_s) == ("one-start-missing", 1.0)


def test_the_options_of_traces_hold_for_the_log(log: Path) -> None:
    assert [s.job.id for s in load(f"philly:{log}?first=1").submissions] == ["application_1"]
    ids = [s.job.id for s in load(f"philly:{log}?vc=ee9e8c").submissions]
    assert ids == ["application_2", "one-start-missing"]


def test_a_log_is_simulated(log: Path) -> None:
    done = hocket("simulate", f"philly:{log}", "-p", "fifo", "--cluster", "2x8", "--json")
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert (summary["jobs"], summary["finished"], summary["makespan_s"]) == (3, 3, 7901.0)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([{"vc": "a"}], "the log must be a list of jobs in JSON: Object missing required field `jobid`"),
        ([entry("a", "yesterday")], "entry 1: submitted_time must be as 2017-10-07 01:12:09, not 'yesterday'"),
        ([LOG[1], LOG[1]], "entry 2: jobid must be unique, and entry 1 has 'application_1' too"),
        ([entry("a/b", "2017-10-07 00:00:00")], "entry 1: jobid must be 1 to 200 printable characters without '/'"),
        ([LOG[2]], "the log must have a job with a start, an end and a GPU"),
    ],
)
def test_a_log_that_cannot_be_read_is_refused(tmp_path: Path, entries: list[Any], words: str) -> None:
    path = tmp_path / "cluster_job_log"
    path.write_text(json.dumps(entries))
    with pytest.raises(WorkloadError) as caught:
        load(f"philly:{path}")
    assert f"{path}" in str(caught.value)
    assert words in str(caught.value)
