"""What is said when Ray cannot be used: one line, that names what to do."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hocket.executors.ray.connection import NoRay, checked_address, no_connection


@pytest.mark.parametrize("address", ["ray://head:10001", "6379", "head", "head:", "head:0", "head:99999", ":6379", ""])
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    with pytest.raises(NoRay, match=f"--ray must be auto, start or HOST:PORT .* not '{address}'"):
        checked_address(address)


def test_an_address_where_nothing_listens_is_refused_before_ray_is_imported() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(NoRay, match=f"there is no Ray at {address}: Connection refused"):
            checked_address(address)
        free.listen()
        assert checked_address(address) == address
    assert checked_address("auto") == "auto"


def test_versions_that_differ_are_both_named() -> None:
    utils = pytest.importorskip("ray._private.utils", reason="Ray is not installed: `make test` installs it")
    with pytest.raises(RuntimeError) as refused:  # as Ray itself says it
        utils.check_version_info({"ray_version": "2.9.0", "python_version": "3.8.1"}, "process 1")
    line = no_connection("head:6379", str(refused.value))
    assert line.startswith("Ray at head:6379 is Ray 2.9.0 with Python 3.8.1, and the controller has Ray ")
    assert "\n" not in line


def test_a_token_that_may_be_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = "Failed to connect to Ray cluster at 10.0.0.5:6379"
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    assert no_connection("10.0.0.5:6379", refused).endswith(
        "(if it needs a token: RAY_AUTH_MODE=token, see docs/ray.md)"
    )
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert no_connection("10.0.0.5:6379", refused).endswith("at 10.0.0.5:6379")


def test_whatever_ray_says_is_one_line() -> None:
    assert no_connection("head:6379", "It\n  broke.\n") == "Ray at head:6379 cannot be used: It broke."
    assert no_connection("auto", "Could not find any running Ray instance. Please…").startswith(
        "no Ray runs on this machine: `ray start --head` starts one"
    )


def test_a_process_whose_controller_was_killed_ends_without_a_traceback(tmp_path: Path) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        words = (f"127.0.0.1:{free.getsockname()[1]}", "namespace", str(tmp_path / "head"))
        done = subprocess.run(
            [sys.executable, "-m", "hocket.executors.ray", *words],
            stdin=subprocess.DEVNULL, stdout=writes, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
    os.close(writes)
    assert (done.returncode, done.stderr) == (2, "")
