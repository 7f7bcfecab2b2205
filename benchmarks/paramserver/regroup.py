"""A job with a model of 100 MB changes its group and hosts: how long it stands still, and what companions lose.

Four hosts, two groups of two, each with a companion that stays; a policy moves the job to and fro. Needs root. What
companions lose depends on the length of their iterations: they are measured with short and with longer ones.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT, median, table
from hocket.testing.hosts import network
from hocket.testing.hosts.launcher import Hosts

_GOAL_S = 2.0
_EVERY_S = 20.0
_MBIT, _MEM_MIB = 1000.0, 3000.0
# Four hosts leave some to the controller, and use all of a small machine but for a tenth.
_CORES = max(0.45, ((os.cpu_count() or 1) - 4) / 4)
_COMPANIONS = ("stays-0", "stays-1")
_COMP_S = (0.05, 0.4)  # of companions, in an iteration
_MOVED = "moved"
_BESIDE_S = 5.0  # before and after a move, in which companions' iterations are as usual


def measured(quick: bool) -> dict[str, Any]:
    """Some moves."""
    if why := network.why_no_namespaces():
        return {"not_measured": why}
    moves = 2 if quick else 6
    companions = [{"comp_s": comp_s, "moves": _moves(moves, 100.0, comp_s)} for comp_s in _COMP_S]
    return {"mb": 100, "cores": _CORES, "companions": companions}


def _moves(wanted: int, mb: float, comp_s: float) -> list[dict[str, float]]:
    os.environ["HOCKET_POLICIES"] = str(Path(__file__).parent / "policies")
    with Hosts(4, mbit=_MBIT, cores=_CORES, mem_mib=_MEM_MIB, gpus=0) as hosts:
        hosts.start_controller("--policy", "shuttle", "--param", f"every_s={_EVERY_S:g}", "--lease", "120")
        written = {name: hosts.folder / f"{name}.ended" for name in (_COMPANIONS[0], _MOVED, _COMPANIONS[1])}
        jobs = []
        for name, path in written.items():
            program = [sys.executable, str(Path(__file__).with_name("moving_job.py")), str(path)]
            work = [str(mb), "0.02"] if name == _MOVED else ["1", str(comp_s)]
            jobs.append(
                {
                    "id": name, "kind": "parameter-server", "command": [*program, *work, "1000000"], "cwd": str(ROOT),
                    "sizes": [2], "gpus": 0, "cores": 0.1, "mem_mib": 800.0, "warm": True, "grace_s": 60.0,
                }
            )  # fmt: skip
        hosts.call("POST", "/v1/jobs", {"jobs": jobs})
        until_s = time.monotonic() + 60.0 + 2 * _EVERY_S * (wanted + 2)
        while len(found := _found(written)) < wanted and time.monotonic() < until_s:
            time.sleep(1.0)
        if not _goes_on(written[_MOVED]):
            raise SystemExit("benchmarks: the job began again after a move, instead of going on")
        if not found:
            raise SystemExit(f"benchmarks: no move was seen; {hosts.log('controller')[-2000:]}")
        return found[:wanted]


def _found(written: dict[str, Path]) -> list[dict[str, float]]:
    """Every move: from the last iteration before it to the end of the second after it, less one iteration."""
    moved, *others = (_ends(written[name]) for name in (_MOVED, *_COMPANIONS))
    usual_s = median([b[1] - a[1] for a, b in pairwise(moved) if a[0] == b[0]] or [0.0])
    found = []
    for before, after in pairwise(moved):
        since_s, until_s = before[1] - 1.0, after[1] + 1.0
        later_s = until_s + _BESIDE_S  # A window as long as this one then shows what they lose without a move.
        later_end_s = later_s + until_s - since_s
        if before[0] == after[0] or later_end_s + _BESIDE_S > time.time():
            continue
        lost = [_lost(ends, since_s, until_s) for ends in others]
        found.append(
            {
                "stood_still_s": after[1] - before[1] - usual_s,
                "lost_s": max(lost_s for lost_s, _ in lost),
                "lost_iterations": max(iterations for _, iterations in lost),
                "lost_without": max(_lost(ends, later_s, later_end_s)[1] for ends in others),
            }
        )
    return found


def _goes_on(path: Path) -> bool:
    """Does no iteration come twice?"""
    iterations = [int(line.split()[1]) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return all(a < b for a, b in pairwise(iterations))


def _lost(ends: list[tuple[int, float]], since_s: float, until_s: float) -> tuple[float, float]:
    """By how much the longest iteration in a window was longer than usual, in seconds and in iterations.

    Usual is what iterations take before the window or after it, whichever is longer: the moved job is beside it then.
    """
    steps = [(a, b) for (_, a), (_, b) in pairwise(ends)]
    beside = (
        [b - a for a, b in steps if since_s - _BESIDE_S <= a and b <= since_s],
        [b - a for a, b in steps if until_s <= a and b <= until_s + _BESIDE_S],
    )
    usual_s = max((median(each) for each in beside if each), default=1.0)
    lost_s = max((b - a for a, b in steps if since_s < b and a < until_s), default=usual_s) - usual_s
    return lost_s, lost_s / usual_s


def _ends(path: Path) -> list[tuple[int, float]]:
    """Attempt and time of each iteration's end."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [(int(of[0]), float(of[2])) for line in lines if line.endswith("\n") and (of := line.split())]


def text(found: dict[str, Any]) -> list[str]:
    """As a table."""
    title = "REGROUP: a job moves to other hosts, beside companions that stay"
    if "not_measured" in found:
        return [title, f"  not measured: {found['not_measured']}"]
    title += f" (goal: within {_GOAL_S:g} s, and companions lose less than one iteration)"
    rows = []
    for of in found["companions"]:
        stood, lost_s, lost, without = (
            [move[what] for move in of["moves"]]
            for what in ("stood_still_s", "lost_s", "lost_iterations", "lost_without")
        )
        rows.append(
            (
                f"{found['mb']} MB of model, companions compute {of['comp_s']:g} s, {len(stood)} moves",
                f"{median(stood):.2f}", f"{max(stood):.2f}", f"{median(lost_s):.2f}", f"{median(lost):.1f}",
                f"{max(lost):.1f}", f"{median(without):.1f}",
            )
        )  # fmt: skip
    titles = (
        "", "stands still s, median", "longest", "companions lose s, median", "iterations", "most", "without a move"
    )  # fmt: skip
    return [title, *table(titles, rows)]
