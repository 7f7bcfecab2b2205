"""A controller goes down: every job saves its state and leaves, on whatever machine. At the next start it goes on."""

from __future__ import annotations

from time import monotonic, sleep

from hocket.agent.protocol import RunKey, StopRun
from hocket.executors.agents.run_numbers import going, nodes_of
from hocket.service.engine import Engine

_MARGIN_S = 5.0  # beyond the grace, for reports to come
_LOOK_S = 0.05


class Farewell:
    """The last orders. From now on agents are told nothing else."""

    def __init__(self, engine: Engine, grace_s: float) -> None:
        self._engine, self._grace_s = engine, grace_s
        there = set(engine.sessions.addresses())
        self._runs: list[RunKey] = []  # that are waited for
        last: list[tuple[str, StopRun]] = []
        for view in engine.snapshot.jobs.values():
            for run in going(view):
                nodes = (
                    there.intersection(nodes_of(view)) if view.tenancies else there
                )  # Who stands prepared, and where?
                last += [(node, StopRun(run, grace_s)) for node in sorted(nodes)]
                self._runs += [run] if view.tenancies and nodes else []
        engine.sessions.hush(last)

    def wait(self) -> list[str]:
        """Wait until all have left, as long as they may take; the jobs that have not."""
        until_s = monotonic() + self._grace_s + _MARGIN_S
        while (left := self._left()) and monotonic() < until_s:
            sleep(_LOOK_S)
        return left

    def _left(self) -> list[str]:
        # One that has left may be given a place again; that is another attempt, of which nobody is told any more.
        jobs = self._engine.snapshot.jobs
        return [run.job for run in self._runs if (view := jobs.get(run.job)) is not None and run in going(view)]
