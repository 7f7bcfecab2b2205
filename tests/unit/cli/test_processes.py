"""Commands as processes: parallel runs, interrupts, terminals, and what the first look loads."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.children import child
from tests.unit.cli.typed import hocket

from hocket.agent.process_tree import process as lives
from hocket.control.journal import SqliteJournal

HOCKET = (sys.executable, "-m", "hocket")
LONG = "poisson?jobs=40000&gap=60"  # far more work than a test waits for


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*HOCKET, *args], capture_output=True, text=True, timeout=600)


def begun(*args: str) -> AbstractContextManager[subprocess.Popen[str]]:
    # A group of its own, so that an interrupt reaches it and its workers as Ctrl-C does, and no other process.
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return child([*HOCKET, *args], start_new_session=True, **pipes)


def await_that(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def interrupted(process: subprocess.Popen[str]) -> tuple[str, str]:
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    return out, err


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It ended while we looked.
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def await_end(pids: list[int]) -> None:
    """Wait until none of them exists; a zombie may still have to be reaped by its new parent."""
    deadline = time.monotonic() + 120
    while any(map(lives, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_full_standard_output_is_said_in_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*HOCKET, "policies"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (2, "hocket: standard output: No space left on device\n")


def test_a_file_on_a_full_disk_is_said_by_its_name() -> None:
    said = run("simulate", "demo", "--policy", "fifo", "--jobs-csv", "/dev/full")
    assert (said.returncode, said.stderr) == (2, "hocket: /dev/full: No space left on device\n")


def test_a_closed_standard_output_is_no_error() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *HOCKET, "policies"], stderr=subprocess.PIPE, text=True, timeout=600
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from hocket.cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'matplotlib', 'hocket.control', 'sqlite3'} & sys.modules.keys()))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.stdout.splitlines()[-1] == "[]", result


def test_simulate_as_a_process_counts_the_cpu_time_of_all_of_it() -> None:
    result = run("simulate", "demo", "--policy", "fifo", "--json")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""  # no terminal, no progress
    summary = json.loads(result.stdout)
    assert summary["finished"] == 61
    assert summary["cpu_s"] > 0.05
    assert summary["peak_rss_mib"] > 10


def test_compare_runs_policies_and_seeds_in_parallel_and_gives_their_intervals(tmp_path: Path) -> None:
    args = ("demo", "fifo", "las", "--seeds", "2", "--workers", "2", "--plots", str(tmp_path), "--json")
    result = run("compare", *args)
    assert result.returncode == 0, result.stderr
    told: dict[str, Any] = json.loads(result.stdout)
    assert list(told["policies"]) == ["fifo", "las"]
    assert told["seeds"] == [0, 1]
    runs = {(r["label"], r["summary"]["seed"]): r["summary"] for r in told["runs"]}
    assert len(runs) == 4
    mean = (runs["las", 0]["jct_mean_s"] + runs["las", 1]["jct_mean_s"]) / 2
    assert told["policies"]["las"]["jct_mean_s"]["mean"] == pytest.approx(mean)
    assert told["policies"]["las"]["jct_mean_s"]["half_width"] > 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["compare.png", "compare.svg"]
    alone = json.loads(hocket("simulate", "demo", "--policy", "las", "--seed", "1", "--json").stdout)
    assert alone["jct_mean_s"] == runs["las", 1]["jct_mean_s"]


def test_compare_says_what_a_worker_could_not_read() -> None:
    result = run("compare", "nope.csv", "fifo", "las", "--cluster", "1x1")
    assert result.returncode == 2
    assert result.stderr.startswith("hocket: nope.csv")
    assert result.stderr.count("\n") == 1


def test_an_interrupted_simulation_keeps_the_journal_that_it_has(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    part = tmp_path / "run.db.part-wal"
    with begun("simulate", LONG, "--cluster", "16x8", "--policy", "fifo", "--journal", str(path)) as process:
        await_that(lambda: part.exists() and part.stat().st_size > 1 << 18, process)
        out, err = interrupted(process)
    assert (out, err) == ("", "hocket: interrupted\n")
    assert [p.name for p in tmp_path.iterdir()] == ["run.db"]
    journal = SqliteJournal(path)
    assert len(list(journal)) > 100
    journal.close()


def test_an_interrupted_comparison_leaves_no_process_behind() -> None:
    with begun("compare", LONG, "fifo", "las", "--cluster", "16x8", "--workers", "2") as process:
        await_that(lambda: len(children(process.pid)) >= 2, process)
        workers = children(process.pid)
        out, err = interrupted(process)
    assert (out, err) == ("", "hocket: interrupted\n")
    await_end(workers)


def test_workers_end_when_their_parent_is_killed() -> None:
    with begun("compare", LONG, "fifo", "las", "--cluster", "16x8", "--workers", "2") as process:
        await_that(lambda: len(children(process.pid)) >= 2, process)
        workers = children(process.pid)
        process.kill()
        process.communicate()
    await_end(workers)


def test_progress_goes_to_a_terminal_and_results_do_not_mix_with_it() -> None:
    screen, end = pty.openpty()
    command = [*HOCKET, "simulate", "poisson?jobs=15000", "--cluster", "16x8", "--policy", "fifo", "--json"]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with child(command, stdout=subprocess.PIPE, stderr=end, text=True, env=env) as process:
        os.close(end)
        shown = b""
        try:
            while chunk := os.read(screen, 65536):
                shown += chunk
        except OSError:
            pass  # So a terminal says that no process writes to it any more.
        os.close(screen)
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert json.loads(out)["finished"] == 15000
    assert re.search(rb"fifo.*/15000", shown)
