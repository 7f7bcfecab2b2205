"""The simulated machines: one clock, processes that can be killed or stopped at any call, threads that are greenlets.

Nothing here runs at the same time as anything else: one thread runs until it waits, and the clock then jumps to the
next thing that is due. What is due at the same moment runs in an order that the seed decides.
"""

from __future__ import annotations

import heapq
import random
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from greenlet import getcurrent, greenlet
from tests.faultsim.files import Disk

EPOCH_S = 1_700_000_000.0  # what the wall clocks show when a simulation begins
_TICK_S = 1e-6  # that a timer is late at least; time never stands still
_JITTER_S = 0.002  # that a thread which is woken may wait for a processor


class Killed(BaseException):
    """The process of this thread is dead. No handler of the product may do anything any more: every call raises it."""


class Machine:
    """One computer: a disk, a boot time, a wall clock that may be set."""

    def __init__(self, kernel: Kernel, name: str, disk: Disk) -> None:
        self.kernel, self.name, self.disk = kernel, name, disk
        self.shared: dict[str, Disk] = {}  # folder → the disk that is mounted there
        self.booted_s = kernel.now_s - kernel.rng.uniform(10.0, 1e6)
        self.wall_offset_s = 0.0
        self.is_on = True
        self.processes: dict[int, Process] = {}
        self._boots = 0
        self._name_boot()

    def boot(self) -> None:
        """It is switched on again."""
        self.is_on, self.booted_s = True, self.kernel.now_s
        self._name_boot()

    def _name_boot(self) -> None:
        self._boots += 1
        self.disk.put("/proc/sys/kernel/random/boot_id", f"{self.name}-{self._boots}".encode())

    def disk_of(self, path: str) -> Disk:
        """The disk that holds a path."""
        for folder, disk in self.shared.items():
            if path.startswith(folder):
                return disk
        return self.disk

    def boot_s(self) -> float:
        """Seconds since it was switched on."""
        return self.kernel.now_s - self.booted_s

    def wall_s(self) -> float:
        """The time of day, as this machine has it."""
        return self.kernel.now_s + EPOCH_S + self.wall_offset_s


class Trap:
    """Something that happens to a process at one of its next calls."""

    def __init__(self, calls: int, spring: Callable[[Process], None]) -> None:
        self.calls, self.spring = calls, spring


class Process:
    """One process: its threads, its open files, and what becomes of it."""

    def __init__(self, machine: Machine, name: str, pid: int, parent: Process | None = None) -> None:
        self.machine, self.name, self.pid, self.parent = machine, name, pid, parent
        self.is_alive, self.is_stopped = True, False
        self.threads: list[Thread] = []
        self.files: dict[int, Any] = {}  # by descriptor
        self.next_fd = 3
        self.mark = ""  # in its environment
        self.dies_with_parent = False
        self.trap: Trap | None = None
        self.on_end: list[Callable[[], None]] = []
        self.on_change: Callable[[], None] = lambda: None  # it was stopped or continued
        self.on_signal: Callable[[int], None] = lambda _number: None
        self._held_back: list[tuple[Thread, int, bool]] = []  # wake-ups that wait until it is continued

    def stop(self) -> None:
        """As SIGSTOP."""
        if self.is_alive and not self.is_stopped:
            self.is_stopped = True
            self.on_change()

    def go_on(self) -> None:
        """As SIGCONT."""
        if self.is_alive and self.is_stopped:
            self.is_stopped = False
            kernel, held = self.machine.kernel, self._held_back
            self._held_back = []
            for thread, token, woken in held:
                if thread.token == token:
                    kernel.schedule(kernel.now_s + kernel.rng.random() * _JITTER_S, thread, woken)
            self.on_change()

    def hold_back(self, thread: Thread, token: int, woken: bool) -> None:
        """A thread of it would run now, and cannot."""
        self._held_back.append((thread, token, woken))

    def end(self) -> None:
        """As SIGKILL. If it is the process that runs just now, this raises Killed."""
        if not self.is_alive:
            return
        self.is_alive = False
        kernel = self.machine.kernel
        kernel.trace(self, "ends")
        del self.machine.processes[self.pid]
        for child in list(self.machine.processes.values()):
            if child.parent is self and child.dies_with_parent:
                child.end()
        for file in list(self.files.values()):
            file.close()
        self.files.clear()
        kernel.bury(self)
        for call in self.on_end:
            call()
        if kernel.current is not None and kernel.current.process is self:
            raise Killed


class Thread:
    """One thread of a process."""

    def __init__(self, process: Process, name: str, run: Callable[[], None]) -> None:
        self.process, self.name = process, name
        self.token = 0  # changes whenever it runs, so that an older wake-up does nothing
        self.is_over = False
        self.on_over: list[Callable[[], None]] = []
        self.greenlet: Any = greenlet(lambda _woken=True: self._run(run), process.machine.kernel.main)

    def _run(self, run: Callable[[], None]) -> None:
        kernel = self.process.machine.kernel
        try:
            run()
        except Killed:
            pass
        except Exception:
            kernel.errors.append(f"{self.process.name}, thread {self.name}:\n{traceback.format_exc()}")
        self.is_over = True
        for call in self.on_over:
            call()


class Kernel:
    """The scheduler of all threads on all machines."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(f"schedule {seed}")
        self.now_s = 0.0
        self.current: Thread | None = None
        self.errors: list[str] = []  # exceptions that no product code caught
        self.steps = 0
        self.trace: Callable[[Process | None, str], None] = lambda _process, _what: None
        self.preempt = 0.0  # how likely it is that a thread is interrupted where it takes a lock
        self._queue: list[tuple[float, float, int, Thread | None, int, Any]] = []
        self._count = 0
        self._pids = 100
        self._graves: list[Thread] = []
        self.main = getcurrent()

    # -- processes and threads --------------------------------------------------------------------------------

    def process(self, machine: Machine, name: str, run: Callable[[], None], parent: Process | None = None) -> Process:
        """Start a process, whose main thread does this; the process ends with it."""
        self._pids += 1
        process = Process(machine, name, self._pids, parent)
        machine.processes[process.pid] = process

        def main() -> None:
            run()
            process.end()

        self.thread(process, "main", main)
        return process

    def thread(self, process: Process, name: str, run: Callable[[], None]) -> Thread:
        """Start a thread in a process."""
        thread = Thread(process, name, run)
        process.threads.append(thread)
        self.schedule(self.now_s + self.rng.random() * _JITTER_S, thread, True)
        return thread

    def bury(self, process: Process) -> None:
        """No thread of a dead process goes on."""
        self._graves += [thread for thread in process.threads if thread is not self.current]

    # -- waiting ------------------------------------------------------------------------------------------------

    def schedule(self, at_s: float, thread: Thread, woken: bool) -> None:
        """Let a thread that waits go on at a moment, unless something else does so before."""
        self._count += 1
        heapq.heappush(self._queue, (at_s, self.rng.random(), self._count, thread, thread.token, woken))

    def at(self, at_s: float, call: Callable[[], None]) -> None:
        """Make a call at a moment; it belongs to no process, and must not wait."""
        self._count += 1
        heapq.heappush(self._queue, (max(at_s, self.now_s), self.rng.random(), self._count, None, 0, call))

    def wake(self, thread: Thread) -> None:
        """What a thread waits for may have happened."""
        self.schedule(self.now_s + self.rng.random() * _JITTER_S, thread, True)

    def park(self, until_s: float | None = None) -> bool:
        """Let the running thread wait until it is woken (True) or the moment has come (False)."""
        thread = self.current
        assert thread is not None, "only a simulated thread can wait"
        if not thread.process.is_alive:
            raise Killed
        if until_s is not None:
            self.schedule(max(until_s, self.now_s) + _TICK_S, thread, False)
        self.current = None
        woken = self.main.switch()
        if not thread.process.is_alive:
            raise Killed
        return bool(woken)

    def sleep(self, seconds: float) -> None:
        """Wait for a time."""
        until_s = self.now_s + seconds
        while self.park(until_s) and self.now_s < until_s:
            pass

    def call(self) -> None:
        """The running process makes a call of its system: it may be killed or stopped there."""
        thread = self.current
        if thread is None:
            return
        process = thread.process
        if not process.is_alive:
            raise Killed
        if (trap := process.trap) is not None:
            trap.calls -= 1
            if trap.calls <= 0:
                process.trap = None
                trap.spring(process)
                if process.is_stopped:
                    self.park(self.now_s)

    # -- running ------------------------------------------------------------------------------------------------

    def run(self, until_s: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Run until a moment, or until it is over."""
        queue = self._queue
        while not is_over():
            while self._graves:
                self._unwind(self._graves.pop())
            if self.errors:
                return
            if not queue or queue[0][0] > until_s:
                self.now_s = until_s
                return
            at_s, _tie, _count, thread, token, what = heapq.heappop(queue)
            if thread is None:
                self.now_s = at_s
                self.steps += 1
                what()
            elif thread.token == token and not thread.is_over and thread.process.is_alive:
                if thread.process.is_stopped:
                    thread.process.hold_back(thread, token, what)
                    continue
                self.now_s = at_s
                self.steps += 1
                thread.token += 1
                self.current = thread
                thread.greenlet.switch(what)
                self.current = None

    def close(self) -> None:
        """End all that is left, so that no thread is collected in the middle of something."""
        while self._queue:
            thread = heapq.heappop(self._queue)[3]
            if thread is not None and thread.process.is_alive:
                thread.process.end()
        while self._graves:
            self._unwind(self._graves.pop())

    def _unwind(self, thread: Thread) -> None:
        thread.token += 1
        if thread.is_over:
            return
        if not thread.greenlet:  # It never ran.
            thread.is_over = True
            return
        self.current = thread
        thread.greenlet.throw(Killed)
        self.current = None


class Lock:
    """For threads of one process; the thread that has it may take it again."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._owner: Thread | None = None
        self._depth = 0
        self._waiting: list[Thread] = []

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> bool:
        """Wait for it."""
        kernel = self._kernel
        me = kernel.current
        if me is None:
            assert self._owner is None, "a lock is held where nothing can wait for it"
            return True
        if not me.process.is_alive:
            raise Killed
        if self._owner is not me and kernel.preempt and kernel.rng.random() < kernel.preempt:
            kernel.sleep(kernel.rng.random() * 0.01)
        while self._owner is not None and self._owner is not me:
            self._waiting.append(me)
            kernel.park()
        self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        """Give it back."""
        if self._kernel.current is None:
            return
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            self._wake_next()

    def give_up(self) -> int:
        """Let others have it for a while; how often it was taken."""
        depth, self._depth, self._owner = self._depth, 0, None
        self._wake_next()
        return depth

    def take_back(self, depth: int) -> None:
        """Go on having it."""
        self.acquire()
        self._depth = depth

    def _wake_next(self) -> None:
        waiting, self._waiting = self._waiting, []
        for thread in waiting:
            self._kernel.wake(thread)


class Condition(Lock):
    """As `threading.Condition`, with its own lock or one that several share."""

    def __init__(self, kernel: Kernel, shared: Lock | None = None) -> None:
        super().__init__(kernel)
        self._held: Lock = self if shared is None else shared  # which those that wait let go of
        self._sleeping: list[Thread] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Let go of the lock until notified."""
        kernel = self._kernel
        me = kernel.current
        assert me is not None
        depth = self._held.give_up()
        self._sleeping.append(me)
        woken = kernel.park(None if timeout is None else kernel.now_s + max(timeout, 0.0))
        if me in self._sleeping:
            self._sleeping.remove(me)
        self._held.take_back(depth)
        return woken

    def wait_for(self, holds: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until it holds."""
        until_s = None if timeout is None else self._kernel.now_s + timeout
        while not (result := holds()):
            left = None if until_s is None else until_s - self._kernel.now_s
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify_all(self) -> None:
        """Let all that wait look again."""
        sleeping, self._sleeping = self._sleeping, []
        for thread in sleeping:
            self._kernel.wake(thread)


class Flag:
    """As `threading.Event`."""

    def __init__(self, kernel: Kernel) -> None:
        self._changed = Condition(kernel)
        self._is_set = False

    def is_set(self) -> bool:
        """Is it?"""
        return self._is_set

    def set(self) -> None:
        """From now on it is."""
        self._is_set = True
        self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is."""
        with self._changed:
            return self._changed.wait_for(self.is_set, timeout)


@contextmanager
def as_outsider(kernel: Kernel) -> Iterator[None]:
    """Do something that belongs to no thread: an observer looks."""
    current, kernel.current = kernel.current, None
    try:
        yield
    finally:
        kernel.current = current
