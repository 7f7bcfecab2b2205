"""`benchmarks.query` measures what real runs give, goes on where it ended, and lists what it has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("duckdb_extension_tpch")

from benchmarks.query import batches, coverage, stops
from benchmarks.query.__main__ import main, measurements


def test_coverage_is_measured_and_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "coverage.json"
    chosen = ["--scale", "0.002", "--queries", "2", "6", "--runs", "1", "--json", str(kept)]
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
    stops.main(["--scale", "0.002", "--queries", "6", "--orders", "2", "--json", str(kept)])
    found = json.loads(kept.read_bytes())["queries"]["6"]
    assert [(s["rule"], s["goal"]) for s in found["stops"]] == [
        ("intervals", 0.95), ("intervals", 0.99), ("envelope", 0.95), ("envelope", 0.99),
    ]  # fmt: skip
    assert all(0 < s["read"] <= 2 and s["false"] <= s["early"] <= 2 for s in found["stops"])
    assert "BY ENVELOPE" in capsys.readouterr().out


def test_batches_of_several_scales_are_in_one_table(tmp_path: Path) -> None:
    table = tmp_path / "batches.json"
    chosen = ["--orders", "1", "--folder", str(tmp_path), "--out", str(table)]
    batches.main(["--scale", "0.001", "--queries", "6", *chosen])
    first = batches.scales_of(table)
    batches.main(["--scale", "0.002", "--queries", "6", "14", "--processes", "2", *chosen])
    batches.main(["--scale", "0.001", "--queries", "6", "14", *chosen])
    found = batches.scales_of(table)
    assert [(s.scale, list(s.queries)) for s in found] == [(0.001, ["q6", "q14"]), (0.002, ["q6", "q14"])]
    assert found[0].queries["q6"] == first[0].queries["q6"]  # It was not measured again.
    assert found[1].command.endswith("--scale 0.002 --orders 1")
    (order,) = found[1].queries["q14"].orders
    assert (order[-1].fraction, order[-1].promised) == (1.0, 1.0)


def test_measurements_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"coverage", "stops"} <= measurements().keys()
    assert "orders" not in measurements()  # It measures nothing by itself.
    main([])
    assert "How often the intervals of a query cover" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="there is no measurement 'nothing'"):
        main(["nothing"])
