"""Two nodes, and faults longer than the lease: a job that is started elsewhere no longer runs where it was."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.live.agent import LiveAgent
from tests.live.cable import Cable
from tests.live.controller import LiveController, awaited
from tests.live.processes import below
from tests.whole_lines import json_lines

# Jobs are frozen a quarter of the lease before they may be started elsewhere. If a busy machine misses 2 s, it has 15.
LEASES_S = 8.0, 60.0
# It tells all the time that it runs, and saves as it runs.
JOB = """
import json, os, sys, time
attempt = int(os.environ["HOCKET_ATTEMPT"])
with open(sys.argv[1], "a", buffering=1) as ledger:
    while not os.path.exists(sys.argv[1] + ".end"):
        ledger.write(json.dumps({"attempt": attempt, "at": time.clock_gettime(time.CLOCK_BOOTTIME)}) + "\\n")
        time.sleep(0.02)
"""


class Cluster:
    """A controller, and two agents that reach it through a cable each."""

    def __init__(self, root: Path, lease_s: float, within: ExitStack) -> None:
        self.controller = within.enter_context(LiveController(root, "--no-agent", "--lease", str(lease_s)))
        self.controller.begin()
        self.cables = {name: within.enter_context(Cable(self.controller.url)) for name in ("left", "right")}
        for name, cable in self.cables.items():
            within.enter_context(LiveAgent(self.controller, name, "--gpus", "1", url=cable.url)).begin()
        self.ledger = root / "ledger"
        (root / "job.py").write_text(JOB)
        command = [sys.executable, str(root / "job.py"), str(self.ledger)]
        job = {"id": "j", "command": command, "cwd": "/", "retries": 0}
        (said,) = self.controller.call("POST", "/v1/jobs", {"jobs": [job]})["jobs"]
        assert not said["refused"]

    def lines(self) -> list[dict[str, Any]]:
        return json_lines(self.ledger)

    def attempt(self) -> int:
        """The last one that told that it runs."""
        return max((line["attempt"] for line in self.lines()), default=0)

    def node(self, attempt: int) -> str:
        """Where an attempt of the job runs, which its agent may not have reported yet."""

        def found() -> Any:
            known = self.controller.call("GET", "/v1/jobs/j")["attempt_list"]
            return [one["nodes"] for one in known if one["run"] == attempt]

        awaited(found, f"the controller knows of attempt {attempt}")
        ((node,),) = found()
        return str(node)

    def agent_pid(self, node: str) -> int:
        (pid,) = [found.pid for found in below(self.controller.root / node) if found.kind == "agent"]
        return pid


@contextmanager
def agent_stopped(cluster: Cluster, node: str) -> Iterator[None]:
    pid = cluster.agent_pid(node)
    os.kill(pid, signal.SIGSTOP)
    yield
    os.kill(pid, signal.SIGCONT)


@contextmanager
def all_stopped(cluster: Cluster, node: str) -> Iterator[None]:
    """All that is of the node, as when a virtual machine is suspended."""
    there = [found.pid for found in below(cluster.controller.root / node)]
    for pid in there:
        os.kill(pid, signal.SIGSTOP)
    yield
    for pid in there:  # The job goes on first.
        os.kill(pid, signal.SIGCONT)


def cut(*directions: str) -> Callable[[Cluster, str], Any]:
    @contextmanager
    def fault(cluster: Cluster, node: str) -> Iterator[None]:
        cluster.cables[node].cut(*directions)
        yield
        cluster.cables[node].mend()

    return fault


FAULTS = {
    "the agent is stopped": agent_stopped,
    "the network is cut": cut("up", "down"),
    "what the agent says is lost": cut("up"),
    "what the controller says is lost": cut("down"),
    "the whole node is suspended": all_stopped,
}


@pytest.mark.slow
def test_a_job_never_runs_twice_at_once_however_long_a_fault_lasts(tmp_path: Path) -> None:
    faults = list(FAULTS)
    for lease_s in LEASES_S:
        root = tmp_path / f"lease-{lease_s:g}"
        root.mkdir()
        overlaps = ran_twice(root, lease_s, faults)
        faults = [fault for fault, overlap in overlaps.items() if overlap > 0]
        if not faults:
            return
    pytest.fail(f"two attempts ran at once: {overlaps}")


def ran_twice(root: Path, lease_s: float, faults: list[str]) -> dict[str, float]:
    """Fault → for how long two attempts of the job ran at once; not positive if they never did."""
    found: dict[str, float] = {}
    with ExitStack() as within:
        cluster = Cluster(root, lease_s, within)
        for fault in faults:
            awaited(lambda: cluster.attempt() > 0, "the job runs")
            before = cluster.attempt()
            node = cluster.node(before)
            with FAULTS[fault](cluster, node):
                awaited(lambda before=before: cluster.attempt() > before, f"{fault}: the job runs elsewhere")
                assert cluster.node(cluster.attempt()) != node
            awaited(lambda node=node: node_is_up(cluster, node), f"{fault}: the node is back")
            stale = lambda node=node: [f for f in below(root / node) if f.kind == "training"]  # noqa: E731
            awaited(lambda stale=stale: not stale(), f"{fault}: nothing is left of attempt {before}")
            # A machine that was suspended as a whole does not know, until its sidecars have looked at the clock.
            found[fault] = 0.0 if FAULTS[fault] is all_stopped else overlap_s(cluster.lines(), before)
        cluster.ledger.with_name("ledger.end").touch()
        awaited(lambda: cluster.controller.jobs()["j"]["state"] == "finished", "it loses no retry, and finishes")
    return found


def node_is_up(cluster: Cluster, node: str) -> bool:
    return any(n["id"] == node and n["up"] for n in cluster.controller.call("GET", "/v1/nodes")["nodes"])


def overlap_s(lines: list[dict[str, Any]], attempt: int) -> float:
    """For how long an attempt ran on after a later one had begun."""
    later_s = min(line["at"] for line in lines if line["attempt"] > attempt)
    return max(line["at"] for line in lines if line["attempt"] == attempt) - later_s
