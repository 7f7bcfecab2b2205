"""Hosts on one machine: a job over their link, their limits, and that nothing is left of them whatever happens."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.children import child
from tests.live.controller import awaited

from hocket.testing.hosts import host_cleanup, network
from hocket.testing.hosts.launcher import Hosts
from hocket.testing.hosts.owner_tag import OwnerTag, own_tag, read_tag

_LINK_JOB = Path(__file__).with_name("link_job.py")
_MBIT = 200.0

needs_namespaces = pytest.mark.skipif(bool(network.why_no_namespaces()), reason=network.why_no_namespaces())


class _Wrong(Exception):
    """What may happen within `with`."""


def left_of(tag: OwnerTag) -> list[object]:
    """Processes, cgroups, links, namespaces and the folder of a launcher."""
    folder = host_cleanup.folder_of(tag)
    found = [folder] if os.path.exists(folder) else []
    return [*found, *host_cleanup._processes(tag), *host_cleanup._cgroups(tag), *({tag} & network.owners())]


@pytest.mark.slow
@pytest.mark.parametrize("plain", ["", "a test wants it so"])
def test_a_job_on_two_hosts_runs_over_their_link_which_is_as_slow_as_it_should_be(plain: str) -> None:
    with Hosts(2, _MBIT, cores=2.0, mem_mib=512.0, plain=plain) as hosts:
        hosts.start_controller("--policy", "fifo", "--lease", "120")
        command = [sys.executable, str(_LINK_JOB), "20"]
        job = {"id": "link", "command": command, "cwd": "/", "sizes": [2]}
        hosts.call("POST", "/v1/jobs", {"jobs": [job]})

        def state() -> str:
            return str(hosts.call("GET", "/v1/jobs/link")["state"])

        awaited(lambda: state() in ("finished", "failed"), "the job has ended")
        said = hosts.call("GET", "/v1/jobs/link")
        assert said["state"] == "finished", said
        assert {node for each in said["attempt_list"] for node in each["nodes"]} == {"n0", "n1"}
        if not hosts.plain:  # How near to the limit it comes is for a benchmark: the machine may have other work.
            assert said["metrics"]["mbit"] <= 1.05 * _MBIT
            assert hosts[0].address != hosts[1].address
        nodes = {node["id"]: node for node in hosts.call("GET", "/v1/nodes")["nodes"]}
        assert {nodes[host.name]["mem_mib"] for host in hosts} == {512.0}
    assert not left_of(own_tag())


@needs_namespaces
def test_a_process_on_a_host_has_its_network_and_no_more_memory_than_the_host() -> None:
    with suppress(_Wrong), Hosts(2, mem_mib=64.0) as hosts:
        first, second = hosts
        shows = ["ip", "-j", "-4", "addr", "show", "dev", "eth0"]
        shown = hosts.start(second, shows, stdout=subprocess.PIPE)
        (link,) = json.loads(shown.communicate()[0])
        assert link["addr_info"][0]["local"] == second.address
        if first.cgroup is None or not first.cgroup.limit_mib():
            pytest.skip("memory cannot be limited here")
        assert first.cgroup.limit_mib() == 64.0
        hungry = hosts.start(first, [sys.executable, "-c", "bytearray(200 << 20)"])
        assert hungry.wait(300) == -signal.SIGKILL
        raise _Wrong
    assert not left_of(own_tag())


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_whatever_ends_a_launcher_nothing_is_left_of_it(by: signal.Signals) -> None:
    command = [sys.executable, "-m", "hocket.testing.hosts", "--hosts", "1", "--no-controller", "--json"]
    with child([*command, "--", "sleep", "600"], stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        hosts = json.loads(launcher.stdout.readline())
        (tag,) = [tag for folder in os.listdir(Path(host_cleanup.folder_of(own_tag())).parent)
                  if (tag := read_tag(folder)) is not None and tag.pid == launcher.pid]  # fmt: skip
        assert bool(hosts["hosts"][0]["namespace"]) is not bool(hosts["plain"])
        awaited(lambda: bool(host_cleanup._processes(tag)), "the command runs")
        launcher.send_signal(by)
        code = launcher.wait(300)
    if by is signal.SIGKILL:
        assert left_of(tag)
        with host_cleanup.one_at_a_time():
            assert tag in host_cleanup.abandoned()
            host_cleanup.take_down(tag)
    else:
        assert code == 128 + by
    assert not left_of(tag)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--hosts", "0"], "hosts must be from 1 to 200, not 0"),
        (["--cores", "-1"], "cores must be a number from 0.001, not -1.0"),
        (
            ["--hosts", "1", "--plain", "--no-controller", "--", "/no/such"],
            "command '/no/such' cannot be run: No such file",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    options: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    from hocket.testing.hosts.__main__ import main

    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(options) == 2
    finally:
        signal.signal(signal.SIGTERM, before)
    assert said in capfd.readouterr().err.splitlines()[-1]
    assert not left_of(own_tag())
