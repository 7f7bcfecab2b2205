"""`hocket journal page` of a journal whose first cycles are in its archive."""

from contextlib import closing
from pathlib import Path

from tests.unit.cli.typed import hocket

from hocket.control.journal import SqliteJournal
from hocket.service.compaction import compact


def test_a_page_that_lacks_earlier_decisions_says_so(tmp_path: Path) -> None:
    store = tmp_path / "run.db"
    assert hocket("simulate", "demo", "--policy", "fifo", "--journal", str(store), "--json").exit_code == 0
    whole = hocket("journal", "page", str(tmp_path / "whole"), "--store", str(store))
    assert (whole.exit_code, whole.stderr) == (0, "")
    with closing(SqliteJournal(store, goes_on=True)) as journal:
        compact(journal, 100, str(tmp_path / "run-archive"), lambda _s: None)
    cut = hocket("journal", "page", str(tmp_path / "cut"), "--store", str(store))
    assert cut.exit_code == 0
    assert "the page begins after cycle 100, with the journal: earlier decisions are" in cut.stderr
