"""A job whose criterion's metric does not come is told of once, with its last lines."""

from __future__ import annotations

import pytest

from hocket.agent.progress.epoch_counter import EpochCounter
from hocket.agent.progress.stdout import Guess, Stdout
from hocket.agent.sidecar.unseen_metric import UnseenMetric

LIMIT_S = 60.0


def looked_at(awaited: str, output: bytes, reads: bool = True) -> dict[str, object] | None:
    """What is reported at the limit of a job that printed this."""
    unseen = UnseenMetric(awaited, LIMIT_S)
    reader = Stdout(Guess(EpochCounter(None), "epoch")) if reads else None
    unseen.begin(5.0)
    unseen.printed(output)
    if reader is not None:
        reader.feed(output)
    assert unseen.look(LIMIT_S + 4.9, reader) is None, "it is not due"
    found = unseen.look(LIMIT_S + 5.0, reader)
    assert unseen.due_s is None
    assert unseen.look(LIMIT_S + 9.0, reader) is None, "it looks once"
    return found


@pytest.mark.parametrize(
    ("awaited", "output"),
    [
        ("acc", b"epoch 1 step 3 acc=0.5\n"),
        ("acc", b"epoch 1 acc=0.5\nepoch 2 acc=0.6\n"),
        ("epochs", b"epoch 1\n"),
        ("steps", b"step 7 loss 0.5\n"),
    ],
)
def test_what_was_seen_is_not_missed_also_within_an_epoch(awaited: str, output: bytes) -> None:
    assert looked_at(awaited, output) is None


def test_what_was_not_seen_is_told_with_what_was_read_instead() -> None:
    found = looked_at("acc", b"epoch 1 loss=0.5\nepoch 2 loss=0.4\n")
    assert found == {
        "metric": "acc",
        "after_s": LIMIT_S,
        "read": ["loss"],
        "lines": ["epoch 1 loss=0.5", "epoch 2 loss=0.4"],
    }


@pytest.mark.parametrize("output", [b"", b"hello\n"])
@pytest.mark.parametrize("awaited", ["acc", "epochs", "steps"])
def test_output_without_a_number_counts_nothing(awaited: str, output: bytes) -> None:
    found = looked_at(awaited, output)
    assert found is not None
    assert (found["read"], found["lines"]) == ([], output.decode().split())


def test_a_job_whose_output_is_not_read_is_told_of() -> None:
    found = looked_at("acc", b"acc 0.5\n", reads=False)
    assert found is not None
    assert (found["read"], found["lines"]) == ([], ["acc 0.5"])


def test_the_last_three_lines_are_kept_as_a_terminal_shows_them() -> None:
    found = looked_at("acc", b"first\n" + b"\x1b[1mx" * 2000 + b"\na\rb\n\nc")
    assert found is not None
    lines = found["lines"]
    assert isinstance(lines, list)
    long, second, third = lines
    assert (len(long), long[-1], long.isprintable(), second, third) == (120, "…", True, "b", "c")


def test_nothing_is_awaited_of_a_job_without_a_criterion() -> None:
    unseen = UnseenMetric("", LIMIT_S)
    unseen.begin(0.0)
    assert unseen.due_s is None
