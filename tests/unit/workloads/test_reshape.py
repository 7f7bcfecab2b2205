"""Reshape's four workloads."""

import json

import pytest

from hocket.workloads import spec
from hocket.workloads.errors import WorkloadError
from hocket.workloads.gavel import read_gavel
from hocket.workloads.reshape import COSTS, JOB_SETS, OVER_S, READINGS, WORKLOADS, reshape_workload


@pytest.mark.parametrize("number", WORKLOADS)
def test_a_workload_is_as_the_paper_states(number):
    made = reshape_workload(number, seed=3)
    assert len(made.submissions) == (20 if number == 2 else 40)
    assert [(n.gpus, n.gpu_kind) for n in made.nodes] == [(8, "v100"), (8, "p100" if number < 3 else "k80")]
    times = [s.at_s for s in made.submissions]
    assert (times[0], times[-1]) == (0.0, pytest.approx(OVER_S))
    assert {s.job.model for s in made.submissions} <= {t.name for t in JOB_SETS[0 if number < 3 else 1]}
    assert all(s.job.max_nodes == 1 and s.job.warm for s in made.submissions)
    assert all((s.job.criterion is not None) == (number == 4) for s in made.submissions)


def test_the_fourth_workload_has_the_thirds_jobs_and_their_final_accuracy_as_goal():
    third, fourth = (reshape_workload(n, seed=5).submissions for n in (3, 4))
    assert [(s.at_s, s.job.model, s.truth.run_s) for s in third] == [
        (s.at_s, s.job.model, s.truth.run_s) for s in fourth
    ]
    for s in fourth:
        values = [p.mean for p in s.truth.quality.points]
        assert [v >= s.job.criterion.target for v in values].index(True) == len(values) - 1


def test_what_is_assumed_of_speeds_and_costs_is_what_the_paper_says():
    introduction, table_iv = READINGS["introduction"], READINGS["table-iv"]
    assert (introduction.speed.at(2).mean, introduction.speed.at(4).mean) == (1.7, 2.4)
    assert introduction.speed.at(8).mean == pytest.approx(3.13, abs=0.01)
    resnet_18 = JOB_SETS[0][0]
    assert resnet_18.run_s(table_iv) == pytest.approx(1_281_167 / 64 * 0.18)
    assert resnet_18.run_s(table_iv) / table_iv.speed.at(2).mean == pytest.approx(1_281_167 / 64 * 0.14)
    assert table_iv.termination.restart_s(warm=False) == 242  # Job 1, from the 815th to the 1057th second
    assert reshape_workload(1, early=False, reading="table-iv").submissions[0].truth.costs == table_iv.termination
    assert reshape_workload(1, reading="table-iv").submissions[0].truth.costs == COSTS
    assert COSTS.prepare_s + COSTS.start_s == 174  # Job 2 of the case study: from the 633rd to the 807th second
    assert COSTS.restart_s(warm=True) == (27 + 37) / 2
    assert COSTS.restart_s(warm=False) < 204


def test_seeds_differ_and_repeat():
    assert reshape_workload(1, 1) == reshape_workload(1, 1) != reshape_workload(1, 2)


def measured(tmp_path, *types):
    """A file of profiles: speeds in proportion to the square root of GPUs, half on P100 and a tenth on K80."""
    found = {
        kind: {f"('{t}', {n})": {"null": share * n**0.5} for t in types for n in (1, 2, 4, 8)}
        for kind, share in (("v100", 10.0), ("p100", 5.0), ("k80", 1.0))
    }
    path = tmp_path / "profiles.json"
    path.write_text(json.dumps(found))
    return read_gavel(str(path))


def test_with_profiles_speeds_are_those_of_the_paired_types(tmp_path):
    types = {t.paired for kinds in JOB_SETS for t in kinds}
    for s in reshape_workload(1, profiles=measured(tmp_path, *types)).submissions:
        assert s.truth.speed.at(4).mean == pytest.approx(2.0)
        assert s.truth.kinds["p100"] == pytest.approx(0.5)
        assert s.truth.costs == COSTS


def test_a_type_that_the_profiles_have_not_is_refused_by_name(tmp_path):
    with pytest.raises(WorkloadError, match=r"there must be a job type 'ResNet-18 \(batch size 64\)'"):
        reshape_workload(1, profiles=measured(tmp_path, "ResNet-50 (batch size 64)"))


def test_the_spec_names_workloads_and_refuses_others():
    assert spec.load("reshape?workload=2", seed=1).submissions == reshape_workload(2, 1).submissions
    assert not spec.load("reshape?workload=1&cold").submissions[0].job.warm
    by_table = spec.load("reshape?workload=1&reading=table-iv", seed=2)
    assert by_table.submissions == reshape_workload(1, 2, reading="table-iv").submissions
    with pytest.raises(WorkloadError, match="workload must be 1, 2, 3 or 4, not '5'"):
        spec.load("reshape?workload=5")
