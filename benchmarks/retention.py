"""A journal that keeps some days of its history: `python -m benchmarks.retention [--quick] [--days N] [--kills N]`.

A team submits so many jobs a day, which report as they go; the cycles are those of a real controller, of one day, and
are repeated day by day. As time passes, old cycles are removed, by the process that a controller starts for that, while
another appends: how long that one waits at most is the stall. Then that process is killed with -9 at random moments:
nothing may be missing afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from heapq import heappop, heappush
from pathlib import Path

import msgspec

from benchmarks.machine import machine, table
from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal, SqliteJournal, open_to_append
from hocket.control.journal.archive import archive_files
from hocket.control.journal.history import open_history
from hocket.control.journal.stored import ENCODER, checksum
from hocket.control.ports import Cycle, Header
from hocket.control.restore import restore
from hocket.control.saved_state import encode
from hocket.model.action import Pause, Resume, Start
from hocket.model.event import EpochEnded, Event, JobEnded, JobPaused, JobSaved, JobStarted, JobSubmitted, NodeJoined
from hocket.model.job import Job, Launch
from hocket.model.resources import Node
from hocket.model.snapshot import empty_snapshot
from hocket.policies import find
from hocket.service.catalogue import Catalogue
from hocket.service.compaction import STAGE_CYCLES, CompactionRequest, Keep
from hocket.service.ended_jobs import EndedJobs

DAY_S = 86_400.0
ZERO_S = 1_800_000_000.0  # when the first day begins
NODES = [Node(f"node{n}", gpus=8, cores=64.0, mem_mib=512_000.0) for n in range(4)]
POLICY = find("las").bound()
HEADER = Header("las", POLICY.settings, (), 0, "live")
_KILLED_STAGE = 2000  # cycles: many stages, so that kills hit all that is done
DAY = b"d000-"  # in names of jobs, of the first day


def a_day(jobs: int, reports: int) -> tuple[list[Cycle], list[Cycle]]:
    """The cycles in which the nodes join, and those of a day at whose end all jobs are over."""
    joined, cycles = cycles_of(jobs, reports, 0.75 * DAY_S)
    assert cycles[-1].at_s < ZERO_S + DAY_S, "the day is over, and jobs are left"
    return joined, cycles


def cycles_of(jobs: int, reports: int, span_s: float) -> tuple[list[Cycle], list[Cycle]]:
    """The cycles in which the nodes join, and those of jobs that are submitted in that time, until all are over."""
    dice = random.Random(1)
    journal = MemoryJournal(HEADER)
    start = empty_snapshot((), 0)
    controller = Controller(start, POLICY.decide, POLICY.order, journal, **POLICY.needs)
    controller.cycle(ZERO_S, [NodeJoined(ZERO_S, node) for node in NODES])
    joined = len(journal)
    due: list[tuple[float, int, Event, int]] = []
    runs: dict[str, int] = {}  # job → number of its run; what an earlier one would report does not happen
    epochs: dict[str, int] = {}

    def later(event: Event, run: int = 0) -> None:
        heappush(due, (event.at_s, dice.getrandbits(60), event, run))

    def begins(job: str, at_s: float) -> None:
        run = runs[job] = runs.get(job, 0) + 1
        later(JobStarted(at_s, job, attempt=run), run)
        first, each_s = epochs.get(job, 0), 20.0 + 3000.0 * dice.random() / reports
        for epoch in range(first + 1, reports + 1):
            then_s = at_s + (epoch - first) * each_s
            metrics = {"loss": 1.0 / epoch + 0.01 * dice.random(), "acc": 1.0 - 1.0 / (epoch + 1)}
            later(EpochEnded(then_s, job, epoch, metrics), run)
            if epoch % 4 == 0:
                later(JobSaved(then_s + 0.5, job), run)
        later(JobEnded(at_s + (reports - first + 1) * each_s, job), run)

    for n in range(jobs):
        at_s = ZERO_S + 1 + dice.random() * span_s
        command = ("python", "train.py", "--lr", f"{dice.random():.6f}")
        launch = Launch(cwd="/home/ana/project", env={"SEED": str(n)})
        owner = dice.choice(("ana", "bo", "cy"))
        job = Job(f"{DAY.decode()}{n:05}", owner=owner, command=command, launch=launch)
        later(JobSubmitted(at_s, job))
    at_s = ZERO_S
    while due or controller.state.jobs.live:
        moments = [moment for moment in (controller.next_timer_s(), due[0][0] if due else None) if moment is not None]
        at_s = min(moments)
        events: list[Event] = []
        while due and due[0][0] <= at_s:
            _at_s, _tie, event, run = heappop(due)
            if run and runs[event.job] != run:  # type: ignore[union-attr]
                continue
            events.append(event)
            if isinstance(event, EpochEnded):
                epochs[event.job] = event.epoch
        for action in controller.cycle(at_s, events):
            if isinstance(action, Start | Resume):
                begins(action.job, at_s + 1.0)
            elif isinstance(action, Pause):
                runs[action.job] += 1
                later(JobPaused(at_s + 2.0, action.job))
    return journal.cycles[:joined], journal.cycles[joined:]


class Template:
    """An encoded cycle of the first day, and where its times are: other days differ in these and in the names."""

    def __init__(self, cycle: Cycle) -> None:
        self.value = ENCODER.encode(cycle)
        self.places = [
            n + 1
            for n in range(len(self.value) - 8)
            if self.value[n] == 0xCB and 0 <= struct.unpack_from(">d", self.value, n + 1)[0] - ZERO_S < 2 * DAY_S
        ]

    def on(self, day: int) -> bytes:
        """The same cycle, so many days later."""
        value = bytearray(self.value)
        for place in self.places:
            struct.pack_into(">d", value, place, struct.unpack_from(">d", value, place)[0] + day * DAY_S)
        return bytes(value).replace(DAY, b"d%03d-" % day)


def add_day(journal: SqliteJournal, templates: list[Template], day: int) -> int:
    """Append the cycles of a day; gives their bytes."""
    first = len(journal) + 1
    values = [template.on(day) for template in templates]
    for some in range(0, len(values), 5000):
        rows = [(first + n, v, checksum(first + n, v)) for n, v in enumerate(values[some : some + 5000], some)]
        journal._commit(rows)
        journal._last += len(rows)
    return sum(map(len, values))


def compaction(store: Path, epoch: int, keep: Keep, now_s: float, stage: int = STAGE_CYCLES) -> subprocess.Popen[bytes]:
    """The process that a controller starts."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hocket.service.compaction"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(CompactionRequest(str(store), epoch, keep, now_s, stage)))
    process.stdin.close()
    return process


class Appends:
    """Appends a small cycle every 20 ms, and notes how long each took."""

    def __init__(self, journal: SqliteJournal, at_s: float) -> None:
        self.took_s: list[float] = []
        self._journal, self._at_s = journal, at_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.02):
            began = time.perf_counter()
            self._journal.append(Cycle(self._at_s, ()))
            self.took_s.append(time.perf_counter() - began)

    def stop(self) -> list[float]:
        self._over.set()
        self._thread.join()
        return self.took_s


def year(folder: Path, days: int, jobs: int, reports: int, kept_days: int) -> list[tuple[str, str]]:
    """The journal of so many days, as it is kept."""
    joined, of_day = a_day(jobs, reports)
    templates = [Template(cycle) for cycle in of_day]
    store, archive = folder / "journal.db", folder / "journal-archive"
    keep = Keep(kept_days * DAY_S, 0, str(archive))
    with closing(open_to_append(store, HEADER)) as journal:
        assert isinstance(journal, SqliteJournal)
        journal.extend(joined)
        written, compactions, alone, beside = 0, [], [0.0], [0.0]
        every = max(1, kept_days // 10) + 1
        for day in range(days):
            written += add_day(journal, templates, day)
            if day <= kept_days or day % every:
                continue
            now_s = ZERO_S + (day + 1) * DAY_S
            appends = Appends(journal, now_s)
            time.sleep(0.5)
            alone += appends.stop()
            appends = Appends(journal, now_s)
            process = compaction(store, journal.epoch, keep, now_s)
            assert process.stdout is not None
            said = process.stdout.read()
            _pid, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            beside += appends.stop()
            assert process.returncode == 0, process.stderr and process.stderr.read()
            done = json.loads(said)
            cpu_s = used.ru_utime + used.ru_stime
            compactions.append((done["cycles"], cpu_s, used.ru_maxrss / 1024, done["longest_s"]))
            print(
                f"benchmarks: day {day}: {done['cycles']:,} cycles removed in {cpu_s:.1f} CPU-s; "
                f"journal {done['bytes_after'] / 1e6:,.0f} MB",
                file=sys.stderr,
            )
        journal._open().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        cycles = len(journal)
    began = time.process_time()
    with closing(open_to_append(store, HEADER)) as journal:
        ended_jobs = EndedJobs(folder / "catalogue.db")
        catalogue = Catalogue.of(journal, ended_jobs)
        rebuilt_s = time.process_time() - began
        began = time.process_time()
        controller = restore(journal, POLICY)
        folded_s = time.process_time() - began
        journal.save(encode(controller, POLICY))
        catalogue.close(len(journal))
        listed = sum(catalogue.over.values())
    began = time.process_time()
    with closing(open_to_append(store, HEADER)) as journal:
        Catalogue.of(journal, EndedJobs(folder / "catalogue.db"))
        restore(journal, POLICY)
    restart_s = time.process_time() - began
    archived = sum(Path(file.path).stat().st_size for file in archive_files(archive))
    removed, cpu = sum(c[0] for c in compactions), sum(c[1] for c in compactions)
    return [
        ("days, jobs, cycles", f"{days:,}, {days * jobs:,}, {cycles:,}"),
        ("bytes of all cycles", f"{written / 1e6:,.0f} MB"),
        (f"journal's file, {kept_days} days kept", f"{store.stat().st_size / 1e6:,.0f} MB"),
        ("archive", f"{archived / 1e6:,.0f} MB in {len(archive_files(archive))} files"),
        ("catalogue", f"{(folder / 'catalogue.db').stat().st_size / 1e6:,.0f} MB, {listed:,} ended jobs"),
        ("compactions", f"{len(compactions)}, {cpu:,.0f} CPU-s, {1e6 * cpu / max(1, removed):.0f} µs a cycle"),
        ("memory of a compaction, at most", f"{max((c[2] for c in compactions), default=0):,.0f} MiB"),
        ("a write of a compaction takes at most", f"{1000 * max((c[3] for c in compactions), default=0):.1f} ms"),
        ("an append takes at most, alone", f"{1000 * max(alone):.1f} ms"),
        ("an append takes at most, beside a compaction", f"{1000 * max(beside):.1f} ms"),
        ("of the appends beside a compaction, 99.9 %", f"{1000 * sorted(beside)[int(len(beside) * 0.999)]:.1f} ms"),
        ("catalogue anew (after an upgrade)", f"{rebuilt_s:.1f} CPU-s"),
        ("restore without a saved state", f"{folded_s:.1f} CPU-s"),
        ("restart, no job is live", f"{restart_s:.2f} CPU-s"),
    ]


def kills(folder: Path, jobs: int, times: int) -> list[tuple[str, str]]:
    """Kill a compaction at random moments; compare what is left with what was."""
    dice = random.Random(7)
    joined, of_day = a_day(jobs, 10)
    templates = [Template(cycle) for cycle in of_day]
    whole, store, archive = folder / "whole.db", folder / "journal.db", folder / "journal-archive"
    with closing(open_to_append(whole, HEADER)) as journal:
        assert isinstance(journal, SqliteJournal)
        journal.extend(joined)
        for day in range(6):
            add_day(journal, templates, day)
        cycles = len(journal)
    before = _digest(whole)
    keep, now_s = Keep(DAY_S, 0, str(archive)), ZERO_S + 6 * DAY_S
    longest_s = _uninterrupted(folder, whole, keep, now_s)
    killed = wrong = 0
    states: dict[str, int] = {}
    for _ in range(times):
        for old in folder.glob("journal.db*"):
            old.unlink()
        shutil.rmtree(archive, ignore_errors=True)
        shutil.copy(whole, store)
        with closing(open_to_append(store, HEADER)) as journal:
            process = compaction(store, journal.epoch, keep, now_s, _KILLED_STAGE)
            try:
                process.wait(dice.random() * longest_s)
            except subprocess.TimeoutExpired:
                process.kill()
                killed += 1
            process.wait()
            begun = journal.beginning()
            state = "begun" if begun is None else "cut" if _rows(store) > cycles - begun.number else "removed"
            states[state] = states.get(state, 0) + 1
        is_same = _digest(store) == before
        process = compaction(store, _epoch(store), keep, now_s)  # The next one finishes it.
        process.wait()
        is_same &= process.returncode == 0 and _digest(store) == before and not list(archive.glob("*.part"))
        wrong += not is_same
    found = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return [("killed with -9", f"{killed} of {times} ({found})"), ("something was missing", str(wrong))]


def _uninterrupted(folder: Path, whole: Path, keep: Keep, now_s: float) -> float:
    store = folder / "try.db"
    shutil.copy(whole, store)
    with closing(open_to_append(store, HEADER)) as journal:
        began = time.perf_counter()
        process = compaction(store, journal.epoch, keep, now_s, _KILLED_STAGE)
        assert process.stdout is not None
        assert process.stderr is not None
        said, error = process.stdout.read(), process.stderr.read()
        assert process.wait() == 0, error
        assert json.loads(said)["cycles"]
        took_s = time.perf_counter() - began
    shutil.rmtree(keep.archive, ignore_errors=True)
    return took_s


def _digest(store: Path) -> tuple[bytes, int, int]:
    """The state, all cycles from the first on, and the jobs that ended."""
    with closing(SqliteJournal(store)) as journal:
        state = encode(restore(journal, POLICY), POLICY)
        catalogue = Catalogue.of(journal, None)
        everything = journal.beginning() is not None
    with closing(open_history(store, everything=everything)) as history:
        return state, checksum(0, b"".join(_encoded(history))), sum(catalogue.over.values())


def _encoded(cycles: Iterator[Cycle]) -> Iterator[bytes]:
    return (ENCODER.encode(cycle) for cycle in cycles)


def _rows(store: Path) -> int:
    with closing(SqliteJournal(store)) as journal:
        (count,) = journal._open().execute("SELECT count(*) FROM cycle").fetchone()
        return int(count)


def _epoch(store: Path) -> int:
    with closing(SqliteJournal(store)) as journal:
        (epoch,) = journal._open().execute("SELECT epoch FROM writer").fetchone()
        return int(epoch)


def main() -> None:
    """Measure, and print both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retention", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a month of 100 jobs a day, of which 9 days are kept")
    parser.add_argument("--days", type=int, default=365, metavar="N")
    parser.add_argument("--jobs", type=int, default=1000, metavar="N", help="a day")
    parser.add_argument("--reports", type=int, default=12, metavar="N", help="of a job")
    parser.add_argument("--keep", type=int, default=90, metavar="DAYS")
    parser.add_argument("--kills", type=int, default=100, metavar="N", help="0: none")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.days, chosen.jobs, chosen.keep, chosen.kills = 30, 100, 9, min(chosen.kills, 10)
    rows: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="hocket-retention-") as folder:
        if chosen.days:
            rows += year(Path(folder), chosen.days, chosen.jobs, chosen.reports, chosen.keep)
    with tempfile.TemporaryDirectory(prefix="hocket-retention-") as folder:
        if chosen.kills:
            rows += kills(Path(folder), min(chosen.jobs, 300), chosen.kills)
    here = machine()
    print(f"{here.date}, {here.cores} cores, Python {here.python}; load average {here.load:g} when it ended")
    print("\n".join(table(("a year of a busy team" if chosen.days == 365 else f"{chosen.days} days", ""), rows)))


if __name__ == "__main__":
    main()
