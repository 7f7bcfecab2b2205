"""Messages between hosts: a short header, and the bytes of arrays as they are in memory."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from hocket.runtimes.paramserver.algorithm import Array, TrainingError, content_of
from hocket.runtimes.paramserver.phase_turns import CommTurn

# What is sent or received before another job may go first is what the link carries in so long, as far as is known.
# A chunk costs the processor about as much whatever its size, so smaller ones make COMM dear on slow links.
_CHUNK_S = 0.008
CHUNK_BYTES, _LEAST_CHUNK_BYTES = 512 << 10, 16 << 10  # the most, and the least
_MEASURED_BYTES = 128 << 10  # Less says nothing about the link.
_MEASURED = 5  # times, of which the fastest counts: others may have waited
_CHUNKS_AHEAD = 2  # that are sent before the receiver asks for more
# What is in a connection's buffers goes on although its job waits for another. So they are small, but large enough to
# keep a fast link busy: a sender and a receiver of 1,000 Mbit/s lose nothing by it.
_BUFFER_BYTES, _LEAST_BUFFER_BYTES = 512 << 10, 64 << 10
_MOST_KEPT_BYTES = 64 << 20  # of row numbers, for each connection
_LENGTH = struct.Struct("!I")
# The kernel waits for all that is wanted: a slow link delivers packet by packet, and each would be a call from Python.
_WHOLE = getattr(socket, "MSG_WAITALL", 0)
_BUSY_TIME = struct.Struct("=168xQ")  # Linux' tcp_info up to tcpi_busy_time, in microseconds
_LONGEST_HEADER = 64 << 20  # An exchange carries a number for each block.


class HostHello(Struct, tag=True):
    """The first message of a connection."""

    job: str  # the attempt of a job that it belongs to
    host: int
    is_control: bool = False  # the connection to host 0 for what all hosts exchange
    port: int = 0  # where its own server listens


class HostAddresses(Struct, tag=True):
    """Host 0's answer when all hosts are there: where the server of each listens."""

    addresses: list[tuple[str, int]]


class Exchanged(Struct, tag=True):
    """What a host says at a point that all come to; and what all of them said."""

    point: str
    said: list[msgspec.Raw]
    waited_s: float = 0.0  # at the point before; of what all said: what host 0 waited for something else meanwhile


class HostFailed(Struct, tag=True):
    """Why a host ends."""

    why: str


class SentKeys(Struct):
    """The numbers of rows. A job asks for the same in each epoch, so they are sent once and then named."""

    count: int
    list_number: int = 0  # 0: they are not kept
    is_known: bool = False  # They came before; else they follow.


class Pull(Struct, tag=True):
    """Asks for rows of an array: those with some numbers, or all of the shard."""

    name: str
    version: int
    keys: SentKeys | None = None
    chunk_bytes: int = CHUNK_BYTES  # in which they are to come


class NextChunk(Struct, tag=True):
    """Asks for one more chunk of rows that are on their way."""


class Push(Struct, tag=True):
    """Updates follow: of rows with some numbers, or of all."""

    name: str
    version: int
    keys: SentKeys | None = None
    chunk_bytes: int = CHUNK_BYTES  # in which rows come


class PushEnded(Struct, tag=True):
    """There are no more updates in this iteration."""

    version: int


class BlockStates(Struct, tag=True):
    """Asks for the states of some of the host's blocks, for a checkpoint."""

    blocks: list[int]


class SavedRows(Struct, tag=True):
    """Asks host 0 for rows from the checkpoint that training goes on from."""

    name: str
    first: int
    behind: int


class SavedStates(Struct, tag=True):
    """Asks host 0 for the states of blocks from that checkpoint."""

    blocks: list[int]


class Content(Struct, tag=True):
    """So many bytes follow."""

    length: int = 0


Message = (
    HostHello
    | HostAddresses
    | Exchanged
    | HostFailed
    | Pull
    | NextChunk
    | Push
    | PushEnded
    | BlockStates
    | SavedRows
    | SavedStates
    | Content
)
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def _framed(message: Message) -> bytes:
    header = _encoder.encode(message)
    return _LENGTH.pack(len(header)) + header


# It comes once a chunk, so it is neither encoded nor decoded each time. Invariant: no message is shorter.
_NEXT_CHUNK = _framed(NextChunk())


class KeyList(NamedTuple):
    """Row numbers within a shard."""

    of: Hashable  # what they are part of: the same thing has the same numbers each time
    keys: Array


class LinkClosed(Exception):
    """The other side is gone."""


class ChunkSize:
    """How much a link carries in some milliseconds, by what was received."""

    def __init__(self) -> None:
        self.bytes = CHUNK_BYTES
        self._rates: deque[float] = deque(maxlen=_MEASURED)

    def measure(self, received_bytes: int, took_s: float) -> bool:
        """Note how many bytes came in how long; whether that changes the size."""
        if received_bytes < _MEASURED_BYTES:
            return False
        self._rates.append(received_bytes / max(took_s, 1e-9))
        before, wanted = self.bytes, int(min(max(self._rates) * _CHUNK_S, CHUNK_BYTES))
        self.bytes = max(wanted & ~0xFFF, _LEAST_CHUNK_BYTES)  # whole pages
        return self.bytes != before


class HostLink:
    """One TCP connection."""

    def __init__(self, connected: socket.socket, name: str) -> None:
        self.name = name  # of the other side, for messages
        self._socket = connected
        self._sending = threading.Lock()
        self._chunk = ChunkSize()
        self.most_kept_bytes = _MOST_KEPT_BYTES  # of row numbers, by the other side
        self._kept_bytes, self._sent_lists = 0, dict[Hashable, int]()  # that the other side keeps → their numbers
        self._lists: dict[int, Array] = {}  # that the other side has sent
        connected.settimeout(None)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            connected.setsockopt(socket.SOL_SOCKET, buffer, _BUFFER_BYTES)
        # A lost machine closes no connection: TCP must ask whether it is there.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
            if hasattr(socket, option):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def send(self, message: Message) -> None:
        """Send a header."""
        self._send_framed(_framed(message))

    def _send_framed(self, message: bytes) -> None:
        try:
            with self._sending:
                self._socket.sendall(message)
        except OSError as error:
            raise LinkClosed(f"{self.name}: {error.strerror or error}") from error

    def receive(self) -> Message:
        """The next header."""
        return self._receive_rest(self._exactly(_LENGTH.size))

    def _receive_rest(self, began: bytearray) -> Message:
        """A header of which the first bytes are there."""
        (length,) = _LENGTH.unpack_from(began)
        if length > _LONGEST_HEADER:
            raise LinkClosed(f"{self.name}: sent a header of {length} bytes")
        there = began[_LENGTH.size :]
        try:
            return _decoder.decode(there + self._exactly(length - len(there)))
        except msgspec.MsgspecError as error:
            raise LinkClosed(f"{self.name}: sent what is no message: {error}") from error

    def receive_answer(self) -> Content:
        """The answer to a request, or the reason why there is none."""
        match self.receive():
            case Content() as answer:
                return answer
            case HostFailed(why):
                raise TrainingError(why if why.startswith("host ") else f"{self.name}: {why}")
            case other:
                raise LinkClosed(f"{self.name}: answered with {type(other).__name__}")

    @property
    def chunk_bytes(self) -> int:
        """The size of a chunk that suits the link."""
        return self._chunk.bytes

    def send_array(self, array: Array, turn: CommTurn | None = None) -> None:
        """Send the bytes of an array, in chunks."""
        for number, chunk in enumerate(_chunks(array, self.chunk_bytes)):
            if turn is not None and number:
                turn.between_chunks()
            self._send_all(chunk)

    def receive_array(self, into: Array) -> None:
        """Receive as many bytes as the array has."""
        began_s = time.perf_counter()
        self._fill(content_of(into))
        self._measured(into.nbytes, time.perf_counter() - began_s)

    def push(self, name: str, version: int, rows: Array, keys: KeyList | None, turn: CommTurn) -> None:
        """Send the updates of an array, with the numbers of their rows if they are not all."""
        chunk_bytes = self.chunk_bytes
        self._send_with_keys(Push(name, version, self._sent_keys(keys), chunk_bytes), keys, turn)
        self.send_as_asked(rows, chunk_bytes, turn)

    def _sent_keys(self, keys: KeyList | None) -> SentKeys | None:
        """Whether row numbers have to follow, and are to be kept."""
        if keys is None:
            return None
        count = len(keys.keys)
        if (known := self._sent_lists.get(keys.of)) is not None:
            return SentKeys(count, known, is_known=True)
        if self._kept_bytes + keys.keys.nbytes > self.most_kept_bytes:
            return SentKeys(count)
        number = self._sent_lists[keys.of] = len(self._sent_lists) + 1
        self._kept_bytes += keys.keys.nbytes
        return SentKeys(count, number)

    def _send_with_keys(self, request: Pull | Push, keys: KeyList | None, turn: CommTurn | None) -> None:
        self.send(request)
        if keys is not None and request.keys is not None and not request.keys.is_known:
            self.send_array(keys.keys, turn)

    def receive_keys(self, sent: SentKeys) -> Array:
        """The row numbers of a request: those that follow, or that came before."""
        if sent.is_known:
            if (known := self._lists.get(sent.list_number)) is None or len(known) != sent.count:
                raise LinkClosed(f"{self.name}: named row numbers that it has not sent")
            return known
        keys = np.empty(sent.count, np.int64)
        self.receive_array(keys)
        if sent.list_number:
            self._lists[sent.list_number] = keys
        return keys

    def send_as_asked(self, array: Array, chunk_bytes: int, turn: CommTurn | None = None) -> None:
        """Send the bytes of an array: the first chunks at once, each other one when the receiver asks for it.

        So no more than these wait in a link, and what comes the other way, with its acknowledgements, is not held up.
        """
        for number, chunk in enumerate(_chunks(array, chunk_bytes)):
            if turn is not None and number:
                turn.between_chunks()
            if number >= _CHUNKS_AHEAD:
                self._await_request()
            self._send_all(chunk)

    def _await_request(self) -> None:
        """Wait until the receiver asks for a chunk."""
        if (began := self._exactly(len(_NEXT_CHUNK))) == _NEXT_CHUNK:
            return
        match self._receive_rest(began):
            case HostFailed(why):
                raise TrainingError(why if why.startswith("host ") else f"{self.name}: {why}")
            case other:
                raise LinkClosed(f"{self.name}: asked for {type(other).__name__} among chunks")

    def pull(
        self, name: str, version: int, into: Array, keys: KeyList | None = None, turn: CommTurn | None = None
    ) -> None:
        """Ask for the rows of an array, or those with some keys, and receive them."""
        chunk_bytes = self.chunk_bytes
        self._send_with_keys(Pull(name, version, self._sent_keys(keys), chunk_bytes), keys, turn)
        if (length := self.receive_answer().length) != into.nbytes:
            raise TrainingError(f"{self.name} has {length} bytes of '{name}', not {into.nbytes}")
        self.receive_and_ask(into, chunk_bytes, turn)

    def receive_and_ask(self, into: Array, chunk_bytes: int, turn: CommTurn | None = None) -> None:
        """Receive what is sent that way. A job that waits for another asks for nothing meanwhile."""
        chunks = list(_chunks(into, chunk_bytes))
        took_s = 0.0
        for number, chunk in enumerate(chunks):
            began_s = time.perf_counter()
            self._fill(chunk)
            took_s += time.perf_counter() - began_s
            if turn is not None and number + 1 < len(chunks):
                turn.between_chunks()
            if number + _CHUNKS_AHEAD < len(chunks):
                self._send_framed(_NEXT_CHUNK)
        self._measured(into.nbytes, took_s)

    def _measured(self, received_bytes: int, took_s: float) -> None:
        if self._chunk.measure(received_bytes, took_s):
            buffer = min(max(2 * self._chunk.bytes, _LEAST_BUFFER_BYTES), _BUFFER_BYTES)
            with suppress(OSError):  # It is closed.
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)

    def receive_bytes(self, length: int) -> bytes:
        """Receive exactly so many bytes."""
        return bytes(self._exactly(length))

    def sending_s(self) -> float | None:
        """For how long it has had something to send, give or take some ms; None if the system does not say."""
        try:
            (busy_us,) = _BUSY_TIME.unpack(
                self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BUSY_TIME.size)
            )
        except (AttributeError, OSError, struct.error):  # another system, an older kernel, or it is closed
            return None
        return float(busy_us) / 1e6

    def close(self) -> None:
        """Close it; whatever waits for it, on both sides, goes on."""
        with suppress(OSError):  # It is closed already.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _send_all(self, content: memoryview) -> None:
        try:
            self._socket.sendall(content)
        except OSError as error:
            raise LinkClosed(f"{self.name}: {error.strerror or error}") from error

    def _exactly(self, length: int) -> bytearray:
        found = bytearray(length)
        self._fill(memoryview(found))
        return found

    def _fill(self, content: memoryview) -> None:
        while len(content):
            try:
                count = self._socket.recv_into(content, 0, _WHOLE)
            except OSError as error:
                raise LinkClosed(f"{self.name}: {error.strerror or error}") from error
            if not count:
                raise LinkClosed(f"{self.name}: closed the connection")
            content = content[count:]


def _chunks(array: Array, chunk_bytes: int) -> Iterator[memoryview]:
    content = content_of(array)
    for first in range(0, len(content), chunk_bytes):
        yield content[first : first + chunk_bytes]
