"""TME: memory over batch size from the models most alike in parameters."""

import pytest

from hocket.estimators.training_memory import memory_mib, sufficient
from hocket.model.job import Job, Kind
from hocket.model.past_job import PastJob


def past(parameters: float, batch: float, mem_mib: float, dataset: str = "cifar10") -> PastJob:
    traits: dict[str, float | str] = {"parameters": parameters, "batch_size": batch, "dataset": dataset}
    return PastJob(model=f"m{parameters:g}", traits=traits, mem_mib=mem_mib)


def job(batch: float = 32.0, parameters: float = 10e6, dataset: str = "cifar10") -> Job:
    return Job("j", traits={"parameters": parameters, "batch_size": batch, "dataset": dataset})


def test_memory_is_a_line_over_the_batch_size_padded_by_5_percent():
    known = [past(10e6, b, 500 + 10 * b) for b in (8.0, 16.0, 64.0)]
    found = memory_mib(job(32.0), known)
    assert found is not None
    assert found.mean == pytest.approx(1.05 * 820)
    assert found.sd == pytest.approx(0.0, abs=1e-6)


def test_models_more_alike_in_parameters_weigh_more():
    known = [past(10e6, 32.0, 1000), past(10e6, 64.0, 1000), past(100e6, 32.0, 9000), past(100e6, 64.0, 9000)]
    found = memory_mib(job(32.0), known)
    assert found is not None
    assert 1000 < found.mean / 1.05 < 3000
    assert sufficient(found) > found.mean


def test_other_data_sets_do_not_count():
    assert memory_mib(job(), [past(10e6, 32.0, 1000, "imagenet")]) is None


def test_a_job_of_unknown_size_and_a_query_have_no_estimate():
    assert memory_mib(Job("j"), [past(10e6, 32.0, 1000)]) is None
    query = Job("q", kind=Kind.QUERY, traits={"parameters": 1e6, "batch_size": 8.0})
    assert memory_mib(query, [past(10e6, 32.0, 1000)]) is None


def test_one_past_job_gives_its_own_memory():
    found = memory_mib(job(32.0), [past(10e6, 32.0, 1000)])
    assert found is not None
    assert found.mean == pytest.approx(1050)


def test_a_model_larger_than_all_that_were_measured_may_take_as_many_times_the_memory_as_it_has_parameters():
    known = [past(p, b, p / 1e4 + 10 * b) for p in (5e6, 10e6) for b in (16.0, 32.0, 64.0)]
    largest, larger = memory_mib(job(32.0, 10e6), known), memory_mib(job(32.0, 30e6), known)
    assert largest is not None
    assert larger is not None
    assert sufficient(largest) < 1.5 * largest.mean
    assert sufficient(larger) >= 3.0 * larger.mean
    few = memory_mib(job(32.0, 1e6), known)
    assert few is not None
    assert sufficient(few) < 1.5 * few.mean  # With fewer, it takes less.
