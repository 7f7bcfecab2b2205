"""A user's own CSV: every column has its meaning, and every bad cell its line."""

import pytest

from hocket.model.criterion import parse
from hocket.model.resources import Demand
from hocket.workloads import WorkloadError, load


@pytest.fixture
def jobs(tmp_path):
    def read(text: str, options: str = ""):
        path = tmp_path / "jobs.csv"
        path.write_text(text)
        return load(f"{path}{options}")

    return read


def test_three_columns_are_enough(jobs):
    (only,) = jobs("id,submit_s,run_s\na,5,2h\n").submissions
    assert (only.at_s, only.truth.run_s, only.job.sizes, only.job.demand) == (5.0, 7200.0, (1,), Demand(1))


def test_every_column_reaches_the_job_or_its_truth(jobs):
    header = (
        "id,submit_s,run_s,gpus,sizes,owner,cores,mem_mib,net_mbps,weight,priority,deadline_s,gpu_kinds,"
        "criterion,epochs,max_nodes,model,metric,quality,speed,urgency,warm,gpu_mem_mib"
    )
    row = "a,0,60,2,1;2;4,ann,4,512,10,2.5,-1,1h,v100;p100,acc >= 90%,3,1,lm,acc,0.5;0.7;0.9,law:0.1,3,yes,16000"
    (only,) = jobs(f"{header}\n{row}\n").submissions
    job, truth = only.job, only.truth
    assert job.demand == Demand(1, 4.0, 512.0, 10.0)
    assert (job.sizes, truth.reference_size, job.owner, job.weight, job.priority) == (
        (1, 2, 4),
        2,
        "ann",
        2.5,
        -1,
    )
    assert (job.deadline_s, job.gpu_kinds, job.max_nodes, job.model) == (3600.0, ("v100", "p100"), 1, "lm")
    assert (job.urgency, job.warm, job.gpu_mem_mib) == (3, True, 16000.0)
    assert job.criterion == parse("acc >= 90%")
    assert (truth.epochs, truth.metric) == (3, "acc")
    assert truth.quality is not None
    assert truth.quality.at(3).mean == 0.9
    assert truth.speed is not None
    assert truth.speed.at(4).mean == pytest.approx((4 / 1.3) / (2 / 1.1))


def test_an_empty_cell_means_the_default(jobs):
    with_cells = jobs("id,submit_s,run_s,gpus,owner,criterion\na,0,1,,,\n").submissions
    assert with_cells == jobs("id,submit_s,run_s\na,0,1\n").submissions


def test_a_job_without_gpus_asks_for_cores_only(jobs):
    (only,) = jobs("id,submit_s,run_s,gpus,sizes,cores\nq,0,1,0,1;2,4\n").submissions
    assert (only.job.demand, only.job.sizes, only.truth.reference_size) == (Demand(0, 4.0), (1, 2), 1)


def test_replicas_of_several_gpus(jobs):
    (only,) = jobs("id,submit_s,run_s,gpus,replica_gpus\na,0,1,8,4\n").submissions
    assert (only.job.demand.gpus, only.job.sizes) == (4, (2,))


def test_speeds_may_be_numbers_for_each_size(jobs):
    (only,) = jobs("id,submit_s,run_s,gpus,sizes,speed\na,0,1,2,1;2,5;8\n").submissions
    assert only.truth.speed is not None
    assert [p.mean for p in only.truth.speed.points] == [5 / 8, 1.0]


def test_options_choose_by_owner(jobs):
    text = "id,submit_s,run_s,owner\na,0,1,ann\nb,0,1,bob\n"
    assert [s.job.id for s in jobs(text, "?owner=bob").submissions] == ["b"]


@pytest.mark.parametrize("cell", ["5", ""])
@pytest.mark.parametrize(("before", "line"), [("", 1), ("\n\n", 3)])
def test_a_misspelled_column_is_refused_where_it_stands(jobs, tmp_path, before, line, cell):
    with pytest.raises(WorkloadError) as caught:
        jobs(f"{before}id,submit_s,run_s,deadlin_s\na,0,1,{cell}\n")
    problem = "unknown column 'deadlin_s' (did you mean 'deadline_s'?)"
    assert str(caught.value) == f"{tmp_path / 'jobs.csv'} line {line}: {problem}"


@pytest.mark.parametrize(
    ("columns", "cells", "message"),
    [
        ("gpus", "-1", "gpus must be a whole number from 0 up, not '-1'"),
        ("gpus", "two", "gpus must be a whole number from 0 up, not 'two'"),
        ("sizes", "2;1", "sizes must ascend, each size once, not [2, 1]"),
        ("sizes", "1;x", "sizes must be entries separated by ';', each a whole number from 1 up, not '1;x'"),
        ("gpus,sizes", "3,1;2", "gpus must be among the sizes [1, 2] as replicas, not 3"),
        ("gpus,replica_gpus", "3,2", "gpus must be a multiple of replica_gpus, which is 2, not 3"),
        ("gpus,replica_gpus", "0,2", "gpus must not be 0 when replica_gpus is 2"),
        ("weight", "0", "weight must be a finite number above 0, not '0'"),
        ("weight", "5e-324", "weight must be a finite number above 0, at least 1e-09, not '5e-324'"),
        ("net_mbps", "5e-324", "net_mbps must be a finite number from 0 up, 0 or at least 1e-09, not '5e-324'"),
        ("mem_mib", "nan", "mem_mib must be a finite number from 0 up, not 'nan'"),
        ("cores", "inf", "cores must be a finite number from 0 up, not 'inf'"),
        ("deadline_s", "0", "deadline_s must be a finite number of seconds above 0"),
        ("kind", "trainin", "kind must be training, query, parameter-server or model, not 'trainin'"),
        ("urgency", "11", "urgency must be a whole number from 0 up, at most 10, not '11'"),
        (
            "criterion",
            "acc > 5",
            "criterion must follow its grammar: criterion 'acc > 5': at column 5 expected",
        ),
        ("quality", "0.5", "quality must come with epochs from 1 up, not '0.5'"),
        ("sizes,speed", "1;2,1", "speed must have 2 numbers, one for each size, not 1"),
        ("speed", "law:7", "speed must be a law or a number for each size: speeds 'law:7'"),
        ("crashes_s", "5;3", "crashes_s must ascend, not [5.0, 3.0]"),
        ("costs", "5", "costs must be a table, not '5'"),
    ],
)
def test_a_bad_cell_is_refused(jobs, tmp_path, columns, cells, message):
    with pytest.raises(WorkloadError) as caught:
        jobs(f"id,submit_s,run_s,{columns}\na,0,1,{cells}\n")
    assert str(caught.value).startswith(f"{tmp_path / 'jobs.csv'} line 2: {message}")


def test_ids_must_be_distinct(jobs):
    with pytest.raises(WorkloadError, match="line 3: id must be unique, and line 2 has 'a' too"):
        jobs("id,submit_s,run_s\na,0,1\na,0,1\n")


def test_a_missing_number_is_said_to_be_missing(jobs):
    with pytest.raises(WorkloadError, match=r"line 2: run_s must be .*, and is missing"):
        jobs("id,submit_s,run_s\na,0,\n")
