"""Studies that are killed, for real, and go on: the same winner, the same numbers, and no finished stretch again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.children import child
from tests.unit.cli.typed import hocket
from tests.whole_lines import whole_lines

from hocket.tune import read

SCRIPT = Path(__file__).with_name("counting_study.py")
UNIT_STEPS = 7
PATIENCE_S = 300.0


def study_file(folder: Path) -> str:
    """A study that keeps all in this folder."""
    folder.mkdir(exist_ok=True)
    (folder / "study.toml").write_text(
        f'script = "{SCRIPT}"\nmetric = "accuracy"\ngoal = "max"\nunit_steps = {UNIT_STEPS}\nway = "turn"\n'
        'checkpoint_s = 0.02\nfolder = "kept"\n[search]\nunits = 9\n'
    )
    return str(folder / "study.toml")


@pytest.fixture(scope="module")
def processes() -> Iterator[subprocess.Popen[str]]:
    """What runs commands as processes that can be killed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT.with_name("forked_commands.py"))]
    with child(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


def finished(folder: Path) -> dict[str, Any]:
    """Run it to its end, in this process, which has PyTorch already: what it found, but how long it took."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as those that are killed
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LEDGER", str(folder / "ledger"))
            done = hocket("tune", study_file(folder), "--json")
    finally:
        torch.set_num_threads(threads)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    results = [(r["trial"], r["units"], r["config"], _own(r["metrics"])) for r in found["results"]]
    return {"best": found["best"]["trial"], "steps": found["steps"], "results": sorted(results, key=lambda r: r[:2])}


def _own(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if not name.startswith("pack.")}


def steps_made(folder: Path) -> Counter[tuple[str, int]]:
    """By trial and number, how often a step was made."""
    lines = [line.split() for line in whole_lines(folder / "ledger")]
    return Counter((trial, int(number)) for trial, number in lines)


def signalled(processes: subprocess.Popen[str], folder: Path, steps: int, what: signal.Signals) -> tuple[int, str]:
    """Run `hocket tune study.toml` until so many steps are made, and send a signal: exit code, and what it said."""
    assert processes.stdin is not None
    assert processes.stdout is not None
    (folder / "hold").write_text(str(steps))
    variables = {"LEDGER": str(folder / "ledger"), "ERRORS": str(folder / "errors")}
    print(json.dumps([variables, "tune", study_file(folder), "--json"]), file=processes.stdin, flush=True)
    pid, code = int(processes.stdout.readline()), None
    try:
        wait_until(pid, lambda: len(steps_made(folder)) >= steps)
        os.kill(pid, what)
        (folder / "hold").unlink()
        code = int(processes.stdout.readline())
    finally:
        if code is None:
            os.kill(pid, signal.SIGKILL)
    return code, (folder / "errors").read_text()


def wait_until(pid: int, condition: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until
        os.kill(pid, 0)  # raises if it has ended
        time.sleep(0.05)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Counter[tuple[str, int]]]:
    """The study without interruptions, and its steps."""
    folder = tmp_path_factory.mktemp("whole")
    return finished(folder), steps_made(folder)


@pytest.mark.slow
def test_killed_twice_a_study_ends_as_if_it_had_never_been(tmp_path: Path, whole: Any, processes: Any) -> None:
    found, total = whole
    assert set(total.values()) == {1}
    assert found["steps"] == len(total)
    over: dict[tuple[str, int], int] = {}  # steps of finished stretches → how often they had been made by then
    for share in (0.25, 0.7):
        code, _said = signalled(processes, tmp_path, int(share * len(total)), signal.SIGKILL)
        assert code == -signal.SIGKILL
        units = {f"t{t.number}": t.units for t in read(tmp_path / "kept").trials}
        over |= {step: n for step, n in steps_made(tmp_path).items() if step[1] <= units.get(step[0], 0) * UNIT_STEPS}
    assert over
    assert finished(tmp_path) == found
    made = steps_made(tmp_path)
    assert set(made) == set(total), "every step is made, and none beside them"
    assert {step: made[step] for step in over} == over, "no step of a finished stretch is made again"


@pytest.mark.slow
def test_interrupted_a_study_saves_all_models_and_repeats_no_step_at_all(
    tmp_path: Path, whole: Any, processes: Any
) -> None:
    found, total = whole
    code, said = signalled(processes, tmp_path, len(total) // 2, signal.SIGINT)
    assert (code, said) == (130, "hocket: interrupted\n")
    assert finished(tmp_path) == found
    assert steps_made(tmp_path) == total
