"""Versioned collections behave like plain copies: every version, old or branched off, stays what it was."""

from bisect import insort
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.model import versioned as module
from hocket.model.versioned import OpenMap, OpenQueue, VersionedMap, VersionedQueue, versioned

some = settings(max_examples=120, deadline=None)
keys = st.integers(0, 5)
# Which version, what is done to it, with what.
edits = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(["set", "without", "update", "read"]), keys), max_size=30
)
entries = st.tuples(st.tuples(st.integers(0, 2)), st.integers(0, 30))


def same_map(value: VersionedMap[int, int], plain: dict[int, int]) -> None:
    assert value.data() == plain
    assert len(value) == len(plain)
    assert sorted(value) == sorted(plain)
    assert sorted(value.items()) == sorted(plain.items())
    assert all(value[k] == v and value.get(k) == v and k in value for k, v in plain.items())
    assert value == versioned(plain.items())
    assert (value != versioned(plain.items())) is False
    assert value.get(99) is None


@some
@given(edits)
def test_a_map_and_all_its_versions_equal_plain_dicts(steps):
    versions = [(versioned([(0, -1)]), {0: -1})]
    for n, (which, what, key) in enumerate(steps):
        value, plain = versions[which % len(versions)]
        if what == "set":
            versions.append((value.set(key, n), {**plain, key: n}))
        elif what == "update":
            versions.append((value.update({key: n, 5 - key: n}), {**plain, key: n, 5 - key: n}))
        elif what == "without":
            versions.append((value.without(key), {k: v for k, v in plain.items() if k != key}))
        else:
            same_map(value, plain)
    for value, plain in versions:
        same_map(value, plain)


@contextmanager
def lines_of(longest: int) -> Iterator[None]:
    """Lines are cut after so many values."""
    was, module._LONGEST_LINE = module._LONGEST_LINE, longest
    try:
        yield
    finally:
        module._LONGEST_LINE = was


def edited(live: OpenMap[int, int], plain: dict[int, int], what: str, key: int, value: int) -> bool:
    """Put or drop an entry of both, if that is what is to be done."""
    if what == "put":
        live.put(key, value)
        plain[key] = value
    elif what == "drop":
        live.drop(key)
        plain.pop(key, None)
    return what in ("put", "drop")


doings = st.sampled_from(["put", "put", "drop", "seal", "seal and read", "read", "branch"])
open_edits = st.lists(st.tuples(doings, keys, st.integers(0, 30)), max_size=40)


@some
@given(open_edits, st.sampled_from([3, 4096]))
def test_what_an_open_map_sealed_never_changes(steps, longest):
    with lines_of(longest):
        live, plain = OpenMap.of(versioned([(0, -1)])), {0: -1}
        sealed = []
        for n, (what, key, which) in enumerate(steps):
            if edited(live, plain, what, key, n):
                pass
            elif what == "seal":
                sealed.append((live.seal(), dict(plain)))
            elif what == "seal and read":
                same_map(live.seal(), plain)
            elif sealed:
                value, then = sealed[which % len(sealed)]
                if what == "branch":
                    sealed.append((value.set(key, n), {**then, key: n}))
                same_map(value, then)
            assert live.live == plain
        for value, then in sealed:
            same_map(value, then)


@some
@given(open_edits, st.sampled_from([3, 4096]))
def test_what_did_not_change_since_an_older_map_is_the_same_there(steps, longest):
    with lines_of(longest):
        live, plain = OpenMap.of(versioned([(0, -1)])), {0: -1}
        sealed = [(live.seal(), dict(plain))]
        for n, (what, key, which) in enumerate(steps):
            if edited(live, plain, what, key, n):
                continue
            if what == "read":
                same_map(*sealed[which % len(sealed)])  # It has its own container then, and is on no line.
                continue
            now = live.seal()
            for older, then in sealed:
                changed = now.changed_since(older)
                differ = {k for k in {*then, *plain} if then.get(k) != plain.get(k)}
                assert changed is None or differ <= changed
            sealed.append((now, dict(plain)))


def test_what_changed_since_an_older_map_is_known_until_that_is_read():
    live = OpenMap.of(versioned([(n, n) for n in range(100)]))
    first = live.seal()
    live.put(3, -1)
    second = live.seal()
    live.drop(7)
    live.put(200, 0)
    assert live.seal().changed_since(second) == {7, 200}
    assert live.seal().changed_since(first) == {3, 7, 200}
    assert second.changed_since(first) == {3}
    assert first.changed_since(first) == set()
    assert first[3] == 3
    assert live.seal().changed_since(first) is None


def same_queue(value: VersionedQueue[int], plain: dict[int, list]) -> None:
    everything = sorted(e for b in plain.values() for e in b)
    assert list(value) == everything
    assert list(value.backwards()) == everything[::-1]
    assert len(value) == len(everything)
    assert value.first() == (everything[0] if everything else None)
    assert value.last() == (everything[-1] if everything else None)
    assert value.buckets() == {b: es for b, es in plain.items() if es}
    assert list(value.skipping({1})) == sorted(e for b, es in plain.items() if b != 1 for e in es)


@some
@given(
    st.lists(
        st.tuples(doings, st.integers(0, 2), entries, keys),
        max_size=40,
    ),
    st.sampled_from([2, 4096]),
)
def test_what_an_open_queue_sealed_never_changes(steps, longest):
    with lines_of(longest):
        live, plain = OpenQueue.of(VersionedQueue({})), {}
        sealed = []
        for what, bucket, entry, which in steps:
            there = plain.setdefault(bucket, [])
            if what == "put" and entry not in there:
                live.put(bucket, entry)
                insort(there, entry)
            elif what == "drop" and there:
                gone = there.pop(which % len(there))
                live.drop(bucket, gone)
            elif what == "seal":
                sealed.append((live.seal(), {b: list(es) for b, es in plain.items()}))
            elif what == "seal and read":
                same_queue(live.seal(), plain)
            elif sealed:
                value, then = sealed[which % len(sealed)]
                if what == "branch":
                    new = {b: list(es) for b, es in then.items()}
                    insort(new.setdefault(bucket, []), entry)
                    sealed.append((value.add(bucket, entry), new))
                    sealed.append((value.add(bucket, entry).remove(bucket, entry), then))
                same_queue(value, then)
        for value, then in sealed:
            same_queue(value, then)


@some
@given(st.lists(st.tuples(st.integers(0, 3), entries), unique_by=lambda x: x[1]), st.lists(st.integers(0, 3)))
def test_a_bucket_that_is_skipped_on_the_way_gives_nothing_more(items, skipped):
    queue: VersionedQueue[int] = VersionedQueue({})
    for bucket, entry in items:
        queue = queue.add(bucket, entry)
    bucket_of = {entry: bucket for bucket, entry in items}
    closed: set[int] = set()
    to_close, seen, expected = list(skipped), [], []
    for entry in queue.skipping(closed):
        seen.append(entry)
        if to_close:
            closed.add(to_close.pop(0))
    to_close, closed = list(skipped), set()
    for entry in sorted(bucket_of):
        if bucket_of[entry] not in closed:
            expected.append(entry)
            if to_close:
                closed.add(to_close.pop(0))
    assert seen == expected
