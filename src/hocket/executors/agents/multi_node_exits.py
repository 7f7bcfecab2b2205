"""A job on several nodes runs in as many parts. Its attempt is over when all are, and broken as soon as one breaks."""

from __future__ import annotations

from hocket.agent.protocol import Report, RunKey
from hocket.executors.agents.reports_to_events import is_finish
from hocket.executors.agents.run_numbers import changes_place, coming, present, tenancy_of
from hocket.model.view import Doing, JobView


class MultiNodeExits:
    """The parts that are gone, of attempts with other parts still there. A controller that is killed forgets them:

    an attempt of which it then finds one part missing counts as lost, and its job goes on from its checkpoint.
    """

    def __init__(self) -> None:
        self._gone: dict[RunKey, dict[str, Report]] = {}  # by node

    def gone(self, view: JobView, report: Report, node: str) -> Report | None:
        """A part is gone: the report that tells how the whole attempt ended, or None while others go on."""
        nodes = nodes_of_attempt(view, report.run)
        if nodes and node and node not in nodes:
            return None  # It is only where the job will be next: what runs elsewhere is not known there.
        if len(nodes) < 2 or not node:
            return report
        parts = self._gone.setdefault(report.run, {})
        parts[node] = report
        if _broke(report) and not _is_leaving(view):
            return report
        if any(other not in parts for other in nodes):
            return None
        return next((part for part in parts.values() if not is_finish(part)), report)

    def is_gone(self, node: str, run: RunKey) -> bool:
        """Whether the part on a node is known to be gone."""
        return node in self._gone.get(run, {})

    def forget(self, job_id: str) -> None:
        """The job is over."""
        for run in [run for run in self._gone if run.job == job_id]:
            del self._gone[run]


def nodes_of_attempt(view: JobView, run: RunKey) -> list[str]:
    """Where an attempt has its parts: the one that goes on, or the one that comes."""
    tenancy = tenancy_of(view)
    if view.suspended is not None and run == present(view):
        return [view.suspended.node]
    if tenancy is None:
        return []
    held = tenancy.coming if run == coming(view) else tenancy.holding
    return [part.node for part in held.slices] if held is not None else []


def _broke(report: Report) -> bool:
    """Did a part end neither by itself nor because it was asked to?"""
    left = report.event == "exited" and bool(report.fields.get("asked")) and not report.fields.get("hung")
    return not left and not is_finish(report)


def _is_leaving(view: JobView) -> bool:
    """Were all parts told to leave?"""
    tenancy = tenancy_of(view)
    return tenancy is not None and (tenancy.doing in (Doing.PAUSING, Doing.ENDING) or changes_place(tenancy))
