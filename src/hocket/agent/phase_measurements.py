"""The phases that a job has measured, averaged over some iterations for each report to the controller."""

from __future__ import annotations

from math import isfinite

from msgspec import Struct

from hocket.model.phase_tokens import IterationMeasured

_ITERATIONS = 3  # in a report at least, so that a new job is profiled by its first
_EVERY_S = 5.0  # the least time between two reports


class PhaseMeans(Struct, frozen=True):
    """Of some iterations of a run on one node, in seconds."""

    iteration: int  # the last of them
    iterations: int  # how many
    comp_s: float
    comm_s: float
    link: float = 1.0  # share of COMM in which something was on its way to other nodes; 1 if that is not known
    meeting_s: float = 0.0  # on the first node of a run: from where all nodes had come to, until they went on
    shared_s: float = 0.0  # on the first node: for so long COMM had half of the link


class PhaseMeasurements:
    """Of one run. Its first iteration is left out: in it, jobs compile their code and read their data."""

    def __init__(self) -> None:
        self._last: int | None = None  # iteration
        self._iterations, self._comp_s, self._comm_s, self._sending_s = 0, 0.0, 0.0, 0.0
        self._meeting_s, self._shared_s = 0.0, 0.0
        self._reported_s = -_EVERY_S

    def add(self, seen: IterationMeasured, now_s: float, shared_s: float = 0.0) -> PhaseMeans | None:
        """One more iteration, in which COMM had half of the link for so long.

        What is to be reported, if it is time. Raises ValueError if it cannot be true.
        """
        comm_s = seen.pull_s + seen.push_s
        times_s = (seen.pull_s, seen.comp_s, seen.push_s, *(() if seen.sending_s is None else (seen.sending_s,)))
        if not all(isfinite(t) and t >= 0 for t in times_s):
            raise ValueError(f"iteration {seen.iteration}: phases took {', '.join(f'{t:g}' for t in times_s)} s")
        is_first, self._last = self._last is None, seen.iteration
        if is_first:
            return None
        self._iterations += 1
        self._comp_s += seen.comp_s
        self._comm_s += comm_s
        self._shared_s += shared_s
        self._meeting_s += max(0.0, seen.meeting_s) if isfinite(seen.meeting_s) else 0.0
        self._sending_s += comm_s if seen.sending_s is None else min(seen.sending_s, comm_s)
        if self._iterations < _ITERATIONS or now_s - self._reported_s < _EVERY_S:
            return None
        n = self._iterations
        link = self._sending_s / self._comm_s if self._comm_s > 0 else 1.0
        means = PhaseMeans(
            seen.iteration, n, self._comp_s / n, self._comm_s / n, link, self._meeting_s / n, self._shared_s / n
        )
        self._meeting_s, self._shared_s = 0.0, 0.0
        self._iterations, self._comp_s, self._comm_s, self._sending_s, self._reported_s = 0, 0.0, 0.0, 0.0, now_s
        return means
