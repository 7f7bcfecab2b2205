"""The state after any cycle of a long journal: `python -m benchmarks.time_travel [--quick] [--cycles N] [--json]`.

The cycles are those of a real controller with 32 GPUs, a queue and jobs that report as they go. Positions are drawn at
random and asked of the process that a controller has for that, as the API asks it; beside it, the same positions are
folded from the beginning of the journal. Then jobs are submitted to a controller on that journal, alone and while a
reader asks for one position after the other without a pause: how long a submission waits for its cycle.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.machine import Machine, machine, median, table
from benchmarks.retention import DAY_S, HEADER, POLICY, cycles_of
from hocket.control.journal import SqliteJournal
from hocket.executors.agents.executor import agents
from hocket.model.event import JobSubmitted
from hocket.model.job import Job, Launch
from hocket.service.engine import Engine
from hocket.service.history_fold import HistoryFold
from hocket.service.history_process import HistoryProcess
from hocket.service.history_worker import HistoryRequest, HistorySource
from hocket.service.past_state_rows import PARTS
from hocket.service.tokens import Role, Token

ADMIN = Token("home", Role.ADMIN, "")
CYCLES_A_JOB = 18
BLOCK = 20  # submissions alone, then beside a reader
PAUSE_S = 0.02  # after each
JOBS_A_DAY = 1500  # nearly as many as the GPUs can run


class Times(Struct, frozen=True):
    """How long something took, over some tries."""

    count: int
    median_ms: float
    worst_ms: float


class TimeTravel(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    cycles: int
    journal_mib: float
    live_jobs: int  # in the middle of the journal
    index_s: float  # to read the journal once, of the process's CPU time
    index_mib: float
    first: Times  # answer of a process that starts, with an index
    first_of_a_page: Times  # the first answer while a page is open, for which the process stands ready
    any_position: Times
    next_position: Times
    density: Times
    from_the_beginning: Times
    worker_mib: float  # of memory at most
    alone: Times  # a submission waits
    beside_a_reader: Times
    asked_meanwhile: int


def main(arguments: list[str]) -> None:
    """Measure, and print a table or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.time_travel")
    parser.add_argument("--quick", action="store_true", help="a short journal: seconds instead of minutes")
    parser.add_argument("--cycles", type=int, default=100_000, help="of the journal")
    parser.add_argument("--positions", type=int, default=50, help="that are asked for")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    cycles, positions = (3_000, 10) if chosen.quick else (chosen.cycles, chosen.positions)
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder:
        found = measured(Path(folder), cycles, positions, " ".join(["python -m benchmarks.time_travel", *arguments]))
    print(msgspec.json.encode(found).decode() if chosen.json else text(found))


def measured(folder: Path, cycles: int, positions: int, command: str) -> TimeTravel:
    """Make a journal, and look at its past."""
    store, index = folder / "journal.db", folder / "history.db"
    jobs = 2 + cycles // CYCLES_A_JOB
    joined, rest = cycles_of(jobs, 12, jobs / JOBS_A_DAY * DAY_S)
    with closing(SqliteJournal(store, HEADER)) as journal:
        recorded = (joined + rest)[:cycles]
        for first in range(0, len(recorded), 5000):
            journal.extend(recorded[first : first + 5000])
        size = journal.size
    last = len(recorded)
    drawn = [random.Random(1).randint(1, last) for _ in range(positions)]
    source = HistorySource(str(store), index=str(index))
    with closing(HistoryProcess(source)) as history:
        ask = asking(history)
        while ask(last)[0] != 200:
            time.sleep(0.05)
        index_s = used_s(history)
    with closing(HistoryProcess(source)) as history:
        history.start()
        history.expect()
        while not history._indexed:
            time.sleep(0.05)
        first_of_a_page = timed([lambda: asking(history)(drawn[0])])
    with closing(HistoryProcess(source)) as history:
        ask = asking(history)
        first = timed([lambda: ask(drawn[0])])
        any_position = timed([lambda n=n: ask(n) for n in drawn[1:]])  # type: ignore[misc]
        middle = last // 2
        next_position = timed([lambda n=n: ask(n) for n in range(middle, min(last, middle + positions))])  # type: ignore[misc]
        density = timed([lambda: history.ask(HistoryRequest(ADMIN, buckets=200))] * 5)
        live_jobs = sum(1 for row in msgspec.json.decode(ask(middle)[1])["jobs"] if row["ended_s"] is None)
        worker_mib = peak_mib(history)
    from_the_beginning = timed([lambda n=n: folded(store, n) for n in [*drawn[: max(2, positions // 10)], last]])  # type: ignore[misc]
    index_mib = sum(part.stat().st_size for part in folder.glob("history.db*")) / (1 << 20)
    alone, beside, asked = waits(store, source, last, positions * 4)
    return TimeTravel(
        command, machine(), last, size / (1 << 20), live_jobs, index_s, index_mib, first, first_of_a_page,
        any_position, next_position, density, from_the_beginning, worker_mib, alone, beside, asked,
    )  # fmt: skip


def asking(history: HistoryProcess) -> Callable[[int], tuple[int, bytes]]:
    """Asks for everything about a position."""
    return lambda number: history.ask(HistoryRequest(ADMIN, cycle=number, parts=PARTS))


def folded(store: Path, number: int) -> None:
    """The state after a cycle, as without an index."""
    with closing(SqliteJournal(store)) as journal:
        fold = HistoryFold(journal.header, journal.name)
        for n, cycle in enumerate(journal, 1):
            fold.fold(n, cycle)
            if n == number:
                break
            if n % 1000 == 0:
                fold.catalogue.take_ended()


def waits(store: Path, source: HistorySource, last: int, count: int) -> tuple[Times, Times, int]:
    """How long submissions wait for their cycles, alone and beside a reader; and how much that was answered."""
    engine = Engine(str(store), agents(300.0), POLICY)
    engine.start()

    def submit(n: int) -> None:
        def make(_state: object, now_s: float) -> list[JobSubmitted]:
            return [JobSubmitted(now_s, Job(f"bench-{n}", owner="ana", command=("true",), launch=Launch(cwd="/")))]

        engine.executor.post(make).result(60)

    goes, over, asked = threading.Event(), threading.Event(), [0]
    took: dict[bool, list[float]] = {False: [], True: []}  # beside the reader or not
    with closing(HistoryProcess(source)) as history:
        ask, dice = asking(history), random.Random(2)

        def read() -> None:
            while not over.is_set():
                if goes.wait(0.1):
                    ask(dice.randint(1, last))
                    asked[0] += 1

        reader = threading.Thread(target=read)
        try:
            ask(last)
            reader.start()
            for n in range(2 * count):
                beside = n // BLOCK % 2 == 1  # by turns, so that both have the same of what else runs here
                (goes.set if beside else goes.clear)()
                began = time.perf_counter()
                submit(n)
                took[beside].append(1000 * (time.perf_counter() - began))
                time.sleep(PAUSE_S)
        finally:
            over.set()
            reader.join()
            engine.close()
    return times_of(took[False]), times_of(took[True]), asked[0]


def times_of(took: list[float]) -> Times:
    """The middle one and the longest."""
    return Times(len(took), median(took), max(took))


def timed(tries: list[Callable[[], object]]) -> Times:
    """The time of each, in milliseconds."""
    took = []
    for attempt in tries:
        began = time.perf_counter()
        attempt()
        took.append(1000 * (time.perf_counter() - began))
    return times_of(took)


def used_s(history: HistoryProcess) -> float:
    """CPU seconds of the process so far."""
    assert history._process is not None
    fields = Path(f"/proc/{history._process.pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def peak_mib(history: HistoryProcess) -> float:
    """The most memory that the process had."""
    assert history._process is not None
    status = Path(f"/proc/{history._process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def text(found: TimeTravel) -> str:
    """One page."""
    here = found.machine
    rows = [
        ("any position, at random", found.any_position),
        ("the next position", found.next_position),
        ("the first answer of a process that starts", found.first),
        ("the first answer while a page is open", found.first_of_a_page),
        ("density of cycles, 200 buckets", found.density),
        ("the same positions, folded from the beginning", found.from_the_beginning),
        ("a submission waits, alone", found.alone),
        ("a submission waits, beside a reader without a pause", found.beside_a_reader),
    ]
    lines = [
        f"{found.command}  ({here.cores} cores, load {here.load:g}, Python {here.python}, {here.date})",
        f"{found.cycles:,} cycles, {found.journal_mib:.1f} MiB; {found.live_jobs} live jobs in the middle of it",
        f"index: {found.index_s:.1f} s of CPU time, {found.index_mib:.1f} MiB",
        f"memory of the process at most: {found.worker_mib:.0f} MiB",
        f"the reader had {found.asked_meanwhile} answers meanwhile",
        *table(
            ("ms", "tries", "median", "worst"),
            [(name, str(t.count), f"{t.median_ms:.1f}", f"{t.worst_ms:.1f}") for name, t in rows],
        ),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
