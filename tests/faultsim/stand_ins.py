"""Stand-ins for the parts of the standard library that reach outside: time, threads, files, processes, random numbers.

They take the place of the real ones in the modules of the product that a simulation runs, by identity: whatever name a
module has for `time`, `os` or `threading.Condition`, it gets the stand-in. So the product's code is run as it is. What
has no stand-in raises, with its name.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import os
import random
import secrets
import shutil
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.faultsim.files import File, OpenFile, Pipe
from tests.faultsim.kernel import Condition, Flag, Kernel, Killed, Lock, Process, Thread

# The modules in which they take the place of the real ones.
PREFIXES = (
    "hocket.agent.lease_file",
    "hocket.agent.run_folder",
    "hocket.agent.node.",
    "hocket.agent.sidecar.attempt_file",
    "hocket.agent.sidecar.events_writer",
    "hocket.agent.sidecar.lease_watch",
    "hocket.agent.sidecar.process_suspension",
    "hocket.agent.sidecar.spec",
    "hocket.executors.agents.",
    "hocket.service.agent_calls",
    "hocket.service.engine",
)


class Clock:
    """As the module `time`, on the machine of the process that asks."""

    CLOCK_BOOTTIME = CLOCK_MONOTONIC = 7

    def __init__(self, system: System) -> None:
        self._system = system

    def monotonic(self) -> float:
        """Seconds since the machine was switched on."""
        return self._system.machine.boot_s()

    perf_counter = monotonic

    def clock_gettime(self, _clock: int) -> float:
        """The same: a machine that is suspended goes on counting."""
        return self.monotonic()

    def time(self) -> float:
        """The time of day."""
        return self._system.machine.wall_s()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self._system.kernel.call()
        self._system.kernel.sleep(seconds)


class Threading:
    """As the module `threading`."""

    def __init__(self, system: System) -> None:
        kernel = system.kernel
        self.Lock = self.RLock = partial(Lock, kernel)
        self.Condition = partial(Condition, kernel)
        self.Event = partial(Flag, kernel)
        self.Thread = partial(StartableThread, system)


class StartableThread:
    """As `threading.Thread`."""

    def __init__(self, system: System, target: Callable[[], None], name: str = "thread", daemon: bool = True) -> None:
        assert daemon, "a thread that its process waits for"
        self._system, self._target, self._name = system, target, name
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin."""
        name = getattr(self._target, "__qualname__", self._name)
        self._thread = self._system.kernel.thread(self._system.process, name, self._target)

    def is_alive(self) -> bool:
        """Has it begun, and not ended?"""
        return self._thread is not None and not self._thread.is_over

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        kernel, thread = self._system.kernel, self._thread
        assert thread is not None
        until_s = None if timeout is None else kernel.now_s + timeout
        waiting = kernel.current
        assert waiting is not None
        thread.on_over.append(lambda: kernel.wake(waiting))
        while not thread.is_over and kernel.park(until_s):
            pass


class Paths:
    """As `os.path`."""

    join, basename = staticmethod(os.path.join), staticmethod(os.path.basename)
    dirname, isabs = staticmethod(os.path.dirname), staticmethod(os.path.isabs)

    def __init__(self, system: System) -> None:
        self._system = system

    def abspath(self, path: str) -> str:
        """All paths in a simulation are absolute."""
        assert os.path.isabs(path), path
        return os.path.normpath(path)

    def exists(self, path: str) -> bool:
        """Is there anything?"""
        return self._system.disk(path).exists(path)

    def isdir(self, path: str) -> bool:
        """Is it a folder?"""
        return self._system.disk(path).is_folder(path)


class Os:
    """As the module `os`, on the disks of the machine of the process that asks."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.path = Paths(system)
        self.environ: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("O_", "EFD_", "EX_")) or name in ("strerror", "fsencode", "waitstatus_to_exitcode"):
            return getattr(os, name)
        raise AttributeError(f"the simulated os has no '{name}'")

    # -- files ----------------------------------------------------------------------------------------------------

    def open(self, path: str, flags: int, _mode: int = 0o777) -> int:
        """A descriptor."""
        if flags & (os.O_CREAT | os.O_TRUNC):
            self._system.kernel.call()
        process = self._system.process
        opened = self._system.disk(path).open(path, flags)
        process.next_fd += 1
        process.files[process.next_fd] = opened
        return process.next_fd

    def close(self, fd: int) -> None:
        """Let go of it."""
        process = self._system.process
        if not process.is_alive:
            raise Killed
        process.files.pop(fd).close()

    def read(self, fd: int, most: int) -> bytes:
        """From where the last one ended."""
        opened = self._opened(fd)
        if isinstance(opened.of, Pipe):
            if not opened.of.data:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            data = bytes(opened.of.data[:most])
            del opened.of.data[:most]
            return data
        data = bytes(opened.of.data[opened.place : opened.place + most])
        opened.place += len(data)
        return data

    def pread(self, fd: int, most: int, place: int) -> bytes:
        """From a place on."""
        of = self._opened(fd).of
        assert isinstance(of, File)
        return bytes(of.data[place : place + most])

    def write(self, fd: int, data: bytes) -> int:
        """At the end, or where the last one ended."""
        self._system.kernel.call()
        opened = self._opened(fd)
        return self._system.machine.disk.write(opened, data)

    def pwrite(self, fd: int, data: bytes, place: int) -> int:
        """At a place."""
        self._system.kernel.call()
        return self._system.machine.disk.write(self._opened(fd), data, place)

    def ftruncate(self, fd: int, length: int) -> None:
        """Cut it off."""
        self._system.kernel.call()
        self._system.machine.disk.truncate(self._opened(fd), length)

    def fsync(self, fd: int) -> None:
        """Have it on the disk."""
        self._system.kernel.call()
        of = self._opened(fd).of
        assert isinstance(of, File)
        of.sync()

    def fstat(self, fd: int) -> Any:
        """How long it is."""
        of = self._opened(fd).of
        return SimpleNamespace(st_size=len(of.data))

    def set_blocking(self, fd: int, blocking: bool) -> None:
        """Nothing blocks."""

    def _opened(self, fd: int) -> OpenFile:
        process = self._system.process
        if not process.is_alive:
            raise Killed
        found = process.files[fd]
        assert isinstance(found, OpenFile)
        return found

    # -- names ----------------------------------------------------------------------------------------------------

    def makedirs(self, path: str, _mode: int = 0o777, exist_ok: bool = False) -> None:
        """Folders."""
        self._system.kernel.call()
        self._system.disk(path).makedirs(path, exist_ok)

    def rename(self, old: str, new: str) -> None:
        """Of files."""
        self._system.kernel.call()
        self._system.disk(old).rename(old, new)

    replace = rename

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self._system.kernel.call()
        self._system.disk(path).unlink(path)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        self._system.kernel.call()
        self._system.disk(path).rmdir(path)

    def mkfifo(self, path: str, _mode: int = 0o666) -> None:
        """A pipe with a name."""
        self._system.kernel.call()
        self._system.disk(path).mkfifo(path)

    def listdir(self, path: str) -> list[str]:
        """The names in a folder, in any order."""
        names = self._system.disk(path).listdir(path)
        self._system.kernel.rng.shuffle(names)
        return names

    def stat(self, path: str) -> Any:
        """Size, time and kind."""
        return self._system.disk(path).stat(path)

    # -- processes ------------------------------------------------------------------------------------------------

    def getpid(self) -> int:
        """Ours."""
        return self._system.process.pid

    def kill(self, pid: int, number: int) -> None:
        """Send a signal."""
        self._system.kernel.call()
        process = self._system.machine.processes.get(pid)
        if process is None:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        deliver(process, number)

    def pidfd_open(self, pid: int) -> int:
        """A descriptor of a process, which can be read once that has ended."""
        process = self._system.process
        target = self._system.machine.processes.get(pid) or self._system.zombies.get((process, pid))
        if target is None:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        process.next_fd += 1
        process.files[process.next_fd] = ProcessFile(target)
        return process.next_fd


class ProcessFile:
    """A descriptor of a process."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def close(self) -> None:
        """Let go of it."""


def deliver(process: Process, number: int) -> None:
    """What a signal does."""
    if number == signal.SIGKILL:
        process.end()
    elif number == signal.SIGSTOP:
        process.stop()
    elif number == signal.SIGCONT:
        process.go_on()
    elif number:
        process.on_signal(number)


class Fcntl:
    """As the module `fcntl`: whole-file locks, never waited for."""

    LOCK_EX, LOCK_SH, LOCK_NB, LOCK_UN = fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_NB, fcntl.LOCK_UN

    def __init__(self, system: System) -> None:
        self._system = system

    def flock(self, fd: int, how: int) -> None:
        """Take it, or raise BlockingIOError."""
        assert how & fcntl.LOCK_NB, "a simulated process would wait for a lock for ever"
        self._system.kernel.call()
        opened = self._system.process.files[fd]
        exclusive = bool(how & fcntl.LOCK_EX)
        others = {who: e for who, e in opened.of.locks.items() if who is not opened}
        if others and (exclusive or any(others.values())):
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        opened.of.locks[opened] = exclusive


class Shutil:
    """As the module `shutil`."""

    def __init__(self, system: System) -> None:
        self._system = system

    def rmtree(self, path: str, ignore_errors: bool = False) -> None:
        """Remove a folder and all in it, one after the other."""
        assert ignore_errors
        disk, kernel = self._system.disk(path), self._system.kernel
        for inner in [*disk.below(path), path]:
            kernel.call()
            (disk.rmdir if disk.is_folder(inner) else disk.unlink)(inner)


class Signals:
    """As the module `signal`, for what one process sends to another."""

    def __init__(self, system: System) -> None:
        self._system = system

    def __getattr__(self, name: str) -> Any:
        if name.startswith("SIG") or name == "Signals":
            return getattr(signal, name)
        raise AttributeError(f"the simulated signal has no '{name}'")

    def pidfd_send_signal(self, fd: int, number: int) -> None:
        """To the process of a descriptor."""
        self._system.kernel.call()
        process = self._system.process.files[fd].process
        if not process.is_alive:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        deliver(process, number)


class WrittenText(io.StringIO):
    """A file that is open for writing: its text goes to the disk when it is closed, in one call."""

    def __init__(self, system: System, fd: int) -> None:
        super().__init__()
        self._system, self._fd = system, fd

    def close(self) -> None:
        """Write, and let go."""
        if not self.closed:
            text = self.getvalue().encode()
            super().close()
            try:
                if text:
                    self._system.os.write(self._fd, text)
            finally:
                self._system.os.close(self._fd)


class Poller:
    """As `hocket.agent.node.poller.Poller`: waits for ends of processes, for files that grow and for its bell."""

    system: System  # of the simulation that runs

    def __init__(self) -> None:
        self._kernel = self.system.kernel
        self._calls: dict[int, Callable[[], None]] = {}
        self._growing: dict[int, tuple[File, Callable[[], None]]] = {}
        self._due: dict[Callable[[], None], None] = {}
        self._waiting: Thread | None = None
        self._rung = False
        self._numbers = 0

    def readable(self, fd: int, call: Callable[[], None]) -> None:
        """Call this when a process has ended, or a pipe has something."""
        self._calls[fd] = call
        file = self.system.process.files[fd]

        def tell() -> None:
            if self._calls.get(fd) is call:
                self._due[call] = None
                self.ring()

        if isinstance(file, ProcessFile):
            file.process.on_end.append(tell)
            if not file.process.is_alive:
                tell()
        else:
            file.of.told = tell

    def leave(self, fd: int) -> None:
        """No longer."""
        call = self._calls.pop(fd, None)
        if call is not None:
            self._due.pop(call, None)

    def growing(self, path: str, call: Callable[[], None]) -> int | None:
        """Call this when a file was written to; None now and then, as where the system has no more to give."""
        file = self.system.disk(path).file(path)
        if file is None or self._kernel.rng.random() < 0.05:
            return None
        self._numbers += 1

        def tell() -> None:
            self._due[call] = None
            self.ring()

        file.watchers[id(self) + self._numbers] = tell
        self._growing[self._numbers] = (file, call)
        return self._numbers

    def leave_growing(self, number: int) -> None:
        """No longer."""
        file, call = self._growing.pop(number)
        file.watchers.pop(id(self) + number, None)
        self._due.pop(call, None)

    def ring(self) -> None:
        """Wake the thread that waits."""
        self._rung = True
        if self._waiting is not None:
            self._kernel.wake(self._waiting)

    def wait(self, timeout_s: float | None) -> None:
        """Wait for something, and make the calls that are due."""
        until_s = None if timeout_s is None else self._kernel.now_s + max(timeout_s, 0.0)
        self._kernel.call()
        self._waiting = self._kernel.current
        while not self._rung and self._kernel.park(until_s):
            pass
        self._rung, self._waiting = False, None
        while self._due:
            call = next(iter(self._due))
            del self._due[call]
            call()


class System:
    """All stand-ins of one simulation."""

    def __init__(self, kernel: Kernel, seed: str) -> None:
        self.kernel = kernel
        self.rng = random.Random(f"product {seed}")  # what the product draws
        self.zombies: dict[tuple[Process, int], Process] = {}  # by parent: children that were not waited for
        self.os = Os(self)
        self.time, self.threading, self.fcntl = Clock(self), Threading(self), Fcntl(self)
        self.shutil, self.signal = Shutil(self), Signals(self)
        Poller.system = self

    @property
    def process(self) -> Process:
        """The one that runs."""
        thread = self.kernel.current
        assert thread is not None, "the product was called by no process"
        return thread.process

    @property
    def machine(self) -> Any:
        """The one that it runs on."""
        return self.process.machine

    def disk(self, path: str) -> Any:
        """The one that has a path, for the process that runs."""
        if not self.process.is_alive:
            raise Killed
        return self.process.machine.disk_of(path)

    def open(self, file: str | int, mode: str = "r", encoding: str | None = None, errors: str | None = None) -> Any:
        """As the built-in: a whole file is read at once, and written at once."""
        if "r" in mode:
            data = self._read_whole(str(file))
            return (
                io.BytesIO(data) if "b" in mode else io.StringIO(data.decode(encoding or "utf-8", errors or "strict"))
            )
        fd = self.os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) if isinstance(file, str) else file
        return WrittenText(self, fd)

    def _read_whole(self, path: str) -> bytes:
        fd = self.os.open(path, os.O_RDONLY)
        try:
            return self.os.pread(fd, 1 << 30, 0)
        finally:
            self.os.close(fd)

    def token_hex(self, size: int = 16) -> str:
        """As `secrets.token_hex`."""
        return self.rng.randbytes(size).hex()

    def replacements(self) -> dict[int, Any]:
        """The real thing, by its identity → its stand-in."""
        hex_source = SimpleNamespace(token_hex=self.token_hex)
        drawn = SimpleNamespace(uniform=self.rng.uniform, random=self.rng.random)
        named = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=self.token_hex(16)))
        host = SimpleNamespace(gethostname=lambda: self.machine.name)
        clock, threads = self.time, self.threading
        pairs: list[tuple[Any, Any]] = [
            (os, self.os), (time, clock), (threading, threads), (fcntl, self.fcntl), (shutil, self.shutil),
            (signal, self.signal), (secrets, hex_source), (random, drawn), (uuid, named), (socket, host),
            (secrets.token_hex, self.token_hex), (time.monotonic, clock.monotonic), (time.time, clock.time),
            (time.sleep, clock.sleep), (threading.Condition, threads.Condition), (threading.Thread, threads.Thread),
            (threading.Event, threads.Event), (threading.Lock, threads.Lock), (threading.RLock, threads.RLock),
        ]  # fmt: skip
        return {id(real): stand_in for real, stand_in in pairs}


def product_modules() -> list[ModuleType]:
    """Those in which stand-ins are put."""
    return [m for name, m in sorted(sys.modules.items()) if m is not None and name.startswith(PREFIXES)]


@contextmanager
def installed(system: System, also: dict[tuple[str, str], Any]) -> Iterator[None]:
    """Put the stand-ins into the product, and `also` these: (module, name) → what it is for now."""
    replaced: list[tuple[dict[str, Any], str, Any]] = []
    replacements = system.replacements()
    missing = object()

    def put(module: ModuleType, name: str, value: Any) -> None:
        replaced.append((vars(module), name, vars(module).get(name, missing)))
        vars(module)[name] = value

    try:
        for module in product_modules():
            for name, value in list(vars(module).items()):
                if id(value) in replacements:
                    put(module, name, replacements[id(value)])
            put(module, "open", system.open)
        for (module_name, name), value in also.items():
            assert name in vars(sys.modules[module_name]) or hasattr(builtins, name), (module_name, name)
            put(sys.modules[module_name], name, value)
        yield
    finally:
        for names, name, before in reversed(replaced):
            if before is missing:
                del names[name]
            else:
                names[name] = before
