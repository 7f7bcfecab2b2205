"""What ended jobs have shown is kept for policies that ask for it, and comes back with a journal."""

from hocket.control.replay import replay
from hocket.control.saved_state import decode, encode
from hocket.executors.simulated import simulate
from hocket.model.criterion import parse
from hocket.model.event import EpochEnded, JobEnded, PastJobsGiven
from hocket.model.past_job import PastJob
from hocket.policies import find
from hocket.testing.builders import cluster, job, submitted
from hocket.testing.harness import Harness
from hocket.workloads.rotary import rotary_workload

GIVEN = PastJobsGiven(0.0, (PastJob(model="resnet", metric="acc", points=((1.0, 0.3), (2.0, 0.5)), unit_s=9.0),))


def ended(policy: str) -> Harness:
    """After a job has reported two epochs and ended."""
    harness = Harness.of(find(policy).bound(), cluster("1x1"))
    harness.tell(GIVEN)
    harness.tell(submitted(job("a", model="vgg", criterion=parse("acc >= 90% within 9 epochs"))))
    harness.settle()
    harness.tell(EpochEnded(10.0, "a", 1, {"acc": 0.2}))
    harness.tell(EpochEnded(20.0, "a", 2, {"acc": 0.3}))
    harness.tell(JobEnded(21.0, "a", "finished"))
    return harness


def test_an_ended_job_is_kept_beside_those_that_were_given():
    past = ended("rotary_dlt").snapshot.past_jobs.jobs
    assert [p.model for p in past] == ["resnet", "vgg"]
    assert past[1].points == ((1.0, 0.2), (2.0, 0.3))
    assert past[1].unit_s == 10.0


def test_a_policy_that_does_not_ask_keeps_no_ended_job_and_has_no_such_beliefs():
    harness = ended("fifo")
    assert [p.model for p in harness.snapshot.past_jobs.jobs] == ["resnet"]  # It was given, and may be asked for later.
    harness.tell(submitted(job("b", model="resnet", criterion=parse("acc >= 90%")), 30.0))
    beliefs = harness.snapshot.jobs["b"].beliefs
    assert (beliefs.completes, beliefs.unit_s, beliefs.needs_units) == (None, None, None)


def test_a_saved_state_has_the_past_jobs():
    harness, policy = ended("rotary_dlt"), find("rotary_dlt").bound()
    restored = decode(encode(harness.controller, policy), policy, harness.journal)
    assert restored.snapshot.past_jobs == harness.snapshot.past_jobs


def test_a_journal_with_past_jobs_is_decided_again_alike():
    workload = rotary_workload("aqp", seed=3, load=0.5)
    run = simulate(workload, workload.nodes, find("rotary").bound(), seed=3)
    again = replay(run.journal.header, run.journal, find("rotary").bound())
    assert again.difference is None
