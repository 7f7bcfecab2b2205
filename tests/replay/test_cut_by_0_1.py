"""A live journal whose first cycles Hocket 0.1.0 removed, and their archive: every later version goes on from it.

It is the journal `live` of `written_by_0_1`, cut in the middle. It is never made anew: if this fails, a field of the
state or of a job's record has no default (`control/saved_state.py`, `service/kept_jobs.py`), or another meaning.
"""

from __future__ import annotations

import lzma
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from tests.replay.test_written_by_0_1 import FOLDER as WHOLE

from hocket.control.journal import SqliteJournal
from hocket.control.journal.archive import archive_folder
from hocket.control.journal.history import open_history
from hocket.control.replay import replay
from hocket.control.restore import restore
from hocket.policies.registry import bind
from hocket.service.catalogue import Catalogue

FOLDER = Path(__file__).parent / "cut_by_0_1"


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    path = tmp_path / "live.db"
    path.write_bytes(lzma.decompress((FOLDER / "live.db.xz").read_bytes()))
    archive = archive_folder(path)
    archive.mkdir()
    for file in FOLDER.glob("*.journal.gz"):
        shutil.copy(file, archive)
    return path


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "whole.db"
    path.write_bytes(lzma.decompress((WHOLE / "live.db.xz").read_bytes()))
    return path


def test_a_controller_goes_on_from_it(cut: Path, whole: Path) -> None:
    found = []
    for path in (cut, whole):
        with closing(SqliteJournal(path)) as journal:
            controller = restore(journal, bind(journal.header.policy, journal.header.params), bind=bind)
            listed = [(r.number, r.job.id, r.verdict) for r in Catalogue.of(journal, None).listed(over=True)]
            found.append((controller.snapshot.jobs.items(), controller.policy_set, listed))
    assert found[0] == found[1]


def test_it_is_decided_again_as_it_was(cut: Path, whole: Path) -> None:
    decisions = []
    for path, everything in ((cut, False), (cut, True), (whole, False)):
        with closing(open_history(path, everything=everything)) as history:
            header = history.header
            again = replay(header, history, bind(header.policy, header.params), beginning=history.beginning)
            assert again.difference is None
            decisions.append(again.decisions)
    assert 0 < decisions[0] < decisions[1] == decisions[2]
