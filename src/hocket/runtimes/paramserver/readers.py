"""Readers of training data: ratings, svmlight and bags of words. An error names the file, the line and the field."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from hocket.runtimes.paramserver.algorithm import Array, TrainingError
from hocket.runtimes.paramserver.number_scanner import Numbers, scan_numbers

_LARGEST = 2**31 - 1


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
    numbers = scan_numbers(path)
    _no_pairs(numbers)
    table = _table(numbers, 0, (3, 4), "user, item, rating")
    if not len(table):
        raise TrainingError(f"{path}: it has no ratings")
    users, items = (_whole(numbers, table, field, 0, _LARGEST) for field in (0, 1))
    values = table[:, 2]
    if (wrong := np.flatnonzero(values < 0)).size:
        numbers.refuse(int(wrong[0]) * table.shape[1] + 2, "is below 0, which a rating must not be")
    if (wrong := np.flatnonzero(values > np.finfo(np.float32).max)).size:
        numbers.refuse(int(wrong[0]) * table.shape[1] + 2, "is too large")
    return Ratings(users, items, values.astype(np.float32))


def read_svmlight(path: Path, zero_based: bool = False) -> Examples:
    """Lines `label index:value …`; indices are counted from 1, or from 0 if they are zero-based, and increase."""
    numbers = scan_numbers(path)
    count = len(numbers.values)
    if not count:
        raise TrainingError(f"{path}: it has no rows")
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
    is_index = (place % 2 == 1) & ~is_label
    at = np.flatnonzero(is_index)
    least = 0 if zero_based else 1
    bad = (numbers.values[at] != np.floor(numbers.values[at])) | (numbers.values[at] < least)
    bad |= numbers.values[at] > _LARGEST
    if (wrong := np.flatnonzero(bad)).size:
        hint = "" if zero_based else " (or pass --zero-based)"
        numbers.refuse(int(at[wrong[0]]), f"is not a feature's index, which is counted from {least}{hint}")
    indices = numbers.values[at].astype(np.int32) - np.int32(least)
    starts = np.concatenate([[0], np.cumsum(lengths // 2)]).astype(np.int64)
    rising = np.diff(indices, prepend=-1) > 0
    rising[starts[:-1][starts[:-1] < len(indices)]] = True
    if (wrong := np.flatnonzero(~rising)).size:
        numbers.refuse(int(at[wrong[0]]), "is not larger than the index before it")
    labels = numbers.values[firsts]
    return Examples(labels, starts, indices, numbers.values[must_be_value], numbers.lines[firsts])


def read_bags_of_words(path: Path) -> BagsOfWords:
    """UCI's `docword` format: the numbers of documents, words and entries, a line each; then `document word count`."""
    numbers = scan_numbers(path)
    _no_pairs(numbers)
    if len(numbers.values) < 3 or len(set(numbers.lines[:3].tolist())) < 3:
        raise TrainingError(f"{path}, line 1: it must begin with three lines: documents, words and entries")
    head = numbers.values[:3]
    for place, least in ((0, 1), (1, 1), (2, 0)):
        if head[place] != np.floor(head[place]) or not least <= head[place] <= _LARGEST:
            numbers.refuse(place, f"is not a number of {('documents', 'words', 'entries')[place]}")
    documents, words, entries = (int(value) for value in head)
    table = _table(numbers, 3, (3,), "document, word, count")
    if len(table) != entries:
        raise TrainingError(f"{path}, line {numbers.lines[2]}: it has {len(table)} entries, not {entries}")
    if not entries:
        raise TrainingError(f"{path}: it has no words")
    document = _whole(numbers, table, 0, 1, documents, 3) - 1
    word = _whole(numbers, table, 1, 1, words, 3) - 1
    count = _whole(numbers, table, 2, 1, _LARGEST, 3)
    order = np.argsort(document, kind="stable")
    return BagsOfWords(documents, words, document[order], word[order], count[order])


def _no_pairs(numbers: Numbers) -> None:
    if (wrong := np.flatnonzero(numbers.after_colon)).size:
        numbers.refuse(int(wrong[0]), "follows a colon, which does not belong here")


def _table(numbers: Numbers, first: int, columns: tuple[int, ...], what: str) -> Array:
    """The numbers from the first on, a row for each line, all of the same length."""
    lines = numbers.lines[first:]
    starts = np.flatnonzero(np.diff(lines, prepend=0))
    lengths = np.diff(starts, append=len(lines))
    if not len(lengths):
        return np.empty((0, columns[0]))
    wide = int(lengths[0])
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
