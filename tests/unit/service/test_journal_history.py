"""Past jobs of a journal: the same as a policy that asks for them has, and there for journals of other policies too."""

from __future__ import annotations

from msgspec.structs import replace

from hocket.model.criterion import parse
from hocket.model.event import EpochEnded, Event, JobEnded, JobFailed, ProgressReported
from hocket.model.job import Job, Kind
from hocket.model.past_job import PastJob
from hocket.model.resources import Demand, Node
from hocket.policies import find
from hocket.service.journal_history import past_jobs_of
from hocket.testing.builders import job, submitted
from hocket.testing.harness import Harness

MACHINE = [Node("n", 2, cores=4.0, mem_mib=16_000.0)]
GOAL = job("goal", model="vgg", traits={"batch_size": 32.0}, criterion=parse("acc >= 90% within 9 epochs"))
QUERY = Job("q", kind=Kind.QUERY, model="q5", demand=Demand(cores=1.0), criterion=parse("acc >= 90%"))


def ended(policy: str, *more: Event) -> Harness:
    """Two jobs and a query that have reported and ended, and a job that has not."""
    harness = Harness.of(find(policy).bound(), MACHINE)
    harness.tell(submitted(GOAL), submitted(job("free")), submitted(QUERY))
    harness.settle()
    for k in (1, 2, 3):
        harness.tell(EpochEnded(10.0 * k, "goal", k, {"acc": 0.2 * k, "loss": 1.0 / k}))
        harness.tell(EpochEnded(10.0 * k + 1, "free", k, {"val_loss": 2.0 / k, "lr": 0.1}))
        harness.tell(ProgressReported(10.0 * k + 2, "q", 0, {"acc": 0.5 + 0.1 * k, "fraction": 0.1 * k}, step=k))
    harness.tell(*more)
    harness.tell(
        JobEnded(40.0, "goal", peak_mib=70.0, peak_gpu_mib=500.0),
        JobFailed(40.0, "free", "broken", final=True),
        JobEnded(40.0, "q", "attained", peak_mib=90.0),
    )
    harness.tell(submitted(job("open"), 50.0))
    harness.settle()
    harness.tell(EpochEnded(60.0, "open", 1, {"acc": 0.5}))
    return harness


def shown(harness: Harness, policy: str) -> dict[str, PastJob]:
    header = replace(harness.journal.header, policy=policy)  # A harness does not say which it has.
    return {p.model: p for p in past_jobs_of(header, "j", harness.journal)}


def test_it_is_what_a_policy_that_asks_for_past_jobs_has() -> None:
    harness = ended("rotary")
    kept = {p.model: replace(p, foretold=()) for p in harness.snapshot.past_jobs.jobs}
    found = shown(harness, "rotary")
    assert {*found} == {"vgg", "", "q5"}
    assert {m: found[m] for m in ("vgg", "q5")} == {m: kept[m] for m in ("vgg", "q5")}


def test_a_journal_of_another_policy_has_them_too() -> None:
    found = shown(ended("fifo"), "fifo")
    assert found["vgg"] == PastJob(
        Kind.TRAINING,
        "vgg",
        {"batch_size": 32.0},
        "acc",
        ((1.0, 0.2), (2.0, 0.4), (3.0, 0.6000000000000001)),
        10.0,
        500.0,
    )  # It has a GPU: the memory of its node says nothing about that.
    assert found["q5"].mem_mib == 90.0
    assert found["q5"].points == ((0.1, 0.6), (0.2, 0.7), (0.30000000000000004, 0.8))


def test_an_epoch_that_is_reported_again_changes_nothing() -> None:
    backwards = EpochEnded(35.0, "goal", 1, {"acc": 0.9})
    assert shown(ended("fifo", backwards), "fifo")["vgg"] == shown(ended("fifo"), "fifo")["vgg"]


def test_of_a_job_without_a_criterion_the_metric_counts_that_is_an_accuracy_or_a_loss() -> None:
    free = shown(ended("fifo"), "fifo")[""]
    assert (free.metric, free.points) == ("val_loss", ((1.0, 2.0), (2.0, 1.0), (3.0, 2.0 / 3)))
