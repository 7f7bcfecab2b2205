"""Small snapshots to begin with, on which a policy does something that can be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from hocket.model.curve import Beliefs, Curve, Estimate, Point
from hocket.model.entries import FORMAT, Document, JobEntry, NodeEntry, ObservationEntry, OwnerEntry, SubmittedEntry
from hocket.model.job import Kind
from hocket.model.partition import EPOCH, Boundary, Partition, Tenant
from hocket.model.plan import Plan
from hocket.model.rebuild import from_document
from hocket.model.resources import Demand, Slice
from hocket.model.snapshot import Snapshot
from hocket.model.view import Costs, JobView


class Decider(Protocol):
    """A policy with its parameters bound."""

    @property
    def decide(self) -> Callable[[Snapshot], Plan]: ...

    @property
    def order(self) -> Callable[[JobView, float], tuple[Any, ...]]: ...


def example(policy: Decider | None = None) -> Document:
    """The first of our examples on which the policy changes something; without a policy, the first."""
    if policy is None:
        return training()
    for document in (training(), queries()):
        plan = policy.decide(from_document(document, policy.order))
        if plan.put or plan.drop or plan.ends or plan.tiers or plan.checkpoints:
            return document
    return training()


_COSTS = Costs(prepare_s=20.0, start_s=5.0, checkpoint_s=4.0, stop_s=1.0)


def training() -> Document:
    """Two machines, jobs that run and jobs that wait."""
    return Document(
        FORMAT,
        7200.0,
        (
            NodeEntry("n0", 4, "v100", 16000.0, 32.0, 128000.0),
            NodeEntry("n1", 4, "v100", 16000.0, 32.0, 128000.0),
        ),
        (
            JobEntry(
                SubmittedEntry(
                    "resnet",
                    "vision",
                    sizes=(1, 2, 4),
                    criterion="acc >= 92% within 4h",
                    warm=True,
                ),
                about="runs on all of n0 since its start, 5 s after it came",
                submitted_s=600.0,
                waited_s=5.0,
                ran_s=6595.0,
                attained_gpu_s=26380.0,
                done_s=6595.0,
                started_s=605.0,
                starts=1,
                epoch=2,
                observations=(
                    ObservationEntry(3905.0, 1, {"acc": 0.71}),
                    ObservationEntry(7190.0, 2, {"acc": 0.83}),
                ),
                beliefs=Beliefs(
                    Estimate(14000.0, 1500.0),
                    4,
                    Curve((Point(1, 0.3), Point(2, 0.57), Point(4, 1.0, 0.0, 2))),
                ),
                costs=_COSTS,
            ),
            JobEntry(
                SubmittedEntry("tagger", "language", sizes=(1, 2)),
                about="runs on two GPUs of n1; the other two are free",
                submitted_s=3600.0,
                ran_s=3600.0,
                attained_gpu_s=7200.0,
                done_s=3600.0,
                started_s=3600.0,
                starts=1,
                beliefs=Beliefs(Estimate(9000.0), 2),
                costs=_COSTS,
            ),
            JobEntry(
                SubmittedEntry("detector", "vision", sizes=(2,), deadline_s=5400.0, urgency=8),
                about="waits, and must be done by 12000 s",
                submitted_s=6600.0,
                beliefs=Beliefs(Estimate(3000.0), 2),
                costs=_COSTS,
            ),
            JobEntry(
                SubmittedEntry("notebook", "interns"),
                about="waits; short, and it came last",
                submitted_s=7100.0,
                beliefs=Beliefs(Estimate(300.0)),
            ),
        ),
        (
            Partition("resnet", (Slice("n0", (0, 1, 2, 3)),), (Tenant("resnet", (4,), "", EPOCH),)),
            Partition("tagger", (Slice("n1", (0, 1)),), (Tenant("tagger", (2,)),)),
        ),
        (OwnerEntry("vision", weight=2.0), OwnerEntry("interns", max_gpus=2)),
        "Two machines of four GPUs. Two jobs run, two wait, two GPUs are free. What is left out is as by default: see "
        "`hocket decide --schema`.",
    )


def queries() -> Document:
    """One machine with cores and memory, and queries that run in epochs of a set length."""
    return Document(
        FORMAT,
        300.0,
        (NodeEntry("db", cores=8.0, mem_mib=64000.0),),
        (
            JobEntry(
                SubmittedEntry(
                    "q1",
                    "ana",
                    Kind.QUERY,
                    demand=Demand(cores=1.0, mem_mib=8000.0),
                    sizes=(1, 2, 4),
                    criterion="acc >= 90% within 20m",
                ),
                about="has four cores, and its running epochs take 30 s",
                ran_s=300.0,
                started_s=0.0,
                starts=1,
                epoch=10,
                observations=(ObservationEntry(300.0, 10, {"acc": 0.86}),),
            ),
            JobEntry(
                SubmittedEntry("q5", "bo", Kind.QUERY, demand=Demand(cores=1.0, mem_mib=8000.0), sizes=(1, 2, 4)),
                about="waits",
                submitted_s=290.0,
            ),
        ),
        (
            Partition(
                "q1",
                (Slice("db", cores=4.0, mem_mib=32000.0),),
                (Tenant("q1", (4,), "", Boundary("after", seconds=30.0)),),
            ),
        ),
        about="One machine of eight cores and 64 GB. A query runs, another waits.",
    )
