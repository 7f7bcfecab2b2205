"""CRC-32C (Castagnoli), as TFRecord files mask it. For small records a table in Python is fast enough."""

from __future__ import annotations

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
