"""`hocket replay` as users type it."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.unit.cli.typed import edit, hocket, refused

from hocket.control.journal import SqliteJournal
from hocket.control.ports import Cycle
from hocket.service.compaction import compact


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("journal") / "run.db"
    done = hocket("simulate", "demo", "--policy", "las:promote=4", "--until", "9000", "--journal", str(path))
    assert done.exit_code in (0, 3), done.output
    return path


@pytest.fixture
def spoilt(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(recorded, tmp_path / "spoilt.db"))


def test_all_the_same(recorded: Path) -> None:
    result = hocket("replay", str(recorded))
    assert result.exit_code == 0, result.output
    assert "decisions, all the same (las, " in result.stdout


def test_json_is_one_object(recorded: Path) -> None:
    found = json.loads(hocket("replay", str(recorded), "--json").stdout)
    assert found["same"] is True
    assert found["difference"] is None
    assert found["params"]["promote"] == 4.0
    assert found["decisions"] > 10


def test_a_changed_plan_is_shown_with_both_sides(spoilt: Path) -> None:
    journal = SqliteJournal(spoilt)
    number, cycle = next((n, c) for n, c in enumerate(journal, 1) if c.plan is not None and c.plan.put)
    journal.close()
    assert cycle.plan is not None
    other = Cycle(cycle.at_s, cycle.events, msgspec.structs.replace(cycle.plan, put=()))
    edit(spoilt, "UPDATE cycle SET value = ?, crc = NULL WHERE n = ?", msgspec.msgpack.encode(other), number)
    result = hocket("replay", str(spoilt))
    assert result.exit_code == 1
    assert result.stdout.startswith(f"cycle {number:,} at {cycle.at_s:,g} s: the plan differs in put, after ")
    before, _, now = result.stdout.partition("\nnow:\n")
    assert " gets " in now
    assert " gets " not in before


def test_other_parameters_go_over_the_recorded_ones(recorded: Path) -> None:
    result = hocket("replay", str(recorded), "--param", "levels_gpu_s=[600]", "--json")
    found = json.loads(result.stdout)
    assert found["params"] == {
        "levels_gpu_s": [600.0],
        "promote": 4.0,
        "priority": True,
        "lend": True,
        "restart_s": 30.0,
    }
    assert result.exit_code == 1


def test_another_policy_decides_otherwise(recorded: Path) -> None:
    result = hocket("replay", str(recorded), "--policy", "srtf")
    assert result.exit_code == 1
    assert "(srtf)" in result.stdout


def test_bad_journals_are_refused_in_one_line(spoilt: Path, tmp_path: Path) -> None:
    assert "does not exist" in refused("replay", str(tmp_path / "none.db"))
    assert "did you mean 'las'?" in refused("replay", str(spoilt), "--policy", "lass")
    edit(spoilt, "UPDATE cycle SET value = ? WHERE n = 7", b"\x81")
    assert f"journal '{spoilt}', cycle 7: " in refused("replay", str(spoilt))
    spoilt.write_bytes(spoilt.read_bytes()[:5000])
    assert str(spoilt) in refused("replay", str(spoilt))
    spoilt.write_bytes(b"nothing of the kind" * 99)
    assert "cannot be opened" in refused("replay", str(spoilt))


def test_a_journal_that_contradicts_itself_names_file_and_cycle(spoilt: Path) -> None:
    strange = {"at_s": 0.0, "events": [{"event": "JobSubmitted", "at_s": 0.0, "job": {"id": "x", "sizes": []}}]}
    edit(spoilt, "UPDATE cycle SET value = ?, crc = NULL WHERE n = 2", msgspec.msgpack.encode(strange))
    assert f"journal '{spoilt}', cycle 2 at 0 s: " in refused("replay", str(spoilt))


@pytest.fixture
def cut(recorded: Path, tmp_path: Path) -> Path:
    """The second half of it; the first is in its archive."""
    path = Path(shutil.copy(recorded, tmp_path / "run.db"))
    with closing(SqliteJournal(path, goes_on=True)) as journal:
        compact(journal, len(journal) // 2, str(tmp_path / "run-archive"), lambda _s: None)
    return path


def test_a_journal_without_its_first_cycles_is_decided_from_where_it_begins(cut: Path, recorded: Path) -> None:
    whole = json.loads(hocket("replay", str(recorded), "--json").stdout)
    rest = json.loads(hocket("replay", str(cut), "--json").stdout)
    (archive,) = (cut.parent / "run-archive").iterdir()
    first = json.loads(hocket("replay", str(archive), "--json").stdout)
    everything = json.loads(hocket("replay", str(cut), "--all", "--json").stdout)
    assert whole["same"] is rest["same"] is first["same"] is everything["same"] is True
    assert first["decisions"] + rest["decisions"] == whole["decisions"] == everything["decisions"]
    assert first["cycles"] + rest["cycles"] == whole["cycles"]
    said = hocket("replay", str(cut)).stdout
    begins = f"the history begins at cycle {first['cycles'] + 1:,}, on "
    assert begins in said
    assert f"earlier cycles are in '{archive.parent}' (--all reads them too)" in said
    assert "the history begins" not in hocket("replay", str(cut), "--all").stdout


def test_another_policy_decides_from_where_a_journal_begins(cut: Path) -> None:
    result = hocket("replay", str(cut), "--policy", "srtf", "--json")
    assert result.exit_code in (0, 1), result.output
    found = json.loads(result.stdout)
    assert found["difference"] is None or found["difference"]["cycle"] > found["cycles"]


def test_all_of_a_journal_whose_archive_is_gone_is_refused(cut: Path) -> None:
    shutil.rmtree(cut.parent / "run-archive")
    assert "has no cycles that lead up to it" in refused("replay", str(cut), "--all")
