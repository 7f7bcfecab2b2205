"""Options that do nothing under the present policy are named, with the policies that use them."""

import pytest
from msgspec.structs import replace

from hocket.model.job import Job
from hocket.model.plan import Plan
from hocket.policies import Params, Policy, find
from hocket.service.ignored_options import ignored_options

ALL = Job("a", priority=3, urgency=2, deadline_s=60.0, weight=2.0)


@pytest.mark.parametrize(
    ("policy", "ignored"),
    [
        ("round_robin", ["--priority", "--urgency", "--deadline", "--weight"]),
        ("edf", ["--priority", "--urgency", "--weight"]),
        ("las", ["--urgency", "--deadline", "--weight"]),
        ("borg_fair", ["--urgency", "--deadline"]),
        ("mlf_h", ["--priority", "--weight"]),
    ],
)
def test_each_option_that_the_policy_does_not_read_is_named(policy: str, ignored: list[str]) -> None:
    found = list(ignored_options(ALL, find(policy).bound()))
    assert [sentence.split()[0] for sentence in found] == ignored
    assert all(f" has no effect under policy '{policy}'; policies that use it: " in sentence for sentence in found)


def test_the_policies_that_use_an_option_are_named() -> None:
    (urgency,) = ignored_options(Job("a", urgency=2), find("las").bound())
    assert urgency == "--urgency has no effect under policy 'las'; policies that use it: mlf_h, mlf_rl"


def test_options_at_their_defaults_are_not_named() -> None:
    assert not list(ignored_options(Job("a"), find("las").bound()))


def test_a_layer_is_named_with_what_it_is_put_around() -> None:
    (found,) = ignored_options(Job("a", urgency=2), find("mlfs_c").bound({"inner": "edf"}))
    assert "under policy 'mlfs_c around edf'" in found
    assert not list(ignored_options(Job("a", urgency=2), find("mlfs_c").bound({"inner": "mlf_h"})))


def test_nothing_is_said_of_a_policy_whose_author_does_not_say() -> None:
    bound = Policy("mine", lambda _snapshot, _params: Plan(), Params, None, "", "", "").bound()
    assert not list(ignored_options(ALL, bound))
    said = replace(bound, policy=replace(bound.policy, reads=()))
    assert len(list(ignored_options(ALL, said))) == 4
