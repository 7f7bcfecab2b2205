"""Changes that need no agent: they are true once they are in the journal, also for a controller that comes back."""

from __future__ import annotations

from hocket.executors.agents.run_numbers import changes_place, tenancy_of
from hocket.model.event import Event, JobEnded, JobPrepared, JobResized
from hocket.model.job import Kind
from hocket.model.view import Doing, JobView, Tenancy


def stays(tenancy: Tenancy) -> bool:
    """Does a tenant that is told to change keep what it has? Only its boundary is another then."""
    was, to = tenancy.holding, tenancy.coming
    return was is not None and to is not None and was.slices == to.slices and was.replicas == to.replicas


def resizes_in_place(view: JobView) -> bool:
    """Is the job told to go on with other resources, and does it do so in its process? A query does, on its node."""
    tenancy = tenancy_of(view)
    if view.job.kind is not Kind.QUERY or tenancy is None or tenancy.doing is not Doing.RESIZING:
        return False
    was, to = tenancy.holding, tenancy.coming
    return was is not None and to is not None and [s.node for s in was.slices] == [s.node for s in to.slices]


def local_effect(view: JobView, prepares: bool, now_s: float) -> Event | None:
    """The event by which the change that is under way for a job is done; None if an agent must do something."""
    job_id, tenancy = view.job.id, tenancy_of(view)
    if tenancy is not None:
        is_done = changes_place(tenancy) and stays(tenancy) and not resizes_in_place(view)
        return JobResized(now_s, job_id) if is_done else None
    if view.verdict:
        return JobEnded(now_s, job_id, view.verdict)
    return JobPrepared(now_s, job_id) if view.preparing and not prepares else None  # It starts cold.
