"""A policy that raises: in a simulation it shows, of a live controller it wastes a cycle and harms no job."""

import pytest

from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header
from hocket.control.replay import PolicyBrokeError, replay
from hocket.control.restore import again, restore
from hocket.model.action import Start
from hocket.model.event import JobStarted, JobSubmitted
from hocket.model.job import Job
from hocket.model.partition import Partition, Tenant
from hocket.model.plan import Plan, Wake
from hocket.model.resources import Node, Slice
from hocket.model.snapshot import empty_snapshot
from hocket.policies.registry import Params, Policy

NODES = (Node("n0", 4),)


def brittle(snapshot, _params):
    """Jobs get a GPU of their own, unless there is a bad one."""
    if "bad" in snapshot.jobs:
        raise ZeroDivisionError("a bug\nof a policy")
    if "none" in snapshot.jobs:
        return None
    put = [
        Partition(v.id, (Slice("n0", (v.number,)),), (Tenant(v.id, (1,)),))
        for v in snapshot.jobs.values()
        if not v.partitions
    ]
    return Plan(tuple(put), reasons={"*": "so"}, memo=snapshot.decision, wake=Wake(freed_gpus=None))


def in_order(_view, _now_s, _params):
    return ()


BRITTLE = Policy("brittle", brittle, Params, in_order, "", "", "").bound()


def controller(journal, on_policy_error=None):
    return Controller(empty_snapshot(NODES), BRITTLE.decide, BRITTLE.order, journal, on_policy_error=on_policy_error)


def journal():
    return MemoryJournal(Header("brittle", nodes=NODES))


def submitted(*names, at_s):
    return [JobSubmitted(at_s, Job(name)) for name in names]


def test_in_a_simulation_it_is_raised():
    with pytest.raises(ZeroDivisionError):
        controller(journal()).cycle(1.0, submitted("bad", at_s=1.0))


@pytest.mark.parametrize(
    ("name", "why"),
    [("bad", "raised ZeroDivisionError: a bug of a policy"), ("none", "the policy returned None, which is not a Plan")],
)
def test_of_a_live_controller_it_wastes_a_cycle(name, why):
    kept, told = journal(), []
    live = controller(kept, on_policy_error=told.append)
    (start,) = live.cycle(1.0, submitted("good", at_s=1.0))
    assert isinstance(start, Start)
    assert live.cycle(2.0, [JobStarted(2.0, "good"), *submitted(name, at_s=2.0)]) == []
    assert why in kept.cycles[-1].refused[0]
    assert kept.cycles[-1].plan is not None, "it was asked"
    assert len(told) == live.refused_plans == 1
    assert list(live.snapshot.jobs) == ["good", name]
    assert live.snapshot.memo == 0, "as it was left by the last plan that was adopted"
    assert live.snapshot.wake == Wake(at_s=62.0), "as after every refused plan, and when a minute has passed"
    assert live.next_timer_s() == 62.0


def test_it_is_asked_again_and_a_restored_controller_and_a_replay_agree():
    kept = journal()
    live = controller(kept, on_policy_error=lambda _error: None)
    twin = controller(journal())
    for at_s, name in enumerate(["good", "bad", "other"], 1):
        live.cycle(float(at_s), submitted(name, at_s=float(at_s)))
    assert [bool(c.refused) for c in kept.cycles] == [False, True, True]
    for cycle in kept.cycles:
        again(twin, cycle)
    for restored in (twin, restore(kept, BRITTLE)):
        assert restored.snapshot.wake == live.snapshot.wake
        assert list(restored.snapshot.jobs.values()) == list(live.snapshot.jobs.values())
        assert restored.refused_plans == live.refused_plans
    found = replay(kept.header, kept.cycles, BRITTLE)
    assert found.difference is None
    assert found.decisions == 3


def test_a_replay_in_which_it_raises_where_it_had_decided_says_so():
    kept = journal()
    calm = Controller(empty_snapshot(NODES), lambda _snapshot: Plan(), BRITTLE.order, kept)
    calm.cycle(1.0, submitted("bad", at_s=1.0))
    with pytest.raises(PolicyBrokeError, match="a bug"):
        replay(kept.header, kept.cycles, BRITTLE)


def test_a_replay_in_which_it_decides_where_it_had_raised_differs():
    kept = journal()
    live = controller(kept, on_policy_error=lambda _error: None)
    live.cycle(1.0, submitted("bad", at_s=1.0))
    mended = Policy("brittle", lambda _snapshot, _params: Plan(), Params, in_order, "", "", "").bound()
    found = replay(kept.header, kept.cycles, mended)
    assert found.difference is not None
    assert "a bug" in found.difference.recorded.refused[0]
    assert found.difference.now.refused == ()


def test_a_restored_controller_survives_a_policy_that_raises():
    told = []
    live = restore(journal(), BRITTLE, told.append)
    live.cycle(1.0, submitted("bad", at_s=1.0))
    assert len(told) == 1
