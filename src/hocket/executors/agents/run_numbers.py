"""Which run of a job is which. A run is one attempt of a job; its number follows from the job's view alone.

So a controller that was killed gives the same run the same number again, and an order that was sent twice starts
nothing twice.
"""

from __future__ import annotations

from hocket.agent.protocol import RunKey
from hocket.model.view import Doing, JobView, Tenancy


def present(view: JobView) -> RunKey:
    """The run that goes on, or went on last."""
    return RunKey(view.job.id, view.starts + view.failures + view.skipped)


def coming(view: JobView) -> RunKey:
    """The run that is starting, or will be the next one."""
    return RunKey(view.job.id, view.starts + view.failures + view.skipped + 1)


def is_continuing(view: JobView) -> bool:
    """Is a job told to go on in its suspended process? It has its present number then, not another."""
    tenancy = tenancy_of(view)
    return view.suspended is not None and tenancy is not None and tenancy.doing is Doing.STARTING


def last_given(view: JobView) -> int:
    """The largest number that a run of the job may have by now: the next one may stand prepared, or be starting."""
    may_come = view.tenancies or view.preparing or view.prepared
    return coming(view).number if may_come else present(view).number


def tenancy_of(view: JobView) -> Tenancy | None:
    """What a job of one tenant has in fact."""
    return view.tenancies[0] if view.tenancies else None


def changes_place(tenancy: Tenancy) -> bool:
    """Is it told to leave and to start elsewhere, or with other resources?"""
    return tenancy.doing in (Doing.RESIZING, Doing.MOVING)


def going(view: JobView) -> list[RunKey]:
    """The runs that should have processes now, the older first."""
    tenancy = tenancy_of(view)
    if tenancy is None:
        found = [present(view)] if view.suspended is not None else []
        return [*found, coming(view)] if view.preparing or view.prepared else found
    found = [present(view)] if tenancy.holding is not None or view.suspended is not None else []
    if tenancy.coming is not None and not is_continuing(view):
        found.append(coming(view))
    return found


def nodes_of(view: JobView) -> list[str]:
    """The nodes that its tenancies reach, and the one where its process is suspended."""
    found: dict[str, None] = {} if view.suspended is None else {view.suspended.node: None}
    for tenancy in view.tenancies:
        for held in (tenancy.holding, tenancy.coming):
            if held is not None:
                found.update((part.node, None) for part in held.slices)
    return list(found)
