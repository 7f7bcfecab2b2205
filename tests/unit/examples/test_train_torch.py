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
from tests.unit.examples.in_process import printed_in_this_process
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


@pytest.mark.long
def test_asked_by_sigusr1_it_saves_and_goes_on_and_paused_by_two_processes_one_ends_it_with_the_same_accuracy(
    tmp_path: Path,
) -> None:
    def saves_within_an_epoch() -> bool:
        os.kill(noted(tmp_path, "start")[0]["pid"], signal.SIGUSR1)  # one of the two
        return any(line["batch"] > 0 for line in noted(tmp_path, "checkpoint"))

    with started(tmp_path, 2, "--epochs", "6", "--pace", "4", "--checkpoint-every", "100") as run:
        wait_until(run, lambda: noted(tmp_path, "start"))
        wait_until(run, saves_within_an_epoch)
        epochs = len(noted(tmp_path, "epoch"))
        wait_until(run, lambda: len(noted(tmp_path, "epoch")) > epochs)  # It goes on.
        run.send_signal(signal.SIGTERM)  # to torchrun, which passes it on
        run.communicate(timeout=PATIENCE_S)
    (stopped,) = noted(tmp_path, "stop")
    output = finish(tmp_path, 0, "--epochs", "6")
    assert stopped["epoch"] > epochs
    assert output.startswith(
        f"resuming from epoch {stopped['epoch']}, batch {stopped['batch']} of 50, by 1 processes\n"
    )
    whole = printed_in_this_process(EXAMPLE, "--epochs", "6")
    assert output.splitlines()[-2:] == whole.splitlines()[-2:]
    assert [line["processes"] for line in noted(tmp_path, "start")] == [2, 1]
