"""`hocket reproduce --resume` says which results other sources made, and which it does not know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.cli.typed import hocket

import hocket.reproductions as reproductions
from hocket.cli.simulation import case_run
from hocket.reports.mean_interval import MeanInterval
from hocket.reproductions import Case, Finding, Findings, Reproduction
from hocket.reproductions.results_file import CaseResult, ResultsFile, own_sources

CASES = [Case("mine", seed) for seed in range(3)]
PAPER = Reproduction(
    "paper",
    "A paper, 2020",
    "what",
    assumptions=lambda _request: (),
    cases=lambda _request: CASES,
    run=lambda case, _began, _progressed: case.seed,
    result=int,
    findings=lambda _request, results: Findings((), (f"{sum(result for _case, result in results)} in all",)),
    draw=lambda *_args: [],
)


@pytest.fixture(autouse=True)
def paper(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reproductions, case_run):
        monkeypatch.setattr(module, "find", lambda _name: PAPER)


def resumed(folder: Path, *sources: str) -> tuple[Any, dict[str, Any]]:
    """What the command says when it goes on with a result of each case, by these sources."""
    with ResultsFile(folder / "results.jsonl", PAPER, resume=False) as kept:
        for case, made_by in zip(CASES, sources, strict=True):
            kept.add(case, CaseResult(case.seed, made_by))
    ran = hocket("reproduce", "paper", "--resume", "--out", str(folder))
    assert ran.exit_code == 0, ran.output
    return ran, json.loads((folder / "findings.json").read_text())


def test_results_of_other_sources_are_kept_and_counted(tmp_path: Path) -> None:
    ran, told = resumed(tmp_path, own_sources(PAPER), "others", "")
    (line,) = [line for line in ran.stderr.splitlines() if "sources" in line]
    assert line.startswith("hocket: 2 of 3 results ")
    assert told["of_other_sources"] == 2
    assert told["remarks"][0] == "3 in all"
    assert told["remarks"][1].startswith("2 of 3 results ")
    assert "2 of 3 results" in ran.stdout


def test_of_results_of_these_sources_nothing_is_said(tmp_path: Path) -> None:
    ran, told = resumed(tmp_path, *[own_sources(PAPER)] * 3)
    assert "sources" not in ran.stderr
    assert told["of_other_sources"] == 0
    assert told["remarks"] == ["3 in all"]


def test_a_worker_says_with_which_sources_it_played() -> None:
    made = case_run.CaseRun("paper", CASES[2]).carry_out(lambda _n: None, lambda _n: None)
    assert made == CaseResult(2, own_sources(PAPER))


def test_bounds_and_gaps_stand_beside_the_figures_that_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Finding("speed-up", "2.00×", MeanInterval(1.5), "×", group="bounded", bound=MeanInterval(1.75))
    found = Findings((short, Finding("count", "3", MeanInterval(4.0), group="plain")))
    paper = replace(PAPER, findings=lambda _request, _results: found, cases=lambda _request: [])
    monkeypatch.setattr(reproductions, "find", lambda _name: paper)
    ran = hocket("reproduce", "paper", "--out", str(tmp_path))
    assert ran.exit_code == 0, ran.output
    bounded, plain = ran.stdout.split("plain")
    (row,) = [line for line in bounded.splitlines() if "speed-up" in line]
    assert "≤ 1.75×" in row
    assert "set-up 0.25, policy ≤ 0.25" in " ".join(bounded.split())
    assert "any scheduler" not in plain
    told = json.loads((tmp_path / "findings.json").read_text())
    assert told["findings"][0]["bound"]["mean"] == 1.75
