"""`hocket.report` in real processes: read if a sidecar is there, harmless if not."""

from __future__ import annotations

import os
import select
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.children import child

import hocket
from hocket.agent.progress import open_reader
from hocket.agent.progress.reader import StepReport

PROGRAM = "import hocket\n"


def run(program: str, env: dict[str, str]) -> str:
    """What a process of its own wrote to stderr; it must end well."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + program],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_script_says_itself_how_far_it_is(opened: Any) -> None:
    reader = opened(kind="report")
    run("hocket.report(epoch=3, acc=0.91, **{'val/loss': 1/3})", reader.env())
    assert reader.poll() == [(3, {"acc": 0.91, "val/loss": 1 / 3})]
    assert reader.poll() == []


def test_a_script_without_epochs_says_its_steps(opened: Any) -> None:
    reader = opened(kind="report")
    run("hocket.report(step=200, loss=0.5); hocket.report(step=300); hocket.report(loss=0.1)", reader.env())
    assert reader.poll() == [StepReport(200, {"loss": 0.5}), StepReport(300, {})]
    run("hocket.report(1, step=400, loss=0.25)", reader.env())
    assert reader.poll() == [(1, {"loss": 0.25})], "steps are counted beside epochs if a criterion asks for it"


def test_outside_hocket_it_does_nothing() -> None:
    assert run("hocket.report(epoch=1, acc=object())", {"HOCKET_REPORT": ""}) == ""


@pytest.mark.parametrize("signals", ["SIG_IGN", "SIG_DFL"])
def test_a_channel_that_is_gone_or_has_no_reader_harms_nothing(tmp_path: Path, signals: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    program = (
        f"import signal; signal.signal(signal.SIGPIPE, signal.{signals})\nfor n in range(3): hocket.report(n, acc=0.5)"
    )
    for path in (tmp_path / "fifo", tmp_path / "none", tmp_path, Path("/dev/null/x")):
        assert run(program, {"HOCKET_REPORT": str(path)}) == ""


def test_a_channel_that_is_full_does_not_make_it_wait(opened: Any) -> None:
    reader = opened(kind="report")
    run("for n in range(1, 20_001): hocket.report(n, acc=n)", reader.env())
    reports = reader.poll()
    assert [epoch for epoch, _metrics in reports] == list(range(1, len(reports) + 1))
    assert len(reports) < 20_000
    run("hocket.report(20_001, acc=1)", reader.env())
    assert reader.poll() == [(20_001, {"acc": 1.0})]


def test_numbers_of_any_kind_are_taken(monkeypatch: pytest.MonkeyPatch, opened: Any) -> None:
    reader = opened(kind="report")
    monkeypatch.setenv("HOCKET_REPORT", reader.env()["HOCKET_REPORT"])
    hocket.report(np.int64(1), a=np.float32(0.5), b=np.array(0.25), c=True, d=float("nan"), e=float("-inf"), f=10**300)
    assert repr(reader.poll()) == "[(1, {'a': 0.5, 'b': 0.25, 'c': 1.0, 'd': nan, 'e': -inf, 'f': 1e+300})]"


def test_tensors_are_taken(monkeypatch: pytest.MonkeyPatch, opened: Any) -> None:
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    reader = opened(kind="report")
    monkeypatch.setenv("HOCKET_REPORT", reader.env()["HOCKET_REPORT"])
    hocket.report(torch.tensor(2), acc=torch.tensor(0.5), loss=torch.tensor([0.25], requires_grad=True))
    assert reader.poll() == [(2, {"acc": 0.5, "loss": 0.25})]


def test_what_is_no_number_is_left_out_and_complained_of_once(opened: Any) -> None:
    reader = opened(kind="report")
    complaint = run(
        "for n in (1, 2): hocket.report(n, acc='good', loss=0.5, other=[1])\nhocket.report(None)", reader.env()
    )
    assert complaint.startswith("hocket.report: acc must be a number, not str")
    assert complaint.count("\n") == 1
    assert reader.poll() == [(1, {"loss": 0.5}), (2, {"loss": 0.5})]


def test_more_metrics_than_fit_into_one_message_are_one_report(monkeypatch: pytest.MonkeyPatch, opened: Any) -> None:
    reader = opened(kind="report")
    monkeypatch.setenv("HOCKET_REPORT", reader.env()["HOCKET_REPORT"])
    metrics = {f"metric_{n}_{'x' * 60}": n / 7 for n in range(150)}
    hocket.report(epoch=1, **metrics)
    assert dict(reader.poll()) == {1: metrics}


def test_names_cannot_break_the_message(monkeypatch: pytest.MonkeyPatch, opened: Any) -> None:
    reader = opened(kind="report")
    monkeypatch.setenv("HOCKET_REPORT", reader.env()["HOCKET_REPORT"])
    hocket.report(epoch=1, **{"a=1\n9\tb": 0.5, "ä": 1.0, "": 2.0, "top 5 %": 3.0})
    assert reader.poll() == [(1, {"a_1_9_b": 0.5, "top_5__": 3.0})]


def test_processes_that_report_at_once_are_told_apart(opened: Any) -> None:
    reader = opened(kind="report")
    program = PROGRAM + "import sys\nfor n in range(100): hocket.report(1, **{sys.argv[1] * 40: n})"
    env = {**os.environ, **reader.env()}
    with ExitStack() as begun:
        ranks = [begun.enter_context(child([sys.executable, "-c", program, rank], env=env)) for rank in "abc"]
        assert [rank.wait(300) for rank in ranks] == [0, 0, 0]
    assert dict(reader.poll()) == {1: {"a" * 40: 99.0, "b" * 40: 99.0, "c" * 40: 99.0}}


def test_what_a_job_reports_itself_replaces_what_was_guessed_from_its_output(opened: Any) -> None:
    reader = opened()
    assert reader.feed(b"epoch 1 acc=0.5\n") == [(1, {"acc": 0.5})]
    run("hocket.report(epoch=0, accuracy=0.5)", reader.env())
    assert reader.poll() == [(1, {"accuracy": 0.5})]
    assert reader.feed(b"epoch 2 acc=0.6\n") == []
    assert reader.first_epoch == 0


def test_beside_patterns_of_the_users_own_both_count(opened: Any) -> None:
    reader = opened(patterns=[r"E(?P<epoch>\d)"])
    run("hocket.report(epoch=1, acc=0.5)", reader.env())
    assert reader.poll() == [(1, {"acc": 0.5})]
    assert reader.feed(b"E2\nE3\n") == [(2, {})]


def test_the_channel_is_private_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    reader = open_reader({}, ".", "")
    (folder,) = tmp_path.iterdir()
    channel = Path(reader.env()["HOCKET_REPORT"])
    assert channel.parent == folder
    assert (stat.S_IMODE(folder.stat().st_mode), stat.S_IMODE(channel.stat().st_mode)) == (0o700, 0o600)
    reader.close()
    reader.close()
    assert list(tmp_path.iterdir()) == []


def test_the_channel_of_an_attempt_begins_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report"
    first = open_reader({"kind": "report"}, ".", "", str(path))
    monkeypatch.setenv("HOCKET_REPORT", str(path))
    hocket.report(7, acc=0.5)
    second = open_reader({"kind": "report"}, ".", "", str(path))
    assert second.poll() == []
    assert first.close() == [(7, {"acc": 0.5})]
    second.close()


def test_what_stands_in_the_channels_place_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("mine")
    with pytest.raises(FileExistsError):
        open_reader({"kind": "report"}, ".", "", str(tmp_path / "report"))
    assert (tmp_path / "report").read_text() == "mine"


@pytest.mark.parametrize("line", ["", "x", "1\t", "1\ta=", "1\t=5", "nan\ta=1", "1\ta=1=2", "\t\t\t", "1" * 9000])
def test_malformed_lines_are_harmless(line: str, opened: Any) -> None:
    reader = opened(kind="report")
    fd = os.open(reader.env()["HOCKET_REPORT"], os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, f"{line}\n2\tacc=0.5\n".encode())
    os.close(fd)
    assert reader.poll()[-1] == (2, {"acc": 0.5})


def test_a_message_fits_into_what_the_kernel_does_not_mix() -> None:
    from hocket.agent.progress.report import _LONGEST

    assert _LONGEST <= select.PIPE_BUF
