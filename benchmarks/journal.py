"""What a live controller's journal can do: `python -m benchmarks.journal [--quick] [--json]`.

Submissions per second, each acknowledged after its commit; recovery after `kill -9`; what a saved state saves.
No service is between: what HTTP costs is measured with the service.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from time import perf_counter

import msgspec
from msgspec import Struct

from benchmarks.machine import Machine, machine
from hocket.control import saved_state
from hocket.control.controller import Controller
from hocket.control.journal import open_to_append
from hocket.control.ports import DurableJournal, Header
from hocket.control.restore import restore
from hocket.control.saved_state import StateSaver
from hocket.executors.simulated import SimulatedExecutor
from hocket.model.event import JobSubmitted
from hocket.model.job import Job
from hocket.policies import find
from hocket.policies.registry import BoundPolicy
from hocket.testing.builders import cluster, submitted
from hocket.testing.postgresql import NoPostgresql, PostgresServer
from hocket.workloads import load

BATCH = 100  # jobs of one request, at most
GOAL_PER_S, GOAL_RECOVERED_S = 1000.0, 2.0  # the project's design notes, section 8
NODES = tuple(cluster("4x8"))


class Rates(Struct, frozen=True):
    """Submissions per second through the controller into one kind of store."""

    store: str
    commits_per_s: float  # empty cycles, one by one: what the disk allows
    one_by_one_per_s: float  # one client that waits for each
    gathered_per_s: float  # many clients that each wait for theirs; what came meanwhile makes one cycle
    clients: int
    batched_per_s: float  # one client, BATCH jobs a request


class Recovery(Struct, frozen=True):
    """Queued jobs, after their controller was killed with -9."""

    store: str
    policy: str
    jobs: int
    restore_s: float  # in a new process, after its imports
    process_s: float  # of that process, from its start to its end
    from_saved_s: float  # restore, had the state been saved with the last cycle
    saved_mib: float
    save_ms: float  # to encode and commit it: the controller stands still so long


class LongHistory(Struct, frozen=True):
    """A journal of many cycles with few live jobs at its end."""

    cycles: int
    live_jobs: int
    fold_s: float  # without saved states
    fold_us_per_cycle: float
    restore_s: float  # with them
    saves: int
    save_share: float  # of the whole run's time


class Measured(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    rates: list[Rates]
    recoveries: list[Recovery]
    histories: list[LongHistory]


def job(name: str) -> Job:
    """As a user submits it."""
    return Job(name, owner=f"team{len(name) % 7}", command=("python", "train.py", "--epochs", "30", "--seed", name))


def begun(store: str, policy: BoundPolicy) -> tuple[DurableJournal, Controller]:
    """A controller on a new store."""
    journal = open_to_append(store, Header(policy.policy.name, policy.settings, NODES))
    return journal, restore(journal, policy)


# -- rates --------------------------------------------------------------------------------------------------


def rates(kind: str, store: Iterator[str], quick: bool) -> Rates:
    """Each way of submitting, on a store of its own."""
    few, many, clients = (50, 500, 8) if quick else (2000, 20_000, 32)
    policy = find("fifo").bound()
    commits = _each(next(store), policy, few, lambda controller, n: controller.cycle(float(n), []))
    alone = _each(
        next(store), policy, few, lambda controller, n: controller.cycle(float(n), [submitted(job(f"j{n}"), float(n))])
    )
    batched = BATCH * _each(next(store), policy, many // BATCH, _batch)
    return Rates(kind, commits, alone, _gathered(next(store), policy, few, clients), clients, batched)


def _batch(controller: Controller, n: int) -> object:
    return controller.cycle(float(n), [submitted(job(f"j{n}-{i}"), float(n)) for i in range(BATCH)])


def _each(store: str, policy: BoundPolicy, count: int, do: object) -> float:
    """How often a second something is done."""
    assert callable(do)
    journal, controller = begun(store, policy)
    began = perf_counter()
    for n in range(count):
        do(controller, n)
    took_s = perf_counter() - began
    journal.close()
    return count / took_s


def _gathered(store: str, policy: BoundPolicy, count: int, clients: int) -> float:
    """Clients in threads, and one thread for the controller, which takes in all that is there in one cycle."""
    journal, controller = begun(store, policy)
    inbox: SimpleQueue[tuple[JobSubmitted, Event] | None] = SimpleQueue()

    def control() -> None:
        n = 0
        while (first := inbox.get()) is not None:
            taken = [first]
            try:
                while (more := inbox.get_nowait()) is not None:
                    taken.append(more)
            except Empty:
                pass
            n += 1
            controller.cycle(float(n), [event for event, _done in taken])
            for _event, done in taken:
                done.set()

    def client(me: int) -> None:
        for n in range(count // clients):
            done = Event()
            inbox.put((submitted(job(f"c{me}-{n}")), done))
            done.wait()

    controlling = Thread(target=control)
    controlling.start()
    crowd = [Thread(target=client, args=(me,)) for me in range(clients)]
    began = perf_counter()
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()
    took_s = perf_counter() - began
    inbox.put(None)
    controlling.join()
    journal.close()
    return count // clients * clients / took_s


# -- recovery -----------------------------------------------------------------------------------------------

_FILL = """
import sys
from benchmarks.journal import begun, _batch
from hocket.policies import find
journal, controller = begun(sys.argv[1], find(sys.argv[2]).bound())
for n in range(int(sys.argv[3])):
    _batch(controller, n)
print("queued", flush=True)
sys.stdin.read()
"""
_RECOVER = """
import sys
from time import perf_counter
from hocket.control.journal import open_to_append
from hocket.control.ports import Header
from hocket.control.restore import restore
from hocket.policies import find
policy = find(sys.argv[2]).bound()
began = perf_counter()
journal = open_to_append(sys.argv[1], Header("unused"))
controller = restore(journal, policy)
print(perf_counter() - began, len(controller.state.jobs.live))
journal.close()
"""


def recovery(kind: str, store: str, policy: str, quick: bool) -> Recovery:
    """Fill a queue in one process, kill it, and bring the controller back in another."""
    jobs = 500 if quick else 10_000
    command = [sys.executable, "-c", _FILL, store, policy, str(jobs // BATCH)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"queued\n"
        process.kill()
    restore_s, process_s = _recovered(store, policy, jobs)
    bound = find(policy).bound()
    journal = open_to_append(store, Header("unused"))
    controller = restore(journal, bound)
    began = perf_counter()
    state = saved_state.encode(controller, bound)
    journal.save(state)
    save_s = perf_counter() - began
    journal.close()
    from_saved_s, _process_s = _recovered(store, policy, jobs)
    return Recovery(kind, policy, jobs, restore_s, process_s, from_saved_s, len(state) / (1 << 20), save_s * 1000)


def _recovered(store: str, policy: str, jobs: int) -> tuple[float, float]:
    began = perf_counter()
    command = [sys.executable, "-c", _RECOVER, store, policy]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    process_s = perf_counter() - began
    took_s, found = done.stdout.split()
    if int(found) != jobs:
        raise SystemExit(f"benchmarks: {found} jobs came back of {jobs}")
    return float(took_s), process_s


# -- long histories -----------------------------------------------------------------------------------------


def long_history(path: Path, jobs: int) -> LongHistory:
    """A generated trace through the simulated executor, its cycles written as a live controller has them."""
    policy, nodes = find("las").bound(), tuple(cluster("8x8"))
    journal = open_to_append(path, Header("las", policy.settings, nodes))
    _unsynced(journal)
    controller, saver = restore(journal, policy), StateSaver(journal, policy)
    executor = SimulatedExecutor(load(f"poisson?jobs={jobs}&gap=110&owners=15"), nodes)
    began, saving_s, saves = perf_counter(), 0.0, 0
    while (moment := executor.wait(controller.next_timer_s())) is not None:
        if actions := controller.cycle(*moment):
            executor.apply(actions)
        before = perf_counter()
        if saver.after_cycle(controller, len(moment[1])):
            saves += 1
            saving_s += perf_counter() - before
    took_s = perf_counter() - began
    began = perf_counter()
    live = len(restore(journal, policy).state.jobs.live)
    restore_s = perf_counter() - began
    _without_states(journal)
    began = perf_counter()
    restore(journal, policy)
    fold_s = perf_counter() - began
    cycles = len(journal)
    journal.close()
    return LongHistory(cycles, live, fold_s, fold_s / cycles * 1e6, restore_s, saves, saving_s / took_s)


def _unsynced(journal: DurableJournal) -> None:
    """How it is written is not what is measured here."""
    journal._open().execute("PRAGMA synchronous = OFF")  # type: ignore[attr-defined]


def _without_states(journal: DurableJournal) -> None:
    journal._open().execute("DELETE FROM saved")  # type: ignore[attr-defined]


# -- all of it ----------------------------------------------------------------------------------------------


@contextmanager
def stores() -> Iterator[dict[str, Iterator[str]]]:
    """New stores of each kind that this machine has."""
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder:
        files = (str(Path(folder) / f"{n}.db") for n in range(1000))
        try:
            with PostgresServer() as server:
                yield {"sqlite": files, "postgresql": _schemas(server)}
        except NoPostgresql as error:
            print(f"benchmarks: {error}", file=sys.stderr)
            yield {"sqlite": files}


def _schemas(server: PostgresServer) -> Iterator[str]:
    import psycopg

    for n in range(1000):
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute(f"CREATE SCHEMA s{n}")
        yield f"{server.url}&options=-csearch_path%3Ds{n}"


def measured(quick: bool, command: str) -> Measured:
    """One after another: nothing else of ours runs meanwhile."""
    here = machine()
    with stores() as there:
        found = [rates(kind, store, quick) for kind, store in there.items()]
        recoveries = [recovery("sqlite", next(there["sqlite"]), policy, quick) for policy in ("fifo", "las")]
        if "postgresql" in there:
            recoveries.append(recovery("postgresql", next(there["postgresql"]), "fifo", quick))
        lengths = (300,) if quick else (3000, 30_000)
        histories = [long_history(Path(next(there["sqlite"])), jobs) for jobs in lengths]
    return Measured(command, here, found, recoveries, histories)


def text(m: Measured) -> str:
    """One page."""
    here = m.machine
    lines = [
        m.command,
        f"{here.date}, {here.cores} cores, {here.memory_gib:g} GiB, Python {here.python}; "
        f"load average {here.load:g} when it began",
        "",
        f"SUBMISSIONS A SECOND, each acknowledged after its commit (goal: {GOAL_PER_S:,.0f} in batches of {BATCH})",
    ]
    lines += [
        f"  {r.store:<11} empty commits {r.commits_per_s:,.0f}; one by one {r.one_by_one_per_s:,.0f}; "
        f"{r.clients} clients one by one {r.gathered_per_s:,.0f}; in batches {r.batched_per_s:,.0f}"
        for r in m.rates
    ]
    lines += ["", f"RECOVERY of queued jobs after kill -9 (goal: {GOAL_RECOVERED_S:g} s)"]
    lines += [
        f"  {r.store:<11} {r.policy:<5} {r.jobs:,} jobs: {r.restore_s:.2f} s, in a process of {r.process_s:.2f} s; "
        f"from a saved state {r.from_saved_s:.2f} s ({r.saved_mib:.1f} MiB, saved in {r.save_ms:.0f} ms)"
        for r in m.recoveries
    ]
    lines += ["", "LONG HISTORIES (las, 8x8)"]
    lines += [
        f"  {h.cycles:,} cycles, {h.live_jobs:,} live jobs: all folded {h.fold_s:.2f} s ({h.fold_us_per_cycle:.0f} µs "
        f"a cycle); with saved states {h.restore_s:.2f} s ({h.saves} saved, {h.save_share:.1%} of the run)"
        for h in m.histories
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Measure, and print one page or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.journal", description="The journal of a live run.")
    parser.add_argument("--quick", action="store_true", help="small inputs: seconds instead of a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    found = measured(chosen.quick, " ".join(["python -m benchmarks.journal", *arguments]))
    print(msgspec.json.encode(found).decode() if chosen.json else text(found))


if __name__ == "__main__":
    main(sys.argv[1:])
