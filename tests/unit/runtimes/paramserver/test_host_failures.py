"""Hosts that fail, do not come, or are no hosts: all of a job say why."""

import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.children import child
from tests.unit.runtimes.paramserver.least_squares import LeastSquares, dense_blocks, free_port, hosts_train, on_hosts

from hocket.runtimes.paramserver.algorithm import Algorithm, Array, DataBlock, TrainingError
from hocket.runtimes.paramserver.host_group import HostGroup
from hocket.runtimes.paramserver.host_server import ShardServer
from hocket.runtimes.paramserver.launch_variables import LaunchVariables
from hocket.runtimes.paramserver.model_shard import ModelShard
from hocket.runtimes.paramserver.pull_plan import ArrayLayout
from hocket.runtimes.paramserver.training import Trained, train


def test_rows_of_another_version_are_refused() -> None:
    shard = ModelShard({"a": ArrayLayout.of(np.zeros(4))}, 1, 2, frozenset())
    shard.values["a"][...] = 1
    assert shard.rows_for_pull("a", 0, np.array([1])).tolist() == [1]
    with pytest.raises(TrainingError, match="pull of 'a' at version 1; the shard on host 1 has version 0"):
        shard.rows_for_pull("a", 1, None)
    with pytest.raises(TrainingError, match="push of 'a' at version 3"):
        shard.buffer_for_push(0, "a", 3, None)
    with pytest.raises(TrainingError, match="pull of array 'b', which the model does not have"):
        shard.rows_for_pull("b", 0, None)


def test_all_hosts_say_why_one_failed() -> None:
    class Failing(LeastSquares):
        def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:
            if block.name == "block 2":
                return {"weights": np.full(6, np.nan)}
            return super().compute(block, params)

    why = "block 'block 2': update of 'weights' has a NaN or an infinite value"
    found = [str(error) for error in hosts_train(3, Failing, dense_blocks)]
    assert found[2] == why
    assert found[0].endswith(why)
    assert "host 2" in found[0]
    assert found[1].endswith(why)


@pytest.mark.parametrize("rows", [6, 600_000])  # More than connections take in must not be waited for.
def test_a_server_that_cannot_answer_ends_all_hosts(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(Algorithm):
        def init(self, rng: np.random.Generator) -> Mapping[str, Array]:
            return {"weights": rng.uniform(size=rows)}

        def compute(self, _block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:
            return {"weights": params["weights"]}

    def no_room(shard: ModelShard, *_args: Any) -> Any:
        raise MemoryError(f"no room on host {shard.host}")

    monkeypatch.setattr(ModelShard, "buffer_for_push", no_room)
    for error in hosts_train(2, Plain, dense_blocks, objective_every=0):
        assert isinstance(error, TrainingError)
        assert "host" in str(error)


def test_an_error_of_another_hosts_server_names_that_host(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ModelShard.buffer_for_push

    def full(shard: ModelShard, *args: Any) -> Any:
        if shard.host == 1:
            raise TrainingError("its disk is full")
        return plain(shard, *args)

    monkeypatch.setattr(ModelShard, "buffer_for_push", full)
    first, _second = hosts_train(2, LeastSquares, dense_blocks)
    assert str(first).startswith(("host 1 (127.0.0.1): its disk is full", "a host is gone: host 1 (127.0.0.1)"))


def test_hosts_that_were_started_differently_say_so() -> None:
    def run(at: LaunchVariables) -> Trained:
        return train(LeastSquares(), dense_blocks(4 + at.host), workers=1, epochs=5, launch=at)

    for error in on_hosts(2, run):
        assert "host 0 has blocks 4, host 1 has blocks 5: start all alike" in str(error)


def test_a_host_that_does_not_come_is_named() -> None:
    group = HostGroup(LaunchVariables(0, 3, ("127.0.0.1", free_port())), join_s=0.2)
    with pytest.raises(
        TrainingError, match=r"of 3 hosts, these did not come: 1, 2; waited at 127\.0\.0\.1:\d+ for 0.2 s"
    ):
        group.join(ShardServer(), lambda: None)
    group.close()
    alone = HostGroup(LaunchVariables(1, 2, ("127.0.0.1", free_port())), join_s=0.2)
    with pytest.raises(TrainingError, match="nothing listens at"):
        alone.join(ShardServer(), lambda: None)
    alone.close()


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        group = HostGroup(LaunchVariables(0, 2, taken.getsockname()))
        with pytest.raises(TrainingError, match=r"cannot listen at .*: Address already in use"):
            group.join(ShardServer(), lambda: None)


def test_hosts_of_another_attempt_are_sent_away() -> None:
    """Host 1 of another attempt comes first, and of this one later."""
    port = free_port()

    def run(at: LaunchVariables) -> Trained:
        job = {0: "job/2", 1: "job/1", 2: "job/2"}[at.host]
        host = min(at.host, 1)
        return train(
            LeastSquares(), dense_blocks(), epochs=1, launch=LaunchVariables(host, 2, ("127.0.0.1", port), job)
        )

    good, stale, late = on_hosts(3, run)
    assert isinstance(good, Trained)
    assert isinstance(late, Trained)
    assert "this is attempt 'job/2' of a job of 2 hosts, and not yours" in str(stale)


def test_what_is_no_host_harms_nothing() -> None:
    port = free_port()

    def run(at: LaunchVariables) -> Any:
        if at.host < 2:
            return train(
                LeastSquares(), dense_blocks(), epochs=1, launch=LaunchVariables(at.host, 2, ("127.0.0.1", port))
            )
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port)) as caller:
                    caller.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    return caller.recv(100)
            except ConnectionError:
                if results:
                    return b""

    results: list[Any] = []

    def noted(at: LaunchVariables) -> Any:
        found = run(at)
        results.append(found)
        return found

    first, second, answer = on_hosts(3, noted)
    assert isinstance(first, Trained)
    assert isinstance(second, Trained)
    assert answer == b""


_DOOMED = """
import os, signal
from tests.unit.runtimes.paramserver.least_squares import LeastSquares, dense_blocks
from hocket.runtimes.paramserver.training import train

class Doomed(LeastSquares):
    def compute(self, block, params):
        if block.state.get("seen", [0])[0] == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().compute(block, params)

Doomed.__name__ = "LeastSquares"
train(Doomed(), dense_blocks(), workers=1)
"""


def test_a_host_that_is_killed_is_named_by_all_others() -> None:
    port = free_port()
    env = {**os.environ, "NNODES": "3", "NODE_RANK": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    root = Path(__file__).parents[4]
    env |= {"PYTHONPATH": str(root), "HOCKET_JOB": "", "HOCKET_ATTEMPT": ""}

    def run(at: LaunchVariables) -> Trained:
        launch = LaunchVariables(at.host, 3, ("127.0.0.1", port), "/")
        return train(LeastSquares(), dense_blocks(), workers=1, epochs=10, launch=launch)

    with child([sys.executable, "-c", _DOOMED], env=env, cwd=root) as doomed:
        found = on_hosts(2, run)
        assert doomed.wait() == -signal.SIGKILL
    for error in found:
        assert isinstance(error, TrainingError)
        assert "a host is gone: host 2 (127.0.0.1)" in str(error)
