"""A handler that never waits for stderr, and a file behind it that does not grow without end."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.agent.log_setup import TextLogLine
from hocket.agent.stderr_handler import StderrHandler


def record(message: str, *args: object) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "hocket.agent", "levelname": "INFO", "msg": message, "args": args})


@pytest.fixture
def pipe() -> Iterator[tuple[StderrHandler, int]]:
    """A handler whose stderr is a pipe, and the end from which that is read."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    handler = StderrHandler()
    with open(write_end, "w") as stream:
        handler.setStream(stream)
        yield handler, read_end
    os.close(read_end)


def read(fd: int) -> list[str]:
    found = b""
    while True:
        try:
            found += os.read(fd, 1 << 20)
        except BlockingIOError:
            return found.decode().splitlines()


def test_lines_that_nobody_reads_are_counted_and_the_next_that_is_read_says_how_many(
    pipe: tuple[StderrHandler, int],
) -> None:
    handler, there = pipe
    for n in range(10_000):
        handler.handle(record("line %d, longer than a few bytes", n))
    lines = read(there)
    assert 0 < len(lines) < 10_000
    assert lines == [f"line {n}, longer than a few bytes" for n in range(len(lines))], "in order, and whole"
    handler.handle(record("somebody reads again"))
    missing = 10_000 - len(lines)
    assert read(there) == [f"lines missing here, for they could not be written: {missing}", "somebody reads again"]
    handler.handle(record("all is well"))
    assert read(there) == ["all is well"]


def test_a_long_line_that_was_cut_does_not_swallow_the_next(pipe: tuple[StderrHandler, int]) -> None:
    handler, there = pipe
    handler.handle(record("x" * 1_000_000))
    (cut,) = read(there)
    assert set(cut) == {"x"}
    handler.handle(record("y"))
    assert read(there) == ["", "lines missing here, for they could not be written: 1", "y"]


def test_a_wrong_format_is_shown_and_a_closed_stream_is_not_an_error(
    pipe: tuple[StderrHandler, int], capsys: pytest.CaptureFixture[str]
) -> None:
    handler, _there = pipe
    handler.handle(record("%d", "no number"))
    assert "Logging error" in capsys.readouterr().err
    handler.stream.close()
    handler.handle(record("nobody"))
    assert capsys.readouterr().err == ""


def test_a_stream_in_memory_is_written_as_it_is() -> None:
    handler = StderrHandler()
    handler.setStream(stream := io.StringIO())
    handler.handle(record("a"))
    assert stream.getvalue() == "a\n"


class Process:
    """One of several processes whose stderr is the same file."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stream = open(path, "a")  # noqa: SIM115 - closed by the test
        monkeypatch.setattr("sys.stderr", self.stream)
        self._handler = StderrHandler(str(path), most_bytes=100)

    def say(self, text: str) -> None:
        self._handler.handle(record(text))


def test_a_full_file_is_renamed_and_all_that_write_to_it_go_on_in_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    log.touch()
    one, other = Process(log, monkeypatch), Process(log, monkeypatch)
    try:
        one.say("a" * 60)
        other.say("b" * 60)
        assert not (tmp_path / "log.1").exists()
        one.say("c")
        other.say("d")
        assert (tmp_path / "log.1").read_text() == f"{'a' * 60}\n{'b' * 60}\n"
        assert log.read_text() == "c\nd\n"
        for n in range(10):  # The other is silent while the file that it has is renamed, and then removed.
            one.say(f"{n}" * 60)
        other.say("e")
        assert log.read_text().endswith("e\n")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1"]
        assert log.stat().st_size + (tmp_path / "log.1").stat().st_size < 2 * (100 + 61)
        assert log.stat().st_mode & 0o777 == 0o600
    finally:
        one.stream.close()
        other.stream.close()


def test_a_file_that_is_not_the_one_to_rotate_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", stream := open(tmp_path / "mine", "a"))  # noqa: SIM115
    with stream:
        handler = StderrHandler(str(tmp_path / "log"), most_bytes=10)
        handler.setFormatter(TextLogLine())
        for n in range(10):
            handler.handle(record("line %d", n))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert len((tmp_path / "mine").read_text().splitlines()) == 10
