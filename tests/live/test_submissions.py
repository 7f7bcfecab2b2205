"""What was acknowledged is never lost: the controller is killed with -9 while jobs are being submitted."""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.live.controller import LiveController, NoAnswer, awaited

_BATCH = 50


class Client:
    """Submits without a pause, and keeps the ids of all that were acknowledged."""

    def __init__(self, controller: LiveController) -> None:
        self._controller = controller
        self.acknowledged: list[str] = []
        self.unanswered: list[list[str]] = []  # by call
        self.count = 0

    def submit_until_it_is_killed(self) -> None:
        while self._controller.pid is not None:
            names = [f"j{self.count + n}" for n in range(_BATCH)]
            jobs = [{"id": name, "command": ["true"], "cwd": "/"} for name in names]
            self.count += _BATCH
            try:
                said = self._controller.call("POST", "/v1/jobs", {"jobs": jobs}, within_s=300)["jobs"]
            except NoAnswer:
                self.unanswered.append(names)
                continue
            assert [job["id"] for job in said if not job["refused"]] == names
            self.acknowledged += names


def kill_after(
    controller: LiveController, client: Client, more: int, delay_s: float, client_runs: "Future[None]"
) -> None:
    """Kill it a moment after so many more were acknowledged: others are on their way then."""
    goal = len(client.acknowledged) + more
    awaited(lambda: len(client.acknowledged) >= goal or client_runs.done(), "more are acknowledged", every_s=0.001)
    time.sleep(delay_s)
    controller.kill()


@pytest.mark.slow
def test_no_acknowledged_job_is_lost_when_the_controller_is_killed_while_jobs_are_submitted(tmp_path: Path) -> None:
    with LiveController(tmp_path, "--gpus", "1", "--policy", "fifo") as controller, ThreadPoolExecutor(1) as pool:
        client = Client(controller)
        controller.begin()
        controller.call("POST", "/v1/jobs", {"jobs": [{"id": "holds", "command": ["sleep", "1000"], "cwd": "/"}]})
        for delay_s in (0.0, 0.007, 0.013):
            submitting = pool.submit(client.submit_until_it_is_killed)
            try:
                kill_after(controller, client, 4 * _BATCH, delay_s, submitting)
            finally:
                controller.kill()
            submitting.result(300)
            controller.begin()
            there = controller.jobs()
            assert not set(client.acknowledged) - there.keys()
            unanswered = {name for names in client.unanswered for name in names}
            assert there.keys() <= {*client.acknowledged, *unanswered, "holds"}
            # A batch is in the journal as a whole or not at all.
            assert {len([name for name in names if name in there]) for names in client.unanswered} <= {0, _BATCH}
        controller.down(grace_s=0.0)
