"""`hocket journal page` of a journal whose first cycles are in its archive."""

import base64
import gzip
import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.unit.cli.typed import hocket

from hocket.control.journal import SqliteJournal
from hocket.service.compaction import compact


def page_in(folder: Path) -> str:
    return (folder / "index.html").read_text()


def recording_in(folder: Path) -> Any:
    found = re.search(r'id="recording"[^>]*>([^<]*)<', page_in(folder))
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


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
    every = hocket("journal", "page", str(tmp_path / "every"), "--store", str(store), "--all")
    assert (every.exit_code, every.stderr) == (0, "")
    assert page_in(tmp_path / "every") == page_in(tmp_path / "whole"), "with the archive it is as it was"
    with closing(SqliteJournal(store, goes_on=True)) as journal:
        compact(journal, 400, str(tmp_path / "run-archive"), lambda _s: None)
    oldest = min((tmp_path / "run-archive").iterdir())
    oldest.rename(tmp_path / oldest.name)
    part = hocket("journal", "page", str(tmp_path / "part"), "--store", str(store), "--all")
    assert part.exit_code == 0
    assert "begins after cycle 100" in part.stderr
    jobs = [job["id"] for job in recording_in(tmp_path / "part")["jobs"]]
    assert len(jobs) == len(set(jobs)) == 61, "each job once, though some ended in the archive"
    (tmp_path / "run-archive").rename(tmp_path / "elsewhere")
    refused = hocket("journal", "page", str(tmp_path / "none"), "--store", str(store), "--all")
    assert refused.exit_code == 2
    assert "begins after cycle 400" in refused.stderr
