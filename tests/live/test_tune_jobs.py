"""`hocket tune … -- COMMAND` with a real controller: trials are real processes, paused and resumed by the search."""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.agent import LiveAgent
from tests.live.controller import LiveController, awaited

SCRIPT = Path(__file__).parent / "tuned_job.py"
SPACE = "rate=loguniform:0.0001,1"


class User:
    """Types `hocket tune`, and looks at what its jobs noted."""

    def __init__(self, controller: LiveController) -> None:
        self.controller, self.folder = controller, controller.root
        (self.folder / "starts").mkdir()
        self.allows(1000)

    def allows(self, epochs: int) -> None:
        """All trials may train so far."""
        (self.folder / "pace.new").write_text(str(epochs))
        (self.folder / "pace.new").replace(self.folder / "pace")

    def awaits_epochs(self, epochs: int, of: int) -> None:
        """Wait until so many trials have trained so far."""
        awaited(lambda: sum(row["epoch"] >= epochs for row in self.controller.jobs().values()) >= of, f"epoch {epochs}")

    def begins(self, *options: str, script: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
        """Type the command, and do not wait for it."""
        command = [sys.executable, str(SCRIPT), "--rate", "{rate}", "--folder", str(self.folder), *script]
        said = ["--space", SPACE, "--metric", "acc", "--goal", "max", "--name", "net", *options, "--json"]
        env = {**os.environ, "HOCKET_HOME": str(self.controller.home), "TMPDIR": str(self.controller.temporary)}
        return subprocess.Popen(
            [sys.executable, "-m", "hocket", "tune", *said, "--", *command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=self.folder,
        )  # fmt: skip

    def tunes(self, *options: str, script: tuple[str, ...] = ()) -> dict[str, Any]:
        """Type it, and wait for its result."""
        return result(self.begins(*options, script=script))

    def states(self) -> set[str]:
        """Where its jobs stand."""
        return {row["state"] for row in self.controller.jobs().values()}

    def starts(self) -> dict[str, list[int]]:
        """Job → the epochs at which its processes began."""
        return {
            path.name: [int(line) for line in path.read_text().split()] for path in (self.folder / "starts").iterdir()
        }


def result(process: "subprocess.Popen[str]", code: int = 0) -> dict[str, Any]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, (out, err)
    return json.loads(out) | {"warnings": err}


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    with LiveController(tmp_path, "--gpus", "3", "--policy", "fifo") as controller:
        controller.begin()
        yield User(controller)
        controller.down(grace_s=0.0)


def units_by_trial(found: dict[str, Any]) -> dict[int, list[int]]:
    units: dict[int, list[int]] = {}
    for each in found["results"]:
        units.setdefault(each["trial"], []).append(each["units"])
    return units


@pytest.mark.slow
def test_halving_pauses_and_resumes_processes_survives_kills_and_is_extended(user: User) -> None:
    options = ("--search", "halving", "--trials", "6", "--units", "6", "--eta", "3")
    user.allows(1)
    tuner = user.begins(*options)
    user.awaits_epochs(1, of=3)
    tuner.kill()
    tuner.communicate()
    user.controller.kill()
    user.controller.begin()
    user.allows(2)
    tuner = user.begins(*options)
    awaited(lambda: "held" in user.states(), "one is paused at its rung")
    tuner.send_signal(signal.SIGINT)
    _out, said = tuner.communicate(timeout=300)
    assert tuner.returncode == 130, said
    assert "the same command goes on" in said
    awaited(lambda: user.states() == {"held"}, f"all are paused: {user.states()}")

    tuner = user.begins(*options)
    user.awaits_epochs(2, of=6)
    user.allows(1000)
    found = result(tuner)
    assert found["best"]["trial"] == 1, "the rate nearest to 0.1; one of the first three to run"
    assert sorted(map(tuple, units_by_trial(found).values())) == [(2,)] * 4 + [(2, 6)] * 2
    awaited(lambda: user.states() <= {"stopped", "attained"}, f"all are over: {user.states()}")
    jobs = user.controller.jobs()
    assert set(jobs) == {f"net-{n}" for n in range(6)}, "each trial is one job"
    assert all(row["lost_epochs"] == 0 for row in jobs.values())
    starts = user.starts()
    assert starts["net-1"][0] == 0
    assert starts["net-1"][-1] == 2, "it was resumed from its checkpoint, at its rung"
    assert all(began == sorted(began) and began[-1] <= 2 for began in starts.values()), "none begins anew"
    rates = {each["trial"]: each["config"]["rate"] for each in found["results"]}

    more = user.tunes("--search", "halving", "--trials", "7", "--units", "18", "--eta", "3")
    assert more["best"]["units"] == 18
    assert more["best"]["trial"] == 1
    assert more["trials"] == 7
    assert {each["trial"]: each["config"]["rate"] for each in more["results"]}.items() >= rates.items()
    (began,) = user.starts()["net-1-2"]
    assert began >= 6, "it goes on where it was, as another job"


@pytest.mark.slow
def test_work_that_is_done_while_nobody_tunes_counts_as_what_it_was(user: User) -> None:
    options = ("--search", "halving", "--trials", "3", "--units", "3")
    user.allows(0)
    tuner = user.begins(*options)
    awaited(lambda: len(user.controller.jobs()) == 3, "all are submitted")
    tuner.kill()
    tuner.communicate()
    user.allows(1000)
    awaited(lambda: user.states() == {"attained"}, f"none runs for ever: {user.states()}")
    found = user.tunes(*options)
    assert units_by_trial(found) == {0: [1], 1: [1, 3], 2: [1]}
    for each in found["results"]:
        quality = 1 - abs(math.log10(each["config"]["rate"] / 0.1)) / 4
        assert each["metrics"]["acc"] == pytest.approx(quality * (1 - 0.8 ** each["units"]), abs=1e-5)
    assert all(len(starts) == 1 for starts in user.starts().values()), "what is done is not done again"


@pytest.mark.slow
def test_trials_run_on_several_machines_that_share_their_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    for node in ("left", "right"):
        (tmp_path / node).mkdir()
        (tmp_path / node / "checkpoints").symlink_to(tmp_path / "shared")
    controller = LiveController(tmp_path, "--no-agent", "--policy", "fifo")
    with (
        controller,
        LiveAgent(controller, "left", "--gpus", "1") as left,
        LiveAgent(controller, "right", "--gpus", "2") as right,
    ):
        controller.begin()
        left.start()
        right.begin()
        left.await_up()
        user = User(controller)
        found = user.tunes("--search", "hyperband", "--units", "3")
        assert (found["trials"], found["best"]["units"]) == (5, 3)
        assert all(began == sorted(began) for began in user.starts().values()), "none begins anew elsewhere"
        tried = [controller.call("GET", f"/v1/jobs/net-{n}")["attempt_list"] for n in range(5)]
        assert {node for attempts in tried for each in attempts for node in each["nodes"]} == {"left", "right"}
        controller.down(grace_s=0.0)


@pytest.mark.slow
def test_trials_that_the_controller_refuses_end_the_study(user: User) -> None:
    tuner = user.begins("--search", "random", "--trials", "2", "--units", "2", "--gpus", "4")
    _out, said = tuner.communicate(timeout=300)
    assert (tuner.returncode, user.states()) == (2, set())
    assert (
        said
        == "hocket: job 'net-0': sizes must fit the cluster; its smallest needs 4 GPUs, the largest that fits is 3\n"
    )
    found = user.tunes("--search", "random", "--trials", "2", "--units", "2", "--gpus", "3")
    assert found["trials"] == 2, "the folder can be used again"


@pytest.mark.slow
def test_a_script_that_saves_nothing_begins_anew_and_is_warned_of(user: User) -> None:
    user.allows(0)
    tuner = user.begins("--search", "halving", "--trials", "4", "--units", "3", script=("--saves", "0"))
    awaited(lambda: sum(row["ran_s"] > 2 for row in user.controller.jobs().values()) == 3, "three have run for a while")
    user.allows(1)
    user.awaits_epochs(1, of=4)
    user.allows(1000)
    found = result(tuner)
    assert (found["best"]["trial"], found["best"]["units"]) == (1, 3)
    assert user.starts()["net-1"] == [0, 0]
    assert "trial 1 (job 'net-1') lost 1 epoch that it had not saved" in found["warnings"]


@pytest.mark.slow
def test_asha_goes_on_without_waiting(user: User) -> None:
    options = ("--search", "asha", "--trials", "5", "--units", "4", "--eta", "2", "--at-once", "3")
    found = user.tunes(*options)
    assert (found["trials"], found["best"]["units"], found["warnings"]) == (5, 4, "")
    assert all(began == sorted(began) for began in user.starts().values())


@pytest.mark.slow
def test_a_metric_that_is_never_reported_ends_the_study_and_its_jobs(user: User) -> None:
    options = ("--search", "random", "--trials", "2", "--units", "20", "--metric", "accuracy_of_the_test_set")
    tuner = user.begins(*options)
    _out, said = tuner.communicate(timeout=300)
    assert tuner.returncode == 2
    assert "reported acc, but not 'accuracy_of_the_test_set'" in said
    assert "warning: trial 0 has done " in said, "long before its rung"
    assert said.splitlines()[-1].startswith("hocket: trial ")
    awaited(lambda: user.states() <= {"stopped", "attained"}, f"its jobs are over: {user.states()}")
