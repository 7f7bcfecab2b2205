"""A job whose process ends by itself before its criterion holds has missed it; those that start after it do not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hocket.control.admission import refusal
from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal, SqliteJournal
from hocket.control.ports import Header
from hocket.control.replay import replay
from hocket.control.restore import again, restore
from hocket.executors.simulated import simulate
from hocket.model.action import Action, End, Start
from hocket.model.criterion import parse
from hocket.model.curve import Curve, Point
from hocket.model.event import (
    EpochEnded,
    Event,
    JobAsked,
    JobEnded,
    JobFailed,
    JobRequest,
    JobSubmitted,
    ProgressReported,
)
from hocket.model.job import Job
from hocket.model.resources import Node
from hocket.model.snapshot import empty_snapshot
from hocket.model.view import RECENT_OBSERVATIONS, Costs, Hold
from hocket.policies import find
from hocket.reports.account import account
from hocket.reports.summary import summarise
from hocket.testing.harness import Harness
from hocket.workloads.truth import Submission, Truth, Workload

NODES = (Node("n0", 4),)


def running(until: str, *others: Job, **more: Any) -> Harness:
    """Job 'a' with this criterion runs since 0 s, and so do the others that need not wait."""
    harness = Harness.of(find("fifo").bound(), NODES)
    first = Job("a", criterion=parse(until), **more)
    harness.tell(*(JobSubmitted(0.0, job) for job in (first, *others)))
    harness.answer()
    return harness


def reports(values: dict[int, float], metric: str = "acc") -> list[Event]:
    return [EpochEnded(10.0 * epoch, "a", epoch, {metric: value}) for epoch, value in values.items()]


def end_of(harness: Harness, job: str = "a") -> JobEnded:
    (found,) = (e for c in harness.journal.cycles for e in c.events if isinstance(e, JobEnded) and e.job == job)
    return found


def kinds(actions: list[Action]) -> list[tuple[type, str]]:
    return [(type(a), a.job) for a in actions]


# -- the rule -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False], ids=["in one cycle", "in a cycle each"])
@pytest.mark.parametrize(
    ("until", "values", "verdict", "reason"),
    [
        (
            "acc >= 95%",
            {1: 0.5, 2: 0.9},
            "missed",
            "missed: acc >= 95% was not met when its process ended after epoch 2: acc was 0.9",
        ),
        ("acc >= 95%", {1: 0.5, 2: 0.95}, "attained", "attained: acc >= 95% (acc is 0.95)"),
        ("loss <= 0.1", {1: 0.5, 2: 0.1}, "missed", "missed: loss <= 0.1 was not met when its process ended after "
         "epoch 2: loss was never reported"),
        ("acc <= 0.1", {1: 0.5, 2: 0.1}, "attained", "attained: acc <= 0.1 (acc is 0.1)"),
        ("acc >= 95%", {}, "missed", "missed: acc >= 95% was not met when its process ended before the end of its "
         "first epoch: acc was never reported"),
        ("acc >= 95% within 9 epochs", {1: 0.5}, "missed", "missed: acc >= 95% within 9 epochs was not met when its "
         "process ended after epoch 1: acc was 0.5"),
        ("acc changes < 0.01", {1: 0.5, 2: 0.6}, "missed", "missed: acc changes < 0.01 was not met when its process "
         "ended after epoch 2: acc was 0.6, 0.5 before"),
        ("acc changes < 0.01", {1: 0.5}, "missed", "missed: acc changes < 0.01 was not met when its process ended "
         "after epoch 1: acc was 0.5"),
        ("acc changes < 0.01", {1: 0.6, 2: 0.605}, "attained", "attained: acc changes < 0.01 (acc is 0.605)"),
        ("for 2h", {1: 0.5}, "finished", ""),
        ("for 9 epochs", {1: 0.5}, "finished", ""),
    ],
)  # fmt: skip
def test_the_last_report_decides_whether_a_criterion_was_met_or_missed(
    until: str, values: dict[int, float], verdict: str, reason: str, together: bool
) -> None:
    harness = running(until)
    told = [*reports(values), JobEnded(30.0, "a")]
    if together:
        harness.tell(*told)
    else:
        for event in told:
            harness.tell(event)
    found = end_of(harness)
    assert (found.verdict, found.reason) == (verdict, reason)
    assert not harness.snapshot.jobs


def test_a_job_without_a_criterion_finishes_whatever_its_target() -> None:
    harness = Harness.of(find("fifo").bound(), NODES)
    target: Any = parse("acc >= 95%")
    harness.tell(JobSubmitted(0.0, Job("a", target=target)), JobSubmitted(0.0, Job("b")))
    harness.answer()
    harness.tell(*reports({1: 0.5}), JobEnded(30.0, "a"), JobEnded(30.0, "b"))
    assert end_of(harness, "a") == JobEnded(30.0, "a")
    assert end_of(harness, "b") == JobEnded(30.0, "b")


def test_a_goal_that_was_met_once_stays_met_though_a_worse_report_comes_with_the_end() -> None:
    harness = running("acc >= 95%")
    harness.tell(*reports({1: 0.96, 2: 0.9}), JobEnded(30.0, "a"))
    assert end_of(harness).verdict == "attained"


def test_a_value_within_its_deadline_counts_though_the_process_ends_after_it() -> None:
    harness = running("acc >= 95% within 15s")
    harness.tell(*reports({1: 0.96}), JobEnded(30.0, "a"))
    assert end_of(harness).verdict == "attained"
    late = running("acc >= 95% within 5s")
    late.tell(*reports({1: 0.96}), JobEnded(30.0, "a"))
    assert end_of(late).verdict == "missed"


def test_a_metric_in_an_older_report_is_named_with_its_epoch() -> None:
    harness = running("acc >= 95%")
    harness.tell(*reports({1: 0.9}), *reports({2: 0.1}, "loss"), JobEnded(30.0, "a"))
    assert end_of(harness).reason.endswith("ended after epoch 2: acc was 0.9 in epoch 1")


def test_a_metric_that_is_in_no_recent_report_is_not_said_to_be_missing_altogether() -> None:
    harness = running("acc >= 95%")
    harness.tell(*reports({1: 0.9}))
    for n in range(RECENT_OBSERVATIONS):
        harness.tell(ProgressReported(11.0 + n, "a", 1, {"loss": float(n)}))
    harness.tell(JobEnded(200.0, "a"))
    assert end_of(harness).reason.endswith(f"acc was not in its last {RECENT_OBSERVATIONS} reports")


@pytest.mark.parametrize(("values", "verdict"), [({1: 0.96}, "attained"), ({1: 0.5}, "stopped")])
def test_what_was_decided_before_the_process_ended_by_itself_holds(values: dict[int, float], verdict: str) -> None:
    harness = running("acc >= 95%")
    harness.tell(*reports(values))
    if verdict == "stopped":
        harness.tell(JobAsked(11.0, "a", JobRequest.STOP, "ana"))
    harness.tell(JobEnded(12.0, "a"))
    assert end_of(harness).verdict == verdict


def test_a_deadline_that_passed_is_in_the_journal_with_its_reason() -> None:
    harness = running("acc >= 95% within 60s")
    harness.tell(at_s=60.0)
    harness.answer()
    assert end_of(harness) == JobEnded(60.0, "a", "missed", "missed: acc >= 95% within 1m")


# -- jobs that start after it ---------------------------------------------------------------------------------------


def test_a_job_after_one_that_missed_its_criterion_is_stopped_and_says_why() -> None:
    harness = running("acc >= 95%", Job("b", after=("a",)))
    assert kinds(harness.tell(JobEnded(30.0, "a"))) == [(End, "b")]
    reason = harness.snapshot.jobs["b"].reason
    assert reason == "stopped: it was to start after 'a', which missed its criterion"


def test_a_job_after_one_whose_deadline_passed_is_stopped_too() -> None:
    harness = running("acc >= 95% within 60s", Job("b", after=("a",)), Job("c", after_any=("a",)))
    harness.tell(at_s=60.0)
    assert kinds(harness.answer()) == [(End, "b"), (Start, "c")]


def test_a_job_after_one_that_attained_its_criterion_runs() -> None:
    harness = running("acc >= 95%", Job("b", after=("a",)))
    assert kinds(harness.tell(*reports({1: 0.99}), JobEnded(30.0, "a"))) == [(Start, "b")]


@pytest.mark.parametrize(
    "end", [JobEnded(30.0, "a"), JobEnded(30.0, "a", "stopped"), JobFailed(30.0, "a", "it broke", final=True)]
)
def test_a_job_after_any_end_runs_however_the_other_ended(end: Event) -> None:
    harness = running("acc >= 95%", Job("b", after_any=("a",)))
    held = harness.snapshot.jobs["b"]
    assert (held.held, held.reason) == (Hold.FOLLOWS, "waits: it starts after 'a'")
    assert kinds(harness.tell(end)) == [(Start, "b")]


def test_both_kinds_may_be_combined() -> None:
    both = Job("both", after=("b",), after_any=("a",))
    harness = running("acc >= 95%", Job("b"), both, Job("strict", after=("a",), after_any=("a", "b")))
    assert harness.snapshot.jobs["strict"].reason == "waits: it starts after 'a', 'b'"
    assert kinds(harness.tell(JobEnded(30.0, "a"))) == [(End, "strict")]
    assert harness.snapshot.jobs["both"].held is Hold.FOLLOWS
    harness.answer()
    assert kinds(harness.tell(JobEnded(40.0, "b"))) == [(Start, "both")]


def test_a_submission_after_a_missed_job_is_refused_and_after_any_is_not() -> None:
    verdicts = {"a": "missed"}
    assert refusal((), Job("b", after=("a",)), None, None, verdicts.get) == (
        "job 'b': after names 'a', which has ended: missed (after_any starts it however that ended)"
    )
    assert not refusal((), Job("b", after_any=("a",)), None, None, verdicts.get)
    assert "after_any must name jobs, and there is no 'c'" in refusal(
        (), Job("b", after_any=("c",)), None, None, verdicts.get
    )
    assert "after_any must name other jobs, not itself" in refusal((), Job("b", after_any=("b",)), None)


# -- journals -------------------------------------------------------------------------------------------------------


def recorded(verdict: str) -> MemoryJournal:
    """A journal as earlier versions wrote it: the end has no reason, and the job after it ran."""
    harness = running("acc >= 95%", Job("b", after=("a",)))
    end = JobEnded(30.0, "a", verdict)
    harness.controller.advance(30.0, (end,))
    harness.controller.cycle(31.0, ())
    return harness.journal


@pytest.mark.parametrize("verdict", ["finished", "missed"])
def test_a_journal_from_before_is_folded_as_it_was(verdict: str) -> None:
    journal = recorded(verdict)
    policy = find("fifo").bound()
    controller = Controller(
        empty_snapshot(NODES, 0), policy.decide, policy.order, MemoryJournal(journal.header), **policy.needs
    )
    for cycle in journal:
        again(controller, cycle)
    assert str(controller.snapshot.jobs["b"].state) == "starting"
    assert account(journal.header, journal).jobs[0].verdict == verdict
    assert replay(journal.header, journal, policy).difference is None


def test_a_restored_controller_knows_that_a_follower_was_stopped(tmp_path: Path) -> None:
    policy = find("fifo").bound()
    journal = SqliteJournal(tmp_path / "journal.db", Header("fifo", nodes=NODES))
    controller = Controller(empty_snapshot(NODES, 0), policy.decide, policy.order, journal, **policy.needs)
    jobs = (Job("a", criterion=parse("acc >= 95%")), Job("b", after=("a",)))
    controller.cycle(0.0, [JobSubmitted(0.0, job) for job in jobs])
    controller.cycle(30.0, [JobEnded(30.0, "a")])
    journal.close()
    journal = SqliteJournal(tmp_path / "journal.db", journal.header, goes_on=True)
    view = restore(journal, policy).snapshot.jobs["b"]
    events = [e for cycle in journal for e in cycle.events if isinstance(e, JobEnded)]
    journal.close()
    assert (view.verdict, view.reason) == ("stopped", "stopped: it was to start after 'a', which missed its criterion")
    assert [(e.verdict, "never reported" in e.reason) for e in events] == [("missed", True)]


# -- simulations ----------------------------------------------------------------------------------------------------


def test_a_simulated_job_whose_epochs_run_out_before_its_goal_has_missed_it() -> None:
    curve = Curve((Point(0.0, 0.0), Point(10.0, 0.9)))
    truth = Truth(100.0, epochs=10, metric="acc", quality=curve)
    jobs = [
        Job("short", criterion=parse("acc >= 95%")),
        Job("just", criterion=parse("acc >= 90%")),
        Job("early", criterion=parse("acc >= 45%")),
        Job("timed", criterion=parse("for 20 epochs")),
        Job("follows", after=("short",)),
        Job("any", after_any=("short",)),
    ]
    workload = Workload("test", tuple(Submission(0.0, job, truth) for job in jobs), (Node("n0", 8),))
    run = simulate(workload, workload.nodes, find("fifo").bound())
    accounted = account(run.journal.header, run.journal)
    assert {r.job.id: (r.verdict, r.goal_met) for r in accounted.jobs} == {
        "short": ("missed", False),
        "just": ("attained", True),
        "early": ("attained", True),
        "timed": ("finished", None),
        "follows": ("stopped", None),
        "any": ("finished", None),
    }
    assert summarise(accounted).verdicts == {"missed": 1, "attained": 2, "finished": 2, "stopped": 1}


def test_a_simulated_job_that_ended_by_itself_did_not_stand_still_to_be_stopped() -> None:
    truth = Truth(100.0, epochs=10, metric="acc", costs=Costs(stop_s=5.0))
    job = Job("a", criterion=parse("acc >= 95% within 10 epochs"))
    workload = Workload("test", (Submission(0.0, job, truth),), NODES)
    run = simulate(workload, workload.nodes, find("fifo").bound())
    (found,) = account(run.journal.header, run.journal).jobs
    assert (found.verdict, found.ended_s, found.stood_s) == ("missed", 100.0, 0.0)
