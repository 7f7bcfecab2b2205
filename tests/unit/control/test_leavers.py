"""A job that is leaving a shared partition blocks the job that gets its GPU next."""

from __future__ import annotations

from hocket.model.action import Action, Pause, Start
from hocket.model.event import JobPaused, JobStarted
from hocket.model.partition import EPOCH, Partition, Sharing, Tenant
from hocket.model.plan import Plan, Wake
from hocket.model.resources import Node, Slice
from hocket.testing.builders import job, submitted
from hocket.testing.harness import Harness

GPU = (Slice("n", (0,)),)
A, B, C = Tenant("a", (1,)), Tenant("b", (1,)), Tenant("c", (1,))
SLOW_A = Tenant("a", (1,), boundary=EPOCH)  # It leaves at the end of its epoch.
C_ALONE = Partition("q", GPU, (C,))


def packed(*tenants: Tenant) -> Partition:
    return Partition("p", GPU, tenants, Sharing.PACKED)


def follows(*plans: Plan) -> Harness:
    """One plan a cycle. The harness checks after each that no GPU is held twice."""
    left = list(plans)
    harness = Harness(lambda _snapshot: left.pop(0) if left else Plan(), [Node("n", 1)])
    harness.tell(*(submitted(job(name)) for name in "abc"))
    return harness


def plan(*put: Partition, drop: tuple[str, ...] = ()) -> Plan:
    return Plan(put, drop, reasons={"*": "so"}, wake=Wake(at_s=0.0))


def said(actions: list[Action]) -> list[tuple[str, str]]:
    return [(type(a).__name__, a.job) for a in actions]


def test_a_job_that_leaves_a_partition_which_becomes_anothers_alone_is_in_the_way() -> None:
    b_alone = Partition("p", GPU, (B,))
    harness = follows(plan(packed(SLOW_A, B)), plan(packed(B)), plan(b_alone), plan(C_ALONE, drop=("p",)))
    assert harness.tell(JobStarted(0.0, "a"), JobStarted(0.0, "b")) == [Pause("a", boundary=EPOCH)]
    assert harness.tell() == []
    assert dict(harness.snapshot.leaving.items()) == {"a/": GPU}
    assert harness.tell() == [Pause("b")]
    assert harness.tell(JobPaused(0.0, "b")) == [], "a is still there"
    assert said(harness.tell(JobPaused(0.0, "a"))) == [("Start", "c")]


def test_a_job_that_leaves_is_in_the_way_of_one_that_takes_its_partition_over_alone() -> None:
    harness = follows(plan(packed(SLOW_A, B)), plan(packed(B)), plan(Partition("p", GPU, (C,))))
    harness.tell(JobStarted(0.0, "a"), JobStarted(0.0, "b"))
    assert harness.tell() == [Pause("b")]
    assert harness.tell(JobPaused(0.0, "b")) == [], "a is still there"
    assert said(harness.tell(JobPaused(0.0, "a"))) == [("Start", "c")]


def test_a_newcomer_that_is_told_to_leave_before_it_has_started_is_in_the_way() -> None:
    harness = follows(plan(packed(A)), plan(packed(A, B)), plan(packed(A)), plan(C_ALONE, drop=("p",)))
    assert said(harness.tell(JobStarted(0.0, "a"))) == [("Start", "b")]
    assert harness.tell() == [], "b starts, and is told to leave when it has"
    assert harness.tell() == [Pause("a")]
    assert harness.tell(JobPaused(0.0, "a")) == [], "b is still there"
    assert harness.tell(JobStarted(0.0, "b")) == [Pause("b")]
    assert said(harness.tell(JobPaused(0.0, "b"))) == [("Start", "c")]


def test_a_newcomer_that_starts_is_found_also_once_holders_are_kept() -> None:
    harness = follows(plan(packed(A)), plan(packed(A, B)), plan(packed(A)), plan(C_ALONE, drop=("p",)))
    harness.controller.state.update_leaving_of(set())  # From now on the index of holders is kept.
    (start,) = harness.tell(JobStarted(0.0, "a"))
    assert isinstance(start, Start)
    assert harness.controller.state.jobs_by_partition == {"p": {"a", "b"}}
    harness.tell()
    harness.tell()
    assert harness.tell(JobPaused(0.0, "a")) == [], "b is still there"
