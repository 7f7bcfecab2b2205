"""How arrays go from host to host: in chunks that suit the link, and no more of them than were asked for."""

import socket
import threading
from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import pytest
from tests.unit.runtimes.paramserver.least_squares import SparseLeastSquares, free_port, hosts_train, sparse_blocks

from hocket.runtimes.paramserver import wire
from hocket.runtimes.paramserver.algorithm import TrainingError
from hocket.runtimes.paramserver.host_group import HostGroup
from hocket.runtimes.paramserver.host_server import ShardServer
from hocket.runtimes.paramserver.launch_variables import LaunchVariables
from hocket.runtimes.paramserver.wire import (
    CHUNK_BYTES,
    ChunkSize,
    Content,
    HostFailed,
    HostLink,
    KeyList,
    LinkClosed,
    Pull,
    Push,
    PushEnded,
    SentKeys,
)

CHUNK = 1000


@pytest.fixture
def links() -> Iterator[tuple[HostLink, HostLink]]:
    """Both ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        calling = socket.create_connection(listening.getsockname())
        answering, _address = listening.accept()
    ends = HostLink(calling, "server"), HostLink(answering, "worker")
    yield ends
    for end in ends:
        end.close()


class Turn:
    """A turn that waits for another job before one of its chunks."""

    def __init__(self, before: int) -> None:
        self.chunks, self._before = 0, before
        self.waits, self.may_go_on = threading.Event(), threading.Event()

    def between_chunks(self) -> None:
        self.chunks += 1
        if self.chunks == self._before:
            self.waits.set()
            assert self.may_go_on.wait(60)


class CountedLink:
    """Counts what a link sends."""

    def __init__(self, link: HostLink) -> None:
        self.sent_bytes, self._send_all = 0, link._send_all
        link._send_all = self.send_all  # type: ignore[method-assign]

    def send_all(self, content: memoryview) -> None:
        self.sent_bytes += len(content)
        self._send_all(content)


def test_a_receiver_that_waits_for_another_job_is_sent_no_more_than_it_asked_for(
    links: tuple[HostLink, HostLink],
) -> None:
    receiver, sender = links
    counted, turn = CountedLink(sender), Turn(before=5)
    sent, received = np.arange(20 * CHUNK, dtype=np.uint8), np.zeros(20 * CHUNK, np.uint8)
    sending = threading.Thread(target=sender.send_as_asked, args=(sent, CHUNK))
    receiving = threading.Thread(target=receiver.receive_and_ask, args=(received, CHUNK, turn))
    sending.start()
    receiving.start()
    assert turn.waits.wait(60)
    sending.join(0.1)  # It would send more by now.
    assert counted.sent_bytes == 6 * CHUNK  # Five were received, of which four were followed by a request.
    turn.may_go_on.set()
    receiving.join(60)
    sending.join(60)
    assert turn.chunks == 19
    np.testing.assert_array_equal(received, sent)


@pytest.mark.parametrize("size", [0, 1, CHUNK, 3 * CHUNK, 4 * CHUNK, 4 * CHUNK + 1])
def test_arrays_of_all_sizes_arrive_whole(links: tuple[HostLink, HostLink], size: int) -> None:
    receiver, sender = links
    sent, received = np.arange(size, dtype=np.uint8), np.zeros(size, np.uint8)
    sending = threading.Thread(target=sender.send_as_asked, args=(sent, CHUNK))
    sending.start()
    receiver.receive_and_ask(received, CHUNK, Turn(before=0))
    sending.join(60)
    np.testing.assert_array_equal(received, sent)
    receiver.send(PushEnded(1))
    assert sender.receive() == PushEnded(1)  # No request for a chunk is left.


def test_what_asks_for_something_else_among_chunks_is_refused(links: tuple[HostLink, HostLink]) -> None:
    receiver, sender = links
    receiver.send(PushEnded(1))
    with pytest.raises(LinkClosed, match="worker: asked for PushEnded among chunks"):
        sender.send_as_asked(np.zeros(4 * CHUNK, np.uint8), CHUNK)


def test_a_host_that_failed_among_chunks_says_why(links: tuple[HostLink, HostLink]) -> None:
    receiver, sender = links
    receiver.send(HostFailed(""))  # the shortest that is no request
    with pytest.raises(TrainingError, match=r"worker: $"):
        sender.send_as_asked(np.zeros(4 * CHUNK, np.uint8), CHUNK)


def test_no_message_is_shorter_than_a_request_for_a_chunk() -> None:
    """So many bytes are read before it is known what comes."""
    least = [
        wire.HostHello("", 0), wire.HostAddresses([]), wire.Exchanged("", []), wire.HostFailed(""), wire.Pull("", 0),
        wire.NextChunk(), wire.Push("", 0), wire.PushEnded(0), wire.BlockStates([]), wire.SavedRows("", 0, 0),
        wire.SavedStates([]), wire.Content(),
    ]  # fmt: skip
    assert {type(message) for message in least} == set(get_args(wire.Message))
    assert min(len(wire._framed(message)) for message in least) == len(wire._NEXT_CHUNK)


def served(link: HostLink, values: np.ndarray, keys: list[list[int]]) -> None:
    """Answers as many requests as there are keys expected."""
    for expected in keys:
        request = link.receive()
        assert isinstance(request, Pull | Push)
        assert request.keys is not None
        found = link.receive_keys(request.keys)
        assert found.tolist() == expected
        if isinstance(request, Pull):
            link.send(Content(8 * len(found)))
            link.send_as_asked(values[found], request.chunk_bytes)
        else:
            rows = np.empty(len(found))
            link.receive_and_ask(rows, request.chunk_bytes)
            values[found] = rows


def test_row_numbers_are_sent_once(links: tuple[HostLink, HostLink]) -> None:
    asking, serving = links
    counted, values = CountedLink(asking), np.arange(100.0)
    first, second = KeyList("a", np.array([3, 5, 50])), KeyList("b", np.array([1, 3, 4, 99]))
    lists = [first, second, first, first, second]
    thread = threading.Thread(target=served, args=(serving, values, [of.keys.tolist() for of in lists]))
    thread.start()
    sent = []
    for keys in lists[:3]:
        found = np.empty(len(keys.keys))
        asking.pull("a", 0, found, keys)
        np.testing.assert_array_equal(found, keys.keys)
        sent.append(counted.sent_bytes)
    assert sent == [24, 56, 56]
    asking.push("a", 0, np.full(3, -1.0), first, Turn(before=0))
    asking.push("a", 0, np.full(4, -2.0), second, Turn(before=0))
    thread.join(60)
    assert counted.sent_bytes == 56 + 24 + 32  # the rows
    assert values[[1, 3, 4, 5, 50, 99]].tolist() == [-2, -2, -2, -1, -1, -2]


def test_row_numbers_that_the_other_side_has_no_room_for_are_sent_each_time(links: tuple[HostLink, HostLink]) -> None:
    asking, serving = links
    asking.most_kept_bytes = 24 + 24
    counted, values = CountedLink(asking), np.arange(100.0)
    lists = [KeyList(1, np.arange(3)), KeyList(2, np.arange(4)), KeyList(3, np.arange(3, 6))] * 2
    thread = threading.Thread(target=served, args=(serving, values, [of.keys.tolist() for of in lists]))
    thread.start()
    for keys in lists:
        asking.pull("a", 0, np.empty(len(keys.keys)), keys)
    thread.join(60)
    assert counted.sent_bytes == 24 + 32 + 24 + 32, "the second does not fit, the third does"
    assert len(serving._lists) == 2


def test_training_sends_row_numbers_in_its_first_epoch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bool] = []
    send = HostLink._send_with_keys

    def sending(link: HostLink, request: Pull | Push, keys: KeyList | None, turn: Any) -> None:
        assert request.keys is not None
        sent.append(not request.keys.is_known)
        send(link, request, keys, turn)

    monkeypatch.setattr(HostLink, "_send_with_keys", sending)
    counts = []
    for epochs in (1, 5):
        sent.clear()
        hosts_train(2, SparseLeastSquares, sparse_blocks, epochs=epochs)
        counts.append((sum(sent), len(sent)))
    (first, requests), (all_of_them, more) = counts
    assert first == all_of_them
    assert more == 5 * requests > first


@pytest.mark.parametrize(("memory_mib", "kept_mib"), [(None, 64), (128, 2), (1 << 20, 64)])
def test_with_a_memory_budget_less_is_kept(memory_mib: int | None, kept_mib: int) -> None:
    memory_bytes, port = None if memory_mib is None else memory_mib << 20, free_port()
    groups = [
        HostGroup(LaunchVariables(host, 3, ("127.0.0.1", port), "a"), memory_bytes=memory_bytes) for host in range(3)
    ]
    threads = [threading.Thread(target=group.join, args=(ShardServer(), lambda: None)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    kept = {link.most_kept_bytes for group in groups for link in group.links.values()}
    for group in groups:
        group.close()
    assert kept == {kept_mib << 20}


@pytest.mark.parametrize("sent", [SentKeys(3, 4, is_known=True), SentKeys(2, 5, is_known=True)])
def test_row_numbers_that_never_came_are_refused(links: tuple[HostLink, HostLink], sent: SentKeys) -> None:
    asking, serving = links
    asking.send_array(np.arange(3))
    serving.receive_keys(SentKeys(3, 5))
    with pytest.raises(LinkClosed, match="worker: named row numbers that it has not sent"):
        serving.receive_keys(sent)


def test_a_chunk_is_what_the_link_carries_in_eight_milliseconds() -> None:
    size = ChunkSize()
    assert size.bytes == CHUNK_BYTES
    assert not size.measure(100_000, 10.0)  # too little to tell
    assert size.measure(1_000_000, 0.1)  # 10 MB/s
    assert size.bytes == 77_824  # 19 pages of 4 KiB
    assert not size.measure(1_000_000, 9.0)  # Others went first: the fastest counts …
    for _ in range(4):
        size.measure(1_000_000, 9.0)
    assert size.bytes == 16_384  # … of the last five; and there is a least size.
    assert size.measure(1_000_000, 0.001)
    assert size.bytes == CHUNK_BYTES
