"""Readers of training data: ratings, svmlight and bags of words. An error names the file, the line and the field."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from hocket.runtimes.paramserver.algorithm import Array, TrainingError
from hocket.runtimes.paramserver.file_blocks import FileReading
from hocket.runtimes.paramserver.kernel import Kernel
from hocket.runtimes.paramserver.number_scanner import Numbers, scan_parts

_LARGEST = 2**31 - 1
_HEAD = "it must begin with three lines: documents, words and entries"


class Ratings(NamedTuple):
    """What users think of items."""

    users: Array
    items: Array
    values: Array


class Examples(NamedTuple):
    """Sparse rows with a label each; the features of row i are `indices[starts[i]:starts[i + 1]]`, counted from 0."""

    labels: Array
    starts: Array
    indices: Array
    values: Array
    lines: Array  # of the file, by row


class BagsOfWords(NamedTuple):
    """How often which word is in which document; sorted by document. Both are counted from 0."""

    documents: int
    words: int
    document: Array
    word: Array
    counts: Array


def read_ratings(path: Path) -> Ratings:
    """Lines `user item rating`, counted from 0 or 1, with or without a time behind them."""
    return Ratings(*(np.concatenate(column) for column in zip(*ratings_parts(path, FileReading()), strict=True)))


def ratings_parts(path: Path, reading: FileReading) -> Iterator[Ratings]:
    """The same, some at a time."""
    wide: int | None = None
    for numbers in scan_parts(path, reading):
        _no_pairs(numbers)
        table = _table(numbers, 0, (3, 4), "user, item, rating", wide)
        if not len(table):
            continue
        wide = table.shape[1]
        users, items = (_whole(numbers, table, field, 0, _LARGEST) for field in (0, 1))
        values = table[:, 2]
        if (wrong := np.flatnonzero(values < 0)).size:
            numbers.refuse(int(wrong[0]) * wide + 2, "is below 0, which a rating must not be")
        if (wrong := np.flatnonzero(values > np.finfo(np.float32).max)).size:
            numbers.refuse(int(wrong[0]) * wide + 2, "is too large")
        yield Ratings(users, items, values.astype(np.float32))
    if wide is None:
        raise TrainingError(f"{path}: it has no ratings")


def read_svmlight(path: Path, zero_based: bool = False) -> Examples:
    """Lines `label index:value …`; indices are counted from 1, or from 0 if they are zero-based, and increase."""
    parts = list(svmlight_parts(path, FileReading(), zero_based))
    counts = np.concatenate([np.diff(part.starts) for part in parts])
    found = {name: np.concatenate([getattr(part, name) for part in parts]) for name in Examples._fields}
    return Examples(**{**found, "starts": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)})


def svmlight_parts(path: Path, reading: FileReading, zero_based: bool = False) -> Iterator[Examples]:
    """The same, some rows at a time; the `starts` of each part begin with 0."""
    is_empty = True
    for numbers in scan_parts(path, reading):
        if len(numbers.values):
            is_empty = False
            yield _svmlight(numbers, zero_based)
    if is_empty:
        raise TrainingError(f"{path}: it has no rows")


def _svmlight(numbers: Numbers, zero_based: bool) -> Examples:
    count, least = len(numbers.values), 0 if zero_based else 1
    labels, starts, lines = np.empty(count), np.empty(count + 1, np.int64), np.empty(count, np.int32)
    indices, values = np.empty(count // 2, np.int32), np.empty(count // 2)
    rows = _take_rows(
        numbers.values, numbers.lines, numbers.after_colon, least, _LARGEST, labels, starts, lines, indices, values
    )
    if rows < 0:
        _refuse_row(numbers, least)
    pairs = int(starts[rows])
    # Copies, where most of the room was not needed.
    return Examples(
        labels[:rows].copy(), starts[: rows + 1].copy(), indices[:pairs], values[:pairs], lines[:rows].copy()
    )


@Kernel
def _take_rows(
    numbers: Array, line: Array, after_colon: Array, least: int, largest: int, labels: Array, starts: Array,
    lines: Array, indices: Array, values: Array,
) -> int:  # fmt: skip
    """Divide lines `label index:value …` among the arrays behind; how many they are, or -1 if one is no such line."""
    rows = pairs = n = 0
    while n < len(numbers):
        if after_colon[n]:
            return -1
        labels[rows], starts[rows], lines[rows] = numbers[n], pairs, line[n]
        n, last = n + 1, least - 1
        while n < len(numbers) and line[n] == lines[rows]:
            number = numbers[n]
            if after_colon[n] or number <= last or number > largest or number != np.floor(number):
                return -1
            if n + 1 == len(numbers) or line[n + 1] != lines[rows] or not after_colon[n + 1]:
                return -1
            last = int(number)
            indices[pairs], values[pairs] = last - least, numbers[n + 1]
            pairs, n = pairs + 1, n + 2
        rows += 1
    starts[rows] = pairs
    return rows


def _refuse_row(numbers: Numbers, least: int) -> NoReturn:
    """Raise TrainingError about the first number that is not as it must be; kinds of faults are looked for in turn."""
    count = len(numbers.values)
    firsts = np.flatnonzero(np.diff(numbers.lines, prepend=0))
    is_label = np.zeros(count, np.bool_)
    is_label[firsts] = True
    if (wrong := np.flatnonzero(is_label & numbers.after_colon)).size:
        numbers.refuse(int(wrong[0]), "is where a line's label must be")
    # Behind a label, indices and values take turns.
    place = np.arange(count) - np.repeat(firsts, np.diff(firsts, append=count))
    must_be_value = (place > 0) & (place % 2 == 0)
    if (wrong := np.flatnonzero(numbers.after_colon != must_be_value)).size:
        numbers.refuse(int(wrong[0]), "is not part of a pair index:value")
    lengths = np.diff(firsts, append=count)
    if (wrong := np.flatnonzero(lengths % 2 == 0)).size:
        numbers.refuse(int(firsts[wrong[0]] + lengths[wrong[0]] - 1), "is an index without a value")
    at = np.flatnonzero(place % 2 == 1)
    found = numbers.values[at]
    bad = (found != np.floor(found)) | (found < least) | (found > _LARGEST)
    if (wrong := np.flatnonzero(bad)).size:
        hint = "" if least == 0 else " (or pass --zero-based)"
        numbers.refuse(int(at[wrong[0]]), f"is not a feature's index, which is counted from {least}{hint}")
    is_first = np.diff(numbers.lines[at], prepend=0) > 0
    wrong = np.flatnonzero((np.diff(found, prepend=0.0) <= 0) & ~is_first)
    numbers.refuse(int(at[wrong[0]]), "is not larger than the index before it")


def read_bags_of_words(path: Path) -> BagsOfWords:
    """UCI's `docword` format: the numbers of documents, words and entries, a line each; then `document word count`."""
    parts = list(bags_of_words_parts(path, FileReading()))
    document, word, counts = (np.concatenate(column) for column in list(zip(*parts, strict=True))[2:])
    order = np.argsort(document, kind="stable")
    return BagsOfWords(parts[0].documents, parts[0].words, document[order], word[order], counts[order])


def bags_of_words_parts(path: Path, reading: FileReading) -> Iterator[BagsOfWords]:
    """The same, some entries at a time, and not sorted."""
    head: tuple[int, int, int] | None = None
    line = found = 0
    for numbers in scan_parts(path, reading):
        _no_pairs(numbers)
        first = 0
        if head is None:
            head, line, first = _head_of_bags(path, numbers), int(numbers.lines[2]), 3
        documents, words, _entries = head
        table = _table(numbers, first, (3,), "document, word, count", None if first else 3)
        document = _whole(numbers, table, 0, 1, documents, first) - 1
        word = _whole(numbers, table, 1, 1, words, first) - 1
        counts = _whole(numbers, table, 2, 1, _LARGEST, first)
        found += len(table)
        if len(table):
            yield BagsOfWords(documents, words, document, word, counts)
    if head is None:
        raise TrainingError(f"{path}, line 1: {_HEAD}")
    if found != head[2]:
        raise TrainingError(f"{path}, line {line}: it has {found} entries, not {head[2]}")
    if not found:
        raise TrainingError(f"{path}: it has no words")


def _head_of_bags(path: Path, numbers: Numbers) -> tuple[int, int, int]:
    if len(numbers.values) < 3 or len(set(numbers.lines[:3].tolist())) < 3:
        raise TrainingError(f"{path}, line 1: {_HEAD}")
    head = numbers.values[:3]
    for place, least in ((0, 1), (1, 1), (2, 0)):
        if head[place] != np.floor(head[place]) or not least <= head[place] <= _LARGEST:
            numbers.refuse(place, f"is not a number of {('documents', 'words', 'entries')[place]}")
    documents, words, entries = (int(value) for value in head)
    return documents, words, entries


def _no_pairs(numbers: Numbers) -> None:
    if (wrong := np.flatnonzero(numbers.after_colon)).size:
        numbers.refuse(int(wrong[0]), "follows a colon, which does not belong here")


def _table(numbers: Numbers, first: int, columns: tuple[int, ...], what: str, before: int | None = None) -> Array:
    """The numbers from the first on, a row for each line, all of the same length, as those `before` them have."""
    lines = numbers.lines[first:]
    starts = np.flatnonzero(np.diff(lines, prepend=0))
    lengths = np.diff(starts, append=len(lines))
    if not len(lengths):
        return np.empty((0, columns[0]))
    wide = before or int(lengths[0])
    if wide not in columns:
        numbers.refuse_line(int(lines[0]), f"it has {wide} fields; it must have {columns[0]}: {what}")
    if (wrong := np.flatnonzero(lengths != wide)).size:
        numbers.refuse_line(
            int(lines[starts[wrong[0]]]), f"it has {lengths[wrong[0]]} fields; the lines before it have {wide}"
        )
    return numbers.values[first:].reshape(-1, wide)


def _whole(numbers: Numbers, table: Array, field: int, least: int, most: int, first: int = 0) -> Array:
    """A column of whole numbers within these bounds."""
    column = table[:, field]
    bad = (column != np.floor(column)) | (column < least) | (column > most)
    if (wrong := np.flatnonzero(bad)).size:
        place = first + int(wrong[0]) * table.shape[1] + field
        numbers.refuse(place, f"is not a whole number within {least} and {most}")
    return column.astype(np.int32)
