"""Which models are packed together, in examples computed by hand."""

import pytest

from hocket.model.curve import Beliefs, Curve, Point
from hocket.model.event import JobSubmitted
from hocket.model.job import Kind, Owner
from hocket.model.partition import Sharing
from hocket.policies import find
from hocket.policies.packs.pack_gain import gain
from hocket.policies.packs.pack_knn import distance
from hocket.policies.packs.packer import PackParams, packed
from hocket.testing.builders import cluster, job, snapshot, submitted
from hocket.testing.harness import Harness

BATCH = {size: float(place) for place, size in enumerate(range(20, 71, 5))}


def model(name, mem_mib=0.0, **traits):
    return job(name, mem_mib=mem_mib, kind=Kind.MODEL, traits=traits)


def packs(policy, *jobs, mem_mib=0.0, gpus=1, **knobs):
    """The packs that are formed at once, each as the names of its models."""
    nodes = cluster(f"1x{gpus}", mem_mib=mem_mib)
    plan = find(policy).bound(knobs).decide(snapshot(nodes, *(submitted(j) for j in jobs)))
    assert all(p.sharing is Sharing.PACKED for p in plan.put)
    return [[t.job for t in p.tenants] for p in plan.put]


def test_the_distance_of_the_papers_example_is_five():
    some = {"batch_size": BATCH[20], "optimizer": "SGD", "rate": 4.0, "activation": "ReLu"}
    other = {"batch_size": BATCH[40], "optimizer": "Adagrad", "rate": 4.0, "activation": "ReLu"}
    assert distance(some, other) == 5
    assert distance(some, other, "euclid") == pytest.approx(17**0.5)
    assert distance(some, some) == 0


def test_a_hyperparameter_that_only_one_of_two_has_sets_them_apart_by_one():
    assert distance({"rate": 3.0}, {"rate": 3.0, "momentum": 7.0}) == 1


def test_without_packs_every_model_waits_for_a_device_of_its_own():
    assert packs("pack_none", model("a"), model("b"), model("c"), gpus=2) == [["a"], ["b"]]


def test_a_pack_is_full_when_the_devices_memory_is():
    four = [model(n, mem_mib=400.0) for n in "abcd"]
    assert len(packs("pack_random", *four, mem_mib=1000.0)[0]) == 2
    assert packs("pack_gain", *four, mem_mib=1300.0) == [["a", "b", "c"]]


def test_a_node_with_two_gpus_gives_each_pack_its_half_of_the_memory():
    four = [model(n, mem_mib=400.0) for n in "abcd"]
    assert packs("pack_gain", *four, mem_mib=1700.0, gpus=2) == [["a", "b"], ["c", "d"]]


def test_only_models_of_one_batch_size_are_packed_and_the_most_frequent_first():
    line = [model("a", batch_size=1.0), model("b", batch_size=2.0), model("c", batch_size=2.0)]
    assert packs("pack_batch_size", *line, gpus=2) == [["b", "c"], ["a"]]


def test_models_beyond_the_threshold_are_left_out():
    line = [model(f"m{i}", rate=float(i)) for i in range(6)]
    (pack,) = packs("pack_knn", *line, threshold=1.0)
    places = sorted(int(name[1:]) for name in pack)
    first = int(pack[0][1:])
    assert places == [i for i in range(6) if abs(i - first) <= 1]


def test_the_nearest_come_first_when_there_is_room_for_some_only():
    line = [model(f"m{i}", rate=float(i)) for i in range(7)]
    (pack,) = packs("pack_knn", *line, most=3)
    first = int(pack[0][1:])
    far = sorted(abs(i - first) for i in range(7))
    assert [abs(int(name[1:]) - first) for name in pack] == far[:3]


def test_what_is_no_model_runs_alone():
    nodes = cluster("1x2")
    plan = find("pack_gain").bound().decide(snapshot(nodes, *(submitted(j) for j in (job("plain"), model("a")))))
    assert {p.tenants[0].job: p.sharing for p in plan.put} == {"plain": Sharing.ALONE, "a": Sharing.PACKED}


def believing(name, step_s, *slower):
    """A model whose step is believed to take so long, and to slow down so by one, two … companions."""
    points = (Point(0.0, 1.0), *(Point(float(n), s) for n, s in enumerate(slower, 1)))
    beliefs = Beliefs(comp_s=Curve((Point(1.0, step_s),)), slowdown=Curve(points))
    return JobSubmitted(0.0, model(name), beliefs)


def decided(*events, **knobs):
    plan = find("pack_gain").bound(knobs).decide(snapshot(cluster("1x1"), *events))
    return [[t.job for t in p.tenants] for p in plan.put]


def test_a_pack_grows_as_long_as_it_is_believed_to_gain():
    # Three take 2.1 times as long as one (1.43 times as fast), four take 4: no faster than in turn.
    assert decided(*(believing(n, 1.0, 1.5, 2.1, 4.0) for n in "abcd")) == [["a", "b", "c"]]


def test_models_that_only_slow_each_other_down_are_not_packed():
    assert decided(*(believing(n, 1.0, 2.5) for n in "ab")) == [["a"]]


def test_models_whose_steps_take_as_long_are_packed_first():
    slow = [believing(n, 8.0, 1.2, 1.4) for n in "ac"]
    fast = [believing(n, 1.0, 1.2, 1.4) for n in "bd"]
    assert decided(slow[0], fast[0], slow[1], fast[1], most=2) == [["a", "c"]]


def test_the_gain_is_time_in_turn_by_time_together():
    view = snapshot(cluster("1x1"), believing("a", 1.0, 1.5)).jobs["a"]
    assert gain([1.0], view, 0.4) == 1
    assert gain([1.0, 1.0], view, 0.4) == pytest.approx(2 / 1.5)
    unmeasured = snapshot(cluster("1x1"), submitted(model("a"))).jobs["a"]
    assert gain([1.0, 3.0], unmeasured, 0.4) == pytest.approx(4 / (3 + 0.6))


@pytest.mark.parametrize(("enter", "tenants"), [(True, {"a", "b"}), (False, {"a"})])
def test_models_enter_a_pack_that_has_begun_if_they_may(enter, tenants):
    harness = Harness.of(find("pack_random").bound({"enter": enter}), cluster("1x1"))
    harness.tell(submitted(model("a")))
    harness.answer()
    harness.tell(submitted(model("b")))
    (pack,) = harness.snapshot.partitions.values()
    assert {t.job for t in pack.tenants} == tenants


def test_an_owner_gets_no_more_models_than_its_quota():
    from hocket.model.event import OwnerSet

    jobs = [submitted(job(n, kind=Kind.MODEL, owner="ana")) for n in "abc"]
    plan = find("pack_random").bound().decide(snapshot(cluster("1x1"), OwnerSet(0.0, Owner("ana", max_jobs=2)), *jobs))
    assert [len(p.tenants) for p in plan.put] == [2]


def test_no_model_is_chosen_once_no_device_is_left():
    asked = []

    def first_two(line, _there):
        asked.append(len(line))
        return line[:2]

    plan = packed(
        snapshot(cluster("1x1"), *(submitted(model(f"m{n}")) for n in range(20))), PackParams(), first_two, "why"
    )
    assert [len(p.tenants) for p in plan.put] == [2]
    assert asked == [20], "the cost depends on waiting models: 18 would be compared 18 times"
    assert sum(reason.startswith("waits: no device") for reason in plan.reasons.values()) == 18
