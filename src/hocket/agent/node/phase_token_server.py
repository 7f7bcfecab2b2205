"""Hands out the phase tokens of this host, in a thread of its own, to jobs that ask on a Unix socket.

Nothing is started before the first job needs it. A job whose connection ends has lost its tokens; so has one that holds
them for too long. When an agent starts again, its jobs go on without tokens until they have connected again.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from hocket.agent.phase_measurements import PhaseMeans, PhaseMeasurements
from hocket.agent.phase_token_rules import FLOOR_S, Notice, PhaseTokenRules
from hocket.agent.protocol import RunKey
from hocket.model.phase_tokens import (
    ACTIVITY,
    ACTIVITY_SUFFIX,
    LONGEST_MESSAGE,
    AreYouThere,
    AskToken,
    FromAgent,
    HereIAm,
    IterationMeasured,
    JoinTurns,
    LeaveGroup,
    PhaseToken,
    ReleaseToken,
    TokenGranted,
    TokenLost,
    TurnsReplaced,
    decode_from_job,
    encode,
)

_log = logging.getLogger("hocket.agent")
_MOST_WAITING = 128  # connections that are not accepted yet


class _Tenant:
    """A job's connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.run: RunKey | None = None  # None until it has said which it is
        self.measured = PhaseMeasurements()


class PhaseTokenServer:
    """Of one agent. `listen` and `ask_to_leave` may be called in any thread."""

    def __init__(self, path: str, ring: Callable[[], None], floor_s: float = FLOOR_S) -> None:
        """Listen at this path when it is needed; `ring` is called when `take_reports` has something."""
        self._path, self._ring = path, ring
        self._rules = PhaseTokenRules(floor_s)
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None  # None until it is needed
        self._bell = -1
        self._last_grant_ns = 0  # of a network token
        self._tenants: dict[int, _Tenant] = {}  # by descriptor
        self._by_job: dict[str, _Tenant] = {}
        self._to_leave: deque[RunKey] = deque()  # not told yet
        self._leaving: dict[str, int] = {}  # job → its run that was told to leave
        self._reports: deque[tuple[RunKey, PhaseMeans]] = deque()
        self._closed = False

    # -- for other threads --------------------------------------------------------------------------------------

    def listen(self) -> str:
        """The path of its socket, on which it listens from now on. Raises OSError."""
        with self._starting:
            if self._thread is None:
                try:
                    self._start()
                except OSError as error:
                    _log.warning("no phase tokens, jobs run without: '%s': %s", self._path, error)
                    raise
        return self._path

    def ask_to_leave(self, run: RunKey) -> None:
        """Tell a run, if it takes turns, to leave its group at the end of its iteration."""
        with self._starting:
            if self._thread is None or self._closed:
                return
            self._to_leave.append(run)
            os.eventfd_write(self._bell, 1)

    def take_reports(self) -> list[tuple[RunKey, PhaseMeans]]:
        """What runs have measured since the last call."""
        found = []
        with suppress(IndexError):
            while True:
                found.append(self._reports.popleft())
        return found

    def close(self) -> None:
        """End the thread, and remove the socket."""
        with self._starting:
            if self._thread is None or self._closed:
                return
            self._closed = True
            os.eventfd_write(self._bell, 1)
            self._thread.join()
            os.close(self._bell)  # Not by the thread: it may have seen before the bell that it is to end.
        for path in (self._path, self._path + ACTIVITY_SUFFIX):
            with suppress(OSError):
                os.unlink(path)

    # -- the thread ---------------------------------------------------------------------------------------------

    def _start(self) -> None:
        # A new file: jobs of an agent before us have mapped the old one, and would die if it became shorter.
        activity = self._path + ACTIVITY_SUFFIX
        fd = os.open(f"{activity}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(bytes(ACTIVITY.size))
        os.replace(f"{activity}.new", activity)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        folder = os.open(os.path.dirname(self._path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with suppress(FileNotFoundError):  # of an agent before us
                os.unlink(self._path)
            # The path of a socket may have 107 bytes only; that of its folder does not count this way.
            listening.bind(f"/proc/self/fd/{folder}/{os.path.basename(self._path)}")
            listening.listen(_MOST_WAITING)
        except OSError:
            listening.close()
            raise
        finally:
            os.close(folder)
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        epoll = select.epoll()
        epoll.register(listening.fileno(), select.EPOLLIN)
        epoll.register(self._bell, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, args=(epoll, listening), name="phase tokens", daemon=True)
        self._thread.start()
        _log.info("hands out phase tokens at '%s'", self._path)

    def _run(self, epoll: select.epoll, listening: socket.socket) -> None:
        while not self._closed:
            due_s = self._rules.next_expiry_s()
            for fd, _ in epoll.poll(None if due_s is None else max(0.0, due_s - time.monotonic())):
                if fd == listening.fileno():
                    self._accept(listening, epoll)
                elif fd == self._bell:
                    self._take_bell()
                elif (tenant := self._tenants.get(fd)) is not None:
                    self._take_messages(tenant)
            if due_s is not None and (now_s := time.monotonic()) >= due_s:
                self._tell(self._rules.expire(now_s))
        for tenant in list(self._tenants.values()):
            self._drop(tenant)
        listening.close()
        epoll.close()

    def _accept(self, listening: socket.socket, epoll: select.epoll) -> None:
        try:
            connection, _ = listening.accept()
        except OSError as error:  # It is gone again, or there are too many open files.
            _log.warning("phase tokens: a connection cannot be accepted: %s", error)
            time.sleep(0.01)  # It may come again at once.
            return
        connection.setblocking(False)
        self._tenants[connection.fileno()] = _Tenant(connection)
        epoll.register(connection.fileno(), select.EPOLLIN)

    def _take_bell(self) -> None:
        os.eventfd_read(self._bell)
        while self._to_leave:
            run = self._to_leave.popleft()
            self._leaving[run.job] = run.number
            tenant = self._by_job.get(run.job)
            if tenant is not None and tenant.run == run:
                self._send(tenant, LeaveGroup())

    def _take_messages(self, tenant: _Tenant) -> None:
        while True:
            try:
                data = tenant.connection.recv(LONGEST_MESSAGE)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._drop(tenant)
                return
            try:
                self._take(tenant, data)
            except (msgspec.MsgspecError, ValueError) as error:
                job = tenant.run.job if tenant.run is not None else "?"
                _log.warning("phase tokens: job '%s' is left out: %s", job, error, extra={"job": job})
                self._drop(tenant)
                return

    def _take(self, tenant: _Tenant, data: bytes) -> None:
        message, now_s = decode_from_job(data), time.monotonic()
        if isinstance(message, JoinTurns):
            self._join(tenant, RunKey(message.job, message.run))
            return
        if tenant.run is None:
            raise ValueError("it has not said which job it is")
        match message:
            case AskToken(number, phase):
                self._tell(self._rules.ask(tenant.run.job, number, phase, now_s))
            case ReleaseToken(number):
                self._tell(self._rules.release(tenant.run.job, number, now_s))
            case IterationMeasured():
                shared_s = self._rules.take_shared_s(tenant.run.job, now_s)
                if (means := tenant.measured.add(message, now_s, shared_s)) is not None:
                    self._reports.append((tenant.run, means))
                    self._ring()
            case AreYouThere():
                self._send(tenant, HereIAm())

    def _join(self, tenant: _Tenant, run: RunKey) -> None:
        if tenant.run is not None:
            raise ValueError("it has said before which job it is")
        if (before := self._by_job.get(run.job)) is not None:
            self._send(before, TurnsReplaced())
            self._drop(before)
        tenant.run = run
        self._by_job[run.job] = tenant
        if self._leaving.get(run.job) == run.number:
            self._send(tenant, LeaveGroup())
        else:
            self._leaving.pop(run.job, None)

    def _tell(self, notices: list[Notice]) -> None:
        for job, message in notices:
            if isinstance(message, TokenLost):
                said = "job '%s' held a phase token for too long, and has lost it"
                _log.warning(said, job, extra={"job": job})
            if isinstance(message, TokenGranted) and message.token is not PhaseToken.CPU:
                self._last_grant_ns = max(self._last_grant_ns + 1, time.time_ns())
                message = replace(message, since_ns=self._last_grant_ns)
            if (tenant := self._by_job.get(job)) is not None:
                self._send(tenant, message)

    def _send(self, tenant: _Tenant, message: FromAgent) -> None:
        try:
            tenant.connection.send(encode(message))
        except OSError:  # It is gone, or takes nothing in any more; the next look at it ends it.
            with suppress(OSError):
                tenant.connection.shutdown(socket.SHUT_RDWR)

    def _drop(self, tenant: _Tenant) -> None:
        if self._tenants.pop(tenant.connection.fileno(), None) is None:
            return
        tenant.connection.close()  # epoll forgets it.
        run = tenant.run
        if run is not None and self._by_job.get(run.job) is tenant:
            del self._by_job[run.job]
            self._tell(self._rules.leave(run.job, time.monotonic()))
