"""`hocket whatif` as users type it."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.unit.cli.typed import edit, hocket, refused

from hocket.control.journal import SqliteJournal
from hocket.control.ports import FORMAT
from hocket.service.compaction import compact


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run."""
    path = tmp_path_factory.mktemp("journal") / "week.db"
    workload = "poisson?jobs=60&gap=200&elastic"
    done = hocket("simulate", workload, "--cluster", "1x8", "--policy", "drf", "--journal", str(path))
    assert done.exit_code == 0, done.output
    return path


@pytest.fixture
def spoilt(week: Path, tmp_path: Path) -> Path:
    """A copy of it, to be spoilt."""
    return Path(shutil.copy(week, tmp_path / "spoilt.db"))


def test_json_is_one_object_with_the_band_and_what_it_rests_on(week: Path) -> None:
    result = hocket("whatif", str(week), "--policy", "drf", "--policy", "fair", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["recorded"]["policy"] == found["again"]["policy"] == "drf"
    same, other = found["whatif"]
    assert same["jct_mean_s"] == pytest.approx(found["recorded"]["jct_mean_s"], rel=1e-6)
    assert found["band"]["share"] == pytest.approx(0.0, abs=1e-6)
    assert other["policy"] == "fair"
    assert other["jct_mean_s"] != pytest.approx(same["jct_mean_s"], rel=0.01)
    rigid, elastic = found["extrapolated"]
    assert rigid == {}
    assert elastic
    assert found["unfinished"] == found["shared"] == {}
    assert found["speed_law"]["fitted"] is False


def test_the_table_sets_recorded_again_and_what_if_side_by_side(week: Path) -> None:
    text = hocket("whatif", str(week), "--policy", "fair").stdout
    assert text.index("drf, recorded") < text.index("drf, run again") < text.index("fair, what if")
    assert "band: run again, the recorded policy's mean JCT differs by 0.00%" in text
    assert "fair rests on extrapolation for j" in text
    assert "assumed" in text


def test_two_settings_of_one_policy_are_two_rows_and_one_said_twice_is_one(week: Path) -> None:
    twice = ("--policy", "las:levels_gpu_s=[60]", "--policy", "las", "--policy", "las")
    text = hocket("whatif", str(week), *twice).stdout
    assert [text.count(f"{name}, what if") for name in (" las:levels_gpu_s=[60]", " las")] == [1, 1]
    assert "±" not in text  # No row is the mean of several.
    assert len(json.loads(hocket("whatif", str(week), *twice, "--json").stdout)["whatif"]) == 2


def test_what_if_is_drawn(week: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plots"
    done = hocket("whatif", str(week), "-p", "fifo", "--plots", str(folder))
    assert done.exit_code == 0, done.output
    assert f"plots in {folder}" in done.stdout
    assert {path.name for path in folder.iterdir()} == {"compare.png", "compare.svg"}
    assert "fifo, what if" in (folder / "compare.svg").read_text()


def test_a_run_that_was_cut_off_names_the_jobs_that_had_not_finished(tmp_path: Path) -> None:
    path = tmp_path / "cut.db"
    hocket("simulate", "burst?jobs=20", "--cluster", "1x8", "-p", "drf", "--until", "1800", "--journal", str(path))
    assert "not finished when recorded, or missed: j" in hocket("whatif", str(path), "--policy", "las").stdout


def test_a_run_that_was_cut_off_is_compared_over_the_jobs_that_ended_in_both(tmp_path: Path) -> None:
    path = tmp_path / "cut.db"
    hocket("simulate", "burst?jobs=20", "--cluster", "1x8", "-p", "drf", "--until", "1800", "--journal", str(path))
    text = hocket("whatif", str(path), "--policy", "las").stdout
    again = next(line for line in text.splitlines() if "drf, run again" in line)
    assert " 1.00 " in again  # Those that had not ended take far longer, and do not count.
    assert "over the jobs that ended in both" in text


def test_the_journal_is_left_as_it_was(week: Path) -> None:
    before = list(SqliteJournal(week))
    hocket("whatif", str(week), "--policy", "las")
    assert list(SqliteJournal(week)) == before


def test_a_journal_must_exist(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    assert "does not exist" in refused("whatif", str(path), "--policy", "drf")
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"this is no database\n", b"SQLite format 3\0 and then not"])
def test_a_file_that_is_no_journal_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.db"
    path.write_bytes(content)
    assert f"journal '{path}' cannot be opened" in refused("whatif", str(path), "--policy", "drf")


def test_a_truncated_journal_is_refused(spoilt: Path) -> None:
    spoilt.write_bytes(spoilt.read_bytes()[: spoilt.stat().st_size // 2])
    assert str(spoilt) in refused("whatif", str(spoilt), "--policy", "drf")


def test_a_cycle_that_cannot_be_read_is_named(spoilt: Path) -> None:
    edit(spoilt, "UPDATE cycle SET value = ? WHERE n = 7", b'{"at_s": 1')
    assert f"journal '{spoilt}', cycle 7: " in refused("whatif", str(spoilt), "--policy", "drf")


def test_an_event_of_an_unknown_kind_is_refused(spoilt: Path) -> None:
    strange = msgspec.msgpack.encode({"at_s": 1, "events": [{"event": "Eclipse", "at_s": 1}]})
    edit(spoilt, "UPDATE cycle SET value = ?, crc = NULL WHERE n = 2", strange)
    assert "Eclipse" in refused("whatif", str(spoilt), "--policy", "drf")


def test_a_newer_format_is_refused(spoilt: Path) -> None:
    header = SqliteJournal(spoilt).header
    newer = msgspec.json.encode(msgspec.structs.replace(header, format=FORMAT + 1))
    edit(spoilt, "UPDATE header SET value = ?", newer)
    assert f"has format {FORMAT + 1}" in refused("whatif", str(spoilt), "--policy", "drf")


def test_a_journal_without_jobs_has_nothing_to_run_again(spoilt: Path) -> None:
    edit(spoilt, "DELETE FROM cycle")
    assert "records no job" in refused("whatif", str(spoilt), "--policy", "drf")


def test_a_recorded_policy_that_is_gone_is_named(spoilt: Path) -> None:
    header = SqliteJournal(spoilt).header
    edit(spoilt, "UPDATE header SET value = ?", msgspec.json.encode(msgspec.structs.replace(header, policy="fifi")))
    assert "policy 'fifi' is unknown; did you mean 'fifo'?" in refused("whatif", str(spoilt), "--policy", "las")


def test_an_unknown_policy_or_parameter_is_refused_before_anything_runs(week: Path) -> None:
    assert "did you mean 'las'?" in refused("whatif", str(week), "--policy", "lass")
    assert "promot" in refused("whatif", str(week), "--policy", "las", "--param", "promot=2")


def test_what_a_journal_that_was_cut_off_leaves_undecided_counts_neither_way(tmp_path: Path) -> None:
    path = tmp_path / "cut.db"
    done = hocket("simulate", "demo", "--policy", "las", "--until", "2h", "--journal", str(path), "--json")
    cut = json.loads(done.stdout)
    assert cut["unfinished"] > 0
    assert cut["deadlines_met"] != 0
    recorded = json.loads(hocket("whatif", str(path), "--policy", "las", "--json").stdout)["recorded"]
    shares = ("deadlines_met", "accuracies_met")
    assert [recorded[name] for name in shares] == [cut[name] for name in shares]


def test_a_journal_without_its_first_cycles_is_run_again_from_where_it_begins(week: Path, tmp_path: Path) -> None:
    cut = Path(shutil.copy(week, tmp_path / "week.db"))
    with closing(SqliteJournal(cut, goes_on=True)) as journal:
        compact(journal, len(journal) // 2, str(tmp_path / "week-archive"), lambda _s: None)
    whole = json.loads(hocket("whatif", str(week), "--policy", "drf", "--json").stdout)
    everything = json.loads(hocket("whatif", str(cut), "--policy", "drf", "--all", "--json").stdout)
    assert (everything["recorded"], everything["band"]) == (whole["recorded"], whole["band"])
    rest = json.loads(hocket("whatif", str(cut), "--policy", "drf", "--json").stdout)
    assert 10 < rest["recorded"]["jobs"] < whole["recorded"]["jobs"]
    assert rest["recorded"]["finished"] == rest["recorded"]["jobs"]
    assert rest["live_at_first_cycle"] > 0
    assert rest["band"]["share"] < 0.05
    said = hocket("whatif", str(cut), "--policy", "drf").stdout
    assert f"the history begins at cycle {rest['first_cycle']:,}, on " in said
    assert f"{rest['live_at_first_cycle']:,} jobs were there then" in said
