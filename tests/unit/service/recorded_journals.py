"""Journals that were recorded by runs, as files that can be written to."""

import lzma
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from hocket.control.journal import SqliteJournal
from hocket.control.ports import WHOLE_FORMAT

REPLAY = Path(__file__).parents[2] / "replay"
RECORDED = {"fifo": REPLAY / "fifo.db.xz", "las": REPLAY / "las.db.xz", "live": REPLAY / "written_by_0_1/live.db.xz"}


def recorded(name: str, folder: Path) -> str:
    """A recorded journal without saved states."""
    source, path = folder / "recorded.db", folder / "journal.db"
    source.write_bytes(lzma.decompress(RECORDED[name].read_bytes()))
    with closing(SqliteJournal(source)) as old:
        header, cycles = replace(old.header, format=WHOLE_FORMAT), list(old)
    with closing(SqliteJournal(path, header)) as new:
        new.extend(cycles)
    return str(path)
