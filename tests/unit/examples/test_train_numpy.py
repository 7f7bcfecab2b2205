"""The example as users run it: real processes, real signals, real checkpoints."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.whole_lines import json_lines

from hocket.agent.progress import open_reader

EXAMPLE = Path(__file__).parents[3] / "examples" / "train_numpy.py"
PATIENCE_S = 300.0


class Run:
    """One start of the example, with a ledger and a checkpoint folder that several may share."""

    def __init__(self, folder: Path, *options: str, by_environment: bool = False) -> None:
        self.ledger = folder / "ledger"
        checkpoints = str(folder / "checkpoints")
        environment = {name: value for name, value in os.environ.items() if name != "HOCKET_CHECKPOINT_DIR"}
        if by_environment:
            environment["HOCKET_CHECKPOINT_DIR"] = checkpoints
        else:
            options = (*options, "--checkpoint-dir", checkpoints)
        command = [sys.executable, str(EXAMPLE), "--ledger", str(self.ledger), *options]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:
            self.process.kill()

    def lines(self, event: str) -> list[dict[str, Any]]:
        """What this start has written into the ledger."""
        return [line for line in json_lines(self.ledger) if line["event"] == event and line["pid"] == self.process.pid]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < until
            assert self.process.poll() is None, "it has ended"
            time.sleep(0.005)

    def end(self) -> tuple[int, str]:
        """Exit code and output."""
        output, _errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, output


def final(output: str) -> str:
    return output.rpartition("done: final acc=")[2]


Runs = Callable[..., Run]


@pytest.fixture
def run() -> Iterator[Runs]:
    """Starts the example; none of those outlives the test."""
    with ExitStack() as begun:
        yield lambda *options, **more: begun.enter_context(Run(*options, **more))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> str:
    with Run(tmp_path_factory.mktemp("uninterrupted"), "--epochs", "6") as run:
        code, output = run.end()
    assert code == 0
    return output


def test_it_learns_and_says_so(uninterrupted: str) -> None:
    reader = open_reader({}, ".", "")
    found = dict(reader.feed(uninterrupted.encode()) + reader.close(finished=True))
    assert list(found) == [1, 2, 3, 4, 5, 6]
    assert found[6].keys() == {"loss", "acc"}
    assert found[6]["acc"] > 0.85 > found[1]["acc"]
    assert found[6]["loss"] < found[1]["loss"]


def test_paused_within_an_epoch_and_resumed_it_ends_with_the_same_accuracy(
    run: Runs, tmp_path: Path, uninterrupted: str
) -> None:
    first = run(tmp_path, "--epochs", "6", "--pace", "4")
    first.wait_until(lambda: bool(first.lines("start")))

    def is_within_an_epoch() -> bool:
        first.process.send_signal(signal.SIGUSR1)
        return any(line["batch"] > 0 for line in first.lines("checkpoint"))

    first.wait_until(is_within_an_epoch)
    first.process.send_signal(signal.SIGTERM)
    assert first.end()[0] == 143
    (stopped,) = first.lines("stop")
    assert stopped["batch"] > 0
    second = run(tmp_path, "--epochs", "6", by_environment=True)
    code, output = second.end()
    assert code == 0
    assert output.startswith(f"resuming from epoch {stopped['epoch']}, batch {stopped['batch']} of 50\n")
    assert [line["epoch"] for line in second.lines("epoch")] == list(range(stopped["epoch"] + 1, 7))
    assert final(output) == final(uninterrupted)
    assert output.splitlines()[-2] == uninterrupted.splitlines()[-2]  # the last epoch's loss, too


def test_killed_it_goes_on_from_its_last_checkpoint_with_the_same_accuracy(
    run: Runs, tmp_path: Path, uninterrupted: str
) -> None:
    first = run(tmp_path, "--epochs", "6", "--pace", "3", "--checkpoint-every", "2")
    first.wait_until(lambda: len(first.lines("epoch")) >= 3)
    first.process.kill()
    assert first.end()[0] == -signal.SIGKILL
    saved = [line["epoch"] for line in first.lines("checkpoint")]
    assert saved[:1] == [2]
    second = run(tmp_path, "--epochs", "6")
    assert final(second.end()[1]) == final(uninterrupted)
    assert [line["epoch"] for line in second.lines("start")] == saved[-1:]


def test_asked_by_sigusr1_it_saves_and_goes_on(run: Runs, tmp_path: Path, uninterrupted: str) -> None:
    job = run(tmp_path, "--epochs", "6", "--pace", "2", "--checkpoint-every", "100")
    job.wait_until(lambda: len(job.lines("epoch")) >= 1)
    assert job.lines("checkpoint") == []
    job.process.send_signal(signal.SIGUSR1)
    job.wait_until(lambda: len(job.lines("checkpoint")) >= 1)
    assert (tmp_path / "checkpoints" / "checkpoint.npz").exists()
    code, output = job.end()
    assert (code, final(output)) == (0, final(uninterrupted))
    assert [line["epoch"] for line in job.lines("epoch")] == [1, 2, 3, 4, 5, 6]


def test_a_finished_run_that_is_started_again_ends_at_once(run: Runs, tmp_path: Path) -> None:
    run(tmp_path, "--epochs", "1").end()
    again = run(tmp_path, "--epochs", "1")
    code, output = again.end()
    assert code == 0
    assert "epoch 1/1" not in output
    assert again.lines("epoch") == []
    assert len(again.lines("end")) == 1


def test_seconds_of_computing_and_of_sleep_change_nothing_but_the_time(run: Runs, tmp_path: Path) -> None:
    outputs: list[str] = []
    for options in ((), ("--epoch-seconds", "0.5"), ("--pace", "0.5")):
        folder = tmp_path / str(len(outputs))
        folder.mkdir()
        job = run(folder, "--epochs", "1", *options)
        outputs.append(job.end()[1])
        took_s = job.lines("end")[0]["time"] - job.lines("start")[0]["time"]
        assert took_s >= (0.5 if options else 0)
    assert len(set(outputs)) == 1


def test_without_a_folder_nothing_is_saved(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "HOCKET_CHECKPOINT_DIR"}
    command = [sys.executable, str(EXAMPLE), "--epochs", "1"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=PATIENCE_S)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("example", ["train_numpy.py", "train_torch.py", "train_goal.py"])
def test_the_examples_know_nothing_of_hocket_but_a_variable(example: str) -> None:
    tree = ast.parse(EXAMPLE.with_name(example).read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert imported <= {*sys.stdlib_module_names, "numpy", "torch", "tune_data"}


def test_the_readme_names_every_example_and_shows_what_it_prints(uninterrupted: str) -> None:
    readme = (EXAMPLE.parent / "README.md").read_text()
    for path in EXAMPLE.parent.rglob("*.py"):
        assert f"({path.relative_to(EXAMPLE.parent)})" in readme
    for line in uninterrupted.splitlines()[:3]:
        assert line.replace("/6", "/3") in readme
