"""Each policy goes by the fields of a job that it declares. That it goes by no other of them is a law."""

from pathlib import Path

import pytest
from tests.laws.drawing import drawn, is_among_many
from tests.laws.test_policies import SCENES

from hocket.model.job_spec import option_of
from hocket.policies import Draft, Params, Policy, PolicyError, find, policies, policy
from hocket.policies.registry import OPTIONAL_FIELDS
from hocket.testing import laws
from hocket.testing import strategies as some
from hocket.testing.builders import cluster, job, snapshot, submitted
from hocket.testing.optional_fields import VALUES, is_read


def test_each_field_can_be_declared():
    assert set(OPTIONAL_FIELDS) == VALUES.keys()


@pytest.mark.parametrize("name", policies())
def test_every_policy_here_says_what_it_reads(name):
    assert find(name).bound().reads is not None


def heaviest_first(snapshot, _params):
    """Reads "weight"."""
    draft = Draft(snapshot)
    for view in sorted(draft.candidates(), key=lambda view: (-view.job.weight, view.number)):
        draft.start(view, "starts: no job is heavier")
    return draft.plan()


def test_the_law_finds_a_field_that_is_not_declared():
    nodes, jobs = cluster("1x1"), [submitted(job(f"j{n}")) for n in range(3)]
    state = snapshot(nodes, *jobs)
    for reads in (None, ("weight",), ("priority", "weight")):
        laws.hold(Policy("heaviest", heaviest_first, Params, None, "", "", "", reads=reads).bound(), state)
    bound = Policy("heaviest", heaviest_first, Params, None, "", "", "", reads=("priority",)).bound()
    with pytest.raises(laws.Broken, match=r"the policy reads \['weight'\], and declares \['priority'\]") as found:
        laws.hold(bound, state)
    assert "policy 'heaviest' breaks the law 'reads_what_it_declares'" in str(found.value)


@pytest.mark.parametrize(
    ("name", "field"), [(name, field) for name, p in policies().items() for field in p.bound().reads or ()]
)
def test_what_a_policy_declares_changes_a_plan(name, field):
    bound = find(name).bound()  # Found by the search of the law: so that would find what is not declared.

    def is_read_in(scene):
        return any(is_read(bound, state, [field]) for state in some.snapshots_of(scene, bound))

    assert any(map(is_read_in, drawn(SCENES))) or is_among_many(SCENES, is_read_in)


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
