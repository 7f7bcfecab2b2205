"""Journals that were recorded by runs, as files that can be written to."""

import lzma
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from hocket.control.journal import SqliteJournal
from hocket.control.ports import WHOLE_FORMAT

REPLAY = Path(__file__).parents[2] / "replay"
RECORDED = {"fifo": REPLAY / "fifo.db.xz", "las": REPLAY / "las.db.xz", "live": REPLAY / "written_by_0_1/live.db.xz"}


@cache
def _recorded(name: str) -> bytes:
    """The file of a recorded journal without saved states."""
    with TemporaryDirectory() as folder:
        source, path = Path(folder, "recorded.db"), Path(folder, "journal.db")
        source.write_bytes(lzma.decompress(RECORDED[name].read_bytes()))
        with closing(SqliteJournal(source)) as old:
            header, cycles = replace(old.header, format=WHOLE_FORMAT), list(old)
        with closing(SqliteJournal(path, header)) as new:
            new.extend(cycles)
        return path.read_bytes()


def recorded(name: str, folder: Path) -> str:
    """A recorded journal without saved states."""
    path = folder / "journal.db"
    path.write_bytes(_recorded(name))
    return str(path)
