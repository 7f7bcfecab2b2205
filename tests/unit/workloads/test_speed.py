"""Speeds by a law or by Gavel's measurements, and what a switch costs."""

import json

import pytest

from hocket.model.job import Job
from hocket.model.resources import Demand
from hocket.model.view import Costs
from hocket.workloads import (
    Submission,
    Truth,
    Workload,
    WorkloadError,
    load,
    parse_speeds,
    parse_switching,
    with_switching,
)
from hocket.workloads.gavel import read_gavel

PROFILES = {
    "v100": {
        "('LM', 1)": {"null": 10.0},
        "('LM', 2)": {"null": 18.0, "('GAN', 1)": [1, 2]},
        "('LM', 4)": {"null": 30.0},
        "('GAN', 1)": {"null": 4.0},
    },
    "k80": {"('LM', 1)": {"null": 2.0}, "('LM', 4)": {"null": 0.0}, "('GAN', 1)": {"null": 3.0}},
    "v100_unconsolidated": {"('LM', 1)": {"null": 10.0}, "('LM', 4)": {"null": 15.0}},
}


@pytest.fixture
def profiles(tmp_path):
    path = tmp_path / "gavel.json"
    path.write_text(json.dumps(PROFILES))
    return str(path)


def elastic(model: str = "", **demand: int) -> Workload:
    job = Job("a", sizes=(1, 2, 3, 4, 8), model=model, demand=Demand(**(demand or {"gpus": 1})))
    return Workload("w", (Submission(0.0, job, Truth(100.0, 2)),))


def speeds(workload: Workload) -> list[float]:
    curve = workload.submissions[0].truth.speed
    assert curve is not None
    return [p.mean for p in curve.points]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("linear", [0.5, 1.0, 1.5, 2.0, 4.0]),
        ("law:0", [0.5, 1.0, 1.5, 2.0, 4.0]),
        ("power:1", [0.5, 1.0, 1.5, 2.0, 4.0]),
        (
            "law:0.1",
            [1 / (2 / 1.1), 1.0, (3 / 1.2) / (2 / 1.1), (4 / 1.3) / (2 / 1.1), (8 / 1.7) / (2 / 1.1)],
        ),
        ("power:0.5", [0.5**0.5, 1.0, 1.5**0.5, 2**0.5, 2.0]),
    ],
)
def test_a_law_gives_speeds_relative_to_the_reference_size(text, expected):
    assert speeds(parse_speeds(text).apply(elastic())) == pytest.approx(expected)


def test_a_law_says_what_it_assumes():
    assert parse_speeds("law:0.05").words() == "speeds by the scaling law law:0.05, the same for every job"


def test_a_rigid_job_needs_no_curve():
    workload = load("burst?jobs=3")
    assert parse_speeds("law:0.1").apply(workload) == workload


def test_gavel_speeds_are_measured_interpolated_and_extended(profiles):
    workload = parse_speeds(f"gavel:{profiles}").apply(elastic("LM"))
    assert speeds(workload) == pytest.approx([10 / 18, 1.0, 24 / 18, 30 / 18, 60 / 18])


def test_gavel_kinds_and_spread_come_from_the_nearest_count_that_ran(profiles):
    truth = parse_speeds(f"gavel:{profiles}").apply(elastic("LM")).submissions[0].truth
    assert truth.kinds == {"v100": 1.0, "k80": 0.2}
    assert truth.spread == 0.5


def test_gavel_speeds_may_be_relative_to_another_kind(profiles):
    truth = parse_speeds(f"gavel:{profiles}?reference=k80").apply(elastic("LM")).submissions[0].truth
    assert truth.kinds == {"v100": 5.0, "k80": 1.0}


def test_replicas_of_several_gpus_are_looked_up_by_gpus(profiles):
    workload = parse_speeds(f"gavel:{profiles}").apply(elastic("LM", gpus=2))
    assert speeds(workload)[0] == pytest.approx(18 / 30)


def test_a_job_without_gpus_keeps_its_truth(profiles):
    workload = elastic(cores=1)
    assert parse_speeds(f"gavel:{profiles}").apply(workload) == workload


def test_the_pairing_follows_the_seed_and_the_jobs_id(profiles):
    gavel = parse_speeds(f"gavel:{profiles}")
    workload = load("burst?jobs=60")
    once, again, other = gavel.apply(workload, 1), gavel.apply(workload, 1), gavel.apply(workload, 2)
    assert once == again
    assert once != other
    assert {s.job.model for s in once.submissions} == {"LM", "GAN"}
    alone = gavel.apply(load("burst?jobs=60", limit=5), 1)
    assert alone.submissions == once.submissions[:5]


def test_jobs_of_several_gpus_get_types_that_were_measured_so(profiles):
    gavel = parse_speeds(f"gavel:{profiles}")
    assert {s.job.model for s in gavel.apply(load("burst?jobs=60&gpus=4"), 1).submissions} == {"LM"}


def test_the_pairing_is_said_in_words(profiles):
    words = parse_speeds(f"gavel:{profiles}").words(7)
    assert "2 types" in words
    assert "seed 7" in words
    assert "which is an assumption" in words


def test_an_unknown_type_is_refused_with_the_nearest(profiles):
    gavel = read_gavel(profiles)
    assert gavel.profile("LM").speed("v100", 4) == 30.0
    with pytest.raises(WorkloadError, match=r"must be a job type 'GAM' \(did you mean 'GAN'\?\)"):
        gavel.profile("GAM")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "the file must be Gavel's JSON, but: Input data was truncated"),
        ("[1]", "the file must be Gavel's JSON, but: Expected `object`, got `array`"),
        ('{"v100": {"LM": {"null": 1}}}', "'v100': every type must be written as \"('LM', 4)\", not 'LM'"),
        ('{"v100": {"(\'LM\', 0)": {"null": 1}}}', "'v100': every type must be written as"),
        ('{"v100": {"(\'LM\', 1)": {}}}', "null must be a finite number from 0 up, not None"),
        ('{"v100": {"(\'LM\', 1)": {"null": -1}}}', "null must be a finite number from 0 up, not -1"),
        ('{"v100": {"(\'LM\', 1)": {"null": 0}}}', "the reference must be a measured GPU kind, not 'v100'"),
        ("{}", "the reference must be a measured GPU kind, not 'v100'"),
        ("[" * 100_000, "the file must be Gavel's JSON, but"),
    ],
)
def test_a_bad_profile_file_is_refused(tmp_path, content, message):
    path = tmp_path / "gavel.json"
    path.write_text(content)
    with pytest.raises(WorkloadError) as caught:
        parse_speeds(f"gavel:{path}")
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "lnear",
            "speeds must be law:C, power:P, linear or gavel:PATH, not 'lnear' (did you mean 'linear'?)",
        ),
        ("law:2", "speeds 'law:2': law must have a number from 0 to 1, not '2'"),
        ("law:", "speeds 'law:': law must have a number from 0 to 1, not ''"),
        ("power:nan", "speeds 'power:nan': power must have a number from 0 to 1, not 'nan'"),
        ("gavel:", "speeds 'gavel:': gavel must be followed by a path, as gavel:PATH"),
        (
            "gavel:x?refrence=k80",
            "speeds 'gavel:x?refrence=k80': unknown option 'refrence' (did you mean 'reference'?)",
        ),
    ],
)
def test_bad_speeds_are_refused(text, message):
    with pytest.raises(WorkloadError) as caught:
        parse_speeds(text)
    assert str(caught.value) == message


def test_switching_costs_take_seconds_or_units():
    assert parse_switching("prepare=20,start=10s, checkpoint=0.5m,stop=2") == Costs(20.0, 10.0, 30.0, 2.0)
    assert parse_switching("stop=2") == Costs(stop_s=2.0)


def test_trace_jobs_switch_at_no_cost_unless_told():
    workload = load("burst?jobs=3")
    assert {s.truth.costs for s in workload.submissions} == {Costs()}
    costs = Costs(1.0, 2.0, 3.0, 4.0)
    assert {s.truth.costs for s in with_switching(workload, costs).submissions} == {costs}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "switching '': every cost must be written as name=seconds, not ''"),
        ("stop", "switching 'stop': every cost must be written as name=seconds, not 'stop'"),
        ("stp=1", "switching 'stp=1': unknown cost 'stp' (did you mean 'stop'?)"),
        ("stop=1,stop=2", "switching 'stop=1,stop=2': 'stop' must be given only once"),
        ("stop=-1", "switching 'stop=-1': stop must be a finite number of seconds from 0 up"),
        ("stop=nan", "switching 'stop=nan': stop must be a finite number of seconds from 0 up"),
    ],
)
def test_bad_switching_costs_are_refused(text, message):
    with pytest.raises(WorkloadError) as caught:
        parse_switching(text)
    assert str(caught.value).startswith(message)
