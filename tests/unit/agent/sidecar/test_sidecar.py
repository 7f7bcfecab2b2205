"""A sidecar runs a command unchanged, tells what came of it through its folder, and cannot be confused."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hocket.agent import run_folder
from hocket.agent.node.events_reader import facts
from hocket.agent.sidecar.attempt import Attempt
from hocket.agent.sidecar.events_writer import Events
from hocket.agent.sidecar.spec import read_spec


def script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


# -- a plain command ----------------------------------------------------------------------------------------


def test_a_command_runs_at_once_and_its_output_and_exit_code_are_told(run: Any) -> None:
    job = run("sh", "-c", "echo out; echo err >&2; exit 7")
    end = job.finish()
    assert job.log() == "out\nerr\n"
    assert (end["code"], end["signal"], end["asked"], end["after_s"]) == (7, None, False, None)
    assert job.story() == ["started", "exited"]
    assert [e["n"] for e in job.events()] == list(range(1, len(job.events()) + 1))
    assert job.events("started")[0].items() >= {"warm": False, "resumed": False}.items()


def test_a_job_killed_by_a_signal_is_told_by_the_signals_name(run: Any) -> None:
    end = run("sh", "-c", "kill -USR2 $$").finish()
    assert (end["code"], end["signal"], end["killed"]) == (None, "SIGUSR2", False)


def test_no_shell_sees_the_arguments(run: Any, tmp_path: Path) -> None:
    job = run("printf", "%s\n", "$(touch seen); `touch seen` && *")
    job.finish()
    assert job.log() == "$(touch seen); `touch seen` && *\n"
    assert not (tmp_path / "seen").exists()


def test_a_job_has_its_folder_variables_and_an_empty_stdin(run_python: Any, tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "print(os.getcwd(), repr(sys.stdin.read()), os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid())\n"
        "names = 'MINE', 'HOCKET_JOB', 'HOCKET_ATTEMPT', 'HOCKET_MARK', 'HOCKET_CHECKPOINT_DIR'\n"
        "print(*(os.environ[n] for n in names))"
    )
    job = run_python(program, env={"MINE": "yes"}, attempt=3, checkpoint_dir=str(tmp_path / "new" / "ckpt"))
    job.finish()
    assert job.log() == f"{tmp_path} '' True True\nyes j 3 {job.mark} {tmp_path}/new/ckpt\n"
    assert (tmp_path / "new" / "ckpt").is_dir()


def test_a_job_of_one_process_is_told_nothing_of_ranks(run: Any) -> None:
    job = run("env", env={"PATH": os.environ["PATH"]})
    job.finish()
    assert "RANK=" not in job.log()
    assert "WORLD_SIZE=" not in job.log()


@pytest.fixture
def quit_ignored() -> Iterator[None]:
    """As a shell without job control has it for what it starts in the background."""
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGQUIT, before)


@pytest.mark.usefixtures("quit_ignored")
def test_a_job_inherits_no_open_files_and_no_ignored_signals(run_python: Any) -> None:
    program = (
        "import os\n"
        "print(sorted(os.listdir('/proc/self/fd'), key=int)[:-1])\n"  # The last is the listing itself.
        "print([l.split()[1] for l in open('/proc/self/status') if l.startswith(('SigBlk', 'SigIgn'))])"
    )
    job = run_python(program)
    job.finish()
    files, signals = map(literal_eval, job.log().splitlines())
    blocked, ignored = (int(mask, 16) for mask in signals)
    assert files == ["0", "1", "2"]
    assert blocked == 0
    # Python itself ignores SIGPIPE (13) and SIGXFSZ (25); 32 and 33 are the C library's own, and cannot be set.
    assert ignored & ~(0b11 << 31) == (1 << 12) | (1 << 24)


def test_the_command_is_looked_up_in_the_jobs_own_path_and_folder(run: Any, tmp_path: Path) -> None:
    script(tmp_path / "bin" / "trainer", "#!/bin/sh\necho found by path\n")
    by_path = run("trainer", env={"PATH": f"bin:{os.environ['PATH']}"})
    script(tmp_path / "here.sh", "#!/bin/sh\necho found by name\n")
    by_name = run("./here.sh")
    by_path.finish()
    by_name.finish()
    assert (by_path.log(), by_name.log()) == ("found by path\n", "found by name\n")


def test_a_later_attempt_resumes_once_there_is_a_checkpoint(run: Any, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"resume_argv": ["echo", "resumed"], "checkpoint_dir": str(tmp_path / "ckpt")}
    told = []
    for attempt in (1, 2):
        job = run("echo", "fresh", attempt=attempt, **fields)
        job.finish()
        told.append(job.log())
    (tmp_path / "ckpt" / "epoch1").touch()
    job = run("echo", "fresh", attempt=2, **fields)
    job.finish()
    assert [*told, job.log()] == ["fresh\n", "fresh\n", "resumed\n"]
    assert job.events("started")[0]["resumed"]


def test_a_job_that_closes_its_output_is_not_over(run_python: Any, tmp_path: Path) -> None:
    program = "import os, time\nprint('before')\nos.close(1); os.close(2)\nopen('closed', 'w')\n"
    program += "while not os.path.exists('go'): time.sleep(0.01)\nopen('done', 'w')\nos._exit(3)"
    job = run_python(program)
    job.wait_for_file("closed")
    assert not job.events("exited")
    (tmp_path / "go").touch()
    assert job.finish()["code"] == 3
    assert (tmp_path / "done").exists()
    assert job.log() == "before\n"


def test_use_of_the_whole_process_tree_is_told(run_python: Any, until: Any) -> None:
    program = (
        "import os, time\n"
        "held = [bytearray(b'x' * (20 << 20))]\n"
        "if os.fork() == 0:\n"
        "    held.append(bytearray(b'y' * (30 << 20)))\n"
        "while True: time.sleep(0.01)"
    )
    job = run_python(program)
    # The first look may come before all is there that will be held.
    (use, *_) = until(lambda: [e for e in job.events("use") if e["mem_mib"] > 50], "50 MiB")
    job.send("kill")
    end = job.finish()
    assert use["mem_mib"] < 100, "memory that both share counts once"
    assert use["cpu_s"] > 0
    assert 0 < use["cores"] < 4
    assert end["cpu_s"] > 0
    assert end["peak_mib"] >= use["mem_mib"]


# -- what cannot be started ---------------------------------------------------------------------------------


def test_a_command_that_does_not_exist_is_named(run: Any) -> None:
    job = run("no-such-trainer", "--fast")
    reason = job.wait_for("cannot-start")["reason"]
    assert reason == "command 'no-such-trainer' cannot be started: No such file or directory"
    assert job.story() == ["cannot-start"]


def test_a_command_that_is_not_executable_is_named(run: Any, tmp_path: Path) -> None:
    script(tmp_path / "train.sh", "#!/bin/sh\n", mode=0o644)
    assert run("./train.sh").wait_for("cannot-start")["reason"] == (
        "command './train.sh' cannot be started: Permission denied"
    )
    script(tmp_path / "plain", "echo no first line\n")
    assert "Exec format error" in run("./plain").wait_for("cannot-start")["reason"]


def test_a_folder_that_does_not_exist_is_named(run: Any, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    assert run("true", cwd=gone).wait_for("cannot-start")["reason"] == (
        f"folder '{gone}' cannot be entered: No such file or directory"
    )


def test_a_checkpoint_folder_that_cannot_be_made_is_named(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = str(tmp_path / "file" / "ckpt")
    reason = run("true", checkpoint_dir=folder).wait_for("cannot-start")["reason"]
    assert reason == f"folder '{folder}' cannot be made: Not a directory"


def test_if_one_worker_cannot_be_started_none_is_left(run: Any) -> None:
    job = run("./gone", workers=3)
    job.wait_for("cannot-start")
    assert not job.events("started")


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("argv", [], "must be a list of texts"),
        ("argv", "rm -rf", "must be a list of texts"),
        ("argv", ["a\0b"], "must be a list of texts"),
        ("cwd", "relative", "must be an absolute path"),
        ("env", {"A=B": "secret"}, "must be texts by name"),
        ("stop_signal", "SIGKILL", "must be a signal that can be caught"),
        ("stop_signal", "TERM", "must be a signal that can be caught"),
        ("grace_s", -1, "must be a number of seconds"),
        ("grace_s", True, "must be a number of seconds"),
        ("workers", 0, "must be a count from 1"),
        ("gpu", 1, "unknown field 'gpu'"),
    ],
)
def test_a_bad_spec_names_the_field_and_the_rule(prepared_run: Any, field: str, value: Any, rule: str) -> None:
    job = prepared_run("true", **({field: value} if field != "argv" else {}))
    if field == "argv":
        spec = json.loads((job.folder / "spec.json").read_text())
        (job.folder / "spec.json").write_text(json.dumps({**spec, "argv": value}))
    job.launch()
    reason = job.wait_for("cannot-start")["reason"]
    assert rule in reason
    assert field in reason
    assert "secret" not in reason
    assert job.sidecar.wait(120) == 2
    assert reason in job.complaints()


def start_within(monkeypatch: pytest.MonkeyPatch, job: Any, call: str, number: int) -> dict[str, Any]:
    """Begin an attempt in this process, where a call of the system fails; what it says."""
    spec = read_spec(str(job.folder / "spec.json"))

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as full:
        full.setattr(os, call, fail)
        Attempt(str(job.folder), spec, Events(str(job.folder / "events.jsonl"))).begin()
    (event,) = job.events()
    assert event["event"] == "cannot-start"
    return dict(event)


@pytest.mark.parametrize("call", ["fork", "pipe", "makedirs"])
@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOSPC, errno.EMFILE], ids=os.strerror)
def test_what_a_machine_lacks_for_a_moment_is_said_to_pass(
    prepared_run: Any, monkeypatch: pytest.MonkeyPatch, call: str, number: int, tmp_path: Path
) -> None:
    job = prepared_run("true", checkpoint_dir=str(tmp_path / "saved"))
    event = start_within(monkeypatch, job, call, number)
    assert event["passing"]
    assert os.strerror(number) in event["reason"]


def test_a_folder_that_may_not_be_made_does_not_pass(
    prepared_run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = prepared_run("true", checkpoint_dir=str(tmp_path / "saved"))
    assert not start_within(monkeypatch, job, "makedirs", errno.EACCES)["passing"]
    assert not prepared_run("/no/such/program").launch().wait_for("cannot-start")["passing"]


def test_a_spec_that_is_no_json_is_refused(prepared_run: Any) -> None:
    job = prepared_run("true")
    (job.folder / "spec.json").write_text('{"job": ')
    assert "cannot be read" in job.launch().wait_for("cannot-start")["reason"]


# -- one sidecar a folder -----------------------------------------------------------------------------------


def test_a_second_sidecar_for_a_folder_refuses(run: Any) -> None:
    job = run("sleep", "60")
    job.wait_for("started")
    second = subprocess.run(
        [sys.executable, "-m", "hocket.agent.sidecar", str(job.folder)], capture_output=True, text=True, timeout=120
    )
    assert second.returncode == 3
    assert second.stderr == f"sidecar: run folder '{job.folder}' has a sidecar already: process {job.pid}\n"
    assert job.story() == ["started"], "the first did not notice"
    assert run_folder.is_running(str(job.folder))
    job.send("kill")
    job.finish()
    assert not run_folder.is_running(str(job.folder))


def test_nothing_listens_once_the_sidecar_is_gone(run: Any, tmp_path: Path) -> None:
    job = run("true")
    job.finish()
    assert not run_folder.send(str(job.folder), {"do": "stop"})
    assert not run_folder.send(str(tmp_path / "nowhere"), {"do": "stop"})
    assert not run_folder.is_running(str(tmp_path / "nowhere"))


def test_an_attempt_that_is_over_does_not_run_again(run: Any) -> None:
    job = run("sh", "-c", "echo once")
    job.finish()
    again = job.launch()
    assert again.sidecar.wait(120) == 4
    assert job.log() == "once\n"
    assert len(job.events("exited")) == 1


def test_files_of_a_run_are_the_owners_alone(run: Any) -> None:
    job = run("true", env={"TOKEN": "secret"})
    job.finish()
    assert {
        p.name: stat.S_IMODE(p.stat().st_mode) & 0o077 for p in job.folder.iterdir() if p.name != "log"
    } == dict.fromkeys(["spec.json", "control", "events.jsonl", "lock", "sidecar.err"], 0)


def test_the_agents_pipes_are_let_go(prepared_run: Any) -> None:
    job = prepared_run("sleep", "60")
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    job.launch()
    os.close(write_end)
    job.wait_for("started")
    assert os.read(read_end, 1) == b""
    os.close(read_end)


# -- orders -------------------------------------------------------------------------------------------------


def test_orders_that_make_no_sense_are_warned_of_and_harm_nothing(run: Any) -> None:
    job = run("sleep", "60")
    job.wait_for("started")
    fifo = os.open(job.folder / "control", os.O_WRONLY)
    os.write(
        fifo, b'nonsense\n[1]\n{"do": "dance"}\n{"do": "stop", "grace_s": "soon"}\n{"do": "start", "env": {"A": 1}}\n'
    )
    os.write(fifo, b'{"do": "checkpoint"}\n{"do": "start"}\n' + b"\xff\xfe\n" + b"[" * 5000 + b"\n")
    os.write(fifo, b'{"do": "st')  # And here the agent died.
    os.close(fifo)
    job.send("kill")
    job.finish()
    assert [e["about"] for e in job.events("warning")] == [
        "not an order: 'nonsense'",
        "not an order: '[1]'",
        "order 'dance' is unknown",
        "order 'stop': grace_s must be a number of seconds, not 'soon'",
        "order 'start': env must be texts by name",
        "order 'checkpoint' is ignored: it has no signal for that",
        "order 'start' is ignored: the job was started before",
        "not an order: '\ufffd\ufffd'",
        f"not an order: '{'[' * 80}'",
        'not an order: \'{"do": "st\'',
    ]


def test_an_order_without_end_is_dropped(run: Any) -> None:
    job = run("sleep", "60")
    job.wait_for("started")
    fifo = os.open(job.folder / "control", os.O_WRONLY)
    for _ in range(20):
        os.write(fifo, b"x" * (1 << 16))
    os.close(fifo)
    assert job.wait_for("warning")["about"] == "an order is longer than 1048576 bytes"
    job.send("kill")
    job.finish()


# -- facts --------------------------------------------------------------------------------------------------


def test_a_torn_line_is_never_taken_for_a_whole_one_and_is_repaired(tmp_path: Path) -> None:
    path = str(tmp_path / "events.jsonl")
    Events(path).add("warning", about="first")
    whole = Path(path).read_bytes()
    for torn in (b'{"n":2,"at":1.0,"event":"exi', b'{"n":2}', b"\0\0\0\0\n\0\0", b"null\n", b'{"event":"x"}\n'):
        Path(path).write_bytes(whole + torn)
        assert [(e["about"], end) for e, end in facts(path, 0)] == [("first", len(whole))]
        Events(path).add("warning", about="second")
        assert [(e["n"], e["about"]) for e, _ in facts(path, 0)] == [(1, "first"), (2, "second")]
    assert [e["about"] for e, _ in facts(path, len(whole))] == ["second"]


def test_after_a_sidecar_died_in_the_middle_of_a_line_the_attempt_begins_again(run: Any, tmp_path: Path) -> None:
    job = run("sh", "-c", "if [ -e again ]; then exit 0; fi; sleep 60 & setsid sleep 61 & wait")
    job.wait_for("started")
    job.sidecar.kill()
    job.sidecar.wait()
    with open(job.folder / "events.jsonl", "ab") as file:
        file.write(b'{"n":%d,"at":17000' % (len(job.events()) + 1))
    (tmp_path / "again").touch()
    job.launch()
    assert job.finish()["code"] == 0
    assert job.story() == ["started", "warning", "started", "exited"]
    assert [e["n"] for e in job.events()] == list(range(1, len(job.events()) + 1))


FULL = """
import json, resource, sys
from hocket.agent.sidecar.events_writer import Events
from hocket.agent.node.events_reader import facts
path = sys.argv[1]
events = Events(path)
events.add("started")
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
events.add("progress", epoch=1)
events.add("use", cores=1)
events.add("exited", code=0)
before = [e["event"] for e, _ in facts(path, 0)], events.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(json.dumps([before, events.flush(), [(e["n"], e["event"]) for e, _ in facts(path, 0)]]))
"""


def test_facts_that_a_full_disk_does_not_take_are_written_later_and_in_order(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "e")], capture_output=True, text=True, check=True, timeout=120
    )
    before, flushed, after = json.loads(done.stdout)
    assert before == [["started"], False]
    assert flushed
    assert after == [[1, "started"], [2, "progress"], [3, "exited"]], "of use, the next look tells"


def test_a_run_whose_secrets_were_not_handed_over_does_not_start(prepared_run: Any) -> None:
    run = prepared_run("true", secrets=["HF_TOKEN"]).launch()
    assert run.wait_for("cannot-start")["reason"] == "secret 'HF_TOKEN' was not handed over"
