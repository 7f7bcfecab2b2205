"""Several assignments at a time, each in a process of its own, and none of them left behind.

A fresh process a run makes CPU time and peak memory those of that run alone. Processes are spawned, not forked: a
fork of a process with threads may hang. A worker ignores Ctrl-C, which its parent answers by ending it; a worker
whose parent is gone ends itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Protocol, TypeVar, cast

from msgspec import Struct

from hocket.cli.terminal.errors import InputError

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Assignment(Protocol[T_co]):
    """What one worker does: plain data, for it is sent to another process."""

    @property
    def label(self) -> str:
        """What it is called where it fails."""

    def carry_out(self, began: Callable[[int], None], progressed: Callable[[int], None]) -> T_co:
        """Do it, in the worker. `began` is told how many steps there are, `progressed` how many are done.

        Raises InputError if it cannot be done as it was given.
        """


class Begun(Struct, frozen=True):
    """A worker has read what it works on."""

    steps: int


class Progressed(Struct, frozen=True):
    """So many steps are done."""

    steps: int


class Failed(Struct, frozen=True):
    """The input was wrong, or the worker broke."""

    message: str


class Done(Struct, frozen=True):
    """What came of it."""

    result: Any


Report = Begun | Progressed | Failed | Done


def run_all(assignments: Sequence[Assignment[T]], workers: int, on_report: Callable[[int, Report], None]) -> list[T]:
    """Carry out all assignments, so many at a time; `on_report` is called with each report as it comes.

    Raises InputError when one cannot be carried out. However it ends, no worker outlives it.
    """
    # Now, for it takes the block of interrupts off when it starts, just before the first worker would inherit that.
    resource_tracker.ensure_running()
    waiting = list(enumerate(assignments))[::-1]
    results: dict[int, T] = {}
    at_work: dict[Connection, tuple[int, BaseProcess]] = {}
    try:
        while waiting or at_work:
            while waiting and len(at_work) < max(workers, 1):
                n, assignment = waiting.pop()
                with _interrupts_later():
                    receiver, process = _started(assignment)
                    at_work[receiver] = (n, process)
            for ready in connection.wait(list(at_work)):
                receiver = cast("Connection", ready)
                n, process = at_work[receiver]
                report = _received(receiver, process, assignments[n])
                on_report(n, report)
                if isinstance(report, Failed):
                    raise InputError(report.message)
                if isinstance(report, Done):
                    results[n] = report.result
                    del at_work[receiver]
                    receiver.close()
                    process.join()
                    process.close()
    finally:
        for receiver, (_n, process) in at_work.items():
            process.terminate()
            process.join()
            receiver.close()
    return [results[n] for n in range(len(assignments))]


def cores() -> int:
    """How many processes can work at a time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _started(assignment: Assignment[Any]) -> tuple[Connection, BaseProcess]:
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(sender, assignment), daemon=True)
    process.start()
    sender.close()  # Only the worker has it open then, so that the pipe ends with the worker.
    return receiver, process


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """Let a Ctrl-C wait until a worker has begun and is known, so that it can be ended.

    The worker inherits that interrupts are blocked: it must not print a traceback in its first moments either.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    # Another thread may receive it, although this one blocks it: so it is caught as well.
    handler = signal.signal(signal.SIGINT, lambda *_: came.append(1))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if came:
        raise KeyboardInterrupt


def _received(receiver: Connection, process: BaseProcess, assignment: Assignment[Any]) -> Report:
    try:
        report: Report = receiver.recv()
    except EOFError:
        process.join()
        return Failed(f"the run of {assignment.label} ended with exit code {process.exitcode}")
    return report


# -- in the worker -------------------------------------------------------------------------------------------


def _work(sender: Connection, assignment: Assignment[Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)  # What a library prints, as a solver does, must not stand between results.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        result = assignment.carry_out(lambda n: sender.send(Begun(n)), lambda n: sender.send(Progressed(n)))
    except InputError as error:
        sender.send(Failed(str(error)))
        return
    sender.send(Done(result))


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # Whatever the run is doing: it is not wanted any more.
