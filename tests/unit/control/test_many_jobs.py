"""What is done to many jobs in one cycle costs so much for each, however many they are: counted, not timed."""

from __future__ import annotations

from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header
from hocket.model.action import End
from hocket.model.event import Event, JobAsked, JobEnded, JobRequest, JobSubmitted
from hocket.model.job import Job
from hocket.model.resources import Node
from hocket.model.snapshot import empty_snapshot
from hocket.policies import find


class CountedId(str):
    """An id that counts how often it is compared with others; a search through all of them shows."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedId.compared += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


def compared(jobs: int, *requests: JobRequest) -> int:
    """Comparisons of ids when jobs are submitted, asked for these, stopped and ended, all of them at once."""
    policy, nodes = find("fifo").bound(), (Node("n0", 2),)
    controller = Controller(
        empty_snapshot(nodes, 0), policy.decide, policy.order, MemoryJournal(Header("fifo", {}, nodes)), **policy.needs
    )
    ids = [CountedId(f"j{n}") for n in range(jobs)]
    CountedId.compared = 0
    controller.cycle(1.0, [JobSubmitted(1.0, Job(job_id)) for job_id in ids])
    state = controller.state
    state.arrived |= dict.fromkeys(ids)  # as under a policy that no arrival wakes
    for at_s, request in enumerate(requests, 2):
        asked: list[Event] = [JobAsked(float(at_s), job_id, request) for job_id in ids]
        controller.cycle(float(at_s), asked)
    actions = controller.cycle(10.0, [JobAsked(10.0, job_id, JobRequest.STOP) for job_id in ids])
    assert sum(isinstance(action, End) for action in actions) == jobs
    assert len(controller.snapshot.jobs) == jobs
    state.arrived |= dict.fromkeys(ids)
    state.unsettled |= dict.fromkeys((job_id, "") for job_id in ids)  # as if none could be told yet
    controller.cycle(11.0, [JobEnded(11.0, job_id, "stopped") for job_id in ids])
    assert (dict(controller.snapshot.jobs.data()), state.arrived, state.unsettled) == ({}, {}, {})
    return CountedId.compared


def test_stopping_all_jobs_searches_the_others_for_none_of_them() -> None:
    assert compared(300) < 300 * 10


def test_pausing_and_resuming_all_jobs_searches_the_others_for_none_of_them() -> None:
    assert compared(300, JobRequest.PAUSE, JobRequest.RESUME) < 300 * 10
