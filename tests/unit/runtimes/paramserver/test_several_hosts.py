"""Several hosts, by TCP on this machine: the same result, checkpoints over all shards, and hosts that fail."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.children import child
from tests.unit.cli.typed import hocket
from tests.unit.runtimes.paramserver.least_squares import (
    LeastSquares,
    SparseLeastSquares,
    dense_blocks,
    free_port,
    on_hosts,
    sparse_blocks,
)
from tests.unit.runtimes.paramserver.test_training import LeaveAfter, trained

from hocket.runtimes.paramserver import host_parts, phase_demand, phase_turns, training, training_checkpoints
from hocket.runtimes.paramserver.algorithm import Algorithm, Array, DataBlock, TrainingError
from hocket.runtimes.paramserver.generators import generate
from hocket.runtimes.paramserver.host_group import HostGroup
from hocket.runtimes.paramserver.host_model import HostModel
from hocket.runtimes.paramserver.host_server import ShardServer
from hocket.runtimes.paramserver.launch_variables import LaunchVariables, default_workers
from hocket.runtimes.paramserver.model_shard import ModelShard
from hocket.runtimes.paramserver.pull_plan import ArrayLayout
from hocket.runtimes.paramserver.training import Paused, Trained, train
from hocket.runtimes.paramserver.wire import CHUNK_BYTES, Exchanged


def hosts_train(hosts: int, algorithm: type[Algorithm], blocks: Any, launch: Any = None, **options: Any) -> Any:
    def run(at: LaunchVariables) -> Trained:
        return train(algorithm(), blocks(), launch=at, **{"workers": 2, "epochs": 5, **options})

    return on_hosts(hosts, run, **(launch or {}))


@pytest.mark.parametrize("hosts", [2, 3])
@pytest.mark.parametrize(("algorithm", "blocks"), [(LeastSquares, dense_blocks), (SparseLeastSquares, sparse_blocks)])
def test_several_hosts_find_what_one_finds(hosts: int, algorithm: type[Algorithm], blocks: Any) -> None:
    alone = trained(algorithm(), blocks(), batch=4)
    first, *rest = hosts_train(hosts, algorithm, blocks, batch=4)
    np.testing.assert_allclose(first.model["weights"], alone.model["weights"], rtol=1e-12)
    assert first.objective == pytest.approx(alone.objective, rel=1e-12)
    assert {other.objective for other in rest} == {first.objective}  # to the last bit
    assert [dict(other.model) for other in rest] == [{}] * (hosts - 1)


class Momentum(SparseLeastSquares):
    """Some blocks need all rows, others two of them; servers have a rule of their own."""

    def init(self, rng: np.random.Generator) -> Mapping[str, Array]:
        return {**super().init(rng), "pace": np.zeros(6), "total": np.zeros((2, 3), np.int64)}

    def needs(self, block: DataBlock) -> Mapping[str, Array | None]:
        return {"weights": None if block.name == "features [0 2]" else block.data["features"], "total": None}

    def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:
        some = params["weights"] if len(params["weights"]) == 2 else params["weights"][block.data["features"]]
        found = super().compute(block, {"weights": some})["weights"]
        if len(params["weights"]) != 2:
            whole = np.zeros(6)
            whole[block.data["features"]] = found
            found = whole
        return {"weights": found, "total": np.ones((2, 3), np.int32)}

    def objective_needs(self, block: DataBlock) -> Mapping[str, Array | None]:
        return super().needs(block)

    def apply(self, values: Mapping[str, Array], updates: Mapping[str, Array], iteration: int) -> None:
        if "weights" in updates:
            values["pace"][...] = 0.5 * values["pace"] + updates["weights"]
            values["weights"][...] += values["pace"]
        if "total" in updates:
            values["total"][...] += updates["total"] * iteration

    def objective(self, block: DataBlock, params: Mapping[str, Array]) -> float:
        some = params["weights"]
        return super().objective(block, {"weights": some if len(some) == 2 else some[block.data["features"]]})


def test_whole_and_sparse_pulls_and_a_servers_own_rule_agree_on_any_number_of_hosts() -> None:
    alone = trained(Momentum(), sparse_blocks(), epochs=20)
    assert alone.objective is not None
    assert alone.objective < 3
    for hosts in (2, 4):
        first, *_rest = hosts_train(hosts, Momentum, sparse_blocks, epochs=20)
        np.testing.assert_allclose(first.model["weights"], alone.model["weights"], rtol=1e-9)
        assert first.model["total"].tolist() == alone.model["total"].tolist() == [[6 * 210] * 3] * 2


def test_training_goes_on_with_another_number_of_hosts(tmp_path: Path) -> None:
    alone = trained(Momentum(), sparse_blocks(), epochs=6)
    leaving = [LeaveAfter(2), LeaveAfter(99), LeaveAfter(99)]  # One host is told so, and all leave.

    def run(at: LaunchVariables) -> Trained:
        return train(
            Momentum(), sparse_blocks(), workers=1, epochs=6, turns=_Chunked(leaving[at.host]), launch=at,
            checkpoint=tmp_path / f"of host {at.host}",
        )  # fmt: skip

    assert [type(found) for found in on_hosts(3, run)] == [Paused] * 3
    assert [path.name for path in tmp_path.iterdir()] == ["of host 0"]  # which needs no disk of the others
    with pytest.raises(Paused):
        trained(Momentum(), sparse_blocks(), epochs=6, checkpoint=tmp_path / "of host 0", turns=LeaveAfter(4))
    first, _second = hosts_train(2, Momentum, sparse_blocks, {"checkpoint": tmp_path / "of host 0"}, epochs=6)
    np.testing.assert_allclose(first.model["weights"], alone.model["weights"], rtol=1e-12)
    assert first.objective == pytest.approx(alone.objective, rel=1e-9)


def test_hosts_that_see_the_same_folder_write_and_read_their_own_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = trained(Momentum(), sparse_blocks(), epochs=6)

    def not_asked(*_arguments: object) -> Any:
        raise AssertionError("a host was asked for what the other can see")

    monkeypatch.setattr(host_parts.HostParts, "rows", not_asked)
    monkeypatch.setattr(host_parts, "BlockStates", not_asked)
    for request in ("SavedRows", "SavedStates"):
        monkeypatch.setattr(training_checkpoints, request, not_asked)

    def run(at: LaunchVariables) -> Trained:
        turns = _Chunked(LeaveAfter(2))
        return train(Momentum(), sparse_blocks(), workers=1, epochs=6, turns=turns, launch=at, checkpoint=tmp_path)

    assert [type(found) for found in on_hosts(3, run)] == [Paused] * 3
    (saved,) = tmp_path.iterdir()
    assert len(list(saved.glob("states-*.npz"))) == 3
    first, _second = hosts_train(2, Momentum, sparse_blocks, {"checkpoint": tmp_path}, epochs=6)
    np.testing.assert_allclose(first.model["weights"], alone.model["weights"], rtol=1e-12)


class _Chunked:
    """Turns that count chunks."""

    is_primary = True

    def __init__(self, turns: LeaveAfter) -> None:
        self.chunks, self._turns = 0, turns
        self.comp, self.iteration_done = turns.comp, turns.iteration_done

    def comm(self) -> Any:
        from contextlib import nullcontext

        return nullcontext(self)

    def follow_comm(self, is_primary: bool) -> Any:
        assert is_primary
        return self.comm()

    def between_chunks(self) -> None:
        self.chunks += 1


class Large(LeastSquares):
    """A model of four chunks; nothing is computed."""

    def init(self, rng: np.random.Generator) -> Mapping[str, Array]:  # noqa: ARG002
        return {"weights": np.zeros(4 * CHUNK_BYTES // 8)}

    def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:  # noqa: ARG002
        return {"weights": params["weights"] + 1}

    def objective(self, block: DataBlock, params: Mapping[str, Array]) -> float:  # noqa: ARG002
        return float(params["weights"].sum() / len(params["weights"]))


def test_a_turn_is_asked_between_chunks() -> None:
    turns = [_Chunked(LeaveAfter(99)) for _ in range(2)]

    def run(at: LaunchVariables) -> Trained:
        return train(Large(), dense_blocks(2), epochs=2, objective_every=0, turns=turns[at.host], launch=at)

    first, _second = on_hosts(2, run)
    assert isinstance(first, Trained)
    assert (first.model["weights"] == 8).all()  # 0, 2, 8: each of two blocks adds what there is, and one
    # Each host pulls two chunks' worth of rows of the other, and pushes as many, in each of two iterations.
    assert all(turn.chunks >= 4 for turn in turns)  # More on a machine so slow that its chunks are smaller.


class Larger(Large):
    """A host's part alone has more chunks than are sent before the receiver asks for more."""

    def init(self, rng: np.random.Generator) -> Mapping[str, Array]:  # noqa: ARG002
        return {"weights": np.zeros(10 * CHUNK_BYTES // 8)}


def test_a_large_part_is_saved_by_a_host_that_must_ask_for_it(tmp_path: Path) -> None:
    def run(at: LaunchVariables) -> Trained:
        checkpoint = tmp_path / f"of host {at.host}"
        return train(Larger(), dense_blocks(2), epochs=2, objective_every=0, launch=at, checkpoint=checkpoint)

    first, _second = on_hosts(2, run)
    assert isinstance(first, Trained)
    (saved,) = (tmp_path / "of host 0").iterdir()
    np.testing.assert_array_equal(np.load(saved / "weights.npy"), first.model["weights"])
    assert (first.model["weights"] == 8).all()


def test_how_long_a_host_sends_to_others_and_all_need_to_meet_is_told() -> None:
    told: list[tuple[float, ...]] = []

    def run(at: LaunchVariables) -> Trained:
        turns = _Chunked(LeaveAfter(99))
        turns.iteration_done = lambda _n, *times: told.append(times) or False  # type: ignore[func-returns-value]
        return train(Large(), dense_blocks(2), epochs=60, objective_every=0, turns=turns, launch=at)

    on_hosts(2, run)
    assert len(told) == 120
    if sys.platform == "linux":  # Linux counts it in steps of some milliseconds.
        assert sum(sending for *_phases, sending, _meeting in told) > 0
    assert sum(meeting == 0.0 for *_phases, meeting in told) == 60  # on the second host
    assert sum(meeting > 0.0 for *_phases, meeting in told) == 60


def test_what_hosts_need_to_meet_is_what_the_last_of_them_waited() -> None:
    class Caller:
        def __init__(self, waited_s: float) -> None:
            self.name, self.waited_s, self.told = "a host", waited_s, list[Any]()

        def receive(self) -> Exchanged:
            return Exchanged("here", [msgspec.Raw(msgspec.msgpack.encode(None))], self.waited_s)

        def send(self, message: Any) -> None:
            self.told.append(message)

    group = HostGroup(LaunchVariables(job="a", host=0, hosts=3, master=("127.0.0.1", 0)))
    group._control = {1: Caller(0.4), 2: Caller(0.01)}  # type: ignore[dict-item]
    group._waited_s = 0.3  # The first host waited for the third, and so did the second.
    assert group.exchange("here", None) == [None] * 3
    assert group.meeting_s == 0.01
    assert [len(caller.told) for caller in group._control.values()] == [1, 1]  # type: ignore[attr-defined]


def test_waiting_for_a_job_that_goes_first_does_not_count_as_communication(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"s": 0.0}  # It goes on only while a turn waits.
    for module in (training, phase_demand, phase_turns):
        monkeypatch.setattr(module, "_clock_s", lambda: clock["s"])
    told: list[tuple[float, ...]] = []

    class Secondary(_Chunked):
        def between_chunks(self) -> None:
            clock["s"] += 10.0

    def run(at: LaunchVariables) -> Trained:
        turns = Secondary(LeaveAfter(99)) if at.host == 0 else _Chunked(LeaveAfter(99))
        turns.iteration_done = lambda _n, *times: told.append(times) or False  # type: ignore[func-returns-value]
        return train(Large(), dense_blocks(2), epochs=1, objective_every=0, turns=turns, launch=at)

    on_hosts(2, run)
    assert clock["s"] == 20.0
    assert (0.0, 0.0, 0.0) in [times[:3] for times in told]


@pytest.mark.parametrize("phase", ["pull", "push"])
def test_communication_ends_when_it_has_on_the_slowest_host(phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So long the network token is held."""
    told: list[tuple[float, ...]] = []
    moves = getattr(HostModel, phase)

    def slow_on_second_host(self: HostModel, *given: Any) -> Any:
        if self.shard.host == 1:
            time.sleep(0.2)
        return moves(self, *given)

    monkeypatch.setattr(HostModel, phase, slow_on_second_host)

    def run(at: LaunchVariables) -> Trained:
        turns = _Chunked(LeaveAfter(99))
        if at.host == 0:
            turns.iteration_done = lambda _n, *times: told.append(times) or False  # type: ignore[func-returns-value]
        return train(Large(), dense_blocks(2), epochs=3, objective_every=0, turns=turns, launch=at)

    on_hosts(2, run)
    took_s = {"pull": [times[0] for times in told], "push": [times[2] for times in told]}
    assert min(took_s.pop(phase)) >= 0.2
    (others,) = took_s.values()
    assert min(others) < 0.2


def test_no_host_waits_for_a_token_with_one_or_for_another_host_with_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else two jobs on the same hosts could wait for each other for ever."""
    held: list[list[str]] = [[], []]
    waits: list[str] = []

    class Holding(LeaveAfter):
        def __init__(self, host: int) -> None:
            super().__init__(99)
            self.host = host

        @contextmanager
        def _holding(self, token: str) -> Iterator[LeaveAfter]:
            assert not held[self.host]
            held[self.host].append(token)
            yield self
            held[self.host].remove(token)

        def comp(self) -> Any:
            return self._holding("cpu")

        def comm(self) -> Any:
            assert self.host == 0
            return self._holding("network")

        def follow_comm(self, is_primary: bool) -> Any:
            assert self.host == 1
            assert is_primary
            assert held[0] == ["network"]
            return self._holding("network, for host 0")

    exchange, wait_for_pushes = HostGroup.exchange, ModelShard.wait_for_pushes

    def exchanging(self: HostGroup, point: str, said: Any, last: Any = None) -> list[Any]:
        waits.append(point.split()[0])
        assert "cpu" not in held[self.host], point
        return exchange(self, point, said, last)

    def waiting(self: ModelShard, is_broken: threading.Event) -> None:
        waits.append("for pushes")
        assert "cpu" not in held[self.host]
        wait_for_pushes(self, is_broken)

    monkeypatch.setattr(HostGroup, "exchange", exchanging)
    monkeypatch.setattr(ModelShard, "wait_for_pushes", waiting)

    def run(at: LaunchVariables) -> Trained:
        return train(LeastSquares(), dense_blocks(), workers=2, epochs=2, turns=Holding(at.host), launch=at)

    assert [type(found) for found in on_hosts(2, run)] == [Trained, Trained]
    assert {"pulling", "computed", "for pushes", "objective", "ended"} <= set(waits)


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


# -- what goes wrong -----------------------------------------------------------------------------------------


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


# -- variables -----------------------------------------------------------------------------------------------


def test_variables_say_which_host_this_is(tmp_path: Path) -> None:
    assert LaunchVariables.of({}) == LaunchVariables(job="/")
    of_hocket = {
        "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "3", "RANK": "4", "WORLD_SIZE": "9", "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "20001", "HOCKET_JOB": "net", "HOCKET_ATTEMPT": "2", "HOCKET_CHECKPOINT_DIR": str(tmp_path),
    }  # fmt: skip
    assert LaunchVariables.of(of_hocket) == LaunchVariables(1, 3, ("10.0.0.1", 20001), "net/2", tmp_path)
    assert LaunchVariables.of({"HOCKET_MEM_MIB": "512"}).memory_bytes == 512 << 20
    by_hand = {"NODE_RANK": "0", "NNODES": "2", "MASTER_ADDR": "a", "MASTER_PORT": "5"}
    assert LaunchVariables.of(by_hand) == LaunchVariables(0, 2, ("a", 5), "/")
    for wrong, why in (
        ({"NNODES": "2", "NODE_RANK": "2"}, "the rank of this host is 2, which must be within 0 and 1"),
        ({"NNODES": "two"}, "variable NNODES must be a whole number, not 'two'"),
        ({"NNODES": "2", "NODE_RANK": "1"}, "2 hosts need MASTER_ADDR and MASTER_PORT"),
        ({**by_hand, "MASTER_PORT": "70000"}, "2 hosts need MASTER_ADDR and MASTER_PORT"),
    ):
        with pytest.raises(TrainingError, match=why):
            LaunchVariables.of(wrong)


def test_a_job_has_as_many_workers_as_it_asked_for_cores() -> None:
    assert default_workers({}, 1, 7) == 7
    assert default_workers({"OMP_NUM_THREADS": "2", "HOCKET_SIZE": "4"}, 2, 7) == 4
    assert default_workers({"OMP_NUM_THREADS": "1", "HOCKET_SIZE": "1"}, 2, 7) == 1


# -- processes -----------------------------------------------------------------------------------------------


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


@pytest.mark.slow
def test_processes_that_pretend_to_be_hosts_train_as_one_does(tmp_path: Path) -> None:
    data = tmp_path / "ratings.txt"
    generate("nmf", data, scale=1e-3)
    words = ["paramserver", "nmf", "--data", str(data), "--epochs", "3", "--workers", "1", "--json"]
    alone = hocket(*words).stdout
    env = {k: v for k, v in os.environ.items() if not k.startswith("HOCKET_")}
    env |= {"NNODES": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [sys.executable, "-m", "hocket", *words]
    with (
        child(command, env={**env, "NODE_RANK": "1"}, stdout=subprocess.PIPE, text=True) as second,
        child(command, env={**env, "NODE_RANK": "0"}, stdout=subprocess.PIPE, text=True) as first,
    ):
        said = first.communicate()[0]
        assert second.communicate()[0] == ""  # Only host 0 tells.
        assert (first.returncode, second.returncode) == (0, 0)
    one, two = ([json.loads(line)["objective"] for line in text.splitlines()] for text in (alone, said))
    assert len(one) == 3
    assert two == pytest.approx(one, rel=1e-5)
