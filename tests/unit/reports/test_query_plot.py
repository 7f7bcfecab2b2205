"""The figure of a progressive query."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'hocket[query]'")

from hocket.query import Answer
from hocket.reports.query_plot import plot_answers


def answer(fraction: float, rows: tuple[tuple[object, ...], ...], width: float | None) -> Answer:
    return Answer(("g", "n"), rows, ((None, width),) * len(rows), fraction, 1.0, None, "by rows of t", (1,))


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_estimates_are_drawn_with_their_bands(tmp_path: Path, kind: str) -> None:
    answers = [
        answer(1 / 32, (("a", 10.0),), None),  # No interval yet, and one group was not seen.
        answer(1 / 2, (("b", 5.0), ("a", 11.0)), 1.0),
        answer(1.0, (("a", 12), ("b", 5)), None),
    ]
    path = plot_answers(answers, tmp_path / f"x.{kind}")
    first = path.read_bytes()
    assert first.startswith(b"\x89PNG" if kind == "png" else b"<?xml")
    assert plot_answers(answers, path).read_bytes() == first
    assert plot_answers(answers[:2], path).read_bytes() != first
    assert [file.name for file in tmp_path.iterdir()] == [f"x.{kind}"]


def test_answers_without_intervals_or_rows_are_drawn_too(tmp_path: Path) -> None:
    plain = Answer(("g", "n", "when"), (("a", 3, None),), ((None, None, None),), 1.0, 1.0, 1.0, "all at once: as asked")
    for n, one in enumerate((plain, answer(1.0, (), None))):
        assert plot_answers([one], tmp_path / f"{n}.png").stat().st_size > 1000
