"""What policies keep from one decision to the next saves work, and changes no decision, whatever is asked next."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from hocket.control.replay import encoded
from hocket.executors.simulated import simulate
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.policies import find, policies
from hocket.policies.kit.decision_cache import clear
from hocket.policies.registry import BoundPolicy
from hocket.workloads.cluster import parse_cluster
from hocket.workloads.demo import demo
from hocket.workloads.truth import Workload

MOST = 40  # decisions that are asked for again


def asked(policy: BoundPolicy) -> list[tuple[Snapshot, Plan]]:
    """What a policy was asked in a run, and what it said."""
    found: list[tuple[Snapshot, Plan]] = []

    def decide(snapshot: Snapshot) -> Plan:
        plan = policy.decide(snapshot)
        found.append((snapshot, plan))
        return plan

    whole = demo(5)
    work = Workload("demo", whole.submissions[:30], owners=whole.owners)
    simulate(work, parse_cluster("3x4"), replace(policy, decide=decide))
    return found


@pytest.mark.parametrize("name", sorted(policies()))
def test_a_decision_rests_on_its_snapshot_alone(name: str) -> None:
    policy, dice = find(name).bound(), Random(11)
    found, decide = asked(policy), policy.decide
    some = dice.sample(found, min(MOST, len(found)))  # in any order, so that what was kept is of another moment
    for snapshot, plan in some:
        assert encoded(decide(snapshot)) == encoded(plan), "asked after another"
    for snapshot, plan in some[: MOST // 4]:
        clear()
        assert encoded(decide(snapshot)) == encoded(plan), "asked first"
