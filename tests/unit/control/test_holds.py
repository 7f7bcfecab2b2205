"""Jobs that may not run for now: they follow others, their user paused them, or they broke and rest."""

import pytest

from hocket.model.action import End, Pause, Resume, Start
from hocket.model.event import JobAsked, JobEnded, JobFailed, JobRequest, JobSubmitted, NodeJoined, NodeLost
from hocket.model.job import Job
from hocket.model.resources import Node
from hocket.model.view import Hold
from hocket.policies import find
from hocket.testing.harness import Harness


@pytest.fixture
def harness():
    return Harness.of(find("las").bound(), [Node("n0", 2)])


def submit(harness, *jobs):
    return harness.tell(*(JobSubmitted(harness.now_s, job) for job in jobs))


def kinds(actions):
    return [(type(a), a.job) for a in actions]


def test_a_job_follows_another(harness):
    assert kinds(submit(harness, Job("a"), Job("b", after=("a",)))) == [(Start, "a")]
    assert harness.snapshot.jobs["b"].held is Hold.FOLLOWS
    assert "'a'" in harness.snapshot.jobs["b"].reason
    harness.answer()
    assert kinds(harness.tell(JobEnded(5.0, "a"))) == [(Start, "b")]


def test_a_job_follows_all_of_several_and_those_that_are_over_do_not_count(harness):
    submit(harness, Job("a"), Job("b"), Job("c", after=("a", "b", "long-ago")))
    harness.answer()
    assert harness.tell(JobEnded(5.0, "a")) == []
    assert kinds(harness.tell(JobEnded(6.0, "b"))) == [(Start, "c")]


@pytest.mark.parametrize("broke", [JobFailed(5.0, "a", "it broke", final=True), JobEnded(5.0, "a", "stopped")])
def test_a_job_after_one_that_failed_ends_too(harness, broke):
    submit(harness, Job("a"), Job("b", after=("a",)), Job("c", after=("b",)))
    harness.answer()
    assert kinds(harness.tell(broke)) == [(End, "b")]
    assert "'a'" in harness.snapshot.jobs["b"].reason
    assert kinds(harness.answer()) == [(End, "c")]


def test_a_paused_job_leaves_and_stays_away_until_its_user_says_so(harness):
    submit(harness, Job("a"), Job("b", sizes=(2,)))
    harness.answer()
    assert kinds(harness.tell(JobAsked(5.0, "a", JobRequest.PAUSE, "ana"))) == [(Pause, "a")]
    assert kinds(harness.answer()) == [(Start, "b")]
    harness.answer()
    harness.tell(JobEnded(9.0, "b"))
    assert harness.snapshot.jobs["a"].held is Hold.PAUSED
    assert "ana" in harness.snapshot.jobs["a"].reason
    assert kinds(harness.tell(JobAsked(10.0, "a", JobRequest.RESUME))) == [(Resume, "a")]


def test_a_job_paused_while_it_starts_leaves_when_it_has_started(harness):
    submit(harness, Job("a"))
    assert harness.tell(JobAsked(1.0, "a", JobRequest.PAUSE)) == []
    assert kinds(harness.answer(*harness.pending)) == [(Pause, "a")]


def test_a_waiting_job_is_paused_and_stopped(harness):
    submit(harness, Job("a", sizes=(2,)), Job("b"))
    harness.tell(JobAsked(1.0, "b", JobRequest.PAUSE))
    harness.answer()
    assert harness.tell(JobEnded(2.0, "a")) == []
    assert kinds(harness.tell(JobAsked(3.0, "b", JobRequest.STOP, "bo"))) == [(End, "b")]
    assert "bo" in harness.snapshot.jobs["b"].reason


def test_resuming_a_job_that_follows_another_does_not_let_it_overtake(harness):
    submit(harness, Job("a"), Job("b", after=("a",)))
    harness.tell(JobAsked(1.0, "b", JobRequest.PAUSE))
    harness.tell(JobAsked(2.0, "b", JobRequest.RESUME))
    assert harness.snapshot.jobs["b"].held is Hold.FOLLOWS


def test_a_job_that_breaks_rests_longer_each_time_and_is_over_after_its_retries(harness):
    submit(harness, Job("a", retries=2, backoff_s=10.0))
    harness.answer()
    assert harness.tell(JobFailed(100.0, "a", "exit code 1")) == []
    assert harness.controller.next_timer_s() == 110.0
    assert "exit code 1" in harness.snapshot.jobs["a"].reason
    assert kinds(harness.tell(at_s=110.0)) == [(Start, "a")]
    harness.answer()
    harness.tell(JobFailed(200.0, "a", "exit code 1"))
    assert harness.controller.next_timer_s() == 220.0
    assert kinds(harness.tell(at_s=220.0)) == [(Start, "a")]
    harness.answer()
    harness.tell(JobFailed(300.0, "a", "exit code 1"))
    assert "a" not in harness.snapshot.jobs
    assert harness.journal.cycles[-1].events[0].final


def test_a_lost_node_does_not_count_as_a_try(harness):
    submit(harness, Job("a", retries=0))
    harness.answer()
    harness.tell(NodeLost(5.0, "n0"))
    assert kinds(harness.tell(NodeJoined(6.0, Node("n0", 2)))) == [(Start, "a")]


def test_a_job_is_ended_when_it_has_run_for_as_long_as_it_may(harness):
    submit(harness, Job("a", limit_s=60.0))
    harness.answer(at_s=10.0)
    assert harness.controller.next_timer_s() == 70.0
    assert kinds(harness.tell(at_s=70.0)) == [(End, "a")]
    assert harness.snapshot.jobs["a"].verdict == "overran"


def test_a_limit_counts_only_the_time_it_ran(harness):
    submit(harness, Job("a", limit_s=60.0))
    harness.answer(at_s=0.0)
    harness.tell(JobAsked(50.0, "a", JobRequest.PAUSE))
    harness.answer(at_s=50.0)
    harness.tell(JobAsked(500.0, "a", JobRequest.RESUME))
    harness.answer(at_s=500.0)
    assert harness.controller.next_timer_s() == pytest.approx(510.0)
