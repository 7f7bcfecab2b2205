"""Leftovers: found by their mark, and nobody else is touched."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hocket.agent.leftovers import MARK, end_leftovers, leftovers
from hocket.agent.process_tree import descendants, process, processes


@pytest.fixture
def sleeper() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    begun: list[subprocess.Popen[bytes]] = []

    def begin(mark: str | None = None, **more: Any) -> subprocess.Popen[bytes]:
        env = {**os.environ, **({} if mark is None else {MARK: mark})}
        begun.append(subprocess.Popen(["sleep", "600"], env=env, **more))
        return begun[-1]

    yield begin
    for one in begun:
        one.kill()
        one.wait()


def new_mark() -> str:
    return uuid.uuid4().hex


def test_those_that_bear_the_mark_are_ended_and_no_others(sleeper: Any, until: Any) -> None:
    mark = new_mark()
    ours = [sleeper(mark), sleeper(mark, start_new_session=True)]
    others = [sleeper(), sleeper(f"{mark}0"), sleeper(f"x{mark}"), sleeper("", start_new_session=True)]
    others.append(subprocess.Popen(["sleep", "600"], env={f"X{MARK}": mark, "Y": f"{MARK}={mark}"}))
    try:
        # For a moment, a new process has no environment.
        until(lambda: leftovers(mark) == sorted(p.pid for p in ours), "ours, and no others")
        assert end_leftovers(mark) == []
        assert [p.wait() for p in ours] == [-9, -9]
        assert [p.poll() for p in others] == [None] * 5
    finally:
        others[-1].kill()
        others[-1].wait()


def test_a_session_whose_first_process_is_gone_belongs_to_the_job() -> None:
    # A shell that wipes the environment of its child, and is gone.
    shell = subprocess.Popen(
        ["sh", "-c", "env -i sleep 600 & echo $!"], stdout=subprocess.PIPE, start_new_session=True, text=True
    )
    assert shell.stdout is not None
    child = int(shell.stdout.readline())
    shell.stdout.close()
    shell.wait()
    assert leftovers("no such mark") == []
    assert leftovers("no such mark", [shell.pid]) == [child]
    assert end_leftovers("no such mark", [shell.pid]) == []
    assert process(child) is None


def test_a_session_that_was_given_to_somebody_else_meanwhile_is_left_alone(sleeper: Any) -> None:
    stranger = sleeper(start_new_session=True)
    assert leftovers(new_mark(), [stranger.pid]) == []
    assert end_leftovers(new_mark(), [stranger.pid]) == []
    assert stranger.poll() is None


def test_descendants_are_found_whichever_thread_started_them() -> None:
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
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdout.readline()
    while len(found := descendants(parent.pid)) < 2:
        time.sleep(0.005)
    assert {p.parent for p in found} == {parent.pid}
    assert parent.pid in {p.pid for p in descendants(os.getpid())}
    parent.communicate(b"\n", timeout=120)
    assert descendants(parent.pid) == []


def test_a_name_with_parentheses_and_spaces_is_read_right(tmp_path: Any) -> None:
    odd = tmp_path / "a) Z 1 (b"
    odd.symlink_to("/bin/sleep")
    sleeper = subprocess.Popen([str(odd), "600"])
    found = process(sleeper.pid)
    assert found is not None
    assert (found.parent, found.session, found.threads) == (os.getpid(), os.getsid(0), 1)
    assert sleeper.pid in {p.pid for p in processes()}
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert process(sleeper.pid) is None, "a zombie is not there"
    sleeper.wait()
