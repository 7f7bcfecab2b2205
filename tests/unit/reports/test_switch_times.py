"""How long starts and pauses took, by a journal that keeps no actions."""

from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header
from hocket.model.event import JobAsked, JobEnded, JobPaused, JobRequest, JobStarted, JobSubmitted, NodeJoined
from hocket.model.job import Job
from hocket.model.resources import Node
from hocket.model.snapshot import empty_snapshot
from hocket.policies import find
from hocket.reports.switch_times import SwitchTimes


def test_they_are_counted_from_the_action_that_could_be_begun_to_its_event():
    policy = find("fifo").bound()
    header = Header("fifo")
    journal = MemoryJournal(header)
    controller = Controller(empty_snapshot((), 0), policy.decide, policy.order, journal, **policy.needs)
    for at_s, event in (
        (0.0, NodeJoined(0.0, Node("n", 1))),
        (10.0, JobSubmitted(10.0, Job("a"))),
        (11.0, JobSubmitted(11.0, Job("b"))),
        (12.0, JobStarted(12.0, "a")),  # after 2 s
        (20.0, JobAsked(20.0, "a", JobRequest.PAUSE)),
        (25.0, JobPaused(25.0, "a")),  # after 5 s; now b can be started, which was to have its place
        (26.0, JobStarted(26.0, "b")),  # after 1 s
        (30.0, JobEnded(30.0, "b")),
    ):
        controller.cycle(at_s, [event])
    switches = SwitchTimes(header)
    for cycle in journal:
        switches.add(cycle)
    assert switches.took_s == {"start": [2.0, 1.0], "pause": [5.0], "resize": [], "move": []}
    assert switches.median_s("pause") == 5.0
    assert switches.median_s("move") is None
