"""Each policy goes by the fields of a job that it declares, and by no other of them."""

from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace
from tests.laws.drawing import drawn, many_drawn, over
from tests.laws.test_policies import CASES, SCENES

from hocket.control.replay import encoded
from hocket.model.job_spec import option_of
from hocket.model.snapshot import queues_of
from hocket.model.versioned import versioned
from hocket.policies import PolicyError, find, policies, policy
from hocket.policies.registry import OPTIONAL_FIELDS
from hocket.testing import strategies as some

VALUES = {
    "priority": [-5, 0, 1, 7],
    "urgency": [0, 1, 5, 10],
    "deadline_s": [None, 1.0, 500.0, 50_000.0],
    "weight": [0.25, 1.0, 6.0],
}
DRAWS = 3  # of other values, for each state of a scene


def with_values(snapshot, bound, fields, dice):
    """The same state, if the jobs had been submitted with other values of these fields."""
    views = []
    for view in snapshot.jobs.values():
        job = replace(view.job, **{field: dice.choice(VALUES[field]) for field in fields})
        changed = replace(view, job=job)
        views.append(replace(changed, rank=bound.order(changed, snapshot.now_s)))
    waiting, placed = queues_of(views)
    return replace(snapshot, jobs=versioned((v.id, v) for v in views), waiting=waiting, placed=placed)


def is_read(bound, example, fields):
    """Does the policy decide something else in a scene when these fields of the jobs have other values?"""
    for snapshot in some.snapshots_of(example, bound):
        plan = encoded(bound.decide(with_values(snapshot, bound, (), Random())))
        for draw in range(DRAWS):
            dice = Random(f"{draw}/{snapshot.decision}/{snapshot.now_s}/{len(snapshot.jobs)}")
            if encoded(bound.decide(with_values(snapshot, bound, fields, dice))) != plan:
                return True
    return False


def test_each_field_can_be_declared():
    assert set(OPTIONAL_FIELDS) == VALUES.keys()


@pytest.mark.parametrize("name", policies())
def test_every_policy_here_says_what_it_reads(name):
    assert find(name).bound().reads is not None


@pytest.mark.parametrize(("name", "knobs"), CASES)
@over(SCENES)
def test_what_a_policy_does_not_declare_changes_no_plan(name, knobs, example):
    bound = find(name).bound(knobs)
    others = [field for field in OPTIONAL_FIELDS if field not in bound.reads]
    if is_read(bound, example, others):
        read = [field for field in others if is_read(bound, example, [field])]
        pytest.fail(f"policy '{name}' reads {read or others}, and declares {list(bound.reads)}")


@pytest.mark.parametrize(
    ("name", "field"), [(name, field) for name, p in policies().items() for field in p.bound().reads or ()]
)
def test_what_a_policy_declares_changes_a_plan(name, field):
    bound = find(name).bound()  # Found by the search above: so that would find what is not declared.
    scenes = (scene for draw in (drawn, many_drawn) for scene in draw(SCENES))
    assert any(is_read(bound, scene, [field]) for scene in scenes)


def test_a_layer_reads_what_the_policy_inside_it_reads():
    layer = find("mlfs_c")
    assert layer.bound({"inner": "edf"}).reads == ("deadline_s",)
    assert layer.bound({"inner": "mlfs_c", "inner_params": {"inner": "borg_fair"}}).reads == ("priority", "weight")
    assert layer.bound({"inner": "srtf"}).reads == find("srtf").bound().reads


def test_only_fields_that_may_be_left_unread_are_declared():
    with pytest.raises(PolicyError, match="policy 'x': reads must name some of priority, urgency"):
        policy("x", reads=("owner",))


def test_the_overview_of_policies_names_those_that_read_each_field():
    page = (Path(__file__).parents[2] / "docs" / "policies" / "README.md").read_text(encoding="utf-8")
    told = " ".join(page.split("- **Options of a job that only some read:**")[1].split("; mlfs_c reads")[0].split())
    ours = [p for p in policies().values() if p.decide.__module__.startswith("hocket.")]
    for field in OPTIONAL_FIELDS:
        readers = [p.name for p in ours if field in (p.reads or ())]
        assert f"`{option_of(field)}` ({', '.join(readers)})" in told
