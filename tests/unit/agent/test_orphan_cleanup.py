"""Leftover processes: found by their mark, and no other process is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from tests.children import child

from hocket.agent.orphan_cleanup import MARK, kill_orphans, orphans
from hocket.agent.process_tree import descendants, process, processes


@pytest.fixture
def sleeper() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    with ExitStack() as begun:

        def begin(mark: str | None = None, **more: Any) -> subprocess.Popen[bytes]:
            env = {**os.environ, **({} if mark is None else {MARK: mark})}
            return begun.enter_context(child(["sleep", "600"], **{"env": env, **more}))

        yield begin


def new_mark() -> str:
    return uuid.uuid4().hex


def test_those_that_bear_the_mark_are_ended_and_no_others(sleeper: Any, until: Any) -> None:
    mark = new_mark()
    ours = [sleeper(mark), sleeper(mark, start_new_session=True)]
    others = [sleeper(), sleeper(f"{mark}0"), sleeper(f"x{mark}"), sleeper("", start_new_session=True)]
    others.append(sleeper(env={f"X{MARK}": mark, "Y": f"{MARK}={mark}"}))
    # For a moment, a new process has no environment.
    until(lambda: orphans(mark) == sorted(p.pid for p in ours), "ours, and no others")
    assert kill_orphans(mark) == []
    assert [p.wait(120) for p in ours] == [-9, -9]
    assert [p.poll() for p in others] == [None] * 5


def test_a_session_whose_first_process_is_gone_belongs_to_the_job() -> None:
    # A shell that wipes the environment of its child, and is gone.
    command = ["sh", "-c", "env -i sleep 600 & echo $!"]
    with child(command, stdout=subprocess.PIPE, start_new_session=True, text=True) as shell:
        left = int(shell.stdout.readline())
        shell.wait(120)
    try:
        assert orphans("no such mark") == []
        assert orphans("no such mark", [shell.pid]) == [left]
        assert kill_orphans("no such mark", [shell.pid]) == []
        assert process(left) is None
    finally:
        with suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)


def test_a_session_that_now_belongs_to_another_process_is_left_alone(sleeper: Any) -> None:
    stranger = sleeper(start_new_session=True)
    assert orphans(new_mark(), [stranger.pid]) == []
    assert kill_orphans(new_mark(), [stranger.pid]) == []
    assert stranger.poll() is None


def test_descendants_are_found_whichever_thread_started_them(until: Any) -> None:
    program = (
        "import subprocess, threading\n"
        "children = []\n"
        "start = lambda: children.append(subprocess.Popen(['sleep', '600']))\n"
        "done = threading.Event()\n"
        "def work(): start(); print('up', flush=True); done.wait()\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "start()\n"
        "input()\n"
        "[c.kill() for c in children]"
    )
    with child([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        parent.stdout.readline()
        found = until(lambda: len(found := descendants(parent.pid)) == 2 and found, "two children")
        assert {p.parent for p in found} == {parent.pid}
        assert parent.pid in {p.pid for p in descendants(os.getpid())}
        parent.communicate(b"\n", timeout=120)
        assert descendants(parent.pid) == []


def test_a_name_with_parentheses_and_spaces_is_read_right(tmp_path: Any) -> None:
    odd = tmp_path / "a) Z 1 (b"
    odd.symlink_to("/bin/sleep")
    with child([str(odd), "600"]) as sleeper:
        found = process(sleeper.pid)
        assert found is not None
        assert (found.parent, found.session, found.threads) == (os.getpid(), os.getsid(0), 1)
        assert sleeper.pid in {p.pid for p in processes()}
        sleeper.kill()
        os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
        assert process(sleeper.pid) is None, "a zombie is not there"
