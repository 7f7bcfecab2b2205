"""Collections that are values, at the price of a dict.

The newest version owns the one mutable container; an edit hands it to a new version and leaves behind how to
undo that edit. An older version that is looked at again copies the container and undoes its way back, once,
and stands alone from then on. So the line of states that a controller walks along costs what changed, while
every snapshot on it stays a true value that history and what-if may keep.

A line of versions is cut now and then, by giving the newest a container of its own: whoever keeps an old version
keeps the edits of a while alive with it, not those of all time.

Invariant: nothing outside this file changes a container, and how to undo an edit is written down before the
edit is made, so that a copy taken in another thread can tell that it copied a moving container, and starts over.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Any, Generic, TypeVar

from msgspec import Struct

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_ABSENT: Any = object()
_LONGEST_LINE = 4096  # edits, or as many as the container has entries


class VersionedMap(Struct, Generic[K, V], eq=False):
    """An immutable mapping whose newest version reads and writes like a dict. Made by `versioned(...)`."""

    _data: dict[K, V]
    _newer: VersionedMap[K, V] | None = None
    _undo: dict[K, V] | None = None  # what the next version changed, and what stood there
    _edits: int = 0  # in this line

    def set(self, key: K, value: V) -> VersionedMap[K, V]:
        """This mapping with one entry added or replaced."""
        if self._newer is not None:  # A branch off an old version: it gets a container of its own.
            return VersionedMap({**self.data(), key: value})
        data, edits = self._data, self._edits + 1
        if edits > _LONGEST_LINE and edits > len(data):
            return VersionedMap({**data, key: value})
        newer = VersionedMap(data, None, None, edits)
        self._undo = {key: data.get(key, _ABSENT)}
        self._newer = newer
        data[key] = value
        return newer

    def update(self, changes: dict[K, V]) -> VersionedMap[K, V]:
        """This mapping with several entries added or replaced."""
        if self._newer is not None:
            return VersionedMap({**self.data(), **changes})
        data = self._data
        newer = VersionedMap(data, None, None, self._edits + 1)
        self._undo = {key: data.get(key, _ABSENT) for key in changes}
        self._newer = newer
        data.update(changes)
        return newer

    def without(self, key: K) -> VersionedMap[K, V]:
        """This mapping less one entry; the same mapping if it has none."""
        if self._newer is not None:
            rest = dict(self.data())
            return self if rest.pop(key, _ABSENT) is _ABSENT else VersionedMap(rest)
        data = self._data
        if key not in data:
            return self
        newer = VersionedMap(data, None, None, self._edits + 1)
        self._undo = {key: data[key]}
        self._newer = newer
        del data[key]
        return newer

    def data(self) -> dict[K, V]:
        """The container, to read at once and neither to keep nor to change."""
        return self._data if self._newer is None or self._undo is None else self._detach()

    def _detach(self) -> dict[K, V]:
        while True:
            line: list[VersionedMap[K, V]] = [self]
            while (newer := line[-1]._newer) is not None and line[-1]._undo is not None:
                line.append(newer)
            data = dict(line[-1]._data)
            if line[-1]._newer is None or line[-1]._undo is None:
                break  # else a writer was at work meanwhile
        for older in reversed(line[:-1]):
            assert older._undo is not None
            for key, value in older._undo.items():
                if value is _ABSENT:
                    data.pop(key, None)
                else:
                    data[key] = value
        self._data = data
        self._undo = None
        return data

    def __getitem__(self, key: K) -> V:
        return (self._data if self._newer is None else self.data())[key]

    def get(self, key: K) -> V | None:
        """The value, or None."""
        return (self._data if self._newer is None else self.data()).get(key)

    def __contains__(self, key: object) -> bool:
        return key in (self._data if self._newer is None else self.data())

    def __len__(self) -> int:
        return len(self.data())

    def __iter__(self) -> Iterator[K]:
        return iter(list(self.data()))

    def values(self) -> list[V]:
        """The values, as a list of the caller's own."""
        return list(self.data().values())

    def items(self) -> list[tuple[K, V]]:
        """The entries, as a list of the caller's own."""
        return list(self.data().items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VersionedMap) and self.data() == other.data()

    def __ne__(self, other: object) -> bool:  # A struct's own would compare by identity.
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"VersionedMap({self.data()!r})"


def versioned(items: Iterable[tuple[K, V]] = ()) -> VersionedMap[K, V]:
    """A versioned map of these entries."""
    return VersionedMap(dict(items))


Entry = tuple[Any, ...]  # compares by its first items; the last is what it stands for


class VersionedQueue(Struct, Generic[K], eq=False):
    """An immutable set of entries in order, in buckets that can be skipped whole. `VersionedQueue({})` is empty."""

    _buckets: dict[K, list[Entry]]
    count: int = 0
    _newer: VersionedQueue[K] | None = None
    _undo: tuple[K, Entry, bool] | None = None
    _edits: int = 0

    def add(self, bucket: K, entry: Entry) -> VersionedQueue[K]:
        """This queue with one more entry."""
        return self._next(bucket, entry, True)

    def remove(self, bucket: K, entry: Entry) -> VersionedQueue[K]:
        """This queue less one entry, which it must have."""
        return self._next(bucket, entry, False)

    def _next(self, bucket: K, entry: Entry, adds: bool) -> VersionedQueue[K]:
        count = self.count + 1 if adds else self.count - 1
        edits = self._edits + 1
        if self._newer is None and (edits <= _LONGEST_LINE or edits <= count):
            buckets = self._buckets
            newer = VersionedQueue(buckets, count, None, None, edits)
            self._undo = (bucket, entry, adds)
            self._newer = newer
        else:
            buckets = _copied(self.buckets())
            newer = VersionedQueue(buckets, count)
        _edit(buckets, bucket, entry, adds)
        return newer

    def buckets(self) -> dict[K, list[Entry]]:
        """The sorted buckets, to read at once and neither to keep nor to change; none is empty."""
        return self._buckets if self._newer is None or self._undo is None else self._detach()

    def _detach(self) -> dict[K, list[Entry]]:
        while True:
            line: list[VersionedQueue[K]] = [self]
            while (newer := line[-1]._newer) is not None and line[-1]._undo is not None:
                line.append(newer)
            buckets = _copied(line[-1]._buckets)
            if line[-1]._newer is None or line[-1]._undo is None:
                break
        for older in reversed(line[:-1]):
            assert older._undo is not None
            bucket, entry, added = older._undo
            _edit(buckets, bucket, entry, not added)
        self._buckets = buckets
        self._undo = None
        return buckets

    def first(self) -> Entry | None:
        """The first entry of all, or None."""
        buckets = self.buckets()
        return min(b[0] for b in buckets.values()) if buckets else None

    def last(self) -> Entry | None:
        """The last entry of all, or None."""
        buckets = self.buckets()
        return max(b[-1] for b in buckets.values()) if buckets else None

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Entry]:
        return self.skipping(lambda _bucket: False)

    def skipping(
        self, skip: Callable[[K], bool], hopeless: Callable[[K, Entry], bool] | None = None
    ) -> Iterator[Entry]:
        """The entries in order; a bucket is left out from the moment at which `skip` says so.

        `hopeless` is asked once for each bucket, with its first entry: if it says so, none of it comes.
        """
        heads = [
            (entries[0], bucket, entries)
            for bucket, entries in self.buckets().items()
            if not skip(bucket) and (hopeless is None or not hopeless(bucket, entries[0]))
        ]
        if len(heads) == 1:
            _entry, bucket, entries = heads[0]
            for entry in entries:
                if skip(bucket):
                    return
                yield entry
            return
        order = [(head[0], n) for n, head in enumerate(heads)]
        heapify(order)
        places = [0] * len(heads)
        while order:
            entry, n = order[0]
            _entry, bucket, entries = heads[n]
            if skip(bucket):
                heappop(order)
                continue
            yield entry
            places[n] += 1
            if places[n] < len(entries):
                heapreplace(order, (entries[places[n]], n))
            else:
                heappop(order)

    def backwards(self) -> Iterator[Entry]:
        """The entries from the last to the first."""
        buckets = self.buckets()
        if len(buckets) == 1:
            yield from reversed(next(iter(buckets.values())))
        else:
            yield from sorted((e for b in buckets.values() for e in b), reverse=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VersionedQueue) and self.buckets() == other.buckets()

    def __ne__(self, other: object) -> bool:  # A struct's own would compare by identity.
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"VersionedQueue({list(self)!r})"


def _copied(buckets: dict[K, list[Entry]]) -> dict[K, list[Entry]]:
    return {bucket: list(entries) for bucket, entries in buckets.items()}


def _edit(buckets: dict[K, list[Entry]], bucket: K, entry: Entry, adds: bool) -> None:
    entries = buckets.get(bucket)
    if adds:
        if entries is None:
            buckets[bucket] = [entry]
        elif entries[-1] < entry:
            entries.append(entry)
        else:
            insort(entries, entry)
        return
    at = bisect_left(entries, entry) if entries is not None else 0
    if entries is None or at >= len(entries) or entries[at] != entry:
        raise KeyError(entry)
    del entries[at]
    if not entries:
        del buckets[bucket]  # An empty bucket would make first() and last() look twice.
