"""What may be left of attempts that broke: a job starts again only when no part of its last attempt runs anywhere.

A part is gone when its agent says so, when its agent says hello without it, or when its node is lost: then it stands
still. A controller that begins anew does not know which parts were left, so that each node must say hello first.
"""

from __future__ import annotations

from collections.abc import Iterable

from hocket.agent.protocol import RunKey
from hocket.model.job import Job


class BrokenParts:
    """Parts that were told to stop, by job, and the nodes that have not said yet what they have."""

    def __init__(self) -> None:
        self._left: dict[str, set[tuple[str, RunKey]]] = {}  # job → node and run
        self._not_connected: set[str] = set()  # nodes
        self._deferred: set[str] = set()  # jobs whose next run waits for that

    def begin_anew(self, nodes: Iterable[str]) -> None:
        """Nothing is known but which nodes there should be."""
        self._left.clear()
        self._deferred.clear()
        self._not_connected = set(nodes)

    def add(self, node: str, run: RunKey) -> None:
        """A part is told to stop."""
        self._left.setdefault(run.job, set()).add((node, run))

    def must_wait(self, job: Job) -> bool:
        """Whether the job's next run has to wait; it is `released` later."""
        may_span = job.sizes[-1] > 1 and job.max_nodes != 1
        waits = job.id in self._left or (may_span and bool(self._not_connected))
        if waits:
            self._deferred.add(job.id)
        else:
            self._deferred.discard(job.id)
        return waits

    def gone(self, node: str, run: RunKey) -> None:
        """A node's agent says that a part is no more."""
        if (left := self._left.get(run.job)) is not None:
            left.discard((node, run))
            if not left:
                del self._left[run.job]

    def agent_connected(self, node: str, runs: Iterable[RunKey], unwanted: Iterable[RunKey]) -> None:
        """A node's agent says hello with these runs, of which some are to end."""
        there = set(runs)
        self._not_connected.discard(node)
        for where, run in [part for left in self._left.values() for part in left]:
            if where == node and run not in there:
                self.gone(where, run)
        for run in unwanted:
            self.add(node, run)

    def lost(self, node: str) -> None:
        """A node is lost: what is there stands still."""
        self._not_connected.discard(node)
        for where, run in [part for left in self._left.values() for part in left]:
            if where == node:
                self.gone(where, run)

    def forget(self, job_id: str) -> None:
        """The job is over."""
        self._left.pop(job_id, None)
        self._deferred.discard(job_id)

    def released(self) -> list[str]:
        """Jobs whose next run had to wait, and need not any more if `must_wait` says so now."""
        found = sorted(job for job in self._deferred if job not in self._left) if not self._not_connected else []
        self._deferred.difference_update(found)
        return found
