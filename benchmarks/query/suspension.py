"""Queries that are killed and go on: `python -m benchmarks.query.suspension [--kills N] [--scale SF] [--json]`.

First, the 22 queries of TPC-H are killed with -9 at random moments, again and again, and must end with the answer of a
plain run: no batch is lost or counted twice, and what was said once is never forgotten. Then the place that the cost
model chooses for a state is compared with the best in hindsight, over the sizes and times that were measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import select
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
from msgspec import structs

from benchmarks.machine import machine, table
from hocket.model.suspension import Suspension, chance_of_interruption, costs_of_keeping, is_written_too, where_to_keep
from hocket.model.view import Tier
from hocket.query import Query
from hocket.runtimes.query.data_sources import open_data
from hocket.runtimes.query.duckdb_data import UNITS
from hocket.runtimes.query.query_state import FILE, QueryStateFolder

QUERIES = range(1, 23)
KILLS = 500
DRAWS = 20  # of interruptions, for each query and rate
EVERY = (0.25, 0.5, 1.0, 2.0, 8.0)  # mean times between interruptions, in times of the whole query
START_S = 1.0  # until a new process could go on
SLOWER = (1.0, 30.0)  # times of batches: as measured, and of data that many times as large with as many groups
_PATIENCE_S = 120.0


class Boundary(NamedTuple):
    """What was measured after a batch."""

    took_s: float  # by the batch
    state_mib: float
    write_s: float
    read_s: float


def prepared(folder: Path, scale: float) -> tuple[Path, dict[int, str]]:
    """A DuckDB file with the data, and the queries."""
    path = folder / "tpch.duckdb"
    made = open_data(f"tpch:{scale}", state=folder)
    texts = dict(made.connection.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())
    made.connection.execute(f"ATTACH '{path}' AS copy")
    for name in made.schema:
        made.connection.execute(f"CREATE TABLE copy.{name} AS FROM memory.{name}")
    made.connection.close()
    return path, texts


# -- kills ----------------------------------------------------------------------------------------------------------


class Attempt:
    """A process that runs a query with a state, as `hocket query --state` does, and says each answer."""

    def __init__(self, sql: str, data: Path, state: Path) -> None:
        read_end, write_end = os.pipe()
        # Nothing of DuckDB is open here, so that a copy of this process can begin with it.
        self.pid = os.fork()
        if self.pid == 0:
            os.close(read_end)
            _run(sql, data, state, write_end)
        os.close(write_end)
        self._fd, self._begun = read_end, b""

    def lines(self, until: Callable[[int], float]) -> list[dict[str, Any]]:
        """What it says, until it ends or is killed: after so many answers, `until` gives the seconds it has left."""
        found: list[dict[str, Any]] = []
        deadline_s = time.monotonic() + until(0)
        while True:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                os.kill(self.pid, signal.SIGKILL)
                left_s = None
            ready = select.select([self._fd], [], [], left_s)[0]
            if not ready:
                continue
            data = os.read(self._fd, 1 << 16)
            if not data:
                break
            *whole, self._begun = (self._begun + data).split(b"\n")
            found += [json.loads(line) for line in whole]
            if whole and left_s is not None:
                deadline_s = time.monotonic() + until(len(found))
        os.close(self._fd)
        _pid, status = os.waitpid(self.pid, 0)
        self.was_killed = os.WIFSIGNALED(status)
        if not self.was_killed and os.waitstatus_to_exitcode(status) != 0:
            raise SystemExit(f"a query failed: {found[-1] if found else status}")
        return found


def _run(sql: str, data: Path, state: Path, out: int) -> None:
    code = 1
    try:
        query = Query(sql, open_data(data, threads=1, state=state), state=state)
        for answer in query:
            rows = repr(answer.rows) if answer.is_exact else ""
            batches = [(batch.lo, batch.hi) for batch in query.ledger]
            os.write(out, json.dumps({"fraction": answer.fraction, "batches": batches, "rows": rows}).encode() + b"\n")
        code = 0
    except Exception as error:
        os.write(out, json.dumps({"error": str(error)}).encode() + b"\n")
    finally:
        os._exit(code)


class Tally:
    """What came of the kills."""

    def __init__(self) -> None:
        self.kills = self.runs = self.finished = self.resumed = 0
        self.faults: list[str] = []


def killed(number: int, sql: str, data: Path, folder: Path, kills: int, dice: random.Random, tally: Tally) -> None:
    """Kill a query so many times, and let it end when it has come through; then it begins anew, until all are spent."""
    state = folder / f"state-{number}"
    whole_s, plain = _uninterrupted(sql, data, folder / f"whole-{number}")
    before = tally.kills
    while tally.kills - before < kills:
        told: list[dict[str, Any]] = []  # the furthest that was said of this round
        left = dice.randint(1, 6)
        while True:
            is_last = left == 0 or tally.kills - before >= kills
            attempt = Attempt(sql, data, state)
            at = dice.randint(0, 5)

            def until(answers: int, at: int = at, is_last: bool = is_last) -> float:
                if is_last or answers < at:
                    return _PATIENCE_S
                return dice.uniform(0.0, 0.6 * whole_s)

            said = attempt.lines(until)
            tally.runs += 1
            tally.kills += attempt.was_killed
            left -= attempt.was_killed
            _check(number, told, said, tally)
            told = said or told
            if not attempt.was_killed:
                break
        tally.finished += 1
        if told[-1]["rows"] != plain:
            tally.faults.append(f"Q{number}: the last answer is not that of a plain run")
        if os.listdir(state):
            tally.faults.append(f"Q{number}: {os.listdir(state)} is left when all was read")


def _uninterrupted(sql: str, data: Path, state: Path) -> tuple[float, str]:
    began_s = time.monotonic()
    said = Attempt(sql, data, state).lines(lambda _answers: _PATIENCE_S)
    return time.monotonic() - began_s, said[-1]["rows"]


def _check(number: int, told: list[dict[str, Any]], said: list[dict[str, Any]], tally: Tally) -> None:
    for answer in said:
        at = 0
        for lo, hi in answer["batches"]:
            if lo != at:
                tally.faults.append(f"Q{number}: units from {min(lo, at)} on were lost or counted twice")
            at = hi + 1
        if answer["batches"] and at != round(answer["fraction"] * UNITS):
            tally.faults.append(f"Q{number}: {at} units are in the ledger, and {answer['fraction']:.0%} in the answer")
    if told and said and told[-1]["batches"]:
        tally.resumed += 1
        # Once the exact answer was taken the state is removed, and the process may be killed before it has ended.
        if not told[-1]["rows"] and said[0]["fraction"] < told[-1]["fraction"]:
            tally.faults.append(f"Q{number}: {told[-1]['fraction']:.0%} was said, and then {said[0]['fraction']:.0%}")


# -- the cost model against hindsight ---------------------------------------------------------------------------------


def measured(sql: str, data: Path, state: Path) -> list[Boundary]:
    """Each batch, and its state written and read."""
    query = Query(sql, open_data(data, threads=1, state=state), state=state, interrupted_every_s=math.inf)
    found = []
    for answer in query:
        if answer.is_exact:
            last = query.ledger[-1].took_s if query.ledger else answer.elapsed_s
            found.append(Boundary(last, 0.0, 0.0, 0.0))
            break
        began_s = time.monotonic()
        query.save()
        write_s = time.monotonic() - began_s
        mib = (state / FILE).stat().st_size / (1 << 20)
        found.append(Boundary(query.ledger[-1].took_s, mib, write_s, _read_s(query, state)))
    query.close()
    return found


def _read_s(query: Query, state: Path) -> float:
    copy = state.with_name(f"{state.name}-read")
    copy.mkdir(exist_ok=True)
    (copy / FILE).unlink(missing_ok=True)
    os.link(state / FILE, copy / FILE)
    db = duckdb.connect()  # without the limits of a query's connection, which knows one folder only
    folder = QueryStateFolder(copy)
    loaded = folder.load(db, query.identity())
    folder.close()
    db.close()
    assert loaded is not None
    return loaded.read_s


Choice = Callable[[int, int, float], bool]  # batches done, batches saved, seconds since the last save → write?


class Lost(NamedTuple):
    """What a query that is killed takes beside its batches."""

    writing_s: float = 0.0
    redone_s: float = 0.0  # batches done again, and what was done of one
    starting_s: float = 0.0  # new processes, and reading the state
    redone: int = 0  # whole batches done again
    starts: int = 0  # new processes


def time_lost(query: list[Boundary], interruptions: tuple[float, ...], choose: Choice) -> Lost:
    """What is lost if a query is killed at these moments, and its state is written as chosen."""
    now_s, done, saved, unsaved_s, coming = 0.0, 0, 0, 0.0, list(interruptions)
    writing_s = redone_s = starting_s = 0.0
    redone = starts = 0
    while done < len(query):
        boundary = query[done]
        end_s = now_s + boundary.took_s
        writes = done + 1 < len(query) and choose(done + 1, saved, unsaved_s + boundary.took_s)
        safe_s = end_s + (boundary.write_s if writes else 0.0)
        if coming and coming[0] < safe_s:  # A kill while it writes leaves the state before.
            killed_s = max(coming.pop(0), now_s)
            starts_s = START_S + (query[saved - 1].read_s if saved else 0.0)
            redone_s += unsaved_s + min(killed_s, end_s) - now_s
            writing_s += max(0.0, killed_s - end_s)
            redone += done - saved + (killed_s >= end_s)
            starting_s += starts_s
            starts += 1
            now_s, done, unsaved_s = killed_s + starts_s, saved, 0.0
            continue
        now_s, done, unsaved_s = safe_s, done + 1, unsaved_s + boundary.took_s
        if writes:
            writing_s += boundary.write_s
            saved, unsaved_s = done, 0.0
    return Lost(writing_s, redone_s, starting_s, redone, starts)


def run_time(query: list[Boundary], interruptions: tuple[float, ...], choose: Choice) -> float:
    """How long such a query takes."""
    lost = time_lost(query, interruptions, choose)
    return sum(boundary.took_s for boundary in query) + lost.writing_s + lost.redone_s + lost.starting_s


def best_in_hindsight(query: list[Boundary], interruptions: tuple[float, ...]) -> float:
    """The least that any choice of when to write could have taken, had the interruptions been known."""

    def least(now_s: float, saved: int, coming: tuple[float, ...]) -> float:
        if not coming:
            return now_s + sum(boundary.took_s for boundary in query[saved:])
        return min(_with_write(now_s, saved, coming, at) for at in (0, *range(saved + 1, len(query))))

    def _with_write(now_s: float, saved: int, coming: tuple[float, ...], at: int) -> float:
        """With one write before the next interruption, after batch `at`: of several, only the last would count."""
        kept, time_s = saved, now_s
        for done, boundary in enumerate(query[saved:], saved + 1):
            time_s += boundary.took_s + (boundary.write_s if done == at else 0.0)
            if coming[0] < time_s:
                again_s = max(coming[0], now_s) + START_S + (query[kept - 1].read_s if kept else 0.0)
                return least(again_s, kept, coming[1:])
            kept = at if done == at else kept
        return time_s

    return least(0.0, 0, interruptions)


def by_cost_model(query: list[Boundary], every_s: float) -> Choice:
    """As `Query` chooses: it knows how often it is interrupted, and guesses that the next batch is twice as long."""

    def choose(done: int, _saved: int, unsaved_s: float) -> bool:
        at = query[done - 1]
        chance = chance_of_interruption(1.0 / every_s, 2.0 * at.took_s)
        state = Suspension(at.state_mib, unsaved_s, at.write_s, at.read_s, START_S, chance)
        return where_to_keep(state) is Tier.DISK

    return choose


def regrets(queries: dict[int, list[Boundary]], slower: float, seed: int) -> dict[str, list[float]]:
    """Way of choosing → by how much each run was longer than in hindsight, as a share of the best."""
    found: dict[str, list[float]] = {"cost model": [], "after every batch": [], "never": []}
    for number, as_measured in queries.items():
        query = [b._replace(took_s=b.took_s * slower) for b in as_measured]
        whole_s = sum(boundary.took_s for boundary in query)
        for every in EVERY:
            dice = random.Random(f"{seed}/{number}/{every}/{slower}")
            choices = {
                "cost model": by_cost_model(query, every * whole_s),
                "after every batch": lambda *_: True,
                "never": lambda *_: False,
            }
            for _draw in range(DRAWS):
                times, at_s = [], 0.0
                while len(times) < 4 and (at_s := at_s + dice.expovariate(1.0 / (every * whole_s))) < 4 * whole_s:
                    times.append(at_s)
                best_s = best_in_hindsight(query, tuple(times))
                for name, choose in choices.items():
                    found[name].append(run_time(query, tuple(times), choose) / best_s - 1.0)
    return found


def pause_regrets(queries: dict[int, list[Boundary]], slower: float, seed: int) -> dict[str, list[float]]:
    """The same for pauses: memory, disk or nothing, under a budget, where the process may be killed meanwhile."""
    found: dict[str, list[float]] = {"cost model": [], "disk": [], "drop": [], "memory, or disk if it is full": []}
    dice = random.Random(f"{seed}/pauses/{slower}")
    for query in queries.values():
        redo_s = 0.0
        for boundary in query[:-1]:
            redo_s += boundary.took_s * slower
            for risk in (0.0, 0.1, 0.5):
                for budget_mib in (0.0, 1.0, math.inf):
                    state = Suspension(
                        boundary.state_mib, redo_s, boundary.write_s, boundary.read_s, START_S, risk, leaves=True,
                        memory_mib=budget_mib,
                    )  # fmt: skip
                    fits = 0 < budget_mib >= boundary.state_mib
                    chosen = {
                        "cost model": where_to_keep(state), "disk": Tier.DISK, "drop": Tier.NONE,
                        "memory, or disk if it is full": Tier.MEMORY if fits else Tier.DISK,
                    }  # fmt: skip
                    for _draw in range(20):
                        happens = structs.replace(state, interruption=float(dice.random() < risk))
                        costs = costs_of_keeping(happens)
                        best_s = min(costs.values())
                        if fits and is_written_too(state) != is_written_too(happens):  # It did not know.
                            again_s = state.read_s if is_written_too(state) else redo_s
                            written_s = state.write_s if is_written_too(state) else 0.0
                            costs[Tier.MEMORY] = written_s + happens.interruption * (START_S + again_s)
                        for name, tier in chosen.items():
                            found[name].append(costs[tier] - best_s)
    return found


def examined(
    number: int, sql: str, data: Path, folder: Path, kills: int, options: argparse.Namespace
) -> dict[str, Any]:
    """All about one query."""
    tally = Tally()
    killed(number, sql, data, folder, kills, random.Random(f"{options.seed}/{number}"), tally)
    with tempfile.TemporaryDirectory(dir=options.disk) as disk:
        query = {number: measured(sql, data, Path(disk) / "state")}
    print(f"Q{number}: {tally.kills} kills, {len(tally.faults)} faults", file=sys.stderr, flush=True)
    found: dict[str, Any] = {"tally": vars(tally), "batches": query[number]}
    for slower in SLOWER:
        found[f"regret at {slower:g}x"] = regrets(query, slower, options.seed)
        found[f"pause_regret_s at {slower:g}x"] = pause_regrets(query, slower, options.seed)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--queries", type=int, nargs="+", default=list(QUERIES), metavar="N", help="1 to 22")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--disk", metavar="DIR", help="where the states are whose writing is measured")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(options.processes) as pool:
        folder = Path(name)
        # DuckDB is opened in other processes only, so that copies of this one can begin with it.
        data, texts = in_child(partial(prepared, folder, options.scale))
        calls = [
            partial(examined, n, texts[str(n)], Path(data), folder, _share(options, place), options)
            for place, n in enumerate(options.queries)
        ]
        found = list(pool.map(in_child, calls))
    names = [name for name in found[0] if "regret" in name]
    result: dict[str, Any] = {
        "machine": structs.asdict(machine()), "scale": options.scale,
        **{name: sum(one["tally"][name] for one in found) for name in ("kills", "runs", "finished", "resumed")},
        "faults": [fault for one in found for fault in one["tally"]["faults"]],
        "batches": {n: one["batches"] for n, one in zip(options.queries, found, strict=True)},
        **{name: _mean_and_worst([one[name] for one in found]) for name in names},
    }  # fmt: skip
    if options.json:
        print(json.dumps(result))
    else:
        _print(result)
    return bool(result["faults"])


def _share(options: argparse.Namespace, place: int) -> int:
    """The kills of one of the queries, so that all joined_records have as many as asked for."""
    each, more = divmod(options.kills, len(options.queries))
    return each + (place < more)


def _mean_and_worst(found: list[dict[str, list[float]]]) -> dict[str, dict[str, float]]:
    values = {way: [value for one in found for value in one[way]] for way in found[0]}
    return {way: {"mean": statistics.fmean(all_of), "worst": max(all_of)} for way, all_of in values.items()}


def _print(result: dict[str, Any]) -> None:
    queries = f"{len(result['batches'])} queries, SF {result['scale']:g}"
    print(
        f"{result['kills']} kills in {result['runs']} runs of {queries}: {result['resumed']} went on from a state, ",
        end="",
    )
    print(f"{result['finished']} were read to the end; faults: {len(result['faults'])}")
    for fault in result["faults"]:
        print(fault)
    for name, found in result.items():
        if "regret" not in name:
            continue
        form = "{:.3f} s" if name.startswith("pause") else "{:.1%}"
        rows = [(way, form.format(v["mean"]), form.format(v["worst"])) for way, v in found.items()]
        print(f"\n{name}")
        print("\n".join(table(("state is kept", "mean", "worst"), rows)))


def in_child(call: Callable[[], Any]) -> Any:
    """What a call gives, as JSON, made in another process."""
    read_end, write_end = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(read_end)
        code = 1
        try:
            with open(write_end, "w", encoding="utf-8") as out:
                json.dump(call(), out, default=str)
            code = 0
        finally:
            os._exit(code)
    os.close(write_end)
    with open(read_end, encoding="utf-8") as said:
        text = said.read()
    os.waitpid(pid, 0)
    return json.loads(text)


if __name__ == "__main__":
    sys.exit(main())
