"""What `benchmarks.rotary_live` reads from journals: who attained, what pauses cost, and how queries behave alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb_extension_tpch")

from benchmarks.machine import machine
from benchmarks.query.cost import generated, tpch_queries
from benchmarks.rotary_live.__main__ import Compared, Measured, main, text
from benchmarks.rotary_live.drawing import Drawn, accepted, drawn, faster
from benchmarks.rotary_live.lone_runs import LoneBatch, LoneRun, process_sizes
from benchmarks.rotary_live.outcome import Lost, Ran, time_lost
from benchmarks.rotary_live.simulation import simulated, truth_of

from hocket.cli.simulation.scenario import bound_policy
from hocket.control.ports import Cycle
from hocket.model.event import Event, ProgressReported
from hocket.model.job import Job
from hocket.model.partition import Partition
from hocket.reports.account import Account, JobRecord, Span


def held(*spans: tuple[float, float]) -> Account:
    """What is read of an account: when the only job had cores."""
    found = tuple(Span(0, "", since_s, until_s, Partition("p", (), ())) for since_s, until_s in spans)
    return Account(None, (JobRecord(Job("a"), 0.0),), found, (), (), None, 0.0, 100.0)  # type: ignore[arg-type]


def said(*reports: tuple[float, float, float]) -> list[Cycle]:
    """Reports of a query: when, the share that it has read, and how long what is unsaved of it took."""

    def report(at_s: float, fraction: float, redo_s: float) -> Event:
        metrics = {"fraction": fraction, "redo_s": redo_s, "write_s": 0.25}
        return ProgressReported(at_s, "a", 0, metrics)

    return [Cycle(at_s, (report(at_s, fraction, redo_s),)) for at_s, fraction, redo_s in reports]


def test_a_pause_to_disk_costs_leaving_and_a_new_process() -> None:
    # It wrote for half a second, and its new process took three seconds until it said again what was known.
    found = time_lost(held((0, 6), (10, 16)), said((4, 0.25, 2), (5.5, 0.5, 3.5), (13, 0.5, 0), (16, 1.0, 3)))
    assert found == Lost(0.5, 3.0, 0.0, 0.25)


def test_batches_that_were_known_before_are_done_again() -> None:
    # Nothing was kept: a process takes two seconds to begin, and then both batches come again.
    reports = said((4, 0.25, 2), (5.5, 0.5, 3.5), (14, 0.25, 2), (15.5, 0.5, 3.5), (18, 1.0, 6))
    found = time_lost(held((0, 5.5), (10, 18)), reports)
    assert (found.leaving_s, found.going_on_s, found.redone_s, found.all_s) == (0.0, 2.0, 3.5, 5.5)


def test_a_batch_that_stood_still_in_memory_costs_nothing() -> None:
    # It is stopped two seconds into a batch of three, which it ends a second after it goes on.
    found = time_lost(held((0, 6), (10, 14)), said((4, 0.25, 2), (11, 0.5, 5), (14, 1.0, 8)))
    assert found.all_s == 0.0


def test_a_run_of_which_nothing_came_is_lost_whole() -> None:
    found = time_lost(held((0, 4), (6, 7.5), (10, 15)), said((4, 0.25, 2), (13, 0.25, 0), (15, 1.0, 2)))
    assert (found.leaving_s, found.going_on_s) == (1.5, 3.0)


def test_what_was_never_paused_loses_nothing() -> None:
    assert time_lost(held((0, 2), (2.001, 9)), said((4, 0.25, 2), (9, 1.0, 7))) == Lost()


def test_queries_that_are_refused_with_a_goal_are_left_out(tmp_path: Path) -> None:
    data = tmp_path / "prepared.duckdb"
    generated(0.01, tmp_path / "tpch.duckdb", data)
    able = accepted(data, tpch_queries())
    assert {"q5", "q6", "q13"} <= able
    assert not {"q3", "q16", "q18"} & able  # rows that are final, and a column without an interval
    found = drawn(0, 40, able)
    assert len(found) == 40
    assert {q.query for q in found} <= able
    assert [q.at_s for q in found] == sorted(q.at_s for q in found)
    assert len({q.id for q in found}) == 40
    soon = faster(found, 1.6)
    assert soon[-1].deadline_s == pytest.approx(found[-1].deadline_s / 100, abs=0.06)


def alone(query: str, threads: int, times: tuple[float, ...], mib: float = 0.0) -> LoneRun:
    shares = [2.0 ** (n + 1 - len(times)) for n in range(len(times))]
    batches = [LoneBatch(t, f, f * f, mib, 100.0 + mib, 0.3, 0.2) for t, f in zip(times, shares, strict=True)]
    return LoneRun(query, threads, 1.5, tuple(batches))


def test_the_size_of_a_process_is_that_without_its_state() -> None:
    one = LoneRun("q5", 1, 1.5, tuple(LoneBatch(n, n / 3, 0.0, 10.0 * n, 100.0 + 15.0 * n, 0, 0) for n in (1, 2, 3)))
    assert process_sizes([one]) == (105.0, 110.0, 110.0)
    assert process_sizes([LoneRun("q11", 1, 1.5, one.batches[2:])]) == (115.0, 115.0, 115.0)


def test_a_simulated_query_behaves_as_it_did_alone() -> None:
    truth = truth_of(alone("q5", 1, (1.0, 2.0, 4.0), 8.0), alone("q5", 2, (0.8, 1.5, 2.5)), 1.5)
    assert (truth.run_s, truth.costs.start_s, truth.load_s) == (4.0, 1.5, 0.2)
    assert truth.speed is not None
    assert truth.speed.at(2.0).mean == pytest.approx(1.6)
    assert truth.metrics_at(0.6 * truth.epochs)["acc"] == 0.25  # of the second batch, until the third has ended
    assert truth.metrics_at(truth.epochs)["acc"] == 1.0
    runs = {("q5", n): alone("q5", n, (1.0 / n, 2.0 / n, 4.0 / n)) for n in (1, 2)}
    queries = [Drawn(f"light-{n}-q5", "q5", 2.0 * n, 0.2, 30.0) for n in range(4)]
    ran = simulated(bound_policy("edf"), queries, [q.at_s for q in queries], runs, 1.5, (), 2, 1000.0)
    assert len(ran.attained) == 4


def test_the_page_says_how_far_live_and_simulated_agree() -> None:
    def ran(attained: int, lost_s: float) -> Ran:
        verdicts = {f"light-{n}-q6": "attained" if n < attained else "missed" for n in range(4)}
        return Ran(verdicts, dict.fromkeys(verdicts, 2.0 + lost_s), {"disk": 3}, 1, 2, 0, lost_s, Lost(lost_s, 0.0))

    compared = [
        Compared(policy, seed, ran(3, 1.0 + n), ran(4 - seed, 0.5))
        for seed in (0, 1)
        for n, policy in enumerate(("rotary", "edf"))
    ]
    page = text(Measured("command", machine(), 0.1, 2, 2, 1.0, 1.5, 2.0, (170.0, 188.0, 260.0), ["q16"], compared))
    assert "left out, for a goal is refused: q16" in page
    assert "170 MiB after its first batch, 188 before its last one, at most 260" in page
    assert "6 of 8" in page  # attained live
    assert "7 of 8" in page  # alike
    assert "6 disk" in page


@pytest.mark.long
def test_a_live_run_beside_a_simulated_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--scale", "0.01", "--queries", "3", "--cores", "1", "--load", "2"]
    assert main(["rotary:epoch_s=0.5", *chosen, "--keep", str(tmp_path), "--json", str(tmp_path / "out.json")]) == 0
    found: dict[str, Any] = json.loads((tmp_path / "out.json").read_bytes())
    (only,) = found["compared"]
    assert len(only["live"]["verdicts"]) == len(only["simulated"]["verdicts"]) == 3
    assert only["live"]["failed"] == 0
    assert found["start_s"] > 0
    assert "rotary:epoch_s=0.5" in capsys.readouterr().out
