"""`hocket query`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.cli.typed import hocket, refused

pytest.importorskip("duckdb_extension_tpch")

SQL = "SELECT l_returnflag, count(*) AS n, max(l_tax) AS top FROM lineitem GROUP BY l_returnflag ORDER BY l_returnflag"
DATA = ("--data", "tpch:0.01")


def test_the_last_answer_is_printed_with_what_it_is() -> None:
    done = hocket("query", SQL, *DATA)
    assert done.exit_code == 0, done.output
    assert "split by rows of lineitem" in done.stderr
    assert "exact, after" in done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("│")]
    assert [row.split("│")[1].strip() for row in rows] == ["A", "N", "R"]
    assert rows[0].split("│")[2].strip() == "14876"


def test_json_has_one_object_for_each_answer() -> None:
    done = hocket("query", SQL, *DATA, "--json")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["fraction"] for answer in answers] == [16 / 512, 32 / 512, 64 / 512, 0.25, 0.5, 1.0]
    assert answers[0]["columns"] == ["l_returnflag", "n", "top"]
    assert answers[-1]["exact"]
    assert answers[-1]["rows"][0][:2] == ["A", 14876]
    third = answers[2]
    assert third["half_widths"][0][1] > 0
    assert third["half_widths"][0][2] is None
    assert abs(third["rows"][0][1] - 14876) < 5 * third["half_widths"][0][1]


def test_a_query_can_be_piped_in_and_run_exactly() -> None:
    done = hocket("query", "-", *DATA, "--exact", "--json", text="SELECT count(*) FROM orders")
    assert [json.loads(line)["rows"] for line in done.stdout.splitlines()] == [[[15000]]]


def test_a_goal_that_is_not_met_in_time_has_its_exit_code() -> None:
    sql = "SELECT l_returnflag, count(*) AS n FROM lineitem GROUP BY 1"
    assert hocket("query", sql, *DATA, "--until", "acc >= 50%", "--json").exit_code == 0
    assert hocket("query", sql, *DATA, "--until", "acc >= 99.99% within 0.00001s", "--json").exit_code == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((SQL, "--data", "/no/such/folder"), "no such file or folder"),
        (("SELECT 1;SELECT 2", *DATA), "one statement"),
        ((SQL, *DATA, "--until", "acc >= 95%"), "'top' has no interval"),
        ((SQL, *DATA, "--weight", "n"), "--weight must be COLUMN=NUMBER"),
        ((SQL, *DATA, "--weight", "m=1"), "no such column"),
        ((SQL, *DATA, "--memory", "lots"), "cannot be"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(words: tuple[str, ...], said: str) -> None:
    assert said in refused("query", *words)


def test_a_query_goes_on_from_its_state_and_another_is_refused(tmp_path: Path) -> None:
    sql = "SELECT l_returnflag, count(*) AS n FROM lineitem GROUP BY 1 ORDER BY 1"
    words = (*DATA, "--state", str(tmp_path / "state"), "--json")
    early = [json.loads(line) for line in hocket("query", sql, *words, "--until", "acc >= 50%").stdout.splitlines()]
    assert not early[-1]["exact"]
    assert "is of another query" in refused("query", "SELECT count(*) FROM lineitem", *words)
    later = [json.loads(line) for line in hocket("query", sql, *words).stdout.splitlines()]
    assert later[0]["fraction"] == early[-1]["fraction"]
    assert later[-1]["exact"]
    assert "--interrupted-every must be" in refused("query", sql, *words, "--interrupted-every", "often")
