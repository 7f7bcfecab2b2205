"""Collections that are values, at nearly the price of a dict.

`OpenMap` and `OpenQueue` are edited in place; `seal()` gives their value at this moment, which never changes. The
newest value shares its container with the open collection. For every later edit the value keeps an undo note, what the
container had there before; when the value is read again, it copies the container and undoes those edits, once. So a
sequence of values costs what changed between them, and history and what-if may keep any of them.

Values that share a container form a line, each pointing to the next newer one. A line is cut now and then, by giving
the open collection a new container: keeping an old value keeps the edits of a while in memory, not those of all time.

Invariant: nothing outside this file changes a container, and an undo note is written before its edit is made, so that
a copy taken in another thread can tell that the container changed meanwhile, and starts over.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container, Hashable, Iterable, Iterator, Set
from heapq import heapify, heappop, heapreplace, merge
from math import inf
from typing import Any, Generic, TypeVar

from msgspec import Struct

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_ABSENT: Any = object()
_LONGEST_LINE = 4096  # values, or as many as the container has entries


class VersionedMap(Struct, Generic[K, V], eq=False):
    """An immutable mapping. Made by `versioned(...)`, or sealed from an open one."""

    _data: dict[K, V]
    _undo: dict[K, V] | None = None  # key → what the container had there, for every key edited since
    _newer: VersionedMap[K, V] | None = None  # the next value that shares the container
    _is_open: bool = False  # an open map edits the container
    _edits: int = 0  # in this line

    def set(self, key: K, value: V) -> VersionedMap[K, V]:
        """This mapping with one entry added or replaced."""
        data, edits = self._data, self._edits + 1
        if self._undo is not None or self._is_open or (edits > _LONGEST_LINE and edits > len(data)):
            return VersionedMap({**self.data(), key: value})  # A branch, or a cut: a container of its own.
        newer = VersionedMap(data, None, None, False, edits)
        self._newer = newer
        self._undo = {key: data.get(key, _ABSENT)}
        data[key] = value
        return newer

    def update(self, changes: dict[K, V]) -> VersionedMap[K, V]:
        """This mapping with several entries added or replaced."""
        if not changes:
            return self
        if self._undo is not None or self._is_open:
            return VersionedMap({**self.data(), **changes})
        data = self._data
        newer = VersionedMap(data, None, None, False, self._edits + 1)
        self._newer = newer
        self._undo = {key: data.get(key, _ABSENT) for key in changes}
        data.update(changes)
        return newer

    def without(self, key: K) -> VersionedMap[K, V]:
        """This mapping less one entry; the same mapping if it has none."""
        if key not in self.data():
            return self
        return VersionedMap({k: v for k, v in self.data().items() if k != key})

    def data(self) -> dict[K, V]:
        """The container, to read at once and neither to keep nor to change."""
        return self._detach() if self._undo else self._data

    def _detach(self) -> dict[K, V]:
        while True:
            last, undos = self, []
            while (newer := last._newer) is not None:
                undos.append(last._undo)  # read after `_newer`: a value that is detached meanwhile clears it before
                last = newer
            edits = last._undo or {}
            undone = len(edits)
            data = dict(last._data)
            if None not in undos and last._newer is None and undone == len(last._undo or ()):
                break  # else the container was edited meanwhile, or another value of the line was detached
        for undo in (edits, *reversed(undos)):
            for key, value in (undo or {}).items():
                if value is _ABSENT:
                    data.pop(key, None)
                else:
                    data[key] = value
        self._data = data
        self._undo = self._newer = None
        self._is_open = False
        return data

    def changed_since(self, older: VersionedMap[K, V]) -> Set[K] | None:
        """The keys that were added, replaced or removed since an older value; None if the two share no line."""
        undos = _undos_since(older, self)
        return None if undos is None else dict.fromkeys(key for undo in undos for key in undo).keys()

    def __getitem__(self, key: K) -> V:
        return (self._detach() if self._undo else self._data)[key]

    def get(self, key: K) -> V | None:
        """The value, or None."""
        return (self._detach() if self._undo else self._data).get(key)

    def __contains__(self, key: object) -> bool:
        return key in (self._detach() if self._undo else self._data)

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


def _undos_since(older: Any, newest: Any) -> list[Any] | None:
    """The undo notes from an older value to a newer one; None if they are not on one line any more."""
    undos: list[Any] = []
    while older is not newest:
        newer = older._newer
        undo = older._undo  # read after `_newer`: a value that is detached meanwhile clears it before
        if newer is None or undo is None:
            return None
        undos.append(undo)
        older = newer
    return undos


class OpenMap(Generic[K, V]):
    """A mapping that is being changed. Read it by `live`; `seal()` is its value at this moment."""

    __slots__ = ("_seals_left", "live", "sealed", "undo")  # No struct: to set a field of one is slow.

    def __init__(self, live: dict[K, V]) -> None:
        self.live = live  # changed by `put` and `drop` alone
        self.undo: dict[K, V] = {}  # undo notes of the newest value; empty if nothing was edited since
        self.sealed: VersionedMap[K, V] = VersionedMap(live, self.undo, None, True)  # the newest value
        self._seals_left = max(_LONGEST_LINE, len(live))  # in this line

    @staticmethod
    def of(value: VersionedMap[K, V]) -> OpenMap[K, V]:
        """A mapping to change, that starts as this value."""
        return OpenMap(dict(value.data()))

    def put(self, key: K, value: V) -> None:
        """Add or replace an entry."""
        undo, live = self.undo, self.live
        if key not in undo:
            undo[key] = live.get(key, _ABSENT)
        live[key] = value

    def drop(self, key: K) -> None:
        """Remove an entry, if it is there."""
        live, undo = self.live, self.undo
        if key in live:
            if key not in undo:
                undo[key] = live[key]
            del live[key]

    def seal(self) -> VersionedMap[K, V]:
        """The value at this moment; the same one as before if nothing was edited since."""
        before, undo = self.sealed, self.undo
        if not undo:
            return before
        self.undo = {}
        if not self._seals_left:  # Cut the line: a container of its own.
            self.live = dict(self.live)
            self._seals_left = max(_LONGEST_LINE, len(self.live))
            self.sealed = VersionedMap(self.live, self.undo, None, True)
            return self.sealed
        self._seals_left -= 1
        self.sealed = value = VersionedMap(self.live, self.undo, None, True)
        if before._undo is undo:  # else it was read since, and has its own container
            before._newer = value
        return value

    def get(self, key: K) -> V | None:
        """The value, or None."""
        return self.live.get(key)

    def __getitem__(self, key: K) -> V:
        return self.live[key]

    def __contains__(self, key: object) -> bool:
        return key in self.live

    def data(self) -> dict[K, V]:
        """The entries, to read at once."""
        return self.live

    def values(self) -> list[V]:
        """The values, as a list of the caller's own."""
        return list(self.live.values())

    def items(self) -> list[tuple[K, V]]:
        """The entries, as a list of the caller's own."""
        return list(self.live.items())


Entry = tuple[Any, ...]  # compares by its first items; the last is what it stands for


class VersionedQueue(Struct, Generic[K], eq=False):
    """An immutable set of entries in order, in buckets that can be skipped whole. `VersionedQueue({})` is empty."""

    _buckets: dict[K, list[Entry]]
    count: int = 0
    _undo: list[tuple[K, Entry, bool]] | None = None  # edits of the container since, oldest first
    _newer: VersionedQueue[K] | None = None

    def add(self, bucket: K, entry: Entry) -> VersionedQueue[K]:
        """This queue with one more entry."""
        buckets = _copied(self.buckets())
        _add(buckets, bucket, entry)
        return VersionedQueue(buckets, self.count + 1)

    def remove(self, bucket: K, entry: Entry) -> VersionedQueue[K]:
        """This queue less one entry, which it must have."""
        buckets = _copied(self.buckets())
        _remove(buckets, bucket, entry)
        return VersionedQueue(buckets, self.count - 1)

    def buckets(self) -> dict[K, list[Entry]]:
        """The sorted buckets, to read at once and neither to keep nor to change; none is empty."""
        return self._detach() if self._undo else self._buckets

    def _detach(self) -> dict[K, list[Entry]]:
        while True:
            last, undos = self, []
            while (newer := last._newer) is not None:
                undos.append(last._undo)
                last = newer
            edits = last._undo or []
            undone = len(edits)
            buckets = _copied(last._buckets)
            if None not in undos and last._newer is None and undone == len(last._undo or ()):
                break
        for undo in (edits, *reversed(undos)):
            for bucket, entry, added in reversed(undo or ()):
                (_remove if added else _add)(buckets, bucket, entry)
        self._buckets = buckets
        self._undo = self._newer = None
        return buckets

    def edits_since(self, older: VersionedQueue[K]) -> list[tuple[K, Entry, bool]] | None:
        """What was added (True) or removed since an older value, in this order; None if the two share no line."""
        undos = _undos_since(older, self)
        return None if undos is None else [edit for undo in undos for edit in undo]

    def first(self) -> Entry | None:
        """The first entry of all, or None."""
        return _first(self.buckets())

    def last(self) -> Entry | None:
        """The last entry of all, or None."""
        buckets = self.buckets()
        if len(buckets) == 1:
            return next(iter(buckets.values()))[-1]
        return max([b[-1] for b in buckets.values()]) if buckets else None

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Entry]:
        return self.skipping(())

    def skipping(
        self, skip: Container[K], largest: float = inf, unless_before: tuple[Any, ...] = ()
    ) -> Iterator[Entry]:
        """The entries in order; a bucket is left out from the moment at which it is in `skip`.

        So is one that is a number above `largest`, unless its first entry stands before a rank.
        """
        heads = [
            (entries[0], bucket, entries)
            for bucket, entries in self.buckets().items()
            if not (isinstance(bucket, int) and bucket > largest and entries[0][0] >= unless_before)
            and bucket not in skip
        ]
        if not heads:
            return iter(())  # To make a generator takes longer than all before.
        return _until(heads[0][2], heads[0][1], skip) if len(heads) == 1 else _merged(heads, skip)

    def backwards(self) -> Iterator[Entry]:
        """The entries from the last to the first."""
        buckets = self.buckets()
        if len(buckets) == 1:
            return reversed(next(iter(buckets.values())))
        return merge(*map(reversed, buckets.values()), reverse=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VersionedQueue) and self.buckets() == other.buckets()

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"VersionedQueue({list(self)!r})"


class OpenQueue(Generic[K]):
    """A queue that is being changed; `seal()` is its value at this moment."""

    __slots__ = ("_buckets", "_sealed", "_seals_left", "_undo", "count")

    def __init__(self, buckets: dict[K, list[Entry]], count: int = 0) -> None:
        self._buckets = buckets
        self.count = count
        self._undo: list[tuple[K, Entry, bool]] = []  # edits since the newest value was sealed
        self._sealed: VersionedQueue[K] = VersionedQueue(buckets, count, self._undo)  # the newest value
        self._seals_left = max(_LONGEST_LINE, count)

    @staticmethod
    def of(value: VersionedQueue[K]) -> OpenQueue[K]:
        """A queue to change, that starts as this value."""
        return OpenQueue(_copied(value.buckets()), value.count)

    def put(self, bucket: K, entry: Entry) -> None:
        """Add an entry."""
        self._undo.append((bucket, entry, True))
        self.count += 1
        _add(self._buckets, bucket, entry)

    def drop(self, bucket: K, entry: Entry) -> None:
        """Remove an entry, which must be there."""
        self._undo.append((bucket, entry, False))
        self.count -= 1
        _remove(self._buckets, bucket, entry)

    def first(self) -> Entry | None:
        """The first entry of all, or None."""
        return _first(self._buckets)

    def seal(self) -> VersionedQueue[K]:
        """The value at this moment; the same one as before if nothing was edited since."""
        before, undo = self._sealed, self._undo
        if not undo:
            return before
        self._undo = []
        if not self._seals_left:  # Cut the line: a container of its own.
            self._buckets = _copied(self._buckets)
            self._seals_left = max(_LONGEST_LINE, self.count)
            self._sealed = VersionedQueue(self._buckets, self.count, self._undo)
            return self._sealed
        self._seals_left -= 1
        self._sealed = value = VersionedQueue(self._buckets, self.count, self._undo)
        if before._undo is undo:  # else it was read since, and has its own container
            before._newer = value
        return value


def _until(entries: list[Entry], bucket: K, skip: Container[K]) -> Iterator[Entry]:
    """The entries of one bucket, up to the moment at which it is skipped."""
    for entry in entries:
        if bucket in skip:
            return
        yield entry


def _merged(heads: list[tuple[Entry, K, list[Entry]]], skip: Container[K]) -> Iterator[Entry]:
    """The entries of several buckets in order, each up to the moment at which it is skipped."""
    order = [(head[0], n) for n, head in enumerate(heads)]
    heapify(order)
    places = [0] * len(heads)
    while order:
        entry, n = order[0]
        _entry, bucket, entries = heads[n]
        if bucket in skip:
            heappop(order)
            continue
        yield entry
        places[n] += 1
        if places[n] < len(entries):
            heapreplace(order, (entries[places[n]], n))
        else:
            heappop(order)


def _copied(buckets: dict[K, list[Entry]]) -> dict[K, list[Entry]]:
    return {bucket: list(entries) for bucket, entries in buckets.items()}


def _first(buckets: dict[K, list[Entry]]) -> Entry | None:
    return min([entries[0] for entries in buckets.values()]) if buckets else None


def _add(buckets: dict[K, list[Entry]], bucket: K, entry: Entry) -> None:
    entries = buckets.get(bucket)
    if entries is None:
        buckets[bucket] = [entry]
    elif entries[-1] < entry:
        entries.append(entry)
    elif entry < entries[0]:
        entries.insert(0, entry)
    else:
        insort(entries, entry)


def _remove(buckets: dict[K, list[Entry]], bucket: K, entry: Entry) -> None:
    entries = buckets[bucket]
    if entries[0] == entry:
        del entries[0]  # A job that starts was first, mostly, …
        if not entries:
            del buckets[bucket]  # An empty bucket would make first() and last() look twice.
    elif entries[-1] == entry:
        del entries[-1]  # … and one that is preempted was last.
    else:
        at = bisect_left(entries, entry)
        if at >= len(entries) or entries[at] != entry:
            raise KeyError(entry)
        del entries[at]
