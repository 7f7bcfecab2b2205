"""What a journal keeps of jobs whose cycles were removed from it.

Of jobs that had ended, a short record: they stay listed, and no other job gets their names. Of those that were live,
all of the record: cycles that are still there change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import compress, decompress
from zlib import error as zlib_error

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hocket.control.journal import JournalError
from hocket.service.record import Record

BLOCK = 500  # records in one block
_LINES = 10  # of what happened to an ended job
_WARNINGS = 5
_ATTEMPTS = 5


class KeptJobs(Struct, frozen=True):
    """The catalogue at the beginning of a journal. A new field needs a default, and so does one of a record."""

    submitted: int
    over: dict[str, int]  # verdict → jobs
    queue_reason: str
    newest: dict[str, str]  # `Names.newest`
    live: list[Record]


_ENCODER = msgspec.msgpack.Encoder()
_KEPT = msgspec.msgpack.Decoder(KeptJobs)
_RECORDS = msgspec.msgpack.Decoder(list[Record])


def encode_jobs(kept: KeptJobs) -> bytes:
    """The jobs as bytes."""
    return compress(_ENCODER.encode(kept))


def decode_jobs(journal: str, data: bytes) -> KeptJobs:
    """The jobs from their bytes. Raises JournalError."""
    try:
        return _KEPT.decode(decompress(data))
    except (msgspec.MsgspecError, zlib_error) as error:
        raise JournalError(f"journal '{journal}': what it keeps of jobs cannot be read: {error}") from error


def encode_block(records: Sequence[Record]) -> bytes:
    """Ended jobs, shortened, as one block."""
    return compress(_ENCODER.encode([shortened(record) for record in records]))


def decode_block(journal: str, data: bytes) -> list[Record]:
    """The jobs of a block. Raises JournalError."""
    try:
        return _RECORDS.decode(decompress(data))
    except (msgspec.MsgspecError, zlib_error) as error:
        raise JournalError(f"journal '{journal}': what it keeps of jobs cannot be read: {error}") from error


def shortened(record: Record) -> Record:
    """The record of an ended job without what takes most room: its reports, old lines, and the values of variables."""
    job = record.job
    if job.launch is not None and any(job.launch.env.values()):
        job = replace(job, launch=replace(job.launch, env=dict.fromkeys(job.launch.env, "")))
    return replace(
        record, job=job, observations=(), curve=None, lines=record.lines[-_LINES:],
        warnings=record.warnings[-_WARNINGS:], tries=record.tries[-_ATTEMPTS:],
    )  # fmt: skip
