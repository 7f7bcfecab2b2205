"""Changes that need no agent: they are true once they are in the journal, also for a controller that comes back."""

from __future__ import annotations

from hocket.executors.agents.run_numbers import changes_place, tenancy_of
from hocket.model.event import Event, JobEnded, JobPrepared, JobResized
from hocket.model.view import JobView, Tenancy


def stays(tenancy: Tenancy) -> bool:
    """Does a tenant that is told to change keep what it has? Only its boundary is another then."""
    was, to = tenancy.holding, tenancy.coming
    return was is not None and to is not None and was.slices == to.slices and was.replicas == to.replicas


def local_effect(view: JobView, prepares: bool, now_s: float) -> Event | None:
    """The event by which the change that is under way for a job is done; None if an agent must do something."""
    job_id, tenancy = view.job.id, tenancy_of(view)
    if tenancy is not None:
        return JobResized(now_s, job_id) if changes_place(tenancy) and stays(tenancy) else None
    if view.verdict:
        return JobEnded(now_s, job_id, view.verdict)
    return JobPrepared(now_s, job_id) if view.preparing and not prepares else None  # It starts cold.
