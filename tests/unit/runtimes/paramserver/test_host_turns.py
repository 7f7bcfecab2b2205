"""Hosts of one job that hold phase tokens together, and what they measure of their phases."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from tests.unit.runtimes.paramserver.least_squares import Large, LeastSquares, dense_blocks, on_hosts
from tests.unit.runtimes.paramserver.turns import CountChunks, LeaveAfter

from hocket.runtimes.paramserver import phase_demand, phase_turns, training
from hocket.runtimes.paramserver.host_group import HostGroup
from hocket.runtimes.paramserver.host_model import HostModel
from hocket.runtimes.paramserver.launch_variables import LaunchVariables
from hocket.runtimes.paramserver.model_shard import ModelShard
from hocket.runtimes.paramserver.phase_turns import CommOrder
from hocket.runtimes.paramserver.training import Trained, train
from hocket.runtimes.paramserver.wire import Exchanged


def test_a_turn_is_asked_between_chunks() -> None:
    turns = [CountChunks(LeaveAfter(99)) for _ in range(2)]

    def run(at: LaunchVariables) -> Trained:
        return train(Large(), dense_blocks(2), epochs=2, objective_every=0, turns=turns[at.host], launch=at)

    first, _second = on_hosts(2, run)
    assert isinstance(first, Trained)
    assert (first.model["weights"] == 8).all()  # 0, 2, 8: each of two blocks adds what there is, and one
    # Each host pulls two chunks' worth of rows of the other, and pushes as many, in each of two iterations.
    assert all(turn.chunks >= 4 for turn in turns)  # More on a machine so slow that its chunks are smaller.


def test_how_long_a_host_sends_to_others_and_all_need_to_meet_is_told() -> None:
    told: list[tuple[float, ...]] = []

    def run(at: LaunchVariables) -> Trained:
        turns = CountChunks(LeaveAfter(99))
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

    class Secondary(CountChunks):
        def between_chunks(self) -> None:
            clock["s"] += 10.0

    def run(at: LaunchVariables) -> Trained:
        turns = Secondary(LeaveAfter(99)) if at.host == 0 else CountChunks(LeaveAfter(99))
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
        turns = CountChunks(LeaveAfter(99))
        if at.host == 0:
            turns.iteration_done = lambda _n, *times: told.append(times) or False  # type: ignore[func-returns-value]
        return train(Large(), dense_blocks(2), epochs=3, objective_every=0, turns=turns, launch=at)

    on_hosts(2, run)
    took_s = {"pull": [times[0] for times in told], "push": [times[2] for times in told]}
    # Hosts begin a phase about, not exactly, at the same time.
    assert min(took_s.pop(phase)) > 0.1
    (others,) = took_s.values()
    assert min(others) < 0.1


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

        def follow_comm(self, order: CommOrder) -> Any:
            assert self.host == 1
            assert order == self.order
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
