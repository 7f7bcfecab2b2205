"""`hocket query`."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
from tests.unit.cli.typed import hocket, refused

pytest.importorskip("duckdb_extension_tpch")

import duckdb

from hocket.runtimes.query.data_sources import generate_tpch

SQL = "SELECT l_returnflag, count(*) AS n, max(l_tax) AS top FROM lineitem GROUP BY l_returnflag ORDER BY l_returnflag"
GENERATED = ("--data", "tpch:0.01")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same in a file, which need not be made again for each query."""
    path = tmp_path_factory.mktemp("data") / "tpch.duckdb"
    with duckdb.connect(path) as connection:
        generate_tpch(connection, "0.01")
    return "--data", str(path)


def test_the_last_answer_is_printed_with_what_it_is() -> None:
    done = hocket("query", SQL, *GENERATED)
    assert done.exit_code == 0, done.output
    assert "split by rows of lineitem" in done.stderr
    assert "exact, after" in done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("│")]
    assert [row.split("│")[1].strip() for row in rows] == ["A", "N", "R"]
    assert rows[0].split("│")[2].strip() == "14876"


def test_json_has_one_object_for_each_answer(data: tuple[str, str]) -> None:
    done = hocket("query", SQL, *data, "--json")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["fraction"] for answer in answers] == [1 / 64, 1 / 16, 1 / 8, 0.25, 0.5, 1.0]
    assert answers[0]["columns"] == ["l_returnflag", "n", "top"]
    assert answers[-1]["exact"]
    assert answers[-1]["rows"][0][:2] == ["A", 14876]
    third = answers[2]
    assert third["half_widths"][0][1] > 0
    assert third["half_widths"][0][2] is None
    assert abs(third["rows"][0][1] - 14876) < 5 * third["half_widths"][0][1]


def test_a_query_can_be_piped_in_and_run_exactly(data: tuple[str, str]) -> None:
    done = hocket("query", "-", *data, "--exact", "--json", text="SELECT count(*) FROM orders")
    assert [json.loads(line)["rows"] for line in done.stdout.splitlines()] == [[[15000]]]


def test_a_goal_that_is_not_met_in_time_has_its_exit_code(data: tuple[str, str]) -> None:
    sql = "SELECT l_returnflag, count(*) AS n FROM lineitem GROUP BY 1"
    assert hocket("query", sql, *data, "--until", "acc >= 50%", "--json").exit_code == 0
    assert hocket("query", sql, *data, "--until", "acc >= 99.99% within 0.00001s", "--json").exit_code == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((SQL, "--data", "/no/such/folder"), "no such file or folder"),
        (("SELECT 1;SELECT 2",), "one statement"),
        ((SQL, "--until", "acc >= 95%"), "'top' has no interval"),
        ((SQL, "--weight", "n"), "--weight must be COLUMN=NUMBER"),
        ((SQL, "--weight", "m=1"), "no such column"),
        ((SQL, "--memory", "lots"), "cannot be"),
        ((SQL, "--engine", "spark"), "engine 'spark' needs a master"),
        ((SQL, "--master", "local[2]"), "need engine 'spark'"),
        ((SQL, "--engine", "spark", "--master", "local", "--spark-conf", "x=1"), "must be spark.KEY=VALUE"),
        ((SQL, "--plot", "figure.txt"), "--plot 'figure.txt' must end in .png or .svg"),
        ((SQL, "--plot", "/no/such/folder/x.png"), "must lie in a folder that exists"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(words: tuple[str, ...], said: str, data: tuple[str, str]) -> None:
    assert said in refused("query", *words, *(() if "--data" in words else data))


def test_data_are_prepared_and_then_read_in_parts(tmp_path: Path) -> None:
    wanted, out = tmp_path / "wanted.sql", tmp_path / "tpch.duckdb"
    wanted.write_text(
        "SELECT o_orderpriority, count(*) FROM orders JOIN lineitem ON o_orderkey = l_orderkey GROUP BY 1"
    )
    done = hocket(
        "query", "prepare", "tpch:0.004", "--out", str(out), "--for", str(wanted), "--key", "lineitem.l_partkey"
    )
    assert done.exit_code == 0, done.output
    assert "l_orderkey" in done.stdout
    assert "stored lineitem 2 times" in done.stdout
    for sql, key in ((SQL, "lineitem.l_orderkey"), (wanted.read_text(), "lineitem.l_orderkey = orders.o_orderkey")):
        asked = hocket("query", sql, "--data", str(out), "--json")
        answers = [json.loads(line) for line in asked.stdout.splitlines()]
        assert answers[0]["split"] == f"by {key}; prepared"
        assert answers[-1]["exact"]


def test_what_was_prepared_is_printed_as_json(tmp_path: Path) -> None:
    done = hocket("query", "prepare", "tpch:0.001", "--out", str(tmp_path / "x.duckdb"), "--key", "orders", "--json")
    said = json.loads(done.stdout)
    assert said["size_bytes"] == (tmp_path / "x.duckdb").stat().st_size
    keys = {copy["table"]: copy["key"] for copy in said["copies"]}
    assert (keys["orders"], keys["nation"]) == ("rowid", None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--out", "x.duckdb", "--key", "orders.no"), "has no such column"),
        (("--out", "x.duckdb", "--key", "no.o_orderkey"), "there is no table 'no'"),
        (("--out", "x.duckdb", "--for", "no.sql"), "no.sql"),
        (("--out", "x.parquet"), "must end with .duckdb"),
        (("--out", "no/x.duckdb"), "in a folder that exists"),
    ],
)
def test_what_cannot_be_prepared_is_refused_in_one_line(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refused("query", "prepare", "tpch:0.001", *words)


def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        assert "cannot be written" in refused("query", "prepare", "tpch:0.001", "--out", str(tmp_path / "x.duckdb"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_what_the_estimates_were_is_drawn(tmp_path: Path, data: tuple[str, str]) -> None:
    figure = tmp_path / "n.svg"
    done = hocket("query", SQL, *data, "--json", "--plot", str(figure))
    assert done.exit_code == 0, done.output
    assert f"plot in {figure}" in done.stderr
    assert len(done.stdout.splitlines()) == 6
    assert figure.read_bytes().startswith(b"<?xml")


def test_the_envelope_says_that_it_promises_nothing(data: tuple[str, str]) -> None:
    done = hocket("query", SQL, *data, "--until", "acc >= 90%", "--accuracy-rule", "envelope")
    assert done.exit_code == 0, done.output
    assert "by the envelope of the last answers, which promises nothing" in done.stderr


def test_a_query_goes_on_from_its_state_and_another_is_refused(tmp_path: Path, data: tuple[str, str]) -> None:
    sql = "SELECT l_returnflag, count(*) AS n FROM lineitem GROUP BY 1 ORDER BY 1"
    words = (*data, "--state", str(tmp_path / "state"), "--json")
    early = [json.loads(line) for line in hocket("query", sql, *words, "--until", "acc >= 50%").stdout.splitlines()]
    assert not early[-1]["exact"]
    assert "is of another query" in refused("query", "SELECT count(*) FROM lineitem", *words)
    later = [json.loads(line) for line in hocket("query", sql, *words).stdout.splitlines()]
    assert later[0]["fraction"] == early[-1]["fraction"]
    assert later[-1]["exact"]
    assert "--interrupted-every must be" in refused("query", sql, *words, "--interrupted-every", "often")


def test_texts_and_names_are_printed_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("word,n\n[/b],1\n[red]x[/red],2\n")
    done = hocket("query", 'SELECT word, n AS "[bold]n" FROM t ORDER BY n', "--data", str(tmp_path), "--exact")
    assert done.exit_code == 0
    assert all(shown in done.stdout for shown in ("[/b]", "[red]x[/red]", "[bold]n"))
