"""Sleeps until a file grows, a process ends, a signal comes or another thread calls; all at no cost meanwhile."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from collections.abc import Callable

_IN_MODIFY = 0x2
_HEAD = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Poller:
    """One thread waits; every thread may add and take away what is waited for."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._calls: dict[int, Callable[[], None]] = {}
        self._growing: dict[int, Callable[[], None]] = {}  # by inotify's own number
        self._notices = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.readable(self._bell, self._heard_bell)
        if self._notices >= 0:
            self.readable(self._notices, self._take_notices)

    def readable(self, fd: int, call: Callable[[], None]) -> None:
        """Call this whenever a descriptor can be read, as that of a process can once it has ended."""
        self._calls[fd] = call
        self._epoll.register(fd, select.EPOLLIN)

    def leave(self, fd: int) -> None:
        """No longer; to be said before the descriptor is closed."""
        if self._calls.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def growing(self, path: str, call: Callable[[], None]) -> int | None:
        """Call this whenever a file is written to; a number to leave it by. None if the system has no more to give."""
        if self._notices < 0:
            return None
        number: int = _libc.inotify_add_watch(self._notices, os.fsencode(path), _IN_MODIFY)
        if number < 0:
            return None
        self._growing[number] = call
        return number

    def leave_growing(self, number: int) -> None:
        """No longer."""
        if self._growing.pop(number, None) is not None:
            _libc.inotify_rm_watch(self._notices, number)

    def ring(self) -> None:
        """Wake the thread that waits."""
        os.eventfd_write(self._bell, 1)

    def wait(self, timeout_s: float | None) -> None:
        """Wait for something, and make the calls that are due."""
        for fd, _ in self._epoll.poll(timeout_s):
            call = self._calls.get(fd)
            if call is not None:  # It may have been left by an earlier call.
                call()

    def _heard_bell(self) -> None:
        os.eventfd_read(self._bell)

    def _take_notices(self) -> None:
        try:
            data = os.read(self._notices, 1 << 16)
        except BlockingIOError:
            return
        place = 0
        numbers: dict[int, None] = {}
        while place < len(data):
            number, _mask, _cookie, more = _HEAD.unpack_from(data, place)
            place += _HEAD.size + more
            numbers[number] = None
        for number in numbers:
            call = self._growing.get(number)
            if call is not None:
                call()
            elif number < 0:  # Too much at once: some notices are missing.
                for each in list(self._growing.values()):
                    each()
