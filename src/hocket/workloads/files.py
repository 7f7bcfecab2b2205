"""Files, plain or compressed; every error is a WorkloadError."""

from __future__ import annotations

import zlib
from pathlib import Path

from hocket.workloads.errors import WorkloadError, plain

MAX_BYTES = 1 << 30  # unpacked; a small gz may be larger than the machine's memory
_GZIP = b"\x1f\x8b"


def read_bytes(path: str) -> bytes:
    """The content of a file, unpacked when it is a gz."""
    try:
        with Path(path).expanduser().open("rb") as file:
            packed = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise WorkloadError(f"{plain(path)}: the file must be readable: {reason}") from None
    except (ValueError, RuntimeError) as error:  # a NUL in the path, or the home of an unknown user
        raise WorkloadError(f"{plain(path)}: the path must name a file: {error}") from None
    if packed[:2] == _GZIP:
        data = _unpacked(path, packed)
    elif packed and path.endswith(".gz"):
        raise WorkloadError(f"{plain(path)}: a .gz file must be gzip, but it begins with {packed[:8]!r}")
    else:
        data = packed
    if len(data) > MAX_BYTES:
        raise WorkloadError(f"{plain(path)}: the file must have at most {MAX_BYTES} bytes when unpacked")
    if not data.strip():
        raise WorkloadError(f"{plain(path)}: the file must not be empty")
    return data


def read_text(path: str) -> str:
    """The content of a UTF-8 file."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = data[error.start : error.start + 1]
        raise WorkloadError(f"{plain(path)} line {line}: the text must be UTF-8, not {found!r}") from None


def _unpacked(path: str, packed: bytes) -> bytes:
    """Every member of a gz. Not by `gzip`, which has no limit on the unpacked size."""
    out: list[bytes] = []
    room = MAX_BYTES + 1
    rest = packed
    while rest and room > 0:
        member = zlib.decompressobj(wbits=31)
        try:
            out.append(member.decompress(rest, room))
        except zlib.error as error:
            raise WorkloadError(f"{plain(path)}: the gz must be whole, but is damaged: {error}") from None
        room -= len(out[-1])
        if not member.eof and room > 0:
            have = sum(map(len, out))
            raise WorkloadError(f"{plain(path)}: the gz must be whole, but ends early, after {have} bytes")
        rest = member.unused_data.lstrip(b"\0")  # Some writers pad with zeros.
    return b"".join(out)
