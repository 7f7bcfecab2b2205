"""The phases of this job take turns with those of other jobs on its host, by tokens that the node's agent hands out.

`tokens_offered()` is what a job uses, by the variable `HOCKET_PHASE_TOKENS`. One process of a job on each host holds
its tokens, in one thread; `between_chunks` may be called in others meanwhile.

A job never fails for want of tokens. While its agent is away, it goes on without, and connects again within a second
of the agent's return; an agent that does not answer for 20 s counts as away.
"""

from __future__ import annotations

import logging
import mmap
import os
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

import msgspec

from hocket.model.phase_tokens import (
    ACTIVITY,
    ACTIVITY_SUFFIX,
    LONGEST_MESSAGE,
    VARIABLE,
    AreYouThere,
    AskToken,
    FromJob,
    IterationMeasured,
    JoinTurns,
    LeaveGroup,
    Phase,
    PhaseToken,
    ReleaseToken,
    TokenGranted,
    TokenLost,
    TokenPromoted,
    TurnsReplaced,
    decode_from_agent,
    encode,
)
from hocket.runtimes.paramserver.phase_turns import CommOrder

_log = logging.getLogger("hocket.paramserver")
_RETRY_S = 1.0  # between attempts to connect
_SILENCE_S = 10.0  # A job that waits for longer asks whether the agent is there, and waits as long for an answer.
_LEAST_IDLE_NS = 2_000_000  # The primary COMM leaves the network unused if it moved no chunk for so long …
# … and for the time of so many of its chunks: they come in bursts of as many as are on their way.
_IDLE_CHUNKS = 5
_LOOK_S = 0.02  # the most between two looks at what the primary does
_FIRST_CHUNK_NS = 20_000_000  # how long a chunk takes that was not measured yet
_NEW = 0.25  # the weight of a new measurement
# Times the mean: the most that one measurement counts for. With less, bursts would make the mean shrink for ever.
_LONGER = 8


def tokens_offered(environ: Mapping[str, str] = os.environ) -> PhaseTokens | None:
    """The tokens of this host's agent; None if it offers none, and the job runs without."""
    path = environ.get(VARIABLE, "")
    if not path:
        return None
    attempt = environ.get("HOCKET_ATTEMPT", "1")
    return PhaseTokens(path, environ.get("HOCKET_JOB", f"process {os.getpid()}"), int(attempt))


class PhaseTokens:
    """Turns by tokens."""

    def __init__(self, path: str, job: str, run: int) -> None:
        """Connect to the agent's socket at this path for a run of a job, when the first token is needed."""
        self._path, self._join = path, JoinTurns(job, run)
        self._socket: socket.socket | None = None
        self._readable = select.poll()
        self._activity: _Activity | None = None
        self._retry_s = 0.0
        self._is_replaced = self._is_to_leave = False
        self._last = 0  # number of what was asked for last
        self._chunks = threading.Lock()  # Threads that send chunks of the same phase wait together.
        self._held: dict[int, PhaseToken | None] = {}  # asked for, and not released; None while it waits
        self._order = CommOrder()  # by the token that was granted last

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Leave; other jobs get what this one held."""
        self._disconnect()
        self._is_replaced = True  # It does not connect again.

    @property
    def is_connected(self) -> bool:
        """Is there an agent, as far as is known?"""
        return self._socket is not None

    # -- turns --------------------------------------------------------------------------------------------------

    @contextmanager
    def comp(self) -> Iterator[None]:
        """Compute, with the CPU token."""
        number = self._take(Phase.COMP)
        try:
            yield
        finally:
            self._release(number)

    @contextmanager
    def comm(self) -> Iterator[CommPhase]:
        """Communicate, with a network token. On the job's first host: the others follow."""
        number = self._take(Phase.COMM)
        try:
            with self._communicating(number, self._order if number in self._held else CommOrder()) as phase:
                phase.between_chunks()  # A secondary COMM waits before its first chunk too.
                yield phase
        finally:
            self._release(number)

    @contextmanager
    def follow_comm(self, order: CommOrder) -> Iterator[CommPhase]:
        """Communicate on another host of the job, in the order that its first host's token gives."""
        self._last = number = self._last + 1
        if self._is_connected():
            self._held[number] = PhaseToken.SECONDARY if order.gives_way else PhaseToken.PRIMARY
        try:
            with self._communicating(number, order) as phase:
                yield phase
        finally:
            self._held.pop(number, None)

    @contextmanager
    def _communicating(self, number: int, order: CommOrder) -> Iterator[CommPhase]:
        try:
            yield CommPhase(self, number, order)
        finally:
            if self._activity is not None:
                self._activity.end(order.since_ns)

    def iteration_done(
        self, iteration: int, pull: float, comp: float, push: float, sending: float | None = None, meeting: float = 0.0
    ) -> bool:
        """Report how long the phases took, in seconds without waiting; True if the job is to leave its group now.

        `sending` is for how long the host had something on its way to others meanwhile, if that was measured, and
        `meeting` what it took the hosts to go on from where all had come to, on the first of them.
        """
        if self._is_connected():
            self._send(IterationMeasured(iteration, pull, comp, push, sending, meeting))
            self._read_messages(0.0)
        return self._is_to_leave

    def _take(self, phase: Phase) -> int:
        """Wait for a token, and give the number that it is held under; without an agent, go on at once."""
        self._last = number = self._last + 1
        if not self._is_connected():
            return number
        self._held[number] = None
        self._send(AskToken(number, phase))
        has_asked = False
        while number in self._held and self._held[number] is None:
            if not self._read_messages(_SILENCE_S):
                if has_asked:
                    _log.warning("the agent does not answer for %g s: going on without tokens", 2 * _SILENCE_S)
                    self._disconnect()
                    break
                self._send(AreYouThere())
                has_asked = True
            else:
                has_asked = False
        return number

    def _release(self, number: int) -> None:
        self._held.pop(number, None)
        self._send(ReleaseToken(number))  # Also if it was lost: the agent learns how long the phase took.

    def wait_for_chunk(self, number: int, since_ns: int) -> None:
        """Before the next chunk of a COMM: the secondary waits as long as one that goes first moves chunks."""
        activity = self._activity
        if activity is None or number not in self._held:
            return
        with self._chunks:
            self._read_messages(0.0)
            while self._held.get(number) is PhaseToken.SECONDARY and (wait_s := activity.busy_s(since_ns)) > 0:
                self._read_messages(min(wait_s, _LOOK_S))
            activity.chunk_moved(number, since_ns)

    # -- the connection -----------------------------------------------------------------------------------------

    def _is_connected(self) -> bool:
        """Whether there is an agent; one that came back is found."""
        if self._socket is None and not self._is_replaced and time.monotonic() >= self._retry_s:
            self._retry_s = time.monotonic() + _RETRY_S
            try:
                self._connect()
            except OSError as error:
                _log.debug("no phase tokens: '%s': %s", self._path, error)
                self._disconnect()
        return self._socket is not None

    def _connect(self) -> None:
        folder = os.open(os.path.dirname(self._path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:  # The path of a socket may have 107 bytes only; that of its folder does not count this way.
            self._socket.settimeout(_SILENCE_S)
            self._socket.connect(f"/proc/self/fd/{folder}/{os.path.basename(self._path)}")
        finally:
            os.close(folder)
        self._socket.settimeout(None)  # With a timeout, Python would wait in spite of MSG_DONTWAIT.
        self._readable.register(self._socket, select.POLLIN)
        self._activity = self._activity or _Activity(self._path + ACTIVITY_SUFFIX)
        self._activity.map_again()
        self._send(self._join)

    def _disconnect(self) -> None:
        """What is held goes on without tokens."""
        if self._socket is not None:
            with suppress(KeyError, OSError):
                self._readable.unregister(self._socket)
            self._socket.close()
        self._socket = None
        self._held.clear()

    def _send(self, message: FromJob) -> None:
        if self._socket is not None:
            try:
                self._socket.send(encode(message), socket.MSG_DONTWAIT)
            except OSError:  # The agent is away, or takes nothing in; it may have said why.
                self._read_messages(0.0)
                self._disconnect()

    def _read_messages(self, within_s: float) -> bool:
        """Read what the agent has said, waiting for it so long; False if it said nothing."""
        has_read = False
        while self._socket is not None and (within_s <= 0 or self._readable.poll(within_s * 1000)):
            try:
                data = self._socket.recv(LONGEST_MESSAGE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            has_read, within_s = True, 0.0
            if not data:
                self._disconnect()
            else:
                self._take_message(data)
        return has_read

    def _take_message(self, data: bytes) -> None:
        try:
            message = decode_from_agent(data)
        except msgspec.MsgspecError as error:  # An agent of a later version may say more.
            _log.debug("the agent says what is not understood: %s", error)
            return
        match message:
            case TokenGranted(number, token, is_short, since_ns) if number in self._held:
                self._held[number] = PhaseToken.PRIMARY if is_short else token
                self._order = CommOrder(since_ns, self._held[number] is PhaseToken.SECONDARY)
            case TokenPromoted(number) if number in self._held:
                self._held[number] = PhaseToken.PRIMARY
            case TokenLost(number):
                self._held.pop(number, None)
                _log.warning("a phase took so long that its token was given to another job")
            case LeaveGroup():
                self._is_to_leave = True
            case TurnsReplaced():
                _log.warning("another process of this job took its phase tokens: going on without")
                self._is_replaced = True


class CommPhase:
    """One COMM phase."""

    def __init__(self, tokens: PhaseTokens, number: int, order: CommOrder) -> None:
        self._tokens, self._number, self.order = tokens, number, order
        self.waited_s = 0.0  # for the primary COMM, as a secondary one

    def between_chunks(self) -> None:
        """Call it between chunks of about 1 MB: the primary returns at once, the secondary waits for the primary."""
        began_s = time.perf_counter()
        self._tokens.wait_for_chunk(self._number, self.order.since_ns)
        self.waited_s += time.perf_counter() - began_s


class _Activity:
    """The file in which the COMM that goes first says when it last moved a chunk.

    A secondary one says so too, in gaps of the primary, and after it, when those that come later give way to it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._map: mmap.mmap | None = None
        self._chunk_ns = _FIRST_CHUNK_NS
        self._moved_ns, self._of = 0, 0  # the last chunk of ours, and of which COMM

    def map_again(self) -> None:
        """Map the present file: another agent may have made it anew. Raises OSError."""
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(fd, ACTIVITY.size)
        except ValueError as error:  # It is empty.
            raise OSError(str(error)) from error
        finally:
            os.close(fd)

    def chunk_moved(self, number: int, since_ns: int) -> None:
        """A COMM that has its token since then goes on."""
        now_ns = time.monotonic_ns()
        if number == self._of:
            took_ns = min(now_ns - self._moved_ns, _LONGER * self._chunk_ns)  # A gap is no slow chunk.
            self._chunk_ns += int(_NEW * (took_ns - self._chunk_ns))
        self._moved_ns, self._of = now_ns, number
        if self._map is not None:
            ACTIVITY.pack_into(self._map, 0, now_ns, self._chunk_ns, since_ns)

    def end(self, since_ns: int) -> None:
        """A COMM has ended."""
        self._of = 0
        if self._map is not None and ACTIVITY.unpack_from(self._map, 0)[2] == since_ns:
            ACTIVITY.pack_into(self._map, 0, 0, self._chunk_ns, 0)

    def busy_s(self, since_ns: int) -> float:
        """How long one that goes before this one counts as communicating, unless it says more; 0 if none does."""
        if self._map is None:
            return 0.0
        moved_ns, chunk_ns, first_ns = ACTIVITY.unpack_from(self._map, 0)
        if first_ns >= since_ns:
            return 0.0
        left_ns = moved_ns + max(_LEAST_IDLE_NS, _IDLE_CHUNKS * chunk_ns) - time.monotonic_ns()
        return left_ns / 1e9 if moved_ns and left_ns > 0 else 0.0
