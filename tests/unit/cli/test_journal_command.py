"""`hocket journal` as users type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.cli.typed import hocket, refused

from hocket.control.journal import SqliteJournal
from hocket.control.ports import Cycle, Header
from hocket.service.home import Home

DAY_S = 86400.0


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """With a journal of 150 days, ten cycles a day."""
    found = Home(tmp_path / "home")
    found.make()
    journal = SqliteJournal(found.journal, Header("fifo"))
    journal.extend([Cycle(1.8e9 + n * DAY_S / 10, (), None, ("x" * 3000,)) for n in range(1500)])
    journal.close()
    return found


def test_where_it_begins_and_what_is_kept_is_said(home: Home) -> None:
    said = hocket("journal", "--home", str(home.path)).stdout
    assert f"journal '{home.journal}': cycles 1 to 1,500, the first of 2027-01-15 08:00 UTC; " in said
    assert f"cycles older than 90 days go to '{home.archive}'" in said
    found = json.loads(hocket("journal", "--home", str(home.path), "--json").stdout)
    assert (found["first_cycle"], found["last_cycle"], found["archived_first_cycle"]) == (1, 1500, None)


def test_old_cycles_are_removed_and_the_file_is_smaller(home: Home) -> None:
    before = home.journal.stat().st_size
    done = hocket("journal", "compact", "--home", str(home.path), "--keep-history", "100d", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["cycles"] == 499
    assert home.journal.stat().st_size < before * 0.8
    said = hocket("journal", "--home", str(home.path)).stdout
    assert "cycles 500 to 1,500, the first of 2027-03-06" in said
    assert "archive: cycles 1 to 499, 0." in said
    again = hocket("journal", "compact", "--home", str(home.path), "--keep-history", "100d")
    assert "no cycles to remove" in again.stdout


def test_without_an_archive_they_are_deleted(home: Home) -> None:
    done = hocket("journal", "compact", "--home", str(home.path), "--keep-size", "3M", "--archive", "none")
    assert done.exit_code == 0, done.output
    assert "which stay listed; " in done.stdout
    assert not home.archive.exists()


def test_a_journal_that_a_controller_holds_is_left_to_it(home: Home) -> None:
    journal = SqliteJournal(home.journal, goes_on=True)
    assert "is held by the controller with pid" in refused("journal", "compact", "--home", str(home.path))
    journal.close()


def test_bad_limits_are_refused_by_name(home: Home) -> None:
    for option in ("--keep-history", "--keep-size"):
        assert f"{option} must be" in refused("journal", "compact", "--home", str(home.path), option, "much")
