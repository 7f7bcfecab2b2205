"""How long a job was held: its user had paused it, or jobs that it starts after had not ended.

Held time is no waiting time: no scheduler could have used it. The delay after a crash counts as waiting.
"""

from __future__ import annotations

from collections.abc import Container

from msgspec import Struct

from hocket.model.job import Job


class HeldTime(Struct):
    """Of one job that was held at least once; folded from events."""

    is_paused: bool = False  # by its user
    awaits: list[str] = []  # jobs that must end first
    since_s: float | None = None  # it is held, and runs no more; None: it is not, or still runs
    total_s: float = 0.0  # up to `since_s`

    def at(self, now_s: float) -> float:
        """Seconds in which it was held, in all."""
        return self.total_s + (max(0.0, now_s - self.since_s) if self.since_s is not None else 0.0)

    def update(self, now_s: float, *, runs: bool) -> None:
        """Something changed: `runs` says whether the job has resources now, as one has that is told to leave them."""
        is_held = (self.is_paused or bool(self.awaits)) and not runs
        if is_held and self.since_s is None:
            self.since_s = now_s
        elif not is_held and self.since_s is not None:
            self.total_s, self.since_s = self.at(now_s), None


def held_at_submission(job: Job, live: Container[str], now_s: float) -> HeldTime | None:
    """Of a job that starts after live ones; None for any other."""
    awaits = [first for first in job.predecessors if first in live and first != job.id]
    return HeldTime(awaits=awaits, since_s=now_s) if awaits else None
