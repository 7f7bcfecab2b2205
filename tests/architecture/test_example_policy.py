"""A policy in one file, in a folder that HOCKET_POLICIES names, is found by everything that uses policies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from hocket.control.journal import SqliteJournal

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "policies"
# Each with its parameter, another value for it, and a reason that it gives.
EXAMPLES = {
    "smallest": ("patience_s", "60", "starts: no smaller job waits"),
    "priority": ("margin", "3", "starts: no job of a higher priority needs its place"),
}
LONGEST = 50
pytestmark = pytest.mark.parametrize("name", EXAMPLES)


def run(*arguments: str) -> str:
    environment = {**os.environ, "HOCKET_POLICIES": str(FOLDER)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def told(*arguments: str) -> Any:
    return json.loads(run("-m", "hocket", *arguments, "--json"))


def test_it_is_one_short_file(name: str) -> None:
    assert len((FOLDER / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= LONGEST


def test_every_example_is_tested(name: str) -> None:
    assert name in {path.stem for path in FOLDER.glob("*.py")} == EXAMPLES.keys()


@cache
def listed() -> set[str]:
    return {p["name"] for p in told("policies")["policies"]}


@cache
def demo(name: str) -> tuple[Any, set[str]]:
    """The demo under a policy: its summary, and the reasons in its journal."""
    with TemporaryDirectory() as folder:
        journal = Path(folder) / "run.db"
        summary = told("simulate", "demo", "--policy", name, "--journal", str(journal))
        kept = SqliteJournal(journal)
        reasons = {reason for cycle in kept if cycle.plan for reason in cycle.plan.reasons.values()}
        kept.close()
    return summary, reasons


@cache
def compared() -> dict[str, float]:
    """The mean JCT of fifo, and of each example as it is and with another value of its parameter."""
    others = [f"{name}:{parameter}={value}" for name, (parameter, value, _reason) in EXAMPLES.items()]
    policies = ["fifo", *EXAMPLES, *others]
    runs = told("compare", "demo", *policies)["runs"]
    return dict(zip(policies, (run["summary"]["jct_mean_s"] for run in runs), strict=True))


def test_it_is_listed_with_its_parameters(name: str) -> None:
    assert name in listed()
    assert [p["name"] for p in told("policies", name)["parameters"]] == [EXAMPLES[name][0]]


def test_without_the_folder_it_is_not_there(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hocket", "policies", name],
        env={k: v for k, v in os.environ.items() if k != "HOCKET_POLICIES"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2
    assert f"policy '{name}' is unknown" in done.stderr


def test_it_simulates_and_compares(name: str) -> None:
    alone, _reasons = demo(name)
    assert alone["finished"] == alone["jobs"] == 61
    parameter, value, _reason = EXAMPLES[name]
    fifo, default, other = (compared()[policy] for policy in ("fifo", name, f"{name}:{parameter}={value}"))
    assert default == alone["jct_mean_s"]
    assert default < fifo
    assert (default < other) == (name == "smallest")  # In the demo all jobs have one priority.


def test_it_gives_reasons(name: str) -> None:
    _summary, reasons = demo(name)
    assert EXAMPLES[name][2] in reasons
    assert any(r.startswith("waits: ") for r in reasons)


def test_the_preemptive_one_pauses_a_job_of_lower_priority(tmp_path: Path, name: str) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("id,submit_s,run_s,priority\nlow,0,1h,0\nhigh,60,1h,2\n", encoding="utf-8")
    for value, pauses in (("1", 1), ("3", 0)):
        knobs = ("--param", f"margin={value}") if name == "priority" else ()
        found = told("simulate", str(jobs), "--cluster", "1x1", "--policy", name, *knobs)
        assert found["preemptions"] == (pauses if name == "priority" else 0)


@pytest.fixture(scope="module")
def passed() -> str:
    """The laws that the examples keep, one on each line."""
    tests = str(ROOT / "tests" / "laws" / "test_policies.py")
    only = " or ".join(EXAMPLES)
    return run("-m", "pytest", tests, "-vv", "-k", only, "-p", "no:cacheprovider", "-p", "no:xdist")


@pytest.mark.long
def test_it_keeps_every_law_of_policies(name: str, passed: str) -> None:
    for law in ("test_every_decision_keeps_the_laws", "test_every_run_keeps_the_laws"):
        assert f"::{law}[{name}] PASSED" in passed
