"""The judge of a chaos run sees what it is there to see."""

from pathlib import Path
from typing import Any

import pytest
from tests.live.ledger import Line, Told, read, told, wrongs


def lines(*said: tuple[Any, ...]) -> list[Line]:
    """Of (pid, event, epoch, batch) each; as results, epochs have their own numbers."""
    found = []
    for n, (pid, event, epoch, *batch) in enumerate(said):
        more = {"acc": float(epoch)} if event == "epoch" else {"batch": batch[0] if batch else 0}
        found.append({"event": event, "pid": pid, "time": float(n), "epoch": epoch, **more})
    return found


PAUSED = [(1, "start", 0), (1, "epoch", 1), (1, "checkpoint", 1), (1, "checkpoint", 1, 5), (1, "stop", 1, 5)]
RESUMED = [(2, "start", 1, 5), (2, "epoch", 2), (2, "checkpoint", 2), (2, "end", 2)]
KILLED = [(1, "start", 0), (1, "epoch", 1)]
AGAIN = [(2, "start", 0), (2, "epoch", 1), (2, "checkpoint", 1), (2, "epoch", 2), (2, "end", 2)]
ONLY_ENDS = [(3, "start", 2), (3, "end", 2)]


@pytest.mark.parametrize("said", [PAUSED + RESUMED, KILLED + AGAIN, PAUSED + RESUMED + ONLY_ENDS])
def test_a_job_that_was_paused_or_killed_and_went_on_is_as_it_should_be(said: list[tuple[Any, ...]]) -> None:
    assert list(wrongs(lines(*said), 2, 1)) == []


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ([], "it never ended"),
        (PAUSED, "it never ended"),
        (PAUSED + RESUMED + [(3, "start", 1, 5), (3, "epoch", 2), (3, "end", 2)], "went on with it after its end"),
        ([*KILLED, (2, "start", 0), (1, "checkpoint", 1), (2, "epoch", 1)], "process 1 still lived"),
        ([*PAUSED, (2, "start", 1, 0)], "(1, 5) had been saved"),
        ([*PAUSED, (2, "start", 0, 0)], "(1, 5) had been saved"),
        ([*KILLED, (1, "epoch", 2), (2, "start", 0)], "began at epoch 0; 2 had been done"),
        ([(1, "start", 3)], "began at epoch 3; 0 had been done"),
        ([*KILLED, (1, "epoch", 3)], "did epoch 3 after 1"),
        ([*KILLED, (1, "end", 1)], "ended after epoch 1 of 2"),
    ],
)
def test_what_should_not_be_is_seen(said: list[tuple[Any, ...]], wrong: str) -> None:
    assert any(wrong in found for found in wrongs(lines(*said), 2, 1))


def test_an_epoch_that_comes_to_something_else_when_done_again_is_seen() -> None:
    said = lines(*KILLED, *AGAIN)
    said[1]["acc"] = 0.5
    assert any("when done again" in found for found in wrongs(said, 2, 1))


def test_a_ledger_is_told_in_numbers(tmp_path: Path) -> None:
    assert told(lines(*KILLED, *AGAIN, *ONLY_ENDS)) == Told(attempts=3, stops=0, epochs=2, again=1, ends=2)
    assert read(tmp_path / "none") == []
