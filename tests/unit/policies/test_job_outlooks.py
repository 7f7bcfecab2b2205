"""Outlooks of jobs: what is kept from one decision to the next changes none of them."""

from __future__ import annotations

from hocket.model.criterion import parse
from hocket.model.curve import Beliefs, Curve, Estimate, Point
from hocket.model.event import EpochEnded, JobSubmitted, NodeLost
from hocket.model.snapshot import Snapshot
from hocket.policies import find
from hocket.policies.kit import decision_cache
from hocket.policies.kit.job_outlooks import JobOutlook, job_outlooks
from hocket.testing.builders import cluster, job
from hocket.testing.harness import Harness

BELIEFS = Beliefs(completes=Curve((Point(1, 0.1), Point(20, 0.9))), unit_s=Estimate(10.0), needs_units=5.0)


def outlooks(snapshot: Snapshot) -> list[JobOutlook]:
    return list(job_outlooks(snapshot, 0.05, True).values())


def test_an_outlook_is_that_of_the_present_view_time_and_cluster() -> None:
    harness = Harness.of(find("rotary").bound(), cluster("2x1"))
    for name, until in (("epochs", "acc >= 90% within 20 epochs"), ("time", "acc >= 90% within 250s")):
        harness.tell(JobSubmitted(0.0, job(name, criterion=parse(until)), BELIEFS))
    harness.settle()
    seen = [harness.snapshot]
    harness.tell(at_s=100.0)  # less time is left
    seen.append(harness.snapshot)
    harness.tell(EpochEnded(150.0, "epochs", 1, {"acc": 0.5}))
    harness.tell(EpochEnded(200.0, "epochs", 2, {"acc": 0.55}))
    seen.append(harness.snapshot)
    harness.tell(NodeLost(210.0, harness.snapshot.partitions["time"].slices[0].node))  # The other takes a larger share.
    seen.append(harness.snapshot)
    decision_cache.clear()
    kept = [outlooks(snapshot) for snapshot in (*seen, *reversed(seen))]
    fresh = []
    for snapshot in (*seen, *reversed(seen)):
        decision_cache.clear()
        fresh.append(outlooks(snapshot))
    assert kept == fresh
    assert len({str(found) for found in kept}) == len(seen)  # Each is another.
