"""Results of a reproduction survive a kill, and are not mixed with those of something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from hocket import __version__
from hocket.reproductions.reproduction import Case, Reproduction
from hocket.reproductions.results_file import CaseResult, ResultsFile


class Gain(Struct, frozen=True):
    share: float


def unused(*_args: Any) -> Any:
    raise AssertionError("not a part of keeping results")


PAPER = Reproduction(
    "paper",
    "A paper, 2020",
    "what",
    assumptions=unused,
    cases=unused,
    run=unused,
    result=Gain,
    findings=unused,
    draw=unused,
)
CASES = [Case("mine", seed, {"theta": [0.1, 0.2]}) for seed in range(3)]


def kept(path: Path, *, resume: bool) -> ResultsFile:
    return ResultsFile(path, PAPER, resume=resume)


@pytest.fixture
def two_kept(tmp_path: Path) -> Path:
    path = tmp_path / "deep" / "results.jsonl"
    with kept(path, resume=False) as results:
        for case in CASES[:2]:
            results.add(case, CaseResult(Gain(case.seed / 10), "these"))
    return path


def test_a_run_that_goes_on_knows_what_was_done(two_kept: Path) -> None:
    with kept(two_kept, resume=True) as results:
        assert [results.get(case) for case in CASES] == [
            CaseResult(Gain(0.0), "these"),
            CaseResult(Gain(0.1), "these"),
            None,
        ]


def test_a_case_with_other_settings_is_another_case(two_kept: Path) -> None:
    with kept(two_kept, resume=True) as results:
        assert results.get(replace(CASES[0], settings={"theta": [0.1, 0.3]})) is None


def test_a_case_that_rests_on_something_else_is_another_case(two_kept: Path) -> None:
    ours, theirs = (replace(CASES[2], rests_on={"trace_sha256": digest}) for digest in ("ab", "cd"))
    with kept(two_kept, resume=True) as results:
        results.add(ours, CaseResult(Gain(0.3), "these"))
    with kept(two_kept, resume=True) as results:
        assert results.get(ours) == CaseResult(Gain(0.3), "these")
        assert results.get(theirs) is None


def test_results_that_do_not_say_what_they_rest_on_are_kept_as_made_by_unknown_sources(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    case = '{"label":"mine","seed":0,"settings":{"theta":[0.1,0.2]}}'
    path.write_text(
        f'{{"reproduction":"paper","version":"{__version__}"}}\n{{"case":{case},"result":{{"share":0.5}}}}\n'
    )
    with kept(path, resume=True) as results:
        assert results.get(CASES[0]) == CaseResult(Gain(0.5), "")
        assert results.get(replace(CASES[0], rests_on={"trace_sha256": "ab"})) == CaseResult(Gain(0.5), "")


def test_a_line_that_a_kill_cut_off_is_done_again_and_the_file_is_whole(two_kept: Path) -> None:
    two_kept.write_bytes(two_kept.read_bytes()[:-5])
    with kept(two_kept, resume=True) as results:
        assert [results.get(case) for case in CASES] == [CaseResult(Gain(0.0), "these"), None, None]
        results.add(CASES[1], CaseResult(Gain(0.7), "these"))
    with kept(two_kept, resume=True) as results:
        assert results.get(CASES[1]) == CaseResult(Gain(0.7), "these")


def test_a_run_that_begins_anew_puts_what_was_done_aside(two_kept: Path) -> None:
    before = two_kept.read_bytes()
    for _ in range(2):  # One that did nothing pushes nothing out.
        kept(two_kept, resume=False).__exit__()
    assert two_kept.with_name("results.before.jsonl").read_bytes() == before


def test_a_run_that_begins_anew_forgets(two_kept: Path) -> None:
    with kept(two_kept, resume=False) as results:
        assert results.get(CASES[0]) is None


def test_results_of_another_paper_are_refused_and_left_as_they_are(two_kept: Path) -> None:
    before = two_kept.read_bytes()
    with pytest.raises(ValueError, match=r"results of 'paper'.* cannot be continued as 'other'"):
        ResultsFile(two_kept, replace(PAPER, name="other"), resume=True)
    assert two_kept.read_bytes() == before


@pytest.mark.parametrize("nonsense", [b"nonsense\n", b'{"reproduction": 3}\n', b"\xff\xfe\n", b"{}\n"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, nonsense: bytes) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(nonsense)
    with pytest.raises(ValueError, match="is not a file of results that can be continued"):
        kept(path, resume=True)
    assert path.read_bytes() == nonsense
