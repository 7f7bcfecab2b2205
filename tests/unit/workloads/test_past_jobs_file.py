"""Past jobs from a file: what is read, and what garbage and other units are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.model.job import Kind
from hocket.model.past_job import MAX_PAST_JOBS, MAX_POINTS, PastJob
from hocket.workloads.errors import WorkloadError
from hocket.workloads.past_jobs_file import lines_of, past_jobs_in, read_past_jobs

RESNET = PastJob(
    model="resnet",
    traits={"dataset": "cifar10", "batch_size": 128.0},
    metric="acc",
    points=((1.0, 0.41), (2.0, 0.55)),
    unit_s=30.0,
    mem_mib=4200.0,
)
QUERY = PastJob(Kind.QUERY, "q5", metric="acc", points=((0.1, 0.7), (1.0, 1.0)), unit_s=12.0)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("\n".join(["# last week", "", *lines_of([RESNET, QUERY])]))
    assert read_past_jobs(path) == (RESNET, QUERY)


def test_of_more_past_jobs_than_are_kept_the_last_are_read() -> None:
    jobs = [PastJob(model=f"m{n}", unit_s=1.0) for n in range(MAX_PAST_JOBS + 2)]
    assert past_jobs_in(lines_of(jobs), "f") == tuple(jobs[2:])


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    points = ", ".join(f"[{k}, {k / 1000}]" for k in range(1, 1001))
    (found,) = past_jobs_in([f'{{"metric": "acc", "points": [{points}]}}'], "f")
    assert len(found.points) == MAX_POINTS
    assert (found.points[0], found.points[-1]) == ((1.0, 0.001), (1000.0, 1.0))


BAD = [
    ("garbage", "must be a JSON object, not 'garbage'"),
    ("[1, 2]", "must be a JSON object, not [1, 2]"),
    ('{"unit_ms": 30000}', "unknown field 'unit_ms' (did you mean 'unit_s'?)"),
    ('{"foretold": []}', "unknown field 'foretold'"),
    ('{"unit_s": "30s"}', 'unit_s: expected a number, not "30s"'),
    ('{"unit_s": -1}', "unit_s must be finite and at least 0, not -1"),
    ('{"unit_s": 30000000}', "unit_s must be at most 2.6e+06, not 3e+07 (is it in milliseconds?)"),
    ('{"mem_mib": 4404019200}', "mem_mib must be at most 1e+08, not 4.40402e+09 (is it in bytes?)"),
    ('{"metric": "acc", "points": [[1, 41.0]]}',
     "points: acc at 1 must be a share from 0 to 1, not 41 (in percent?)"),
    ('{"kind": "query", "metric": "acc", "points": [[10, 0.7]]}',
     "points: the units of a query are shares of its data, at most 1, not 10 (in percent?)"),
    ('{"metric": "acc", "points": [[2, 0.5], [1, 0.6]]}',
     "units must be finite, positive and ascending, not 1 after 2"),
    ('{"points": [[1, 0.5]]}', "has points, and names no metric"),
    ('{"metric": "acc", "points": [[1]]}', "points[0]"),
    ('{"model": "resnet"}', "must have points, unit_s or mem_mib"),
    ('{"kind": "model", "unit_s": 1}', "kind must be training or query, not 'model'"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "words"), BAD, ids=[line[:40] for line, _w in BAD])
def test_what_is_wrong_is_told_with_line_field_rule_and_value(line: str, words: str) -> None:
    with pytest.raises(WorkloadError) as found:
        past_jobs_in([*lines_of([RESNET]), line], "history.jsonl")
    assert str(found.value).startswith("history.jsonl, line 2: ")
    assert words in str(found.value)


def test_a_file_without_past_jobs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="a past job a line, and has none"):
        past_jobs_in(["# nothing"], "f")
    with pytest.raises(WorkloadError, match="No such file"):
        read_past_jobs(tmp_path / "none.jsonl")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WorkloadError, match="must be text in UTF-8, and byte 0 is none"):
        read_past_jobs(tmp_path / "binary")


def test_a_loss_may_have_any_value() -> None:
    (found,) = past_jobs_in(['{"metric": "loss", "points": [[1, 12.5], [2, 3.0]]}'], "f")
    assert found.points == ((1.0, 12.5), (2.0, 3.0))
