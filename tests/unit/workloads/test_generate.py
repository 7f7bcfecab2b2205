"""Generated workloads: everything follows from the seed, and options mean what they say."""

import pytest

from hocket.model.criterion import Convergence, Goal
from hocket.workloads import WorkloadError, load, parse_cluster, sources

NAMES = ["poisson?jobs=50", "window?jobs=50&over=500", "burst?jobs=50", "demo"]
EVERYTHING = "poisson?jobs=300&elastic&owners=3&deadlines=0.5&epochs=12&goals=0.5"


@pytest.mark.parametrize("spec", [*NAMES, EVERYTHING])
def test_one_seed_gives_one_workload(spec):
    assert load(spec, seed=3) == load(spec, seed=3)
    assert load(spec, seed=3) != load(spec, seed=4)


@pytest.mark.parametrize("spec", NAMES)
def test_submissions_are_ordered_and_their_ids_distinct(spec):
    submissions = load(spec).submissions
    assert [s.at_s for s in submissions] == sorted(s.at_s for s in submissions)
    assert len({s.job.id for s in submissions}) == len(submissions)


def test_poisson_gaps_have_the_mean_that_was_asked_for():
    submissions = load("poisson?jobs=4000&gap=2m").submissions
    assert submissions[-1].at_s / 4000 == pytest.approx(120, rel=0.1)


def test_a_window_is_filled_from_its_beginning_to_its_end():
    submissions = load("window?jobs=40&over=11000").submissions
    assert (submissions[0].at_s, submissions[-1].at_s) == (0.0, 11000.0)


def test_a_window_of_one_job_begins_with_it():
    assert load("window?jobs=1").submissions[0].at_s == 0.0


def test_a_burst_comes_at_once():
    assert {s.at_s for s in load("burst?jobs=80").submissions} == {0.0}


def test_sizes_resemble_phillys():
    sizes = [s.truth.reference_size for s in load("burst?jobs=4000").submissions]
    assert set(sizes) == {1, 2, 4, 8}
    assert sizes.count(1) / 4000 == pytest.approx(0.87, abs=0.02)


def test_median_and_mixture_can_be_chosen():
    submissions = load("burst?jobs=2000&run=1h&sigma=1&gpus=3;6:2").submissions
    runs = sorted(s.truth.run_s for s in submissions)
    assert runs[1000] == pytest.approx(3600, rel=0.1)
    sizes = [s.job.sizes for s in submissions]
    assert sizes.count((6,)) / 2000 == pytest.approx(2 / 3, abs=0.05)


def test_options_change_only_what_they_are_about():
    plain, full = load("poisson?jobs=300").submissions, load(EVERYTHING).submissions
    assert [s.at_s for s in plain] == [s.at_s for s in full]
    assert [s.truth.run_s for s in plain] == [s.truth.run_s for s in full]


def test_the_options_give_elastic_jobs_with_owners_deadlines_and_goals():
    submissions = load(EVERYTHING).submissions
    assert {s.job.owner for s in submissions} == {"team1", "team2", "team3"}
    assert all(len(s.job.sizes) > 1 and s.truth.speed is not None for s in submissions)
    late = [s.job.deadline_s / s.truth.run_s for s in submissions if s.job.deadline_s is not None]
    assert len(late) / 300 == pytest.approx(0.5, abs=0.1)
    assert min(late) > 1.4
    assert max(late) < 4.1
    goals = [s for s in submissions if isinstance(s.job.criterion, Goal)]
    assert len(goals) / 300 == pytest.approx(0.5, abs=0.1)
    reached = [s.job.criterion.met_by(s.truth.quality.at(12).mean) for s in goals]
    assert 0.6 < sum(reached) / len(goals) < 1.0


def test_the_demo_shows_what_policies_differ_about():
    workload = load("demo")
    jobs = [s.job for s in workload.submissions]
    assert len(jobs) == 61
    assert workload.nodes == parse_cluster("4x4")
    assert {o.id for o in workload.owners} == {j.owner for j in jobs}
    assert {len(j.sizes) > 1 for j in jobs} == {True, False}
    assert any(j.deadline_s for j in jobs)
    assert {type(j.criterion) for j in jobs} == {Goal, Convergence, type(None)}
    assert any(s.truth.quality is not None for s in workload.submissions)
    assert all(s.truth.reference_size in s.job.sizes for s in workload.submissions)
    assert max(j.sizes[-1] for j in jobs) <= 16


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("poison?jobs=3", "did you mean 'poisson'"),
        ("phily:x.csv", "did you mean 'philly'"),
        ("philly", "philly must be followed by a path, as philly:"),
        ("philly:?first=3", "philly must be followed by a path, as philly:"),
        ("trace.parquet", "must be READER:PATH, a path that ends in .csv, .csv.gz or .toml, or a name"),
        ("", "must be READER:PATH"),
        ("poisson?jbs=3", "unknown option 'jbs' (did you mean 'jobs'?)"),
        ("poisson?over=3", "unknown option 'over'"),
        ("poisson?jobs=0", "jobs must be a whole number from 1 up, not '0'"),
        ("poisson?gap=nan", "gap must be a finite number of seconds above 0"),
        ("poisson?deadlines=1.5", "deadlines must be a finite number from 0 up, at most 1, not '1.5'"),
        ("poisson?goals=0.5", "goals must come with epochs from 1 up, not 0.5"),
        ("burst?gpus=1:x", "gpus must be as 1:70;2:20;4:10, GPUs and weights, not '1:x'"),
        ("burst?gpus=1:0", "gpus must have a weight above 0, not '1:0'"),
        ("demo?jobs=3", "unknown option 'jobs'"),
    ],
)
def test_a_bad_spec_is_refused(spec, message):
    with pytest.raises(WorkloadError) as caught:
        load(spec)
    assert message in str(caught.value)


def test_every_source_has_an_example_that_names_it_and_generators_examples_are_true():
    for source in sources():
        assert source.summary
        if source.takes_path:
            assert source.example.startswith((f"{source.name}:", "jobs."))
        else:
            assert load(source.example).submissions


def test_every_option_that_a_source_lists_is_one_it_knows():
    for source in sources():
        for option in filter(None, source.options.split(", ")):
            spec = f"{source.name}:/nowhere?{option}=?" if source.takes_path else f"{source.name}?{option}=:"
            with pytest.raises(WorkloadError) as caught:
                load(spec.replace("=?", "=:"))
            assert "unknown option" not in str(caught.value)
