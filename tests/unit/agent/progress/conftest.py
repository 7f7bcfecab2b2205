"""Readers that are closed in the end, and a writer of event files that shares no code with their reader."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hocket.agent.progress import check_config, open_reader
from hocket.agent.progress.reader import Reader

Open = Callable[..., Reader]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens a reader in the test's own folder, with the checkpoint folder below it."""
    readers: list[Reader] = []
    (tmp_path / "checkpoints").mkdir()

    def open_one(**config: Any) -> Reader:
        assert check_config(config) == ""
        readers.append(open_reader(config, str(tmp_path), str(tmp_path / "checkpoints"), str(tmp_path / "report")))
        return readers[-1]

    yield open_one
    for reader in readers:
        reader.close()


def _checksum(data: bytes) -> int:
    """CRC-32C bit by bit, masked."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 * (crc & 1))
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) % (1 << 32)


def _varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def _message(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


class EventWriter:
    """Frames and events, and what is wrong with them if the test says so."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.clock_s = 1000.0
        self.append(self.frame(b"\x09" + struct.pack("<d", 0.0) + _message(3, b"brain.Event:2")))

    def append(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def frame(self, payload: bytes) -> bytes:
        length = struct.pack("<Q", len(payload))
        return length + struct.pack("<I", _checksum(length)) + payload + struct.pack("<I", _checksum(payload))

    def event(self, step: int, *values: bytes) -> bytes:
        self.clock_s += 1
        summary = b"".join(_message(1, value) for value in values)
        step_field = b"\x10" + _varint(step) if step else b""  # as protobuf does: 0 is left out
        return self.frame(b"\x09" + struct.pack("<d", self.clock_s) + step_field + _message(5, summary))

    def simple(self, tag: str, number: float) -> bytes:
        return _message(1, tag.encode()) + b"\x15" + struct.pack("<f", number)

    def tensor(self, tag: str, dtype: int, fields: bytes, dimensions: bytes = b"") -> bytes:
        tensor = b"\x08" + _varint(dtype) + _message(2, dimensions) + fields
        return _message(1, tag.encode()) + _message(9, _message(1, _message(1, b"scalars"))) + _message(8, tensor)

    def scalar(self, tag: str, number: float, step: int) -> None:
        self.append(self.event(step, self.simple(tag, number)))


@pytest.fixture
def event_writer() -> type[EventWriter]:
    return EventWriter
