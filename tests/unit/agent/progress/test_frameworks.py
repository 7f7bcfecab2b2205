"""What many frameworks print is read without being told how, and what everything else prints is not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.agent.progress.framework_lines import NOTHING, PRINTED

from hocket.agent.progress.reader import Report, StepReport


def last_of_each(reports: list[Report]) -> dict[tuple[str, int], dict[str, float]]:
    said = {}
    for report in reports:
        kind, (count, metrics) = (
            ("step", (report.step, report.metrics)) if isinstance(report, StepReport) else ("epoch", report)
        )
        said[kind, count] = metrics
    return said


@pytest.mark.parametrize("framework", PRINTED)
def test_what_a_framework_prints_is_read(framework: str, opened: Any) -> None:
    text, told = PRINTED[framework]
    assert last_of_each(opened().feed(text.encode())) == told


# Stable-Baselines3 writes a table at once.
@pytest.mark.parametrize("framework", sorted(PRINTED.keys() - {"Stable-Baselines3"}))
def test_pieces_and_whole_lines_are_read_alike(framework: str, opened: Any) -> None:
    text, told = PRINTED[framework]
    reader = opened()
    pieces = text.encode().splitlines(keepends=True)
    read = last_of_each([report for piece in pieces for report in reader.feed(piece)])
    assert {count: read.get(count) for count in told} == told


def test_there_are_formats_of_at_least_twenty_frameworks() -> None:
    assert len(PRINTED) > 35


@pytest.mark.parametrize("line", NOTHING)
def test_output_of_every_day_is_no_progress(line: str, opened: Any) -> None:
    reader = opened()
    assert reader.feed(f"{line}\n".encode()) == []
    assert reader.close(finished=True) == []


def test_all_of_it_together_is_no_progress(opened: Any) -> None:
    reader = opened()
    assert reader.feed("\n".join(NOTHING).encode()) == []
    assert reader.close(finished=True) == []


def test_output_of_every_day_adds_nothing_to_a_job_that_counts_steps(opened: Any) -> None:
    reader = opened()
    reader.feed(b"step 10 loss 0.5\n")
    quiet = [line for line in NOTHING if "loss" not in line and "accuracy" not in line and "error" not in line.lower()]
    assert [(line, found) for line in quiet if (found := reader.feed(f"{line}\n".encode()))] == []


def test_a_bar_over_steps_is_read_while_it_moves(opened: Any) -> None:
    reader = opened()
    assert reader.feed(b"\r 10%|#   | 300/3000 [00:10<01:30, loss=0.9]") == []
    assert reader.feed(b"\r 20%|##  | 600/3000 [00:20<01:20, loss=0.8]") == [StepReport(300, {"loss": 0.9})]


def test_steps_are_found_behind_a_lot_of_other_output(opened: Any) -> None:
    reader = opened()
    for number in range(3000):
        assert reader.feed(b"%d files of 3000 are read, 0.5 s each\n" % number) == []
    found = [report for step in range(40) for report in reader.feed(b"step %d loss 0.5\n" % step)]
    assert StepReport(39, {"loss": 0.5}) in found


def test_a_word_of_the_users_own_counts_alone(opened: Any) -> None:
    reader = opened(epoch="round")
    assert reader.feed(b"step 10 loss 0.5\nround 1 loss 0.4\n") == [(1, {"loss": 0.4})]


def test_no_line_of_a_job_that_counts_steps_is_slow_to_read(opened: Any) -> None:
    """Each would take for ages if a pattern tried things over and over."""
    reader = opened()
    reader.feed(b"step 1 acc=0.5\n")
    units = (
        b"step ", b"iter: ", b"step[", b"(1.0", b"|  ", b"| a ", b"[1", b"]  [", b"1,", b"copypaste: 1,", b"train: 1 [",
        b"step  loss  ", b"--", b"all 1 ", b"valid_0's ", b"1:\tlearn", b"loss 1.0 (", b"step 1 ", b"\t", b"%| 1/",
    )  # fmt: skip
    for unit in units:
        line = unit * (4096 // len(unit)) + b"\n"
        reader.feed(line)
        reader.feed(b"|" + line)


def test_tables_without_end_are_read_in_time(opened: Any) -> None:
    reader = opened()
    reader.feed(b"step 1 acc=0.5\n")
    reader.feed(b"iter  loss\nstep  loss  acc\n" * 3000)
    assert reader.feed(b"7  0.5  0.25\n") == [StepReport(7, {"loss": 0.5, "acc": 0.25})]
