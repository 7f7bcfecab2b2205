"""`hocket logs`: every byte once, through runs and rotation, and a clean end however it comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tests.children import child
from typer.testing import CliRunner

from hocket.cli.main import app


def printed(*args: str) -> bytes:
    result = CliRunner().invoke(app, ["logs", *args])
    assert result.exit_code == 0, result.stderr
    return bytes(result.stdout_bytes)


def begun(*args: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "hocket", *args]
    return child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def await_that(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_all_runs_are_printed_byte_for_byte(controller: Any) -> None:
    controller.add("a", "finished")
    noise = bytes(range(256)) * 5000  # more than one part, and no text
    controller.logs = {("a", 1): noise, ("a", 3): b"\xffsecond\r\n", ("a", 4): b""}
    assert printed("a") == noise + b"\xffsecond\r\n"
    assert printed("a", "--attempt", "1") == noise
    assert printed("a", "--attempt", "2") == b""


def test_the_last_lines_may_be_far_back(controller: Any) -> None:
    controller.add("a", "finished")
    lines = [b"%d " % n + b"x" * 900 + b"\n" for n in range(3000)]
    controller.logs = {("a", 1): b"old\n", ("a", 2): b"".join(lines) + b"end"}
    assert printed("a", "--tail", "1") == b"end"
    assert printed("a", "--tail", "2001") == b"".join(lines[1000:]) + b"end"
    assert printed("a", "--tail", "9999") == b"".join(lines) + b"end"
    assert printed("a", "--tail", "1", "--attempt", "1") == b"old\n"
    controller.gone["a", 2] = len(b"".join(lines[:2990]))
    assert printed("a", "--tail", "9999") == b"".join(lines[2990:]) + b"end"
    assert printed("a") == b"old\n" + b"".join(lines[2990:]) + b"end"


def test_a_job_that_has_not_run_has_printed_nothing_and_says_so(controller: Any) -> None:
    controller.add("a")
    result = CliRunner().invoke(app, ["logs", "a"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "hocket: job 'a' has not run; it is waiting\n"
    assert printed("a", "--tail", "5") == b""


def test_following_goes_on_through_restarts_until_the_job_is_over(controller: Any) -> None:
    controller.add("a")
    steps = iter(
        [
            {("a", 1): b"one "},
            {("a", 1): b"one two "},
            {("a", 1): b"one two last words ", ("a", 2): b""},
            {("a", 1): b"one two last words ", ("a", 2): b"again "},
        ]
    )

    def go_on() -> None:
        if (logs := next(steps, None)) is not None:
            controller.logs = logs
        else:
            controller.jobs["a"].update(state="finished")
            controller.logs["a", 2] = b"again done"

    controller.on["/v1/jobs/a"] = go_on
    assert printed("a", "-f") == b"one two last words again done"


def test_following_one_run_ends_with_that_run(controller: Any) -> None:
    controller.add("a", "running")
    controller.logs = {("a", 1): b"first"}
    controller.on["/v1/jobs/a"] = lambda: controller.logs.update({("a", 1): b"first, over", ("a", 2): b"second"})
    assert printed("a", "-f", "--attempt", "1") == b"first, over"


def test_ctrl_c_ends_following_and_nothing_else(controller: Any) -> None:
    controller.add("a", "running")
    controller.logs = {("a", 1): b"one\n"}
    with begun("logs", "-f", "a") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out, err) == (0, b"", b"")
    assert controller.jobs["a"]["state"] == "running"


def test_a_reader_that_has_enough_is_no_error(controller: Any) -> None:
    controller.add("a", "running")
    controller.logs = {("a", 1): b"line\n" * 500_000}
    with begun("logs", "-f", "a") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(timeout=120) == 0


def test_ctrl_c_ends_the_waiting_and_not_the_job(controller: Any) -> None:
    with begun("submit", "-n", "a", "--wait", "--", "true") as process:
        await_that(lambda: controller.calls("GET", "/v1/jobs"))
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, b"a\n")
    assert err == b"hocket: no longer waiting; 1 job goes on\n"
    assert controller.jobs["a"]["state"] == "waiting"


def test_a_job_that_never_stops_printing_does_not_keep_the_command(controller: Any) -> None:
    controller.add("a", "running")
    controller.logs = {("a", 1): b"one\n"}
    controller.on["/v1/jobs/a/log"] = lambda: controller.logs.update({("a", 1): controller.logs["a", 1] + b"more\n"})
    assert printed("a").startswith(b"one\n")
