"""The agent on another host: in a network namespace of its own, with nothing of the controller's files but a token."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.live.agent import LiveAgent
from tests.live.controller import LiveController, awaited
from tests.whole_lines import json_lines

ROOT = Path(__file__).parents[2]
NETWORK = f"10.213.{os.getpid() % 256}"  # of its own, should several tests run at a time
SPACE, HERE, THERE = f"hocket-{os.getpid()}", f"{NETWORK}.1", f"{NETWORK}.2"
INSIDE, OUTSIDE = f"hi{os.getpid() % 100000}", f"ho{os.getpid() % 100000}"

needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="a network namespace needs root and the command `ip`"
)


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def other_host():
    """A namespace that sees this one through one cable."""
    try:
        ip("netns", "add", SPACE)
        ip("link", "add", OUTSIDE, "type", "veth", "peer", "name", INSIDE, "netns", SPACE)
        ip("addr", "add", f"{HERE}/24", "dev", OUTSIDE)
        ip("link", "set", OUTSIDE, "up")
        ip("-n", SPACE, "addr", "add", f"{THERE}/24", "dev", INSIDE)
        ip("-n", SPACE, "link", "set", INSIDE, "up")
        ip("-n", SPACE, "link", "set", "lo", "up")
        yield SPACE
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace can be made here: {error.stderr.decode().strip()}")
    finally:
        subprocess.run(["ip", "netns", "del", SPACE], capture_output=True)
        subprocess.run(["ip", "link", "del", OUTSIDE], capture_output=True)


@pytest.mark.slow
@needs_namespaces
def test_an_agent_on_another_host_is_killed_and_its_jobs_go_on(tmp_path, other_host):
    options = ("--listen", HERE, "--insecure-listen", "--no-agent", "--policy", "fifo", "--lease", "120")
    controller = LiveController(tmp_path, *options)
    token, ledger = tmp_path / "copied-token", tmp_path / "ledger"
    options = ("--address", THERE, "--gpus", "2")
    far = LiveAgent(controller, "far", *options, within=("ip", "netns", "exec", other_host), token=token)
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
