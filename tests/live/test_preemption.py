"""Pausing loses no work unseen: jobs that have not saved are not preempted, and what is lost is said."""

import sys
from pathlib import Path

import pytest
from tests.live.controller import LiveController, awaited

# Trains without an end, saves when it is told to by a file, and knows nothing of signals.
_PLAIN = """
import os, sys, time
folder, epoch = sys.argv[1], 0
while True:
    time.sleep(0.1)
    epoch += 1
    print(f"epoch {epoch}/100000 loss={1 / epoch:.4f}", flush=True)
    if os.path.exists(os.path.join(folder, "save")):
        with open(os.path.join(os.environ["HOCKET_CHECKPOINT_DIR"], "state"), "w") as file:
            file.write(str(epoch))
        os.remove(os.path.join(folder, "save"))
"""
_STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(1e6)"
)
_ONE_LEVEL = ("--policy", "las", "--param", "levels_gpu_s=[1]")


class User:
    """Types commands, and reads what they print."""

    def __init__(self, controller: LiveController) -> None:
        self.controller, self.folder = controller, controller.root
        (self.folder / "plain.py").write_text(_PLAIN)

    def types(self, *args: str) -> str:
        return str(self.controller.types(*args, COLUMNS="200").stdout)

    def trains(self, name: str, *options: str) -> None:
        command = [sys.executable, str(self.folder / "plain.py"), str(self.folder)]
        self.types("submit", "-n", name, *options, "--", *command)

    def row(self, name: str) -> dict:
        return self.controller.jobs()[name]

    def awaits(self, name: str, state: str) -> None:
        awaited(lambda: self.row(name)["state"] == state, f"{name} is {state}: {self.row(name)}")


@pytest.mark.slow
def test_a_job_that_never_saved_is_not_preempted_and_one_that_has_is(tmp_path: Path) -> None:
    with LiveController(tmp_path, "--gpus", "1", *_ONE_LEVEL) as controller:
        controller.begin()
        user = User(controller)
        user.trains("plain")
        awaited(lambda: user.row("plain")["ran_s"] > 2, "plain is on the lower level")
        user.types("submit", "-n", "short", "--", sys.executable, "-c", "print('done')")
        assert "saved       never: if it is stopped, its work is lost" in user.types("show", "plain")
        assert "protected   from preemption: it has not saved its state yet" in user.types("show", "plain")
        assert user.row("short")["state"] == "waiting"
        (tmp_path / "save").touch()
        user.awaits("short", "finished")
        awaited(lambda: user.row("plain")["attempts"] == 2, "plain runs again")
        assert user.row("plain")["saved_s"] is not None
        assert "preemption" not in user.types("show", "plain")


@pytest.mark.slow
def test_what_a_pause_threw_away_and_a_signal_that_was_ignored_are_said(tmp_path: Path) -> None:
    with LiveController(tmp_path, "--gpus", "1", *_ONE_LEVEL) as controller:
        controller.begin()
        user = User(controller)
        user.trains("careless", "--preempt", "always")
        awaited(lambda: user.row("careless")["epoch"] > 20, "careless has worked for a while")
        user.types("submit", "-n", "short", "--", sys.executable, "-c", "print('done')")
        user.awaits("short", "finished")
        awaited(lambda: user.row("careless")["lost_epochs"] >= 20, "its loss is known")
        assert user.row("careless")["lost_s"] > 1.5
        for page in ("show", "why"):
            said = user.types(page, "careless")
            assert "epochs) were not saved: it was stopped" in said, said
        user.types("stop", "careless")
        user.types("submit", "-n", "stubborn", "--grace", "1s", "--", sys.executable, "-c", _STUBBORN)
        awaited(lambda: "on" in user.types("logs", "stubborn"), "it ignores the signal from now on")
        user.types("pause", "stubborn")
        user.awaits("stubborn", "held")
        assert "it ignored SIGTERM and was killed after 1 s" in user.types("show", "stubborn")


@pytest.mark.slow
def test_a_job_runs_on_under_a_controller_with_other_devices_which_the_next_one_remembers(tmp_path: Path) -> None:
    with LiveController(tmp_path, "--gpus", "2", "--protect", "1h", "--policy", "fifo") as first:
        first.begin()
        user = User(first)
        user.trains("plain")
        user.awaits("plain", "running")
        reached = user.row("plain")["epoch"]
        first.kill()
        with LiveController(tmp_path, "--gpus", "3") as larger:
            larger.begin()
            awaited(lambda: _gpus(larger) == 3, "it has three GPUs")
            row = larger.jobs()["plain"]
            assert (row["state"], row["attempts"], row["lost_s"]) == ("running", 1, 0)
            larger.kill()
            with LiveController(tmp_path) as third:
                third.begin()
                awaited(lambda: _gpus(third) == 3, "it has three GPUs still")
                assert "as at the last start: --gpus 3 --protect 3600s" in third.log.read_text()
                awaited(lambda: third.jobs()["plain"]["epoch"] > reached, "it trains on")
                assert third.jobs()["plain"]["attempts"] == 1


def _gpus(controller: LiveController) -> int:
    (node,) = controller.call("GET", "/v1/nodes")["nodes"]
    return len(node["gpus"]) if node["up"] else 0
