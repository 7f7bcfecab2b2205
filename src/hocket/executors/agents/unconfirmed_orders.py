"""Orders that an agent took and nothing came of: they are repeated once, and then given up, so that no job is stuck.

That is never due in normal operation: a start is confirmed when the process runs, and a stop at the latest when its
grace is over. It is for agents, nodes or journals in a state that was not foreseen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from time import monotonic
from typing import NamedTuple

from hocket.executors.agents.run_numbers import nodes_of, tenancy_of
from hocket.model.view import Doing, JobView

PATIENCE_S = 120.0  # beyond the grace of a job, and beyond what is allowed for preparing it
_PREPARE_S = 120.0


class Overdue(Enum):
    """What is to be done."""

    ASK_AGAIN = "ask again"
    GIVE_UP = "give up"


class _Waiting(NamedTuple):
    doing: Doing
    since_s: float
    asked_again: bool = False


class UnconfirmedOrders:
    """Since when each job's start, stop or change of place waits for its confirmation."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._waiting: dict[str, _Waiting] = {}

    @property
    def is_empty(self) -> bool:
        """Whether everything is confirmed."""
        return not self._waiting

    def see(self, view: JobView) -> None:
        """What the job does may have changed."""
        tenancy = tenancy_of(view)
        doing = Doing.NOTHING if tenancy is None else tenancy.doing
        known = self._waiting.get(view.job.id)
        if doing is Doing.NOTHING:
            self._waiting.pop(view.job.id, None)
        elif known is None or known.doing is not doing:
            self._waiting[view.job.id] = _Waiting(doing, self._clock())

    def overdue(
        self, view_of: Callable[[str], JobView | None], connected: Collection[str]
    ) -> list[tuple[JobView, Overdue, float]]:
        """Those whose time is over, and for how long they wait. The time of a node that is away does not count."""
        now_s = self._clock()
        found: list[tuple[JobView, Overdue, float]] = []
        for job_id, waiting in list(self._waiting.items()):
            view = view_of(job_id)
            tenancy = None if view is None else tenancy_of(view)
            if view is None or tenancy is None or tenancy.doing is not waiting.doing:
                del self._waiting[job_id]
                if view is not None:
                    self.see(view)
            elif not set(nodes_of(view)) <= set(connected):
                self._waiting[job_id] = waiting._replace(since_s=now_s)
            elif now_s - waiting.since_s >= limit_s(view) * (2 if waiting.asked_again else 1):
                how = Overdue.GIVE_UP if waiting.asked_again else Overdue.ASK_AGAIN
                found.append((view, how, now_s - waiting.since_s))
                if waiting.asked_again:
                    del self._waiting[job_id]
                else:
                    self._waiting[job_id] = waiting._replace(asked_again=True)
        return found


def limit_s(view: JobView) -> float:
    """How long a confirmation may take."""
    grace_s = view.job.launch.grace_s if view.job.launch is not None else 0.0
    return PATIENCE_S + grace_s + (_PREPARE_S if view.job.warm else 0.0)
