"""The numbers of a text file, all or some lines at a time: values, the line of each, and which follow a colon."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from hocket.runtimes.paramserver.algorithm import Array, TrainingError
from hocket.runtimes.paramserver.file_blocks import FileReading
from hocket.runtimes.paramserver.kernel import Kernel

_POWERS = np.array([10.0**n for n in range(309)])
_SEPARATORS = re.compile(r"[ \t\r,:]+")  # as the kernels below have them


class Numbers(NamedTuple):
    """The numbers of a file or of some of its lines, in order."""

    path: Path
    text: bytes
    values: Array
    lines: Array  # of the file, counted from 1
    after_colon: Array  # whether it is the second of a pair, as in 3:0.5
    first_line: int = 1  # of the text

    def fields(self, line: int) -> list[str]:
        """What is written in a line."""
        place = line - self.first_line
        return _fields(self.text.split(b"\n", place + 1)[place])

    def refuse(self, place: int, why: str) -> NoReturn:
        """Raise TrainingError about one number: its file, line and field, and the text that is there."""
        line = int(self.lines[place])
        field = place - int(np.searchsorted(self.lines, line)) + 1
        found = self.fields(line)
        shown = found[field - 1] if field <= len(found) else ""
        raise TrainingError(f"{self.path}, line {line}, field {field}: '{shown}' {why}")

    def refuse_line(self, line: int, why: str) -> NoReturn:
        """Raise TrainingError about a whole line."""
        raise TrainingError(f"{self.path}, line {line}: {why}")


def scan_numbers(path: Path) -> Numbers:
    """Read a file of numbers, which blanks, commas or colons separate; `#` begins a comment. `.gz` is decompressed."""
    return _scanned(path, b"".join(text for text, _ in _texts(path, FileReading())), 1)


def scan_parts(path: Path, reading: FileReading) -> Iterator[Numbers]:
    """The same, some whole lines at a time."""
    for text, first_line in _texts(path, reading):
        yield _scanned(path, text, first_line)


def _texts(path: Path, reading: FileReading) -> Iterator[tuple[bytes, int]]:
    """Whole lines of a file, each time with the number of the first."""
    rest, line = b"", 1
    try:
        with open(path, "rb") as raw, gzip.open(raw) if path.suffix == ".gz" else raw as file:
            while part := file.read(reading.chunk_bytes):
                reading.done_bytes = raw.tell()
                end = part.rfind(b"\n") + 1
                if not end:
                    rest += part
                    continue
                text, rest = rest + part[:end], part[end:]
                del part
                yield text, line
                line += text.count(b"\n")
    except (OSError, EOFError, zlib.error) as error:
        raise TrainingError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if rest:
        yield rest, line


def _scanned(path: Path, text: bytes, first_line: int) -> Numbers:
    content = np.frombuffer(text, np.uint8)
    most = _count_tokens(content)
    values, lines = np.empty(most), np.empty(most, np.int32)
    after_colon, odd = np.empty(most, np.bool_), np.empty(most, np.int32)
    counts = np.empty(2, np.int64)
    _scan_tokens(content, _POWERS, values, lines, after_colon, odd, counts)
    count, odds = counts.tolist()
    lines += np.int32(first_line - 1)
    found = Numbers(path, text, values[:count], lines[:count], after_colon[:count], first_line)
    _read_odd(found, odd[:odds])
    return found


def _read_odd(found: Numbers, odd: Array) -> None:
    """What the kernel leaves: `nan`, `inf`, and what is no number."""
    for place in odd.tolist():
        line = int(found.lines[place])
        field = place - int(np.searchsorted(found.lines, line))
        text = found.fields(line)[field]
        try:
            # Python's own reader also takes blanks around a number, other scripts' digits, and underscores.
            number = float(text if text.isascii() and text.isprintable() and "_" not in text else "")
        except ValueError:
            found.refuse(place, "is not a number")
        if not math.isfinite(number):
            found.refuse(place, "is not a finite number")
        found.values[place] = number


def _fields(line: bytes) -> list[str]:
    text = line.split(b"#")[0].decode("utf-8", "replace")
    return [field for field in _SEPARATORS.split(text) if field]


@Kernel
def _count_tokens(text: Array) -> int:
    count, within, comment = 0, False, False
    for i in range(len(text)):
        c = text[i]
        if c == 10:
            comment = within = False
        elif c == 35:
            comment, within = True, False
        elif c == 32 or c == 9 or c == 13 or c == 44 or c == 58:
            within = False
        elif not comment and not within:
            within = True
            count += 1
    return count


@Kernel
def _scan_tokens(
    text: Array, powers: Array, values: Array, lines: Array, after_colon: Array, odd: Array, counts: Array
) -> None:
    """Digits are read into a whole number, which a power of ten scales: right to the last digit but one.

    The whole number is below 1e18: scaled by up to 1e290, it is finite. `counts` are how many there are, and odd ones.
    """
    i, n, line, count, odds = 0, len(text), 1, 0, 0
    colon = False
    while i < n:
        c = text[i]
        if c == 10:
            line += 1
            colon = False
            i += 1
            continue
        if c == 35:
            while i < n and text[i] != 10:
                i += 1
            continue
        if c == 32 or c == 9 or c == 13 or c == 44 or c == 58:
            colon = c == 58
            i += 1
            continue
        negative, mantissa, digits, exponent, good = False, 0, 0, 0, True
        if c == 43 or c == 45:
            negative = c == 45
            i += 1
        while i < n and 48 <= text[i] <= 57:
            if mantissa < 100000000000000000:
                mantissa = mantissa * 10 + (int(text[i]) - 48)
            else:
                exponent += 1
            digits += 1
            i += 1
        if i < n and text[i] == 46:
            i += 1
            while i < n and 48 <= text[i] <= 57:
                if mantissa < 100000000000000000:
                    mantissa = mantissa * 10 + (int(text[i]) - 48)
                    exponent -= 1
                digits += 1
                i += 1
        if digits == 0:
            good = False
        elif i < n and (text[i] == 101 or text[i] == 69):
            i += 1
            down = False
            if i < n and (text[i] == 43 or text[i] == 45):
                down = text[i] == 45
                i += 1
            power, places = 0, 0
            while i < n and 48 <= text[i] <= 57:
                if power < 10000:
                    power = power * 10 + (int(text[i]) - 48)
                places += 1
                i += 1
            if places == 0:
                good = False
            exponent += -power if down else power
        ended = i == n or text[i] == 10 or text[i] == 32 or text[i] == 9 or text[i] == 13
        if not (ended or text[i] == 44 or text[i] == 58 or text[i] == 35) or not good or abs(exponent) > 290:
            odd[odds] = count
            odds += 1
            while i < n and not (
                text[i] == 10 or text[i] == 32 or text[i] == 9 or text[i] == 13 or text[i] == 44 or text[i] == 58
                or text[i] == 35
            ):  # fmt: skip
                i += 1
            value = 0.0
        else:
            value = float(mantissa)
            value = value / powers[-exponent] if exponent < 0 else value * powers[exponent]
        values[count] = -value if negative else value
        lines[count] = line
        after_colon[count] = colon
        colon = False
        count += 1
    counts[0], counts[1] = count, odds
