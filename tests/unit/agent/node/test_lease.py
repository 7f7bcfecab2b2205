"""An agent without an answer from its controller lets its runs stand still; orders at its return come first."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.live.processes import stands_still

from hocket.agent.lease_file import boot_id, boot_of_lease, boot_s, read_lease, write_lease
from hocket.agent.node.controller_link import Gone, Session
from hocket.agent.node.controllers import Controllers
from hocket.agent.node.lease import Heartbeat, Lease, controller_is_dead
from hocket.agent.node.loops import ReportLoop
from hocket.agent.node.report_outbox import ReportBatch
from hocket.agent.process_tree import process
from hocket.agent.protocol import ForgetJob, StopRun, Welcome

FENCED = Welcome("s", 10.0, 5.0, fence_s=6.0)
COUNTS = "import time\nn = 0\nwhile True:\n    n += 1\n    open('count', 'a').write('.')\n    time.sleep(0.01)"


def test_an_answer_renews_the_lease_from_when_the_call_was_sent(tmp_path: Path) -> None:
    lease = Lease(str(tmp_path / "lease"))
    assert not lease.holds
    sent_s = boot_s() - 5.0
    lease.renew(sent_s, FENCED)
    assert lease.holds
    assert read_lease(lease.path) == sent_s + 6.0
    lease.renew(sent_s - 3.0, FENCED)
    assert read_lease(lease.path) == sent_s + 6.0, "an older call takes nothing away"
    assert Lease(lease.path).holds, "an agent that is started again goes on with it"


def test_a_lease_that_is_over_is_not_extended_when_the_controller_dies(tmp_path: Path) -> None:
    lease = Lease(str(tmp_path / "lease"))
    lease.renew(boot_s() - 6.0, FENCED)
    lease.extend(6.0)
    assert not lease.holds, "its jobs may have been started elsewhere"
    lease.renew(boot_s() - 5.0, FENCED)
    lease.extend(600.0)
    assert (read_lease(lease.path) or 0.0) > boot_s() + 500


def test_runs_of_an_older_controller_go_on_for_ever(tmp_path: Path) -> None:
    lease = Lease(str(tmp_path / "lease"))
    lease.renew(boot_s(), Welcome("s", 10.0, 5.0))
    assert read_lease(lease.path) == float("inf")
    sent_s = boot_s()
    lease.renew(sent_s, FENCED)
    assert read_lease(lease.path) == sent_s + 6.0, "until a newer one takes its place"


def test_a_lease_of_another_boot_is_over_and_the_next_one_is_no_longer_than_it_should(tmp_path: Path) -> None:
    path = str(tmp_path / "lease")
    write_lease(path, boot_s() + 1e6, "another boot")  # The machine had been up for long.
    lease = Lease(path)
    assert not lease.holds
    assert read_lease(path) == 0.0, "a run that starts now must not go by it"
    sent_s = boot_s()
    lease.renew(sent_s, FENCED)
    assert read_lease(path) == sent_s + 6.0
    assert boot_of_lease(path) == boot_id() != ""


@pytest.mark.parametrize("loop", ["heartbeat", "reports"])
def test_a_hello_that_is_answered_gone_is_said_again(tmp_path: Path, loop: str) -> None:
    """The controller may end a session before its hello is answered."""

    def gone(_link: Any) -> Any:
        raise Gone("say hello again")

    link, session, runs = SimpleNamespace(call=None), Session(gone), FakeRuns()
    controllers = Controllers("http://127.0.0.1:9", str(tmp_path / "controllers"))
    beat = Heartbeat(link, session, Lease(str(tmp_path / "lease")), controllers).beat  # type: ignore[arg-type]
    say = ReportLoop(link, session, runs, None).say  # type: ignore[arg-type]
    with pytest.raises(Gone):
        beat() if loop == "heartbeat" else say()
    assert runs.due_again == (loop == "reports")


class FakeRuns:
    """Has something to say."""

    due_again = False

    def next_batch(self) -> ReportBatch:
        return ReportBatch((), ())

    def not_delivered(self) -> None:
        self.due_again = True


def holder(pid: int, host: str = "") -> str:
    return json.dumps({"pid": pid, "host": host or socket.gethostname(), "since": "now"})


@pytest.mark.parametrize("kept", ["this process", "process 1", "another host", "nothing", "nonsense"])
def test_a_controller_counts_as_dead_only_if_that_is_sure(tmp_path: Path, kept: str) -> None:
    contents = {
        "this process": holder(os.getpid()),
        "process 1": holder(1),
        "another host": holder(2**22, "another-host"),
        "nothing": "",
        "nonsense": '{"pid": "x"}',
    }
    (tmp_path / "lock").write_text(contents[kept])
    assert not controller_is_dead(str(tmp_path / "lock"))


def test_a_controller_whose_process_has_ended_is_dead(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / "lock").write_text(holder(ended.pid))
    assert controller_is_dead(str(tmp_path / "lock"))
    assert controller_is_dead(str(tmp_path / "missing"))


def begin(controller: Any, agent: Any, *options: str, fence_s: float = 2.0) -> None:
    controller.fence_s = fence_s
    agent.start("--gpus", "4", *options)
    controller.wait_for_hellos(1)


def is_frozen(controller: Any, key: Any) -> bool:
    (pid,) = controller.wait_for(key, "started").fields["pids"]
    return stands_still(pid)


def test_runs_stand_still_while_the_controller_is_away_and_go_on_when_it_is_back(
    controller: Any, idle_agent: Any, until: Any
) -> None:
    begin(controller, idle_agent)
    key = controller.run_python("j", COUNTS)
    controller.wait_for(key, "started")
    controller.stop()
    until(lambda: is_frozen(controller, key), "the run stands still")
    controller.start()
    controller.wait_for(key, "thawed")
    assert not is_frozen(controller, key)


@pytest.mark.parametrize("order", [StopRun, ForgetJob])
def test_what_is_not_wanted_any_more_never_goes_on(controller: Any, idle_agent: Any, until: Any, order: Any) -> None:
    begin(controller, idle_agent)
    key = controller.run_python("j", COUNTS)
    (pid,) = controller.wait_for(key, "started").fields["pids"]
    controller.stop()
    until(lambda: is_frozen(controller, key), "the run stands still")
    counted = idle_agent.state / "work" / "j" / "count"
    before = counted.read_text()
    controller.orders_take_s = 1.0  # The session is new, and the order is on its way.
    controller.first_orders = [StopRun(key, 0.0) if order is StopRun else ForgetJob("j")]
    with controller.changed:
        controller.hellos.append(controller.hellos[-1])  # It knows no session any more.
    controller.start()
    until(lambda: process(pid) is None, "the run is killed")
    assert counted.read_text() == before
    assert not controller.of(key, "thawed")


def test_runs_stand_still_when_their_agent_is_killed_and_go_on_with_another(
    controller: Any, idle_agent: Any, until: Any
) -> None:
    begin(controller, idle_agent)
    key = controller.run_python("j", COUNTS)
    controller.wait_for(key, "started")
    idle_agent.process.send_signal(signal.SIGSTOP)  # It cannot tell its sidecars anything.
    until(lambda: is_frozen(controller, key), "the run stands still")
    idle_agent.kill()
    idle_agent.start("--gpus", "4")
    controller.wait_for(key, "thawed")


def test_runs_go_on_while_no_controller_of_this_machine_lives(
    controller: Any, idle_agent: Any, until: Any, tmp_path: Path
) -> None:
    begin(controller, idle_agent, "--controller-lock", str(tmp_path / "lock"), fence_s=8.0)
    key = controller.run_python("j", COUNTS)
    controller.wait_for(key, "started")
    controller.stop()
    until_s = boot_s() + 12.0
    until(lambda: boot_s() > until_s, "longer than without an answer")
    assert not is_frozen(controller, key)
    (tmp_path / "lock").write_text(holder(os.getpid()))  # One begins, and does not answer.
    until(lambda: is_frozen(controller, key), "the run stands still")
