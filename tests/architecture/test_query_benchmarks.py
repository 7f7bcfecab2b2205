"""`benchmarks.query` measures what real runs give, goes on where it ended, and lists what it has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("duckdb_extension_tpch")

from benchmarks.query import coverage, stops
from benchmarks.query.__main__ import main, measurements


def test_coverage_is_measured_and_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "coverage.json"
    chosen = ["--scale", "0.01", "--queries", "2", "6", "--runs", "1", "--json", str(kept)]
    coverage.main(["--orders", "1", *chosen])  # It ends with an error if its answers are not those of a real run.
    first = json.loads(kept.read_bytes())["queries"]["6"]
    coverage.main(["--orders", "2", *chosen])
    found = json.loads(kept.read_bytes())["queries"]
    assert (first["orders"], found["6"]["orders"], found["6"]["same_runs"]) == (1, 2, 1)
    assert all(sum(batch.values()) == 2 for batch in found["6"]["batches"])  # one cell in two orders
    assert "its rows are final" in found["2"]["why_not"]
    assert "QUERY 6: 1 groups, revenue; 2 orders" in capsys.readouterr().out


def test_stops_are_measured_by_both_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "stops.json"
    stops.main(["--scale", "0.01", "--queries", "6", "--orders", "2", "--json", str(kept)])
    found = json.loads(kept.read_bytes())["queries"]["6"]
    assert [(s["rule"], s["goal"]) for s in found["stops"]] == [
        ("intervals", 0.95), ("intervals", 0.99), ("envelope", 0.95), ("envelope", 0.99),
    ]  # fmt: skip
    assert all(0 < s["read"] <= 2 and s["false"] <= s["early"] <= 2 for s in found["stops"])
    assert "BY ENVELOPE" in capsys.readouterr().out


def test_measurements_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"coverage", "stops"} <= measurements().keys()
    assert "orders" not in measurements()  # It measures nothing by itself.
    main([])
    assert "How often the intervals of a query cover" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="there is no measurement 'nothing'"):
        main(["nothing"])
