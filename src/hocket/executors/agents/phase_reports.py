"""What the nodes of a job have measured of its phases, as one observation."""

from __future__ import annotations

from typing import Any

import msgspec

from hocket.agent.phase_measurements import PhaseMeans
from hocket.agent.protocol import Report, RunKey
from hocket.executors.agents.multi_node_exits import nodes_of_attempt
from hocket.executors.agents.run_numbers import present, tenancy_of
from hocket.model.event import Event, PhasesObserved
from hocket.model.view import JobView

# A model is divided among the hosts of a job, and what a host keeps itself does not go through its link. It is the same
# for programs that sum up gradients in a ring.
_OWN_PART = 1.0


class PhaseReports:
    """By job, the last report of each node of its present run, until all of them have reported."""

    def __init__(self) -> None:
        self._run: dict[str, RunKey] = {}
        self._waiting: dict[str, dict[str, PhaseMeans]] = {}  # job → node → not observed yet
        self._last: dict[str, dict[str, int]] = {}  # job → node → the last iteration that was reported

    def add_report(self, view: JobView, report: Report, node: str, now_s: float) -> list[Event]:
        """What a report means; nothing if it came before, or while other nodes have not reported."""
        job, means = view.job.id, _means(report.fields)
        if means is None or tenancy_of(view) is None or report.run != present(view):
            return []
        if self._run.get(job) != report.run:
            self.forget(job)
            self._run[job] = report.run
        last = self._last.setdefault(job, {})
        if means.iteration <= last.get(node, -1):
            return []
        last[node] = means.iteration
        waiting = self._waiting.setdefault(job, {})
        waiting[node] = means
        nodes = nodes_of_attempt(view, report.run)
        if any(each not in waiting for each in nodes):
            return []
        seen = list(self._waiting.pop(job).values())
        comp_s, comm_s = sum(s.comp_s for s in seen) / len(seen), sum(s.comm_s for s in seen) / len(seen)
        link = sum(s.link * s.comm_s for s in seen) / (comm_s * len(seen)) if comm_s > 0 else 1.0
        longest_comm_s = max(s.comm_s for s in seen)
        # Only the first node measures these.
        meeting_s, shared_s = sum(s.meeting_s for s in seen), sum(s.shared_s for s in seen)
        comm_s, longest_comm_s = (max(each_s / 2, each_s - shared_s / 2) for each_s in (comm_s, longest_comm_s))
        slowest_s = max(s.comp_s for s in seen) + longest_comm_s
        slowest = slowest_s / (comp_s + comm_s) if comp_s + comm_s > 0 else 1.0
        iterations = min(s.iterations for s in seen)
        return [PhasesObserved(now_s, job, len(seen), comp_s, comm_s, iterations, slowest, link, meeting_s, _OWN_PART)]

    def forget(self, job_id: str) -> None:
        """The job is over, or another run of it begins."""
        self._run.pop(job_id, None)
        self._waiting.pop(job_id, None)
        self._last.pop(job_id, None)


def _means(fields: dict[str, Any]) -> PhaseMeans | None:
    """None if another version of the agent says something else."""
    try:
        return msgspec.convert(fields, PhaseMeans)
    except msgspec.ValidationError:
        return None
