"""Agents, sidecars and controllers die and come back; nothing is lost, and nothing is done twice."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.whole_lines import whole_lines

from hocket.agent import run_folder
from hocket.agent.node.ack_cursor import read_cursor
from hocket.agent.node.events_reader import story
from hocket.agent.process_tree import process
from hocket.agent.protocol import ForgetJob, RunKey, StopRun

FOR_EVER = "import time\nprint('up')\ntime.sleep(600)"
COUNTING = (
    "import os, sys, time\n"
    "epoch = 0\n"
    "while not os.path.exists('enough'):\n"
    "    epoch += 1\n"
    "    print(f'epoch {epoch} acc=0.5')\n"
    "    time.sleep(0.1)\n"  # Of what a busy sidecar reads at once, some 100 are told, and the test wants all.
    "sys.exit(5)"
)


def numbers_of(controller: Any, key: RunKey) -> list[int]:
    return [r.n for r in controller.of(key)]


def test_an_agent_killed_again_and_again_loses_no_report(controller: Any, agent: Any) -> None:
    key = controller.run_python("j", COUNTING, progress={"kind": "stdout"}, cwd=str(agent.state))
    controller.wait_for(key, "started")
    for count in (2, 3, 4):
        controller.wait_for(key, "progress", 3 * count)
        agent.kill()
        agent.start()
        assert controller.wait_for_hellos(count).runs == (key,)
    (agent.state / "enough").touch()
    exited = controller.wait_for(key, "exited")
    assert exited.fields["code"] == 5
    # What was said and not written down as heard may come twice; by number, each came, in order.
    assert sorted(set(numbers_of(controller, key))) == list(range(1, exited.n + 1))
    firsts = list(dict.fromkeys(numbers_of(controller, key)))
    assert firsts == sorted(firsts)
    printed = (agent.folder() / "log").read_text().splitlines()
    told = {r.n: r.fields["epoch"] for r in controller.of(key, "progress")}
    assert [told[n] for n in sorted(told)] == list(range(1, len(printed) + 1))
    assert len({tuple(r.fields["pids"]) for r in controller.of(key, "started")}) == 1


def test_an_agent_that_heard_the_end_does_not_tell_it_again(controller: Any, agent: Any, until: Any) -> None:
    key = controller.run("j", 1, "true")
    controller.wait_for(key, "exited")
    until(lambda: read_cursor(str(agent.folder())).over, "that it was heard")
    agent.kill()
    agent.start()
    again = controller.wait_for_hellos(2)
    assert (again.runs, again.jobs) == ((), ("j",)), "should it be forgotten, the controller must say so"
    controller.wait_for(controller.run("k", 1, "true"), "exited")
    assert len(controller.of(key, "exited")) == 1
    controller.run("j", 1, "true")
    controller.wait_for(key, "exited", 2)
    assert len({r.at_s for r in controller.of(key, "started")}) == 1


def test_what_ends_while_the_agent_is_away_is_told_when_it_is_back(controller: Any, agent: Any, until: Any) -> None:
    program = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)"
    key = controller.run_python("j", program, cwd=str(agent.state))
    controller.wait_for(key, "started")
    sidecar = agent.sidecar()
    assert agent.leave(signal.SIGTERM) == 0
    (agent.state / "go").touch()
    until(lambda: process(sidecar) is None)
    assert controller.of(key, "exited") == []
    agent.start()
    assert controller.wait_for_hellos(2).runs == (key,)
    exited = controller.wait_for(key, "exited")
    assert exited.fields["code"] == 0
    assert list(dict.fromkeys(numbers_of(controller, key))) == list(range(1, exited.n + 1))


def test_a_dead_sidecar_is_lost_with_all_that_it_ran(controller: Any, agent: Any, until: Any) -> None:
    program = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "print(child.pid)\n"
        "time.sleep(600)"
    )
    key = controller.run_python("j", program)
    pid = controller.wait_for(key, "started").fields["pids"][0]
    child = int(until(lambda: whole_lines(agent.folder() / "log"))[0])
    os.kill(agent.sidecar(), signal.SIGKILL)
    assert controller.wait_for(key, "lost").n == 0
    assert process(pid) is None
    until(lambda: process(child) is None)
    until(lambda: read_cursor(str(agent.folder())).over, "that it was heard")
    agent.kill()
    agent.start()
    assert controller.wait_for_hellos(2).runs == ()
    controller.run_python("j", program)  # The run was lost, and remains so.
    controller.wait_for(key, "lost", 2)
    new = controller.run("j", 2, "true")
    controller.wait_for(new, "exited")


def test_a_sidecar_that_died_with_the_agent_is_lost(controller: Any, agent: Any) -> None:
    key = controller.run_python("j", FOR_EVER)
    pid = controller.wait_for(key, "started").fields["pids"][0]
    agent.kill()
    os.kill(agent.sidecar(), signal.SIGKILL)
    agent.start()
    assert controller.wait_for_hellos(2).runs == (key,)
    controller.wait_for(key, "lost")
    assert process(pid) is None


def test_a_forgotten_job_whose_sidecar_dies_over_it_is_not_reported(controller: Any, agent: Any, until: Any) -> None:
    key = controller.run_python("j", FOR_EVER)
    controller.wait_for(key, "started")
    sidecar = agent.sidecar()
    os.kill(sidecar, signal.SIGSTOP)
    controller.order(ForgetJob("j"))
    controller.wait_for(controller.run("k", 1, "true"), "exited")
    with suppress(ProcessLookupError):  # unless the agent has lost its patience with it
        os.kill(sidecar, signal.SIGKILL)
    until(lambda: not (agent.state / "runs" / "j" / "1" / "heard").exists(), "the run folder to go")
    assert controller.of(key, "lost") == []


def test_a_run_that_was_never_launched_is_lost_and_cannot_begin_later(controller: Any, agent: Any) -> None:
    key = controller.run_python("j", "print('done')")
    controller.wait_for(key, "exited")
    agent.kill()
    folder = agent.folder()
    for name in ("events.jsonl", "heard", "lock", "log"):  # as it looks just before the launch
        (folder / name).unlink()
    agent.start()
    controller.wait_for(key, "lost")
    assert run_folder.launch(str(folder)).wait() != 0
    assert not (folder / "log").exists()


def test_a_hand_over_that_an_agent_died_over_is_made_by_the_next(controller: Any, agent: Any) -> None:
    script = agent.state / "train.py"
    script.write_text("import os\nprint(os.environ['X'])")
    key = controller.prepare("j", 1, sys.executable, str(script))
    controller.wait_for(key, "prepared")
    agent.kill()
    (agent.folder() / "start.json").write_text('{"do": "start", "env": {"X": "handed over"}}')
    agent.start()
    controller.wait_for(key, "exited")
    assert (agent.folder() / "log").read_text() == "handed over\n"


# -- the controller -------------------------------------------------------------------------------------------


def test_while_the_controller_is_away_jobs_run_on_and_nothing_is_lost(controller: Any, agent: Any, until: Any) -> None:
    key = controller.run_python("j", COUNTING, progress={"kind": "stdout"}, cwd=str(agent.state))
    controller.wait_for(key, "progress", 5)
    controller.stop()
    until(lambda: "away" in agent.said(), "a complaint")
    (agent.state / "enough").touch()
    until(lambda: story(str(agent.folder() / "events.jsonl")).ended, "the end of the job")
    assert controller.of(key, "exited") == []
    controller.start()
    exited = controller.wait_for(key, "exited")
    assert list(dict.fromkeys(numbers_of(controller, key))) == list(range(1, exited.n + 1))
    assert len(controller.hellos) == 1  # It knew the session all along.


def test_a_controller_that_cannot_write_is_told_later(controller: Any, agent: Any, until: Any) -> None:
    controller.answer_with["reports"] = 503
    key = controller.run("j", 1, "true")
    until(lambda: "answers 503" in agent.said())
    controller.answer_with.clear()
    exited = controller.wait_for(key, "exited")
    assert numbers_of(controller, key) == list(range(1, exited.n + 1))


@pytest.mark.usefixtures("agent")
def test_a_controller_that_forgot_the_session_is_greeted_again(controller: Any) -> None:
    key = controller.run_python("j", FOR_EVER)
    controller.wait_for(key, "started")
    with controller.changed:
        controller.hellos.append(controller.hellos[0])  # The session has another name now.
    assert controller.wait_for_hellos(3).runs == (key,)
    controller.order(StopRun(key, 0.0))  # numbered from 1 again
    controller.wait_for(key, "exited")


def test_reports_that_the_controller_cannot_read_do_not_stop_the_others(controller: Any, agent: Any) -> None:
    bad = RunKey("bad", 1)
    controller.refuse = lambda reports: 422 if any(r.run == bad and r.event == "started" for r in reports) else 0
    keys = [controller.run(name, 1, "true") for name in ("a", "bad", "b")]
    for key in keys:
        controller.wait_for(key, "exited")
    assert controller.of(bad, "started") == []
    assert "given up" in agent.said()


def test_orders_that_an_agent_cannot_read_do_not_stop_the_others(controller: Any, agent: Any) -> None:
    controller.raw_orders = b"""
        {"n": 1, "order": {"order": "read-log", "request": "a", "job": "j", "number": %s, "offset": 0, "limit": 1}},
        {"n": 2, "order": {"order": "read-log", "request": "b", "job": "j", "number": 1, "offset": -%s, "limit": 1}},
        {"n": 3, "order": {"order": "never-heard-of"}},
        {"n": 4, "order": [1, {"order": null}]},
    """ % (b"9" * 4300, b"9" * 30)
    key = controller.run("j", 1, "true")
    assert controller.wait_for(key, "exited").fields["code"] == 0
    assert agent.process.poll() is None
    for n in (3, 4):
        assert f"order {n} cannot be read, and is left out" in agent.said()


def test_answers_that_are_nonsense_do_not_end_an_agent(controller: Any, agent: Any, until: Any) -> None:
    controller.nonsense = b"<html>a proxy</html>"
    until(lambda: "nonsense from the controller" in agent.said())
    controller.nonsense = b""
    key = controller.run("j", 1, "true")
    assert controller.wait_for(key, "exited").fields["code"] == 0
    assert agent.process.poll() is None


def test_a_wrong_token_ends_the_agent_and_a_new_one_does_not(controller: Any, agent: Any) -> None:
    key = controller.run_python("j", FOR_EVER)
    controller.wait_for(key, "started")
    agent.token_file.write_text("another")
    controller.token = "another"
    controller.order(StopRun(key, 0.0))
    controller.wait_for(key, "exited")
    controller.token = "a third"
    assert agent.process.wait(120) == 2
    assert agent.said().splitlines()[-1].endswith(f"does not take the token in '{agent.token_file}'")


# -- leaving --------------------------------------------------------------------------------------------------


def test_of_two_agents_on_one_folder_the_second_refuses(controller: Any, agent: Any) -> None:
    first = agent.process
    agent.start()
    assert agent.process.wait(120) == 2
    assert f"has an agent already: process {first.pid}" in agent.said()
    controller.wait_for(controller.run("j", 1, "true"), "exited")


def test_sigterm_leaves_the_jobs_running(controller: Any, agent: Any) -> None:
    key = controller.run_python("j", FOR_EVER)
    pid = controller.wait_for(key, "started").fields["pids"][0]
    assert agent.leave(signal.SIGTERM) == 0
    assert process(pid) is not None
    agent.start("--stop-jobs")
    assert controller.wait_for_hellos(2).runs == (key,)
    assert agent.leave(signal.SIGTERM) == 0
    assert controller.of(key, "exited")[0].fields["asked"]
    assert process(pid) is None


def test_sigint_stops_the_jobs_with_their_grace_and_a_second_one_at_once(controller: Any, agent: Any) -> None:
    program = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('epoch 1 acc=0.1')\n"
    key = controller.run_python("j", program + "while True: time.sleep(600)", progress={"kind": "stdout"}, grace_s=600)
    controller.wait_for(key, "progress")
    agent.process.send_signal(signal.SIGINT)
    controller.wait_for(key, "checkpoint-asked")
    assert agent.leave(signal.SIGINT) == 0
    assert controller.of(key, "exited")[0].fields["killed"]


# -- the log --------------------------------------------------------------------------------------------------


def test_an_agent_whose_complaints_cannot_be_written_goes_on(controller: Any, idle_agent: Any) -> None:
    idle_agent.complaints = Path("/dev/full")
    idle_agent.start("--gpus", "1", "--log-level", "debug")
    controller.wait_for_hellos(1)
    key = controller.run_python("j", "print('hello')")
    assert controller.wait_for(key, "exited").fields["code"] == 0
    controller.token = "another"  # for which it complains, and ends
    assert idle_agent.process.wait(120) == 2


@pytest.mark.parametrize("by_variable", [False, True])
def test_a_level_that_is_none_ends_the_agent(
    monkeypatch: pytest.MonkeyPatch, idle_agent: Any, by_variable: bool
) -> None:
    if by_variable:
        monkeypatch.setenv("HOCKET_LOG_LEVEL", "loud")
    idle_agent.start(*(() if by_variable else ("--log-level", "loud")))
    assert idle_agent.process.wait(120) == 2
    said = "argument --log-level: must be one of debug, info, warning, error, not 'loud'"
    assert idle_agent.said().splitlines()[-1].endswith(said)
