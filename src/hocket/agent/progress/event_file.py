"""TensorBoard's event files: TFRecord frames, each with one event.

A frame is the payload's length (8 bytes), the checksum of these (4), the payload, its checksum (4). A payload that is
not what its checksum says is passed over; where a length is not, it is not known where the next frame begins, and the
file is read no further. A frame that is not whole is waited for.
"""

from __future__ import annotations

import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


LONGEST_PAYLOAD = 1 << 16  # bytes; images, graphs and audio are longer, and passed over unread
MOST_AT_ONCE = 1 << 20  # bytes; the rest comes the next time
_HEADER, _FOOTER = 12, 4


class EventFile:
    """Reads on where it stopped."""

    def __init__(self, path: str, passed: int = 0) -> None:
        """So many bytes are an earlier run's, and passed over."""
        self._path = path
        self._passed = passed
        self._place = 0
        self._size = passed  # when there was nothing more to read

    def read(self) -> list[Scalars]:
        """The scalars that were added."""
        return [found for payload in self._payloads() if (found := scalars(payload))]

    def _payloads(self) -> list[bytes]:
        payloads: list[bytes] = []
        try:
            size = os.stat(self._path).st_size
            if size == self._size:
                return payloads
            fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return payloads
        until = min(size, max(self._place, self._passed) + MOST_AT_ONCE)
        try:
            while self._place < until and (frame := self._frame(fd, size)) is not None:
                payloads += frame
        except OSError:
            until = size  # Try again when it has changed.
        finally:
            os.close(fd)
        if self._place < until or until == size:
            self._size = size
        return payloads

    def _frame(self, fd: int, size: int) -> list[bytes] | None:
        """The payload of the next frame, if it is wanted and sound; None if the frame is not whole."""
        header = os.pread(fd, _HEADER, self._place)
        if len(header) < _HEADER:
            return None
        length, checksum = struct.unpack("<QI", header)
        begin, end = self._place + _HEADER, self._place + _HEADER + length + _FOOTER
        if checksum != masked(header[:8]) or end > size:
            return None
        self._place = end
        if end <= self._passed or length > LONGEST_PAYLOAD:
            return []
        payload = os.pread(fd, length, begin)
        return [payload] if os.pread(fd, _FOOTER, begin + length) == struct.pack("<I", masked(payload)) else []


_POLYNOMIAL = 0x82F63B78


def _entry(index: int) -> int:
    for _bit in range(8):
        index = (index >> 1) ^ (_POLYNOMIAL if index & 1 else 0)
    return index


_TABLE = tuple(_entry(index) for index in range(256))


def crc32c(data: bytes) -> int:
    """The checksum of these bytes."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    """The checksum as it stands in the file, where a checksum of checksums would be weak."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


MOST_STEPS = 10**12

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # how a field is written
# Event: 1 wall time, 2 step, 5 summary. Summary: 1 value. Value: 1 tag, 2 simple value, 8 tensor.
# TensorProto: 1 type, 2 shape (its field 2: dimensions), 4 content, or the number by its type:
_FLOAT_VALUE, _DOUBLE_VALUE, _SIGNED_VALUES, _UNSIGNED_VALUES = 5, 6, (7, 10, 11), (13, 16, 17)
# The type, and how one of it stands in `content`.
_CONTENT = {
    1: "<f", 2: "<d", 3: "<i", 4: "<B", 5: "<h", 6: "<b", 9: "<q", 10: "<?", 14: "<H", 17: "<H", 19: "<H", 22: "<I",
    23: "<Q",
}  # fmt: skip
_BFLOAT16, _HALF = 14, 19  # come as their bits


class Scalars:
    """The scalars of one event."""

    __slots__ = ("step", "values", "wall_s")

    def __init__(self, wall_s: float, step: int, values: dict[str, float]) -> None:
        self.wall_s = wall_s
        self.step = step
        self.values = values  # by tag


def scalars(event: bytes) -> Scalars | None:
    """Those of an event; None if it has none, or is no event."""
    wall_s, step = 0.0, 0
    values: dict[str, float] = {}
    try:
        for field, kind, number, data in _fields(event):
            if (field, kind) == (1, _FIXED64):
                wall_s = _unpacked("<d", data)
            elif (field, kind) == (2, _VARINT):
                step = number
            elif (field, kind) == (5, _BYTES):
                values.update(_summary(data))
    except (ValueError, struct.error):
        return None
    return Scalars(wall_s, step, values) if values and step <= MOST_STEPS else None


def _summary(summary: bytes) -> Iterator[tuple[str, float]]:
    for field, kind, _number, data in _fields(summary):
        if (field, kind) == (1, _BYTES):
            tag, value = _tagged(data)
            if tag and value is not None:
                yield tag, value


def _tagged(message: bytes) -> tuple[str, float | None]:
    tag, value = "", None
    for field, kind, _number, data in _fields(message):
        if (field, kind) == (1, _BYTES):
            tag = data.decode("utf-8", "replace")
        elif (field, kind) == (2, _FIXED32):
            value = _unpacked("<f", data)
        elif (field, kind) == (8, _BYTES):
            value = _tensor(data)
    return tag, value


def _tensor(message: bytes) -> float | None:
    """The number of a tensor that has no dimensions; None for all others."""
    dtype, content = 0, b""
    value: float | None = None
    for field, kind, number, data in _fields(message):
        if (field, kind) == (1, _VARINT):
            dtype = number
        elif (field, kind) == (2, _BYTES) and any(part[0] == 2 for part in _fields(data)):
            return None
        elif (field, kind) == (4, _BYTES):
            content = data
        elif field in (_FLOAT_VALUE, _DOUBLE_VALUE) and data:
            value = _unpacked("<f" if field == _FLOAT_VALUE else "<d", data)
        elif field in _SIGNED_VALUES or field in _UNSIGNED_VALUES:
            value = number if kind == _VARINT else _varint(data, 0)[0]
            value = value - (1 << 64) if field in _SIGNED_VALUES and value >= 1 << 63 else value
    layout = _CONTENT.get(dtype)
    if layout is None or (content and len(content) != struct.calcsize(layout)):
        return None
    value = _unpacked(layout, content) if content else value
    if value is None or dtype not in (_BFLOAT16, _HALF):
        return None if value is None else float(value)
    bits = struct.pack("<H", int(value) & 0xFFFF)
    return _unpacked("<e", bits) if dtype == _HALF else _unpacked("<f", b"\0\0" + bits)


def _unpacked(layout: str, data: bytes) -> float:
    """The first number of this layout; of single precision, the shortest decimal that is the same: 0.52 is 0.52."""
    value = float(struct.unpack_from(layout, data)[0])
    if layout != "<f" or value != value:
        return value
    shortest = (float(f"{value:.{digits}g}") for digits in range(6, 10))
    return next((short for short in shortest if struct.pack("<f", short) == data[:4]), value)


def _fields(message: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Field, kind, and the number (of a varint) or the bytes (of all others). Raises ValueError where it is cut."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        field, kind = key >> 3, key & 7
        if kind == _VARINT:
            number, place = _varint(message, place)
            yield field, kind, number, b""
            continue
        if kind == _BYTES:
            length, place = _varint(message, place)
        elif kind in (_FIXED32, _FIXED64):
            length = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"field {field} is of the unknown kind {kind}")
        if place + length > len(message):
            raise ValueError(f"field {field} is cut at {len(message) - place} of {length} bytes")
        yield field, kind, 0, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    number = shift = 0
    while place < len(message) and shift < 64:
        byte = message[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, place
        shift += 7
    raise ValueError("a number has no end")
