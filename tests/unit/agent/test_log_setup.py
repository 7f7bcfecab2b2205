"""How lines of the log look, and that no trouble with stderr reaches what they tell of."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextvars import Context, copy_context
from datetime import UTC, datetime

import pytest

from hocket.agent.log_setup import JsonLogLine, RepeatedMessages, TextLogLine, cycle_number, set_up_logging

MOMENT = datetime(2026, 3, 1, 12, 30, 5, 250_000, UTC)


def record(message: str, *args: object, **fields: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "hocket.service", "levelno": logging.WARNING, "levelname": "WARNING", "msg": message, "args": args}
    )
    made.created = MOMENT.timestamp()
    vars(made).update(fields)
    return made


def told(made: logging.LogRecord, **fields: str) -> dict[str, object]:
    line = JsonLogLine(fields).format(made)
    assert "\n" not in line
    found: dict[str, object] = json.loads(line)
    return found


def test_a_line_of_text_is_time_level_logger_and_message() -> None:
    line = TextLogLine().format(record("job '%s' waits", "a", job="a"))
    assert line == "2026-03-01T12:30:05.250Z WARNING hocket.service job 'a' waits"


def test_a_name_cannot_make_a_line_of_its_own() -> None:
    line = TextLogLine().format(record("job '%s' waits", "a\n2026 ERROR \x1b[31mb\x9b"))
    assert line.endswith(r" hocket.service job 'a\x0a2026 ERROR \x1b[31mb\x9b' waits")


def test_a_path_that_is_not_utf8_is_no_reason_to_lose_a_line() -> None:
    assert told(record("home '%s'", "/tmp/\udc80"))["message"] == "home '/tmp/\udc80'"


def test_a_line_of_json_has_the_fields_of_its_record() -> None:
    given = {"sizes": (1, 2), "at": float("nan"), "_ray_timestamp_ns": 5}  # The last is Ray's, and not for readers.
    found = told(record("job '%s'\nwaits", "a", job="a", cycle=3, **given), node="n0")
    assert found == {
        "time": "2026-03-01T12:30:05.250000Z", "level": "warning", "logger": "hocket.service",
        "message": "job 'a'\nwaits", "node": "n0", "job": "a", "cycle": 3, "sizes": [1, 2], "at": None,
    }  # fmt: skip
    assert list(found)[:4] == ["time", "level", "logger", "message"]


def test_what_json_does_not_know_is_written_as_text() -> None:
    assert told(record("x", error=ValueError("no"), one=object))["error"] == "no"


def test_an_exception_is_a_field() -> None:
    try:
        raise ZeroDivisionError("a bug")
    except ZeroDivisionError:
        found = told(record("it broke", exc_info=sys.exc_info()))
    assert found["message"] == "it broke"
    assert str(found["exception"]).startswith("Traceback")
    assert str(found["exception"]).endswith("ZeroDivisionError: a bug")
    assert "exception" not in told(record("it did not", exc_info=(None, None, None)))


def test_a_line_has_the_cycle_of_its_thread_unless_it_names_another() -> None:
    def within_a_cycle() -> list[object]:
        cycle_number.set(4)
        return [told(record("x"))["cycle"], told(record("x", cycle=2))["cycle"]]

    assert copy_context().run(within_a_cycle) == [4, 2]
    assert "cycle" not in Context().run(told, record("x")), "a thread without a cycle"


@pytest.fixture
def unchanged_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("hocket")
    before = list(root.handlers), root.level, ours.level
    yield
    root.handlers[:], root.level, ours.level = before
    root.setLevel(before[1])


@pytest.mark.usefixtures("unchanged_logging")
@pytest.mark.parametrize(
    ("level", "ours", "others"),
    [("debug", "DEBUG", "INFO"), ("info", "INFO", "INFO"), ("warning", "WARNING", "WARNING"), ("error",) * 3],
)
def test_the_level_is_hockets_and_other_packages_say_no_more_than_info(level: str, ours: str, others: str) -> None:
    set_up_logging("info", as_json=False)
    set_up_logging(level, as_json=True)
    for name, least in (("hocket.service", ours), ("asyncio", others)):
        assert logging.getLevelName(logging.getLogger(name).getEffectiveLevel()) == least.upper()
    kinds = [type(handler).__name__ for handler in logging.getLogger().handlers]
    assert kinds.count("StderrHandler") == 1


PROGRAM = """
import logging, os, signal, sys
from hocket.agent.log_setup import set_up_logging
set_up_logging("debug", sys.argv[1] == "json", node="n0")
log = logging.getLogger("hocket.agent")
for n in range(1000):
    log.warning("line %d of many, longer than any buffer", n, extra={"job": "a"})
if sys.argv[2:]:
    log.warning("%d", "a bug in a call")
print("it goes on")
sys.stdout.flush()
os._exit(0)
"""
REDIRECTS = {"a full disk": "2>/dev/full", "closed": "2>&-", "a pipe without a reader": "2> >(exec true)"}


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("redirect", REDIRECTS.values(), ids=REDIRECTS)
def test_a_broken_stderr_stops_nothing(redirect: str, form: str) -> None:
    command = ["bash", "-c", f'exec "$@" {redirect}', "bash", sys.executable, "-c", PROGRAM, form]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "it goes on\n", "")


def test_a_wrong_call_stops_nothing_and_is_shown() -> None:
    command = [sys.executable, "-c", PROGRAM, "json", "with a bug"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    lines = done.stderr.splitlines()
    last = json.loads(lines[999])
    assert (done.returncode, last["job"], last["node"]) == (0, "a", "n0")
    assert lines[1000] == "--- Logging error ---"
    assert "Message: '%d'" in lines


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_stderr_that_nobody_reads_stops_nothing(form: str) -> None:
    command = [sys.executable, "-c", PROGRAM, form, "with a bug"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.wait(120) == 0
        assert program.stdout is not None
        assert program.stdout.read() == "it goes on\n"


def test_what_another_package_says_again_and_again_is_logged_a_few_times_a_minute() -> None:
    repeated = RepeatedMessages()

    def logged(name: str, at_s: float) -> str | None:
        fields = {"name": name, "msg": "accept() failed: %s", "args": ("full",), "created": at_s}
        record = logging.makeLogRecord(fields)
        return record.getMessage() if repeated.filter(record) else None

    assert [logged("asyncio", n / 100) for n in range(1000)].count("accept() failed: full") == 5
    assert logged("asyncio", 61.0) == "accept() failed: full (and 995 times before, not logged)"
    assert logged("asyncio", 62.0) == "accept() failed: full"
    assert logged("uvicorn.error", 62.0) == "accept() failed: full", "another logger"
    assert logged("asyncio", 1.0) == "accept() failed: full", "the clock was set back"
    assert all(logged("hocket.agent", 0.0) for _ in range(100)), "our own are for us to limit"
