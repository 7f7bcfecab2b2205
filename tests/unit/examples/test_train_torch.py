"""The example under torchrun with real processes; torch is an extra."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.children import child
from tests.live.processes import end_all
from tests.whole_lines import json_lines

pytest.importorskip("torch", reason="needs the torch extra")

EXAMPLE = Path(__file__).parents[3] / "examples" / "train_torch.py"
PATIENCE_S = 300.0
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


@contextmanager
def started(folder: Path, processes: int, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The example, by so many processes of torchrun, or without; none of them is left afterwards."""
    launcher = (*TORCHRUN, str(processes)) if processes else ()
    command = [sys.executable, *launcher, str(EXAMPLE), "--ledger", str(folder / "ledger"), *options]
    environment = {**os.environ, "HOCKET_CHECKPOINT_DIR": str(folder / "checkpoints"), "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    try:
        with child(command, env=environment, **pipes) as run:
            yield run
    finally:
        end_all(folder)


def finish(folder: Path, processes: int, *options: str) -> str:
    with started(folder, processes, *options) as run:
        output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, errors
    return output


def noted(folder: Path, event: str) -> list[dict[str, Any]]:
    """The lines of this kind in the ledger."""
    return [line for line in json_lines(folder / "ledger") if line["event"] == event]


def wait_until(run: subprocess.Popen[str], condition: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until
        assert run.poll() is None, "it has ended"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """By one process, without torchrun."""
    return finish(tmp_path_factory.mktemp("uninterrupted"), 0, "--epochs", "4")


def test_paused_by_two_processes_and_resumed_by_one_it_ends_with_the_same_accuracy(
    tmp_path: Path, uninterrupted: str
) -> None:
    def is_within_an_epoch() -> bool:
        os.kill(noted(tmp_path, "start")[0]["pid"], signal.SIGUSR1)
        return any(line["batch"] > 0 for line in noted(tmp_path, "checkpoint"))

    with started(tmp_path, 2, "--epochs", "4", "--pace", "4") as run:
        wait_until(run, lambda: noted(tmp_path, "start"))
        wait_until(run, is_within_an_epoch)
        run.send_signal(signal.SIGTERM)  # to torchrun, which passes it on
        run.communicate(timeout=PATIENCE_S)
    (stopped,) = noted(tmp_path, "stop")
    output = finish(tmp_path, 1, "--epochs", "4")
    assert stopped["batch"] > 0
    assert output.startswith(
        f"resuming from epoch {stopped['epoch']}, batch {stopped['batch']} of 50, by 1 processes\n"
    )
    assert output.splitlines()[-2:] == uninterrupted.splitlines()[-2:]
    assert [line["processes"] for line in noted(tmp_path, "start")] == [2, 1]


def test_one_process_that_is_asked_by_sigusr1_makes_all_save_and_go_on(tmp_path: Path) -> None:
    with started(tmp_path, 2, "--epochs", "3", "--pace", "5", "--checkpoint-every", "100") as run:
        wait_until(run, lambda: noted(tmp_path, "epoch"))
        os.kill(noted(tmp_path, "start")[0]["pid"], signal.SIGUSR1)
        wait_until(run, lambda: noted(tmp_path, "checkpoint"))
        output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, errors
    assert output.splitlines()[-1].startswith("done: final acc=")
