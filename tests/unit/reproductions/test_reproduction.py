"""What a result rests on is part of its case, and where papers are found."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.typed import hocket

from hocket import __version__
from hocket.reproductions import find, reproduction, reproductions
from hocket.reproductions.reproduction import Case, Reproduction, Request
from hocket.reproductions.results_file import cases_of, digest_of_file, digest_of_sources

ROOT = Path(__file__).parents[3]


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


# -- which papers there are ---------------------------------------------------------------------------------

OWN = ("dorm", "harmony", "mlfs", "pack", "reshape", "rotary")


def metadata(folder: Path, entries: str) -> None:
    """What an installation leaves: a distribution with these entry points."""
    info = folder / "a_plug_in-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: a-plug-in\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[hocket.reproductions]\n{entries}")


def test_papers_are_found_by_their_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plug_in_paper.py").write_text(
        "from hocket.reproductions import Reproduction\n"
        "MINE = Reproduction('mine', 'A paper', 'what', None, None, None, int, None, None)\n"
    )
    metadata(tmp_path, "mine = plug_in_paper:MINE\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert find("mine").paper == "A paper"


def test_every_paper_of_the_package_is_an_entry_point_of_it() -> None:
    project = tomllib.loads((ROOT / "reproductions" / "pyproject.toml").read_text())["project"]
    entries = project["entry-points"]["hocket.reproductions"]
    loaded = [EntryPoint(name, value, "hocket.reproductions").load() for name, value in entries.items()]
    assert tuple(r.name for r in loaded) == tuple(entries) == OWN
    assert project["version"] == __version__, "both are released together"


def test_papers_of_a_checkout_that_is_not_installed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduction, "entry_points", lambda **_group: ())
    assert tuple(reproductions()) == OWN


def test_without_papers_one_line_says_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduction, "entry_points", lambda **_group: ())
    monkeypatch.setattr(reproduction, "PACKAGE", "no_such_package")
    for words in (("reproduce",), ("reproduce", "dorm")):
        ran = hocket(*words)
        assert ran.exit_code == 2
        (line,) = ran.stderr.splitlines()
        assert "no papers are installed; `pip install 'hocket[reproduce]'` installs them" in line
