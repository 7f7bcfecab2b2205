"""What live jobs use, as the agents of their nodes report it: at last, and over the time that they ran."""

from __future__ import annotations

from math import isfinite
from typing import Any

from msgspec import Struct

from hocket.agent.protocol import RunKey

_MOST = 240  # moments that are kept of a job; of more, every second one goes
_EACH = "gpu"  # the share of time in which GPUs worked: a mean over nodes, where all else is a sum


class _Course(Struct):
    run: RunKey
    by_node: dict[str, dict[str, Any]] = {}  # what each node of the run said last
    moments: list[dict[str, float]] = []
    every_s: float = 0.0  # between two moments, at least


class UsageReports:
    """By job. Written by the controller's thread and read by others, so that what was handed out never changes."""

    def __init__(self) -> None:
        self._by_job: dict[str, _Course] = {}

    def add(self, run: RunKey, node: str, fields: dict[str, Any], now_s: float) -> None:
        """A node has reported what a run uses there."""
        course = self._by_job.get(run.job)
        if course is None:
            course = self._by_job[run.job] = _Course(run)
        elif course.run != run:  # Other nodes may have it now, and what the last attempt used is over.
            course.run, course.by_node = run, {}
        course.by_node = {**course.by_node, node: fields}
        moments = course.moments
        if moments and now_s - moments[-1]["at_s"] < course.every_s:
            return
        moments = [*moments, {"at_s": now_s, **_together(course.by_node)}]
        if len(moments) > _MOST:
            moments = moments[::2]
            course.every_s = (moments[-1]["at_s"] - moments[0]["at_s"]) / len(moments)
        course.moments = moments

    def last(self, job_id: str) -> dict[str, float]:
        """What it was last seen to use, on all its nodes; empty if that is not known."""
        course = self._by_job.get(job_id)
        return {} if course is None else _together(course.by_node)

    def over_time(self, job_id: str) -> list[dict[str, float]]:
        """The same at some moments, oldest first, each with its `at_s`."""
        course = self._by_job.get(job_id)
        return [] if course is None else course.moments

    def forget(self, job_id: str) -> None:
        """It is over."""
        self._by_job.pop(job_id, None)


def _together(by_node: dict[str, dict[str, Any]]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for fields in by_node.values():
        for name, value in fields.items():
            if isinstance(value, int | float) and isfinite(value):
                found.setdefault(name, []).append(value)
    return {
        name: round(sum(values) / (len(values) if name == _EACH else 1), 3) if len(values) > 1 else values[0]
        for name, values in found.items()
    }
