"""What is submitted: the jobs that a call makes, and why some are refused.

All that can be refused is refused here, so that whoever names one of them in `after` is refused with it. Several calls
may come in one cycle, before the state knows of any of them: the ids that they bring are remembered until it is over.
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from typing import Any

from hocket.control.admission import refusal
from hocket.control.state import State
from hocket.executors.agents.executor import Refused
from hocket.model.capacity import Capacity
from hocket.model.event import Event, JobRefused, JobSubmitted
from hocket.model.job import Job
from hocket.model.resources import Node
from hocket.service.engine import Engine
from hocket.service.job_spec import JobSpec, jobs_of
from hocket.service.owners import Owners


class Intake:
    """Hands submissions to the controller. What is private is its thread's alone."""

    def __init__(self, engine: Engine, owners: Owners) -> None:
        self._engine = engine
        self._owners = owners
        self._coming: set[str] = set()  # ids that the present cycle takes in
        self._nodes: tuple[Node, ...] = ()
        self._whole = Capacity.of(())

    def submit(self, specs: list[JobSpec]) -> Future[Any]:
        """Done when they are in the journal: for each job, in order, its id and why it is refused, or nothing."""
        told: list[tuple[str, str]] = []
        mine: list[str] = []

        def make(state: State, now_s: float) -> list[Event]:
            self._coming.difference_update(mine)  # It may be made anew, when what it was made of was not kept.
            told.clear()
            mine.clear()
            events: list[Event] = []
            whole = self._cluster(state)
            for spec in specs:
                base = spec.id or self._made_up(spec, state.submissions + len(events))
                for job in jobs_of(spec, base):
                    reason = self._refusal(job, state, whole)
                    told.append((job.id, reason))
                    if reason:
                        events.append(JobRefused(now_s, job.id, reason))
                    else:
                        self._coming.add(job.id)
                        mine.append(job.id)
                        events.append(JobSubmitted(now_s, job))
            return events

        def result(refused: Refused) -> list[dict[str, str]]:
            # A refusal of the cycle may be that of another who wanted the same name: ours is there.
            there = self._engine.catalogue.records
            return [{"id": i, "refused": why or ("" if i in there else refused.get(i, ""))} for i, why in told]

        future = self._engine.executor.post(make, result)
        future.add_done_callback(lambda _: self._coming.difference_update(mine))
        return future

    def _refusal(self, job: Job, state: State, whole: Capacity) -> str:
        live = state.jobs.live
        if job.id not in live and self._engine.catalogue.known(job.id) is not None:
            return f"job '{job.id}': id must be unique, and a job that is over has it"
        taken = self._coming if job.id in self._coming else live
        return self._unknown_leader(job) or refusal(taken, job, whole, self._owners.known(state, job.owner))

    def _cluster(self, state: State) -> Capacity:
        """The cluster with nothing on it."""
        nodes = tuple(view.node for view in state.nodes.live.values())
        if nodes != self._nodes:
            self._nodes, self._whole = nodes, Capacity.of(nodes)
        return self._whole

    def _unknown_leader(self, job: Job) -> str:
        for first in job.after:
            leader = self._engine.catalogue.known(first)
            if leader is None and first not in self._coming:
                return f"job '{job.id}': after must name jobs, and there is no '{first}'"
            if leader is not None and leader.verdict in ("failed", "stopped", "overran"):
                return f"job '{job.id}': after names '{first}', which is over: {leader.verdict}"
        return ""

    def _made_up(self, spec: JobSpec, number: int) -> str:
        """A name from the command: `train-12`."""
        words = [w for w in spec.command if w.endswith(".py")] or [spec.command[0]]
        stem = os.path.basename(words[0]).removesuffix(".py")
        stem = "".join(c if c.isalnum() or c in "-_." else "-" for c in stem)[:60].strip("-.") or "job"
        number += 1
        while any(self._is_taken(name) for name in (f"{stem}-{number}", f"{stem}-{number}-0")):
            number += 1
        return f"{stem}-{number}"

    def _is_taken(self, job_id: str) -> bool:
        return job_id in self._coming or self._engine.catalogue.known(job_id) is not None
