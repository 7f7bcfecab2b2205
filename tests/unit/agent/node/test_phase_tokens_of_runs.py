"""A run that asks for phase tokens is offered them, reports what it measures, and is told to leave."""

from typing import Any

import pytest

from hocket.agent.node.known_run import KnownRun
from hocket.agent.protocol import RunKey, StopRun
from hocket.model.phase_tokens import VARIABLE

_JOB = """
import signal, time
from hocket.runtimes.paramserver.phase_tokens import tokens_offered
signal.signal(signal.SIGTERM, signal.SIG_IGN)
turns, iteration = tokens_offered(), 0
while True:
    iteration += 1
    with turns.comm() as comm:
        comm.between_chunks()
    with turns.comp():
        pass
    if turns.iteration_done(iteration, 0.25, 2.0, 0.5):
        break
    time.sleep(0.01)
"""


def test_a_run_that_asks_takes_turns_with_this_agent_and_the_next_until_it_is_told_to_leave(
    controller: Any, agent: Any
) -> None:
    shows = controller.run_python("shows", f"import os, sys; sys.exit(7 if {VARIABLE!r} in os.environ else 0)")
    assert controller.wait_for(shows, "exited").fields["code"] == 0, "it did not ask"
    assert not (agent.state / "phase_tokens").exists()
    key = controller.run_python("j", _JOB, 3, phase_tokens=True)
    measured = controller.wait_for(key, "phases")
    assert (measured.n, measured.fields["comp_s"], measured.fields["comm_s"]) == (0, 2.0, 0.75)
    assert measured.fields["iterations"] >= 3
    agent.kill()
    agent.start()
    last = measured.fields["iteration"]
    controller.wait_until(lambda: controller.of(key, "phases")[-1].fields["iteration"] > last, "more measurements")
    assert len({tuple(r.fields["pids"]) for r in controller.of(key, "started")}) == 1
    controller.order(StopRun(key, 300.0))
    assert controller.wait_for(key, "exited").fields["code"] == 0


@pytest.mark.parametrize(
    ("env", "takes_turns"), [({}, False), ({VARIABLE: ""}, False), ({VARIABLE: "/a/socket"}, True)]
)
def test_a_run_whose_tokens_were_taken_away_takes_no_turns(env, takes_turns, tmp_path):
    assert KnownRun(RunKey("a", 1), str(tmp_path), {"env": env}).takes_turns is takes_turns
