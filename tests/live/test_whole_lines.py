"""What is read while it is written is whole, and what a test starts ends with it."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.children import child
from tests.live import ledger
from tests.live.processes import below, end_all
from tests.whole_lines import json_lines, whole_lines

SLEEPS = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)")


def test_a_line_counts_once_its_newline_is_there_wherever_it_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    assert whole_lines(path) == json_lines(path) == ledger.read(path) == []
    written = '{"event": "start"}\n{"event": "größer \\u2028"}\n{"event": "end"}\n'.encode()
    whole = [{"event": event} for event in ("start", "größer \u2028", "end")]
    for size in range(len(written) + 1):
        path.write_bytes(written[:size])
        assert json_lines(path) == ledger.read(path) == whole[: written[:size].count(b"\n")]


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes("a\u2028b\x0bc\r\n\nd".encode())
    assert whole_lines(tmp_path / "log") == ["a\u2028b\x0bc\r", ""]


def fail_with_a_child() -> None:
    with child(SLEEPS, stdout=subprocess.PIPE) as process:
        raise AssertionError(process)


def test_a_child_is_gone_though_what_was_done_with_it_failed() -> None:
    with pytest.raises(AssertionError) as failed:
        fail_with_a_child()
    process = failed.value.args[0]
    assert process.returncode < 0
    assert process.stdout.closed


def test_all_that_names_a_folder_is_ended_and_what_names_a_longer_one_is_not(tmp_path: Path) -> None:
    sleeping = [child([*SLEEPS, str(tmp_path / name)], stdout=subprocess.PIPE) for name in ("a/x", "ab")]
    with sleeping[0] as ours, sleeping[1] as other:
        for process in (ours, other):
            process.stdout.readline()
        assert [found.pid for found in below(tmp_path / "a")] == [ours.pid]
        end_all(tmp_path / "a")
        assert ours.wait(120) < 0
        assert other.poll() is None
