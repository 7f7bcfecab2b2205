"""Journals that Hocket 0.1.0 wrote before its insides were rearranged: every later version reads them.

`live` is of a real controller: jobs that were paused, killed, stopped and restarted, an owner's quota, a restart under
another policy. The others are simulations of two to four hours. They are never recorded again.
"""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from hocket.control.journal import SqliteJournal
from hocket.control.replay import replay
from hocket.control.restore import restore
from hocket.policies.registry import bind

FOLDER = Path(__file__).parent / "written_by_0_1"
WRITTEN = sorted(path.name.removesuffix(".db.xz") for path in FOLDER.glob("*.db.xz"))


def unpacked(name: str, folder: Path) -> str:
    path = folder / f"{name}.db"
    path.write_bytes(lzma.decompress((FOLDER / f"{name}.db.xz").read_bytes()))
    return str(path)


def test_they_are_there() -> None:
    assert WRITTEN == ["dorm", "fifo", "harmony", "las", "live", "mlf_h"]


@pytest.mark.parametrize("name", WRITTEN)
def test_it_is_decided_again_as_it_was(name: str, tmp_path: Path) -> None:
    journal = SqliteJournal(unpacked(name, tmp_path))
    recorded = sum(1 for cycle in journal if cycle.plan is not None)
    found = replay(journal.header, journal, bind(journal.header.policy, journal.header.params))
    journal.close()
    assert found.difference is None
    assert found.decisions == recorded > 10


def test_a_live_controller_goes_on_from_it(tmp_path: Path) -> None:
    path = unpacked("live", tmp_path)
    journal = SqliteJournal(path, SqliteJournal(path).header, goes_on=True)
    controller = restore(journal, bind(journal.header.policy, journal.header.params), bind=bind)
    snapshot = controller.snapshot
    journal.close()
    assert {view.job.id: (str(view.state), view.size, view.epoch, view.starts) for view in snapshot.jobs.values()} == {
        "net": ("waiting", 0, 187, 1),
        "big": ("starting", 0, 60, 2),
        "after": ("waiting", 0, 0, 0),
        "arr-0": ("starting", 0, 211, 2),
        "arr-1": ("waiting", 0, 0, 0),
        "arr-2": ("waiting", 0, 0, 0),
        "bad": ("waiting", 0, 0, 0),
    }
    assert snapshot.owners["vision"].max_gpus == 2
    assert controller.policy_set is not None
    assert controller.policy_set.policy == "fifo"
