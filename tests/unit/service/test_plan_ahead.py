"""What is shown of the time to come: believed ends, GPUs that a job has next, and how a metric will go on."""

import pytest

from hocket.model.criterion import parse
from hocket.model.event import EpochEnded
from hocket.policies import find
from hocket.service.plan_ahead import AheadGpus, plan_ahead
from hocket.service.record import Record
from hocket.service.rows import predicted
from hocket.service.tokens import Role, Token
from hocket.testing.builders import cluster, job, submitted
from hocket.testing.harness import Harness

ADMIN, ANA = Token("a", Role.ADMIN, ""), Token("u", Role.USER, "", owner="ana")

NET = job("net", criterion=parse("acc >= 95%"))
RECORD = Record(1, NET, 0.0)  # Of its reports, those that the view has are enough.


def test_believed_ends_and_gpus_that_are_not_free_yet_are_known():
    harness = Harness.of(find("srtf").bound(), cluster("1x2"))
    harness.tell(submitted(job("long", 2, owner="ana"), run_s=1000.0))
    harness.answer()
    harness.tell(submitted(job("short", 2, owner="bob"), 100.0, run_s=10.0))
    gpus = ["n0:0", "n0:1"]
    assert AheadGpus("short", "bob", gpus, True, None) in plan_ahead(harness.snapshot, 100.0, ADMIN)
    harness.answer()
    harness.answer()
    (now,) = plan_ahead(harness.snapshot, 105.0, ADMIN)
    assert (now.job, now.gpus, now.is_next) == ("short", gpus, False)
    assert now.until_s == pytest.approx(110.0)
    assert plan_ahead(harness.snapshot, 105.0, ANA) == [], "how far a job is, is its owner's"


def test_a_metric_goes_on_as_it_is_believed_to_with_its_band():
    harness = Harness.of(find("fifo").bound(), cluster("1x1"))
    harness.tell(submitted(NET))
    harness.answer()
    assert predicted(RECORD, harness.snapshot.jobs["net"]) == []
    for epoch in range(1, 7):
        noise = 0.005 * (-1) ** epoch
        harness.tell(EpochEnded(10.0 * epoch, "net", epoch, {"acc": 1 - 1 / (1 + epoch) + noise}))
    found = predicted(RECORD, harness.snapshot.jobs["net"])
    assert [p["epoch"] for p in found] == sorted(p["epoch"] for p in found)
    assert found[0]["epoch"] > 6
    assert found[0]["at_s"] == pytest.approx(60.0 + 10.0 * (found[0]["epoch"] - 6))
    assert all(0.85 < p["value"] < 1.0 and 0 < p["sd"] < 0.05 for p in found)
    assert found[-1]["epoch"] == 12, "as far again as it is, for its goal is further away"


def test_a_metric_that_will_not_get_to_its_goal_goes_on_all_the_same():
    harness = Harness.of(find("fifo").bound(), cluster("1x1"))
    harness.tell(submitted(NET))
    harness.answer()
    for epoch in range(1, 41):
        harness.tell(EpochEnded(10.0 * epoch, "net", epoch, {"acc": 0.9 - 0.5 / epoch}))
    found = predicted(RECORD, harness.snapshot.jobs["net"])
    assert found[-1]["epoch"] == 60
    assert found[-1]["value"] == pytest.approx(0.89, abs=0.01)
