"""The process that looks at past states for a controller, so that no reader delays a cycle.

It reads requests from its standard input, one a line, and answers each on its standard output: a line with the status
and the length, then so many bytes of JSON. Between requests it folds further cycles of the journal, and leaves states
on the way (`past_states.py`). It ends when its input does, or when nothing was asked for a while.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct

from hocket.control.journal import JournalError
from hocket.service.history_index import IndexTroubleError
from hocket.service.past_state_rows import counts_of, shown_past
from hocket.service.past_states import NotKept, PastStates
from hocket.service.tokens import Token

_SLICE = 200  # cycles folded before the next look at the input
_READY_S = 0.2  # of folding before a request is answered, at most: what is not indexed then cannot be asked for
_IDLE_S = 60.0  # after which it ends


class HistorySource(Struct, frozen=True):
    """What is read. It comes on the standard input, first: a store's URL may have a password."""

    store: str
    archives: str = ""  # folder; empty: there is none
    index: str = ""  # file; empty: in memory


class HistoryRequest(Struct, frozen=True):
    """A request: a state after a cycle or at a time, or how many cycles there were when."""

    token: Token  # of the caller: what it may see
    cycle: int = 0  # 0: the last one
    at_s: float | None = None  # a time instead
    buckets: int = 0  # of the density of cycles, which is asked for instead of a state
    since_s: float | None = None  # of the density; None: from the first on
    until_s: float | None = None
    parts: tuple[str, ...] = ()
    over: bool = False  # jobs that had ended too
    owner: str = ""
    limit: int = 100_000


class HistoryAnswer(Struct, frozen=True):
    """What comes before the body."""

    status: int
    length: int
    indexed: int = 0  # cycles that can be asked for
    last: int = 0  # cycle of the journal


class HistoryWorker:
    """Answers requests. An error in the journal is an answer; the journal is opened anew for the next one."""

    def __init__(self, source: HistorySource) -> None:
        self._source = source
        self._states: PastStates | None = None

    def answer(self, request: HistoryRequest) -> tuple[HistoryAnswer, bytes]:
        """The answer to one request, with its body."""
        try:
            states = self._ready(_READY_S)
            status, content = self._answer_of(states, request)
        except NotKept as error:
            status, content = 404, {"error": str(error)}
        except IndexTroubleError as error:
            status, content = 503, {"error": f"{error}; it is made anew"}
            self._index_again()
        except JournalError as error:
            self.close()
            status, content = 503, {"error": str(error)}
        body = msgspec.json.encode(content)
        states_now = self._states
        indexed, last = (states_now.indexed, states_now.last) if states_now is not None else (0, 0)
        return HistoryAnswer(status, len(body), indexed, last), body

    def _answer_of(self, states: PastStates, request: HistoryRequest) -> tuple[int, Any]:
        behind = f"the history is being read: up to cycle {states.indexed:,} of {states.last:,} so far; ask again"
        if request.buckets:
            since_s = -inf if request.since_s is None else request.since_s
            until_s = inf if request.until_s is None else request.until_s
            return 200, counts_of(states, request.buckets, since_s, until_s) | {"indexed": states.indexed}
        number = request.cycle
        if request.at_s is not None:
            if states.indexed < states.last and request.at_s > states.indexed_until_s:
                return 503, {"error": behind}
            number = states.cycle_at(request.at_s)
        elif not number:
            number = states.indexed
        if states.indexed < number <= states.last:
            return 503, {"error": behind}
        return 200, shown_past(
            states, number, frozenset(request.parts), request.token,
            over=request.over, owner=request.owner, limit=request.limit,
        )  # fmt: skip

    def index_further(self) -> bool:
        """Fold some further cycles; whether there may be more."""
        try:
            return self._opened().index_further(_SLICE) == _SLICE
        except (JournalError, IndexTroubleError):  # It is told when something is asked.
            self.close()
            return False

    def _index_again(self) -> None:
        try:
            if self._states is not None:
                self._states.index_again()
        except (JournalError, IndexTroubleError):
            self.close()

    def close(self) -> None:
        """Let go of the journal."""
        if self._states is not None:
            with suppress(Exception):
                self._states.close()
            self._states = None

    def _ready(self, within_s: float) -> PastStates:
        states, until = self._opened(), monotonic() + within_s
        while states.index_further(_SLICE) == _SLICE and monotonic() < until:
            pass
        states.forget()
        return states

    def _opened(self) -> PastStates:
        if self._states is None:
            source = self._source
            archives = Path(source.archives) if source.archives else None
            self._states = PastStates(source.store, archives, Path(source.index) if source.index else None)
        return self._states


class _Lines:
    """Lines from a file descriptor, which can be waited for."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = b""

    def next(self, wait_s: float) -> bytes | None:
        """The next line; None if it does not come in time, and empty at the end."""
        until = monotonic() + wait_s
        while b"\n" not in self._rest:
            if not select.select([self._fd], [], [], max(0.0, until - monotonic()))[0]:
                return None
            if not (some := os.read(self._fd, 1 << 16)):
                return b""
            self._rest += some
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def serve(lines: Callable[[float], bytes | None], write: Callable[[bytes], object], idle_s: float = _IDLE_S) -> None:
    """Answer requests until there are none any more."""
    worker = HistoryWorker(msgspec.json.decode(lines(idle_s) or b"", type=HistorySource))
    used_s, has_more, took_s = monotonic(), True, 0.0
    try:
        while True:
            # After some folding it rests as long: it takes half a core at most from those that it works beside.
            line = lines(took_s if has_more else max(0.0, used_s + idle_s - monotonic()))
            if line is None and has_more:
                began_s = monotonic()
                has_more = worker.index_further()
                took_s = monotonic() - began_s
            elif not line:
                return
            else:
                head, body = worker.answer(msgspec.json.decode(line, type=HistoryRequest))
                write(msgspec.json.encode(head) + b"\n" + body)
                used_s, has_more, took_s = monotonic(), True, 0.0
    finally:
        worker.close()


def main() -> None:
    """Serve a controller."""
    os.umask(0o077)

    def write(answer: bytes) -> None:
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()

    with suppress(BrokenPipeError, KeyboardInterrupt):
        serve(_Lines(sys.stdin.fileno()).next, write)


if __name__ == "__main__":
    main()
