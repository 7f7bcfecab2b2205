"""Placed jobs by owner and GPUs, kept from decision to decision: the same as counted anew."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from hocket.executors.simulated import simulate
from hocket.model.job import Owner
from hocket.model.partition import Partition, Sharing, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Slice
from hocket.model.snapshot import Snapshot
from hocket.policies import find
from hocket.policies.kit import owner_shares
from hocket.policies.kit.decision_cache import clear
from hocket.policies.kit.placed_by_owner import held_by
from hocket.testing.builders import cluster, job, submission, submitted, workload
from hocket.testing.harness import Harness

DICE = Random(5)
OWNERS = ("ana", "bob", "cem")
WORK = workload(
    *(
        submission(
            job(f"j{i}", *DICE.choice([(1,), (1,), (2,), (1, 2, 4), (4,)]), owner=DICE.choice(OWNERS)),
            i * 40.0,
            DICE.lognormvariate(7, 1),
        )
        for i in range(200)
    ),
    owners=[Owner("ana", weight=2.0), Owner("cem", max_gpus=8)],
)


@pytest.mark.parametrize("policy", ["fair", "drf"])
def test_policies_decide_as_if_they_counted_anew(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = find(policy).bound({"preempt": True})

    def plans() -> list[Plan | None]:
        return [cycle.plan for cycle in simulate(WORK, cluster("4x4"), bound, noise=0.3).journal]

    kept = plans()
    assert sum(bool(plan.drop) for plan in kept if plan is not None) > 10, "some made way"
    clear()
    monkeypatch.setattr(owner_shares, "held_by", lambda _snapshot, _owner: None)
    assert plans() == kept


def test_it_follows_what_comes_goes_and_is_shared() -> None:
    part = (Slice("n0", (0, 1)),)
    alone = Partition("a", part, (Tenant("a", (2,)),))
    together = Partition("a", part, (Tenant("a", (2,)), Tenant("b", (2,))), Sharing.PACKED)
    elsewhere = Partition("b", (Slice("n0", (2, 3)),), (Tenant("b", (2,)),))
    plans = iter([Plan(put=(alone,)), Plan(put=(together,)), Plan(put=(alone, elsewhere)), Plan(drop=("a",))])

    def decide(_snapshot: Snapshot) -> Plan:
        return replace(next(plans, Plan()), reasons={"*": "so it is written"})

    harness = Harness(decide, cluster("1x4"))
    for name, owner in (("a", "ana"), ("b", "bob"), ("c", "bob"), ("d", "bob")):
        harness.tell(submitted(job(name, 2, owner=owner)))
        harness.settle()
        found = {owner: held_by(harness.snapshot, owner) for owner in ("ana", "bob")}
        clear()
        assert found == {owner: held_by(harness.snapshot, owner) for owner in ("ana", "bob")}
    assert found == {"ana": [], "bob": [(2, 1, "b")]}
