"""Past jobs: what is refused in them, and how alike two jobs are."""

from math import inf, nan

import pytest

from hocket.model.job import Job, Kind
from hocket.model.past_job import PastJob, most_similar, similarity


def test_numbers_are_as_alike_as_rotary_has_it():
    job = Job("j", traits={"batch_size": 32.0})
    assert similarity(job, PastJob(traits={"batch_size": 64.0})) == pytest.approx(0.5)
    assert similarity(job, PastJob(traits={"batch_size": 32.0})) == 1.0


def test_categories_and_models_are_alike_or_not():
    job = Job("j", model="resnet", traits={"optimizer": "adam"})
    assert similarity(job, PastJob(model="resnet", traits={"optimizer": "sgd"})) == pytest.approx(0.5)
    assert similarity(job, PastJob(model="vgg", traits={"optimizer": "sgd"})) == 0.0


def test_what_only_one_of_them_states_counts_as_different():
    assert similarity(Job("j", model="resnet"), PastJob(model="resnet", traits={"lr": 0.1})) == pytest.approx(0.5)


def test_queries_are_not_like_training():
    assert similarity(Job("q", kind=Kind.QUERY, model="m"), PastJob(model="m")) == 0.0


def test_the_most_similar_come_first_and_the_latest_of_equals():
    past = (PastJob(model="a", unit_s=1.0), PastJob(model="b"), PastJob(model="a", unit_s=2.0))
    assert [p.unit_s for _alike, p in most_similar(Job("j", model="a"), past, 5)] == [2.0, 1.0]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"metric": "acc", "points": ((2.0, 0.1), (1.0, 0.2))}, "ascending"),
        ({"metric": "acc", "points": ((1.0, nan),)}, "finite"),
        ({"points": ((1.0, 0.5),)}, "names no metric"),
        ({"unit_s": -1.0}, "unit_s"),
        ({"mem_mib": inf}, "mem_mib"),
        ({"traits": {"lr": inf}}, "lr"),
    ],
)
def test_nonsense_is_refused_with_the_job_the_rule_and_the_value(fields, said):
    with pytest.raises(ValueError, match=f"past job 'm'.*{said}"):
        PastJob(model="m", **fields)
