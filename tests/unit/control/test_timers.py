"""Moments that are waited for: each once, as long as it means something, and never forgotten."""

import pytest

from hocket.control import saved_state
from hocket.control.timers import Timers
from hocket.model.action import End
from hocket.model.criterion import parse
from hocket.model.event import EpochEnded, JobAsked, JobEnded, JobRequest, JobSubmitted
from hocket.model.job import Job
from hocket.model.resources import Node
from hocket.policies import find
from hocket.testing.harness import Harness

POLICY = find("las").bound()
NOW_S = 1_794_804_501.37  # Live clocks are large: what is computed from them is rounded.


@pytest.fixture
def harness():
    return Harness.of(POLICY, [Node("n0", 4)])


def start(harness, job, at_s=NOW_S):
    harness.tell(JobSubmitted(at_s, job))
    harness.answer(at_s=at_s)


def timers(harness):
    return len(harness.controller.timers.heap)


@pytest.mark.parametrize(
    "asks",
    [
        {"criterion": parse("acc >= 99% within 30d")},
        {"criterion": parse("acc >= 99%"), "limit_s": 2_592_000.7},
        {"criterion": parse("for 720h")},
    ],
)
def test_a_job_that_reports_often_is_waited_for_once(harness, asks):
    start(harness, Job("a", **asks))
    for n in range(1, 300):
        at_s = NOW_S + 0.37 * n
        harness.tell(EpochEnded(at_s, "a", n, {"acc": 0.5}))
    assert timers(harness) <= 2


def test_a_moment_that_time_out_of_work_puts_off_is_waited_for_anew(harness):
    start(harness, Job("a", limit_s=60.0), 0.0)
    harness.tell(JobAsked(50.0, "a", JobRequest.PAUSE))
    harness.answer(at_s=50.0)
    harness.tell(JobAsked(55.0, "a", JobRequest.RESUME))
    harness.answer(at_s=55.0)
    assert harness.tell(at_s=60.0) == [], "what was waited for at first"
    assert harness.controller.next_timer_s() == 65.0
    assert [type(a) for a in harness.tell(at_s=65.0)] == [End]


def test_of_jobs_that_are_over_no_moment_is_saved(harness):
    start(harness, Job("stays", criterion=parse("acc >= 99% within 20d")))  # Its moment comes first.
    before = len(saved_state.encode(harness.controller, POLICY))
    for n in range(200):
        start(harness, Job(f"j{n}", criterion=parse("acc >= 99% within 30d")), NOW_S + n)
        harness.tell(JobEnded(NOW_S + n, f"j{n}"))
    assert len(saved_state.encode(harness.controller, POLICY)) < before + 1000
    assert timers(harness) == 1


def test_a_name_that_is_used_again_is_waited_for_again(harness):
    job = Job("a", criterion=parse("acc >= 99% within 100s"))
    start(harness, job, 0.0)
    harness.tell(JobEnded(0.0, "a"))
    saved_state.encode(harness.controller, POLICY)
    for between in (Job("a"), job):
        start(harness, job, 0.0)
        assert harness.controller.next_timer_s() == 100.0
        harness.tell(JobEnded(0.0, "a"))
        start(harness, between, 0.0)
        harness.controller.next_timer_s()
        harness.tell(JobEnded(0.0, "a"))
    assert harness.controller.next_timer_s() is None
    start(harness, job, 0.0)
    assert harness.controller.next_timer_s() == 100.0


def test_a_job_that_has_ended_is_not_due_whether_its_time_was_dropped_before_or_not():
    as_it_was, saved = Timers(), Timers()
    for timers in (as_it_was, saved):
        for job in ("a", "b", "b"):
            timers.add(5.0, job)
        timers.add(6.0, "a")
    saved.drop_ended({"b": None})  # type: ignore[dict-item]
    assert as_it_was.pop_due(5.0, {"b"}) == saved.pop_due(5.0, {"b"}) == ("b",)
    assert as_it_was.heap == [(6.0, "a")]
