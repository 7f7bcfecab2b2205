"""`hocket down` when the jobs run under an agent that is not the controller's own child."""

import sys
from pathlib import Path

import pytest
from tests.live import ledger
from tests.live.agent import LiveAgent
from tests.live.controller import LiveController, awaited
from tests.live.processes import below

ROOT = Path(__file__).parents[2]
EPOCHS = 100_000  # more than the test waits for


@pytest.mark.slow
def test_jobs_of_other_agents_save_and_leave_too_and_go_on_at_the_next_start(tmp_path: Path) -> None:
    controller = LiveController(tmp_path, "--no-agent", "--policy", "fifo")
    with controller, LiveAgent(controller, "other", "--gpus", "2") as agent:
        controller.begin()
        agent.begin()
        told = tmp_path / "ledger"
        train = [sys.executable, str(ROOT / "examples" / "train_numpy.py"), "--epochs", str(EPOCHS), "--pace", "0.25"]
        train += ["--ledger", str(told), "--checkpoint-every", "1000"]
        jobs = [
            {"id": "train", "command": train, "cwd": "/"},
            {"id": "deaf", "command": ["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"], "cwd": "/"},
        ]
        controller.call("POST", "/v1/jobs", {"jobs": jobs})
        awaited(lambda: controller.jobs()["train"]["epoch"] >= 2, "two epochs are done")
        awaited(lambda: controller.jobs()["deaf"]["state"] == "running", "the other one runs")
        controller.down(grace_s=15.0)  # The deaf one takes all of it.
        assert controller.code == 0
        assert agent.lives, "the agent stays, and waits for the controller"
        awaited(lambda: not [p for p in below(agent.state) if p.kind == "training"], "no process trains")
        assert ledger.told(ledger.read(told)).stops == 1, "it saved its state"
        controller.begin()
        done = ledger.told(ledger.read(told)).epochs
        awaited(lambda: ledger.told(ledger.read(told)).epochs >= done + 2, "it went on")
        assert list(ledger.wrongs(ledger.read(told), EPOCHS, 1000)) == ["it never ended"]
        assert ledger.told(ledger.read(told)).attempts == 2
        controller.down(grace_s=0.0)
