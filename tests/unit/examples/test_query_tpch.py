"""examples/query_tpch.py: every query can be split, and is answered to its goal."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'hocket[query]'")
pytest.importorskip("duckdb_extension_tpch", reason="pip install duckdb-extension-tpch")

EXAMPLE = Path(__file__).parents[3] / "examples" / "query_tpch.py"


def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *options: str) -> list[str]:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *options])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    return capsys.readouterr().out.splitlines()


def test_an_answer_is_printed_after_each_batch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(capsys, monkeypatch, "6", "--data", "tpch:0.01", "--until", "acc >= 50%")
    assert lines[0].startswith("2% of the data")
    assert lines[-1].startswith("  ")
    assert "acc >= " in lines[-2]


def test_the_text_of_each_query_is_printed_for_submit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hocket.query import Query

    for number in ("1", "5", "6", "12", "14"):
        sql = "\n".join(printed(capsys, monkeypatch, number, "--sql"))
        assert sql.startswith("SELECT")
        if number in ("5", "14"):  # Others are of one table, or like these.
            assert Query(sql, "tpch:0.01").mode is not None  # It is answered in batches.
