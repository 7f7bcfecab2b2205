from math import nan
from random import Random

import pytest
from msgspec.structs import replace

from hocket.control.admission import refusal
from hocket.control.check import violations
from hocket.executors.simulated import BeliefMode, simulate
from hocket.model.capacity import Capacity
from hocket.model.curve import Beliefs, Curve, Point
from hocket.model.event import (
    JobEnded,
    JobMoved,
    JobPaused,
    JobResized,
    JobSaved,
    JobStarted,
    JobSubmitted,
    PhasesObserved,
)
from hocket.model.job import Kind, Preempt
from hocket.model.partition import Sharing
from hocket.model.phases import Profile
from hocket.model.resources import Node
from hocket.policies import find
from hocket.policies.harmony.groups import JobGroup, _group
from hocket.testing.builders import job, submission, workload
from hocket.testing.harness import Harness

COSTS = {"gpus": 0, "cores": 8.0, "net_mbps": 1000.0, "kind": Kind.PARAMETER_SERVER}


def machines(n, mem_mib=32_000.0):
    return [Node(f"m{i}", cores=8.0, mem_mib=mem_mib, net_mbps=1000.0) for i in range(n)]


def phased(name, n=8, **more):
    return job(name, *range(1, n + 1), **{**COSTS, **more})


def told(name, comp_machine_s, comm_s, own_part=0.0, **more):
    """Of a job that keeps a part of its model on each machine, COMM is that on two."""
    beliefs = Beliefs(
        comp_s=Curve((Point(1.0, comp_machine_s),)), comm_s=Curve((Point(1.0 + (own_part > 0), comm_s),)),
        own_part=own_part,
    )  # fmt: skip
    return JobSubmitted(0.0, phased(name, **more), beliefs)


def harness(n, **knobs):
    return Harness.of(find("harmony").bound(knobs), machines(n))


def groups(h):
    return {p.id: {t.job for t in p.tenants} for p in h.snapshot.partitions.values()}


def test_jobs_that_complement_each_other_share_whole_machines():
    h = harness(4)
    h.tell(told("cpu", 40.0, 2.0), told("net", 8.0, 10.0))
    (partition,) = h.snapshot.partitions.values()
    assert partition.sharing is Sharing.INTERLEAVED
    assert {t.job for t in partition.tenants} == {"cpu", "net"}
    assert all(s == m.whole() for s, m in zip(partition.slices, machines(4), strict=True))


def test_reasons_tell_what_joining_does_to_a_group():
    h = harness(4)
    h.tell(told("cpu", 40.0, 2.0))
    h.settle()
    h.tell(replace(told("net", 8.0, 10.0), at_s=1.0), at_s=1.0)
    reason = h.snapshot.jobs["net"].reason
    assert reason.startswith("joins g0.1: CPU 83% → ")
    assert "network 17% → 100%" in reason


def test_a_job_that_raises_no_groups_utilisation_waits_and_is_told_so():
    h = harness(2)
    h.tell(told("a", 20.0, 10.0), told("b", 20.0, 10.0))
    h.settle()
    h.tell(replace(told("c", 20.0, 10.0), at_s=1.0), at_s=1.0)
    assert not h.snapshot.jobs["c"].partitions
    assert h.snapshot.jobs["c"].reason.startswith("waits: it would raise the utilisation of no group")


def test_a_finished_job_is_replaced_by_one_like_it():
    h = harness(2)
    h.tell(told("a", 20.0, 10.0), told("b", 20.0, 10.0))
    h.settle()
    for name, comp in (("unlike", 3.0), ("alike", 20.4)):
        h.tell(replace(told(name, comp, 10.0), at_s=1.0), at_s=1.0)
    assert not h.snapshot.jobs["alike"].partitions
    before = dict(groups(h))
    h.tell(JobEnded(5.0, "a"))
    assert h.snapshot.jobs["alike"].partitions
    assert "like the job that left it" in h.snapshot.jobs["alike"].reason
    assert groups(h).keys() == before.keys()
    h.settle()
    assert not any(type(e) in (JobMoved, JobResized) for c in h.journal.cycles for e in c.events)


def test_a_finished_job_may_be_replaced_by_a_bundle():
    from hocket.policies.harmony.regroup import substitutes

    waiting = [Profile(100.0, 1.0), Profile(8.0, 4.0), Profile(12.0, 6.0)]
    assert substitutes(20.0, 10.0, 2, waiting, 0.05) == (1, 2)
    assert substitutes(20.0, 10.0, 2, waiting[:2], 0.05) == ()


def test_newcomers_are_profiled_and_then_settled():
    jobs = [submission(phased(f"j{i}"), 0.0, 400.0, reference_size=4, comp_s=4.0 + i, comm_s=2.0) for i in range(6)]
    ran = simulate(workload(*jobs), machines(8), find("harmony").bound(), beliefs=BeliefMode("learned"))
    events = [e for c in ran.journal for e in c.events]
    assert {e.job for e in events if isinstance(e, PhasesObserved)} == {f"j{i}" for i in range(6)}
    assert {e.job for e in events if isinstance(e, JobEnded)} == {f"j{i}" for i in range(6)}
    assert not ran.refused_plans


@pytest.mark.parametrize("comp_s", [0.0, nan])
def test_a_profile_that_makes_no_sense_keeps_a_job_in_profiling(comp_s):
    h = harness(4)
    h.tell(told("odd", comp_s, 0.0), told("fine", 10.0, 5.0))
    h.settle()
    assert h.snapshot.jobs["odd"].partitions
    assert h.snapshot.jobs["fine"].partitions
    assert "profiled" in h.snapshot.jobs["odd"].reason


@pytest.mark.parametrize(("knobs", "machines"), [({}, 1), ({"variant": "paper"}, 4), ({"objective": "use"}, 4)])
def test_a_job_that_communicates_has_no_machines_that_make_it_slower(knobs, machines):
    h = harness(4, **knobs)
    h.tell(told("net", 1.0, 10.0, own_part=1.0))
    (partition,) = h.snapshot.partitions.values()
    assert len(partition.slices) == machines


def test_a_group_remembers_what_its_machines_have_to_send():
    h, profiles = harness(4), [Profile(80.0, 6.0, own_part=1.0), Profile(8.0, 20.0, own_part=1.0)]
    h.tell(told("cpu", 80.0, 6.0), told("net", 8.0, 20.0))
    cpu, net = (h.snapshot.jobs[name] for name in ("cpu", "net"))
    group = JobGroup.settled("g", 4, [cpu, net], profiles)
    memo = group.memo_of(profiles[1])
    assert memo == [8.0, 20.0, 88.0, 26.0, 24.5, 2.0, 1.0]  # On four machines COMM takes 4.5 and 15 s.
    assert group.use() == pytest.approx((22.0 / 24.5, 19.5 / 24.5))
    assert JobGroup.settled("g", 4, [cpu], profiles[:1]).with_job(profiles[1]).use() == pytest.approx(group.use())
    partition = next(iter(h.snapshot.partitions.values()))
    wide = replace(partition, slices=tuple(m.whole() for m in machines(4)))
    both, left = (_group(wide, [replace(v, memo=memo) for v in views]) for views in ((cpu, net), (net,)))
    assert (both.longest_s, both.own_part) == (24.5, 1.0)
    assert left.longest_s == pytest.approx(8.0 / 4 + 15.0)


def unprofiled(at_s, name, preempt=Preempt.ALWAYS):
    return JobSubmitted(at_s, phased(name, preempt=preempt))


def test_groups_are_not_formed_before_jobs_are_profiled_that_have_saved_nothing_yet():
    """Their group may not be changed, and so is not seen; jobs that belong together would stay apart."""
    h = harness(4, profile_machines=2, profile_at_once=1)
    h.tell(unprofiled(0.0, "first", Preempt.SAVED), unprofiled(0.0, "second"))
    h.settle()
    assert list(groups(h).values()) == [{"first"}, {"second"}]
    h.tell(PhasesObserved(10.0, "second", 2, 20.0, 1.0, 3))
    h.settle()
    assert h.snapshot.jobs["second"].memo is None
    h.tell(JobSaved(11.0, "first"))
    h.tell(PhasesObserved(12.0, "first", 2, 20.0, 1.0, 3))
    h.settle()
    assert list(groups(h).values()) == [{"first", "second"}]


def test_groups_are_not_formed_before_profiled_jobs_have_saved_something():
    h = harness(4, profile_machines=2, profile_at_once=1)
    h.tell(unprofiled(0.0, "first", Preempt.SAVED), unprofiled(0.0, "second"))
    h.settle()
    h.tell(PhasesObserved(10.0, "second", 2, 20.0, 1.0, 3), PhasesObserved(10.0, "first", 2, 20.0, 1.0, 3))
    h.settle()
    assert h.snapshot.jobs["second"].memo is None
    h.tell(JobSaved(11.0, "first"))
    h.settle()
    assert list(groups(h).values()) == [{"first", "second"}]


def test_groups_are_formed_at_last_without_a_job_that_saves_nothing():
    h = harness(4, profile_machines=2, profile_at_once=1)
    h.tell(unprofiled(0.0, "first", Preempt.SAVED), unprofiled(0.0, "second"))
    h.settle()
    h.tell(PhasesObserved(10.0, "first", 2, 20.0, 1.0, 29), PhasesObserved(10.0, "second", 2, 20.0, 1.0, 3))
    h.settle()
    assert h.snapshot.jobs["second"].memo is None
    h.tell(PhasesObserved(20.0, "first", 2, 20.0, 1.0, 3))
    h.tell(unprofiled(21.0, "third"))
    h.settle()
    assert h.snapshot.jobs["second"].memo is not None
    assert h.snapshot.jobs["first"].memo is None


def test_no_profiled_job_joins_or_waits_while_a_group_cannot_be_changed_as_a_job_is_profiled_there():
    h = harness(4)
    h.tell(told("net1", 2.0, 20.0), told("net2", 2.0, 20.0))
    h.settle()
    assert sorted(map(sorted, groups(h).values())) == [["net1"], ["net2"]]
    h.tell(unprofiled(1.0, "hidden", Preempt.SAVED))
    h.settle()
    h.tell(unprofiled(2.0, "net3"))
    h.settle()
    h.tell(PhasesObserved(10.0, "net3", 2, 0.1, 40.0, 3))
    h.settle()
    assert h.snapshot.jobs["net3"].memo is None
    h.tell(JobSaved(11.0, "hidden"))
    h.tell(PhasesObserved(12.0, "hidden", 2, 1.0, 1.0, 3))
    h.settle()
    assert h.snapshot.jobs["net3"].memo is not None


@pytest.mark.parametrize(("variant", "starts"), [("best", True), ("paper", False)])
def test_a_job_that_waits_is_taken_in_when_another_needs_less_than_was_believed(variant, starts):
    h = harness(4, variant=variant)
    h.tell(told("cpu", 40.0, 2.0), told("net", 8.0, 10.0))
    h.settle()
    h.tell(replace(told("more", 4.0, 6.0), at_s=1.0), at_s=1.0)
    h.settle()
    assert not h.snapshot.jobs["more"].partitions
    h.tell(PhasesObserved(10.0, "net", 4, 2.0, 4.0, 3))  # It was measured when others were in its way.
    h.settle()
    assert bool(h.snapshot.jobs["more"].partitions) is starts
    if starts:
        assert list(groups(h).values()) == [{"cpu", "net", "more"}]
        assert h.snapshot.jobs["net"].memo[1] == 4.0


def test_memory_that_fits_no_machine_is_refused_with_sizes():
    huge = phased("huge", mem_mib=64_000.0)
    reason = refusal({}, huge, Capacity.of(machines(4)))
    assert "64,000 MiB" in reason
    assert "32,000" in reason


def test_memory_of_a_machine_is_never_promised_twice():
    h = harness(4)
    h.tell(*(told(f"j{i}", 20.0, 10.0 - i, mem_mib=14_000.0) for i in range(5)))
    for partition in h.snapshot.partitions.values():
        assert len(partition.tenants) <= 2
    assert not violations(h.snapshot, find("harmony").bound().decide(h.snapshot))


@pytest.mark.parametrize("variant", ["best", "paper", "oracle"])
def test_one_machine_and_one_job_is_a_group(variant):
    h = Harness.of(find("harmony").bound({"variant": variant}), machines(1))
    h.tell(told("only", 10.0, 5.0))
    assert list(groups(h).values()) == [{"only"}]


def test_other_jobs_run_alone_beside_groups():
    h = harness(4)
    h.tell(JobSubmitted(0.0, job("plain", gpus=0, cores=4.0)), told("a", 10.0, 5.0, n=2))
    alone = h.snapshot.partitions[h.snapshot.jobs["plain"].partitions[0]]
    assert alone.sharing is Sharing.ALONE
    assert h.snapshot.jobs["a"].partitions


def starved(patience_s):
    """When a job that suits no group begins, and why, while others come and go; None if it never does."""
    h = harness(2, patience_s=patience_s)
    h.tell(told("a0", 20.0, 10.0), told("b0", 20.0, 10.0))
    h.settle()
    h.tell(replace(told("odd", 3.0, 30.0), at_s=1.0), at_s=1.0)
    assert not h.snapshot.jobs["odd"].partitions
    for n in range(1, 8):
        at_s = 100.0 * n
        h.tell(replace(told(f"a{n}", 20.0, 10.0), at_s=at_s), at_s=at_s)
        h.tell(JobEnded(at_s + 50.0, f"a{n - 1}"), at_s=at_s + 50.0)
        h.settle()
        if h.snapshot.jobs["odd"].partitions:
            return at_s + 50.0, h.snapshot.jobs["odd"].reason
    return None, ""


def test_newcomers_that_suit_better_overtake_a_job_only_until_its_patience_is_over():
    assert starved(1e9) == (None, "")
    began_s, reason = starved(300.0)
    assert 301.0 <= began_s <= 450.0
    assert "waited long" in reason


def test_whose_patience_is_over_is_not_sent_away_again():
    dice = Random("patience")
    jobs = [
        submission(
            phased(f"j{n}", 10), 60.0 * n, 400.0, reference_size=4,
            comp_s=dice.uniform(2, 20), comm_s=dice.uniform(1, 10),
        )
        for n in range(60)
    ]  # fmt: skip
    again = {}  # what jobs that had waited 600 s waited once more
    for patience_s in (1e9, 600.0):
        bound = find("harmony").bound({"patience_s": patience_s})
        ran = simulate(workload(*jobs), machines(10), bound, beliefs=BeliefMode("oracle"))
        since = {s.job.id: s.at_s for s in jobs}
        waited = dict.fromkeys(since, 0.0)
        again[patience_s] = 0.0
        for event in (e for cycle in ran.journal for e in cycle.events):
            if isinstance(event, JobPaused):
                since[event.job] = event.at_s
            elif isinstance(event, JobStarted):
                more_s = event.at_s - since[event.job]
                if waited[event.job] >= 600:
                    again[patience_s] = max(again[patience_s], more_s)
                waited[event.job] += more_s
    assert again[1e9] > 300
    assert again[600.0] < 1  # to move, at most
