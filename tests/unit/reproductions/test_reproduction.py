"""What a result rests on is part of its case: the files that were read, and the sources that read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hocket.reproductions.digests import digest_of_file, digest_of_sources
from hocket.reproductions.reproduction import Case, Reproduction, Request, cases_of


def unused(*_args: Any) -> Any:
    raise AssertionError("not a part of naming cases")


def two_cases(request: Request) -> list[Case]:
    return [Case("mine", 0, {"trace": request.trace}, {"alpha": 0.3}), Case("mine", 0, {"jobs": 3})]


PAPER = Reproduction(
    "paper", "A paper, 2020", "what", unused, two_cases, unused, int, unused, unused, takes={"trace": "arrivals"}
)


def test_a_case_names_the_content_of_the_file_that_it_reads(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("one")
    request = Request((0,), trace=str(trace))
    one = cases_of(PAPER, request)
    assert one[0].rests_on == {"alpha": 0.3, "trace_sha256": digest_of_file(trace)}
    assert one[1].rests_on == {}  # It reads none.
    assert cases_of(PAPER, request) == one
    trace.write_text("two")
    assert cases_of(PAPER, request)[0] != one[0]


def test_cases_without_a_file_are_as_they_are() -> None:
    assert cases_of(PAPER, Request((0,))) == two_cases(Request((0,)))


def test_other_sources_have_another_digest(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.py").write_text("x = 1")
    before = digest_of_sources(tmp_path)
    (tmp_path / "notes.txt").write_text("no source")
    assert digest_of_sources(tmp_path) == before
    (tmp_path / "deep" / "a.py").write_text("x = 2")
    changed = digest_of_sources(tmp_path)
    (tmp_path / "deep" / "a.py").rename(tmp_path / "a.py")
    assert len({before, changed, digest_of_sources(tmp_path)}) == 3
