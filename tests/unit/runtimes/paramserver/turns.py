"""Turns of phases as tests give them to a training."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from hocket.runtimes.paramserver.phase_turns import CommOrder


class LeaveAfter:
    """Turns that ask the job to leave after so many iterations, and note the order of phases."""

    order = CommOrder(5, False)

    def __init__(self, iterations: int) -> None:
        self.iterations, self.phases = iterations, []  # type: ignore[var-annotated]

    @contextmanager
    def comp(self) -> Iterator[None]:
        self.phases.append("comp")
        yield
        self.phases.append("/comp")

    @contextmanager
    def comm(self) -> Iterator["LeaveAfter"]:
        self.phases.append("comm")
        yield self
        self.phases.append("/comm")

    def follow_comm(self, order: CommOrder) -> Any:
        assert order == self.order
        return self.comm()

    def between_chunks(self) -> None:
        raise AssertionError("nothing is sent within a host")

    def iteration_done(
        self, iteration: int, pull: float, comp: float, push: float, sending: Any, meeting: float
    ) -> bool:
        assert min(pull, comp, push) > 0
        assert meeting >= 0
        assert sending is None or sending >= 0
        return iteration >= self.iterations


class CountChunks:
    """Turns that count chunks."""

    order = LeaveAfter.order

    def __init__(self, turns: LeaveAfter) -> None:
        self.chunks = 0
        self.comp, self.iteration_done = turns.comp, turns.iteration_done

    def comm(self) -> Any:
        return nullcontext(self)

    def follow_comm(self, order: CommOrder) -> Any:
        assert order == self.order
        return self.comm()

    def between_chunks(self) -> None:
        self.chunks += 1
