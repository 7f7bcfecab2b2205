"""Cycles that were removed from a journal, in compressed files: each can be read alone, or all before the journal.

A file is a stream of gzip. In it, each part stands behind its length: what the file is about, with the state that its
first cycle follows; then the rows of the cycles, as they were in the journal. It has its name only when it is whole.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from hocket.control.journal.stored import (
    ENCODER,
    JournalError,
    Row,
    date_of,
    decoded_cycle,
    one_line,
)
from hocket.control.ports import Beginning, Cycle, Header

FORMAT = 1  # of the files
_SUFFIX = ".journal.gz"
_NAME = re.compile(r".*cycles-(\d+)-(\d+)" + re.escape(_SUFFIX))
_LENGTH = 4  # bytes of the length of a part
_LARGEST = 1 << 30  # bytes of a part


class ArchiveHead(Struct, frozen=True):
    """What a file begins with."""

    format: int
    header: Header  # of the journal
    first: int  # number of its first cycle
    at_s: float  # time of that
    beginning: Beginning | None  # the state that its first cycle follows; None: cycle 1 is the first


_HEAD = msgspec.msgpack.Decoder(ArchiveHead)
_ROW = msgspec.msgpack.Decoder(tuple[int, bytes, int | None])


class ArchiveFile(Struct, frozen=True, order=True):
    """A file, by its name."""

    first: int  # numbers of its cycles
    last: int
    path: str


def is_archive(path: str | Path) -> bool:
    """Whether the name is that of an archive."""
    return _NAME.fullmatch(Path(path).name) is not None


def archive_files(folder: Path) -> list[ArchiveFile]:
    """The archives in a folder, by their first cycle; none if there is no such folder."""
    found = []
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(f"archive '{folder}' cannot be read: {one_line(error)}") from error
    for name in names:
        if match := _NAME.fullmatch(name):
            found.append(ArchiveFile(int(match[1]), int(match[2]), str(folder / name)))
    return sorted(found)


def continuous(files: list[ArchiveFile], until: int) -> list[ArchiveFile]:
    """The files whose cycles follow each other without a gap and lead up to this one, oldest first."""
    found: list[ArchiveFile] = []
    for file in sorted(files, reverse=True):
        if file.last == until:
            found.append(file)
            until = file.first - 1
    return found[::-1]


def archive_folder(journal: str | Path) -> Path:
    """Where the archives of a journal in a file are, unless another folder is named: `journal-archive` beside it."""
    path = Path(journal)
    return path.with_name(f"{path.stem}-archive")


class ArchiveWriter:
    """Writes one file. Until `finish` it has another name, by which nothing is read."""

    def __init__(self, folder: Path, header: Header, beginning: Beginning | None, first: int, at_s: float) -> None:
        """Raises JournalError."""
        self._folder, self._first, self._at_s = folder, first, at_s
        self._part = folder / f"cycles-{first}.{os.getpid()}.part"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            self._file: BinaryIO = os.fdopen(part, "wb")
        except OSError as error:
            raise JournalError(f"archive '{folder}' cannot be written: {one_line(error)}") from error
        self._zip = gzip.GzipFile("", "wb", 6, self._file, mtime=0)  # The same cycles make the same file.
        self._put(ENCODER.encode(ArchiveHead(FORMAT, header, first, at_s, beginning)))

    def add(self, row: Row) -> None:
        """Keep a cycle's row. Raises JournalError."""
        self._put(ENCODER.encode(row))

    def finish(self, last: int) -> Path:
        """It is whole, and on disk: `last` is the number of its last cycle. Raises JournalError."""
        day = date_of(self._at_s)[:10] if self._at_s > 1e8 else "simulated"
        path = self._folder / f"{day}-cycles-{self._first:09}-{last:09}{_SUFFIX}"
        try:
            self._zip.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.rename(self._part, path)
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise JournalError(f"archive '{path}' cannot be written: {one_line(error)}") from error
        return path

    def drop(self) -> None:
        """Leave nothing of it, unless it is whole."""
        self._file.close()
        self._part.unlink(missing_ok=True)

    def _put(self, part: bytes) -> None:
        try:
            self._zip.write(len(part).to_bytes(_LENGTH, "big"))
            self._zip.write(part)
        except OSError as error:
            raise JournalError(f"archive '{self._folder}' cannot be written: {one_line(error)}") from error


class ArchiveReader:
    """Reads one file, from its first cycle on."""

    def __init__(self, path: str | Path) -> None:
        """Raises JournalError."""
        self.name = str(path)
        parts = self._parts()
        try:
            head = _HEAD.decode(next(parts, b""))
        except msgspec.MsgspecError as error:
            raise JournalError(f"archive '{self.name}' cannot be opened: {one_line(error)}") from error
        if head.format > FORMAT:
            raise JournalError(f"archive '{self.name}' has format {head.format}, this hocket reads up to {FORMAT}")
        self.head = head

    def rows(self) -> Iterator[Row]:
        """All of its rows, in order. Raises JournalError."""
        parts = self._parts()
        next(parts, None)
        for expected, part in enumerate(parts, self.head.first):
            try:
                row = _ROW.decode(part)
            except msgspec.MsgspecError as error:
                raise JournalError(f"archive '{self.name}', cycle {expected}: {one_line(error)}") from error
            if row[0] != expected:
                raise JournalError(f"archive '{self.name}': cycle {expected} is missing")
            yield row

    def __iter__(self) -> Iterator[Cycle]:
        for number, value, check in self.rows():
            yield decoded_cycle(self.name, number, value, check)

    def _parts(self) -> Iterator[bytes]:
        try:
            with gzip.open(self.name, "rb") as file:
                while length := file.read(_LENGTH):
                    count = int.from_bytes(length, "big")
                    part = file.read(count) if count <= _LARGEST else b""
                    if len(part) < count:
                        raise JournalError(f"archive '{self.name}' is damaged: it ends too early")
                    yield part
        except (OSError, EOFError, zlib.error) as error:
            raise JournalError(f"archive '{self.name}' cannot be read: {one_line(error)}") from error
