"""An owner's quota, set, kept and lifted while real jobs run and wait."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.live.controller import LiveController, awaited
from tests.whole_lines import whole_lines

# Says that it begins, waits until it may go, and says that it ends.
_JOB = """
import os, sys, time
name, folder = sys.argv[1:]
ledger = os.open(os.path.join(folder, "ledger"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(ledger, f"{name} begins\\n".encode())
while not os.path.exists(os.path.join(folder, f"{name} may go")):
    time.sleep(0.01)
os.write(ledger, f"{name} ends\\n".encode())
"""
_SHORT = "waits: owner 'ana' has a quota of 1 GPUs, and others of its jobs use it"


class Ana:
    """Submits jobs to a controller, and sees what becomes of them."""

    def __init__(self, controller: LiveController) -> None:
        self.controller = controller
        self.folder = controller.root
        (self.folder / "job.py").write_text(_JOB)

    def says(self, *args: str) -> str:
        return str(self.controller.types(*args).stdout)

    def sets(self, *options: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.says("owners", "set", "ana", *options, "--json"))
        return found

    def submits(self, *names: str) -> None:
        for name in names:
            command = [sys.executable, str(self.folder / "job.py"), name, str(self.folder)]
            self.says("submit", "-n", name, "--owner", "ana", "--", *command)

    def lets_go(self, name: str) -> None:
        (self.folder / f"{name} may go").touch()

    def awaits(self, *lines: str) -> None:
        """All that was ever said by jobs is this, in this order."""
        awaited(lambda: len(whole_lines(self.folder / "ledger")) >= len(lines), lines[-1])
        assert whole_lines(self.folder / "ledger") == list(lines)

    def awaits_state(self, name: str, state: str) -> None:
        awaited(lambda: self.controller.jobs()[name]["state"] == state, f"{name} {state}")

    def listed(self) -> dict[str, Any]:
        (row,) = self.controller.call("GET", "/v1/owners")["owners"]
        return {field: row[field] for field in ("id", "weight", "max_gpus", "waiting")}


@pytest.mark.slow
def test_a_quota_holds_jobs_back_outlives_the_controller_and_is_lifted_while_they_wait(tmp_path: Path) -> None:
    with LiveController(tmp_path, "--gpus", "2", "--policy", "fifo") as controller:
        ana = Ana(controller)
        controller.begin()
        ana.sets("--weight", "2", "--max-gpus", "1")

        # There are two GPUs, and its jobs run one after the other.
        ana.submits("first", "second")
        ana.awaits("first begins")
        ana.awaits_state("first", "running")
        assert _SHORT in ana.says("why", "second")
        assert controller.jobs()["second"]["state"] == "waiting"
        ana.lets_go("first")
        ana.awaits("first begins", "first ends", "second begins")
        ana.awaits_state("second", "running")

        # The quota survives a kill of the controller.
        ana.submits("third")
        controller.kill()
        controller.begin()
        assert ana.listed() == {"id": "ana", "weight": 2.0, "max_gpus": 1, "waiting": 1}
        assert _SHORT in ana.says("why", "third")
        ana.awaits_state("second", "running")

        # It is lifted: the answer comes with the plan in which the third job has its GPU.
        lifted = ana.sets("--max-gpus", "none")
        assert (lifted["max_gpus"], lifted["uses"]["gpus"], lifted["waiting"]) == (0, 2, 0)
        ana.awaits("first begins", "first ends", "second begins", "third begins")
        controller.kill()
        controller.begin()
        assert ana.listed() == {"id": "ana", "weight": 2.0, "max_gpus": 0, "waiting": 0}
        for name in ("second", "third"):
            ana.lets_go(name)
            ana.awaits_state(name, "finished")
        controller.down(grace_s=0.0)

        assert "all the same (fifo" in ana.says("replay", str(controller.home / "journal.db"))
