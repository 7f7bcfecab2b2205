"""The agent on another host: in a network namespace of its own, with nothing of the controller's files but a token."""

import sys
from pathlib import Path

import pytest
from tests.live.agent import LiveAgent
from tests.live.controller import LiveController, awaited
from tests.whole_lines import json_lines

from hocket.testing.hosts import network
from hocket.testing.hosts.launcher import Hosts

ROOT = Path(__file__).parents[2]

needs_namespaces = pytest.mark.skipif(bool(network.why_no_namespaces()), reason=network.why_no_namespaces())


@pytest.fixture
def hosts():
    """One, which sees this machine through one cable."""
    try:
        with Hosts(1, mbit=0) as made:
            yield made
    except network.NoNamespaces as error:
        pytest.skip(f"no network namespace can be made here: {error}")


@pytest.mark.slow
@needs_namespaces
def test_an_agent_on_another_host_is_killed_and_its_jobs_go_on(tmp_path, hosts):
    options = ("--listen", hosts.address, "--insecure-listen", "--no-agent", "--policy", "fifo", "--lease", "120")
    controller = LiveController(tmp_path, *options)
    token, ledger = tmp_path / "copied-token", tmp_path / "ledger"
    options = ("--address", hosts[0].address, "--gpus", "2")
    far = LiveAgent(controller, "far", *options, within=tuple(network.within(hosts[0].namespace)), token=token)
    with controller, far as agent:
        controller.begin()
        token.write_text((controller.home / "token").read_text())
        agent.begin()
        script = ROOT / "examples" / "train_numpy.py"
        train = [sys.executable, str(script), "--epochs", "12", "--pace", "0.3", "--ledger", str(ledger)]
        jobs = [{"id": "runs-on", "command": train, "cwd": "/"}, {"id": "queued", "command": ["true"], "sizes": [2]}]
        controller.call("POST", "/v1/jobs", {"jobs": jobs})
        awaited(lambda: controller.jobs()["runs-on"]["epoch"] >= 2, "two epochs are done")
        agent.kill()
        agent.start()
        awaited(lambda: controller.jobs()["runs-on"]["state"] == "finished", "it ran on")
        awaited(lambda: controller.jobs()["queued"]["state"] == "finished", "the next one ran")
        assert controller.jobs()["runs-on"]["attempts"] == 1
        assert [line["event"] for line in json_lines(ledger)].count("start") == 1
