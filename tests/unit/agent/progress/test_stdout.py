"""Bytes as a pipe gives them: in any pieces, with colours, bars, and lines without end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from hocket.agent.progress.epoch_counter import EpochCounter
from hocket.agent.progress.json_lines import JsonLines
from hocket.agent.progress.lines import Lines
from hocket.agent.progress.patterns import Patterns
from hocket.agent.progress.reader import Reader
from hocket.agent.progress.stdout import LONGEST_LINE, Guess, Stdout

# What makes up progress, so that drawn bytes come near it.
PARTS = (
    b"epoch", b"Epoch ", b"EPOCHS", b" 0", b" 1", b"2", b"3/10", b"[1/5]", b"100%|#| 5/5", b" 45%|# | 2/5", b" loss",
    b"=", b": ", b"0.5", b"nan", b"91%", b" val_acc", b" step", b"\r", b"\n", b"\r\n", b"\x1b[1m", b"\x1b", b"\b",
    b"\xff", b"\xe2\x96\x88", b"{'", b"': ", b"train ", b"best ", b'{"epoch": 1, "acc": ', b"}", b" " * 50, b"x" * 5000,
    b"epoch loss acc\n", b"1 0.5 0.6\n", b",", b"|", b"1.5",
)  # fmt: skip
OUTPUT = st.lists(st.sampled_from(PARTS) | st.binary(max_size=8), max_size=40).map(b"".join)


def readers() -> list[Reader]:
    patterns = [r"[Ee]poch\D*(?P<epoch>\d+)", r"loss\D*(?P<loss>[\d.]+)"]
    return [
        Stdout(Guess(EpochCounter(), "epoch")),
        Stdout(Patterns(EpochCounter(), patterns, "epoch")),
        JsonLines(EpochCounter(), "epoch", []),
    ]


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


@given(OUTPUT, st.lists(st.integers(0, 10_000), max_size=12), st.booleans())
@example(b"epoch 1 loss=nan\r\nepoch 2\r\nloss: 1\r\n", [17, 26], True)
def test_the_result_is_the_same_in_whatever_pieces_it_comes(data: bytes, cuts: list[int], finished: bool) -> None:
    for whole, cut, single in zip(readers(), readers(), readers(), strict=True):
        expected = whole.feed(data) + whole.close(finished)
        in_pieces = [report for piece in pieces(data, cuts) for report in cut.feed(piece)] + cut.close(finished)
        byte_by_byte = [report for n in range(len(data)) for report in single.feed(data[n : n + 1])] + single.close(
            finished
        )
        assert repr(in_pieces) == repr(expected)
        assert repr(byte_by_byte) == repr(expected)


@given(st.lists(st.text(alphabet="ab\n\r", max_size=12).map(str.encode), max_size=12), st.integers(1, 6))
def test_lines_are_whole_bounded_and_complete(parts: list[bytes], limit: int) -> None:
    lines = Lines(limit, overwritten=True)
    cut = b"".join(lines.cut(part) for part in parts) + lines.rest()
    expected = b"".join(parts).replace(b"\r", b"\n").split(b"\n")
    found = cut.replace(b"\r", b"\n").split(b"\n")
    assert found[-1] == b""
    assert found[:-1] == [line[:limit] for line in (expected if expected[-1] else expected[:-1])]


def test_the_beginning_of_an_endless_line_counts(opened: Any) -> None:
    reader = opened()
    reader.feed(b"epoch 1 acc=0.5 " + b"x" * LONGEST_LINE)
    for _ in range(100):
        assert reader.feed(b"y" * 10_000) == []
    assert reader.feed(b" loss=0.3\nepoch 2 acc=0.6\n") == [(1, {"acc": 0.5}), (2, {"acc": 0.6})]


def test_of_a_bar_the_last_state_counts(opened: Any) -> None:
    reader = opened()
    states = b"".join(b"\repoch 1 [%d/1000] loss=%f" % (n, 1 / n) for n in range(1, 1001))
    assert reader.feed(states) == []
    assert reader.feed(b"\r" + b" " * 60 + b"\r\n") == [(1, {"loss": 0.001})]


def test_an_overwritten_line_is_no_result(opened: Any) -> None:
    reader = opened()
    assert reader.feed(b"\rEpoch 1 loss=0.9\rEpoch 1 loss=0.5") == []
    assert reader.feed(b"\rEpoch 2 loss=0.4\r") == [(1, {"loss": 0.5})]
    assert reader.close() == [(2, {"loss": 0.4})]


def test_a_line_without_an_end_counts_when_the_job_has_ended(opened: Any) -> None:
    reader = opened()
    assert reader.feed(b"epoch 1 acc=0.5") == []
    assert reader.close() == [(1, {"acc": 0.5})]


def test_the_epoch_under_way_is_over_only_if_the_job_finished(opened: Any) -> None:
    for finished, reports in ((False, []), (True, [(2, {"loss": 0.5})])):
        reader = opened()
        reader.feed(b"epoch 1 done\nepoch 2 step 100 loss 0.5\n")
        assert reader.close(finished) == reports


def test_bytes_that_are_no_text_are_passed_over(opened: Any) -> None:
    assert opened().feed(b"\xff\xfe\x00epoch\x00\nepoch 1 \xe9 acc=0.5 \xff\n") == [(1, {"acc": 0.5})]


def test_no_line_is_slow_to_read(opened: Any) -> None:
    """Each would take for ages if a pattern tried things over and over."""
    reader = opened()
    reader.feed(b"epoch 1 acc=0.5\n")
    for unit in (
        b"train ",
        b"a",
        b"loss ",
        b"a_",
        b"1/",
        b"9",
        b"loss: ",
        b"epoch ",
        b"val_",
        b"1.",
        b"|",
        b"' ",
        b"=",
        b"top-1 ",
    ):
        assert reader.feed(unit * (LONGEST_LINE // len(unit)) + b"\n") == []
