"""A job's rank changes with time, and at that very moment the job itself reports something."""

import pytest

from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header
from hocket.control.replay import replay
from hocket.model.action import Pause, Start
from hocket.model.event import EpochEnded, JobEnded, JobResized, JobStarted, JobSubmitted
from hocket.model.job import Job
from hocket.model.resources import Node
from hocket.model.snapshot import empty_snapshot
from hocket.policies import find
from hocket.policies.kit.draft import Draft
from hocket.testing.builders import cluster, job, submitted
from hocket.testing.harness import Harness


@pytest.mark.parametrize("reports", [True, False])
def test_a_job_that_falls_behind_a_waiting_one_is_noticed_though_an_event_ranked_it_first(reports):
    policy = find("las").bound({"levels_gpu_s": [10.0]})
    start = empty_snapshot((Node("n", 1),), 0)
    controller = Controller(start, policy.decide, policy.order, MemoryJournal(Header("las")), **policy.needs)
    (begun,) = controller.cycle(0.0, [JobSubmitted(0.0, Job("a"))])
    assert isinstance(begun, Start)
    controller.cycle(0.0, [JobStarted(0.0, "a")])
    assert controller.cycle(5.0, [JobSubmitted(5.0, Job("b"))]) == []
    assert controller.next_timer_s() == pytest.approx(10.0)
    # The timer rings a little late, and what came meanwhile is taken in by the same cycle.
    actions = controller.cycle(10.01, [EpochEnded(10.01, "a", 1, {})] if reports else [])
    assert [(type(action), action.job) for action in actions] == [(Pause, "a")]


@pytest.mark.parametrize("before_s", [0.5, 0.0007, 0.0, -0.0007])
@pytest.mark.parametrize("policy", ["las", "tiresias"])
def test_a_job_that_sinks_makes_way_though_it_reports_in_that_very_moment(policy, before_s):
    """The level counts a rounding early, so that a report may find the job there before its time has come."""
    harness = Harness.of(find(policy).bound({"levels_gpu_s": [8.0]}), cluster("1x1"))
    harness.tell(submitted(job("old")))
    harness.settle()
    harness.tell(submitted(job("new"), 5.0))
    harness.tell(EpochEnded(8.0 - before_s, "old", 1, {}))
    if before_s > 0:
        harness.tell(at_s=8.0)
    assert [a.job for a in harness.log if isinstance(a, Pause)] == ["old"]


def test_a_time_set_for_a_job_that_has_ended_wakes_no_policy():
    policy = find("las").bound({"levels_gpu_s": [10.0]})
    start = empty_snapshot((Node("n", 2),), 0)
    controller = Controller(start, policy.decide, policy.order, MemoryJournal(Header("las")), **policy.needs)
    controller.cycle(0.0, [JobSubmitted(0.0, Job("a"))])
    controller.cycle(2.0, [JobStarted(0.0, "a"), JobSubmitted(2.0, Job("b"))])
    controller.cycle(5.0, [JobStarted(2.0, "b"), JobSubmitted(5.0, Job("both", sizes=(2,)))])
    assert controller.next_timer_s() == pytest.approx(10.0), "a would fall behind the one that waits"
    assert controller.cycle(6.0, [JobEnded(6.0, "a")]) == []
    assert controller.next_timer_s() == pytest.approx(12.0), "b will"


@pytest.mark.parametrize("waits", [True, False])
def test_asking_for_the_next_time_changes_no_decision(waits):
    """A live controller does so after each cycle, a replay never; a start that took its time left a moment behind."""
    policy = find("las").bound({"levels_gpu_s": [10.0]})
    journal = MemoryJournal(Header("las", nodes=(Node("n", 2),)))
    controller = Controller(empty_snapshot(journal.header.nodes), policy.decide, policy.order, journal, **policy.needs)

    def cycle(*events):
        if waits:
            controller.next_timer_s()
        return controller.cycle(events[-1].at_s, events)

    cycle(JobSubmitted(0.0, Job("a")), JobSubmitted(0.0, Job("other")))
    cycle(JobStarted(0.05, "a"))
    cycle(JobStarted(4.0, "other"))
    cycle(JobSubmitted(5.0, Job("b")))
    assert controller.next_timer_s() == pytest.approx(10.05)
    # Below a rounding before the moment, and after the one that was foreseen when the job was told to start.
    assert cycle(EpochEnded(10.0495, "other", 1, {})) == []
    assert [action.job for action in cycle(EpochEnded(10.05, "other", 2, {}))] == ["a"]
    assert replay(journal.header, journal, policy).difference is None


def test_a_job_that_is_resized_twice_in_an_instant_falls_when_its_present_gpus_let_it():
    las, sizes = find("las").bound({"levels_gpu_s": [100.0]}), [4, 1, 4]

    def decide(snapshot):
        draft, view = Draft(snapshot), snapshot.jobs["a"]
        if not view.partitions:
            draft.start(view, "starts", sizes.pop(0))
        elif sizes and snapshot.now_s == 20.0:
            draft.resize(view, sizes.pop(0), "is resized")
        return draft.plan()

    nodes = (Node("n", 4),)
    controller = Controller(
        empty_snapshot(nodes), decide, las.order, MemoryJournal(Header("las", nodes=nodes)), **las.needs
    )
    controller.cycle(0.0, [JobSubmitted(0.0, Job("a", sizes=(1, 4)))])
    controller.cycle(10.0, [JobStarted(10.0, "a")])
    controller.cycle(20.0, [EpochEnded(20.0, "a", 1, {})])
    controller.cycle(20.0, [JobResized(20.0, "a"), EpochEnded(20.0, "a", 2, {})])
    controller.cycle(20.0, [JobResized(20.0, "a")])
    assert (controller.snapshot.jobs["a"].gpus, sizes) == (4, [])
    controller.cycle(36.0, [])  # It has had 40 GPU-seconds, and has 64 more.
    assert controller.snapshot.jobs["a"].rank[1] == 1
