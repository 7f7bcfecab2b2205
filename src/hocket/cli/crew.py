"""Several scenarios at a time, each in a process of its own, and none of them left behind.

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
from pathlib import Path
from typing import cast

from msgspec import Struct

from hocket.cli.refusal import InputError
from hocket.cli.scenario import Scenario
from hocket.reports.outcome import Outcome

_EVERY_S = 0.25


class Assignment(Struct, frozen=True):
    """What one worker does: a run, and perhaps its figures."""

    scenario: Scenario
    plots: str | None = None  # folder


class Begun(Struct, frozen=True):
    """A worker has read its workload."""

    jobs: int


class Progressed(Struct, frozen=True):
    """So many jobs are over."""

    ended: int


class Failed(Struct, frozen=True):
    """The input was wrong, or the run broke."""

    message: str


Report = Begun | Progressed | Failed | Outcome


def muster(assignments: Sequence[Assignment], workers: int, heard: Callable[[int, Report], None]) -> list[Outcome]:
    """Carry out all assignments, so many at a time; `heard` is told of every report as it comes.

    Raises InputError when one cannot be carried out. However it ends, no worker outlives it.
    """
    # Now, for it takes the block of interrupts off when it starts, just before the first worker would inherit that.
    resource_tracker.ensure_running()
    waiting = list(enumerate(assignments))[::-1]
    outcomes: dict[int, Outcome] = {}
    at_work: dict[Connection, tuple[int, BaseProcess]] = {}
    try:
        while waiting or at_work:
            while waiting and len(at_work) < max(workers, 1):
                n, assignment = waiting.pop()
                with _interrupts_later():
                    ear, process = _sent_off(assignment)
                    at_work[ear] = (n, process)
            for ready in connection.wait(list(at_work)):
                ear = cast("Connection", ready)
                n, process = at_work[ear]
                report = _received(ear, process, assignments[n])
                heard(n, report)
                if isinstance(report, Failed):
                    raise InputError(report.message)
                if isinstance(report, Outcome):
                    outcomes[n] = report
                    del at_work[ear]
                    ear.close()
                    process.join()
                    process.close()
    finally:
        for ear, (_n, process) in at_work.items():
            process.terminate()
            process.join()
            ear.close()
    return [outcomes[n] for n in range(len(assignments))]


def _sent_off(assignment: Assignment) -> tuple[Connection, BaseProcess]:
    context = get_context("spawn")
    ear, mouth = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(mouth, assignment), daemon=True)
    process.start()
    mouth.close()  # Ours, that is: the worker's death is then heard as the end of the pipe.
    return ear, process


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


def _received(ear: Connection, process: BaseProcess, assignment: Assignment) -> Report:
    try:
        report: Report = ear.recv()
    except EOFError:
        process.join()
        return Failed(f"the run of policy '{assignment.scenario.policy}' ended with exit code {process.exitcode}")
    return report


# -- in the worker -------------------------------------------------------------------------------------------


def _work(mouth: Connection, assignment: Assignment) -> None:
    from hocket.cli.refusal import refusing
    from hocket.cli.scenario import ended_in, play, staged
    from hocket.cli.watch import every
    from hocket.control.journal import MemoryJournal
    from hocket.reports.outcome import outcome

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    scenario = assignment.scenario
    try:
        with refusing():
            stage = staged(scenario)
    except InputError as error:
        mouth.send(Failed(str(error)))
        return
    mouth.send(Begun(len(stage.workload.submissions)))
    journal = MemoryJournal(stage.header)
    counted = ended = 0

    def tell() -> None:
        nonlocal counted, ended
        now = len(journal.cycles)
        ended += ended_in(journal.cycles, counted, now)
        counted = now
        mouth.send(Progressed(ended))

    with every(_EVERY_S, tell):
        run = play(stage, journal)
    if assignment.plots is not None:
        from hocket.reports.plots import plot_run

        plot_run(run.account, Path(assignment.plots))
    mouth.send(outcome(scenario.policy, run.account, run.summary, run.stuck))


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # Whatever the run is doing: nobody wants it any more.
