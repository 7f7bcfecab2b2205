"""The readers on the data they were written for. Skipped without it: it is not ours to ship."""

import os
from pathlib import Path

import pytest

from hocket.workloads import load, parse_speeds

REPOSITORY = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("HOCKET_DATA") or REPOSITORY.parent / "shared" / "data")

pytestmark = pytest.mark.skipif(
    not (DATA / "philly" / "philly_jobs.csv.gz").exists(),
    reason=f"no traces in {DATA} (set HOCKET_DATA to a folder that has philly/, workloads/ and profiles/)",
)


@pytest.fixture(scope="module")
def philly():
    return load(f"philly:{DATA / 'philly' / 'philly_jobs.csv.gz'}")


def test_the_philly_table_is_read_whole(philly):
    submissions = philly.submissions
    assert len(submissions) == 111_549
    assert sum(s.truth.run_s == 0 for s in submissions) == 10
    assert sum(s.job.sizes == (1,) for s in submissions) == 96_662
    assert max(s.job.sizes[0] for s in submissions) == 128
    assert sum(s.job.owner == "" for s in submissions) == 29_302
    gpu_hours = sum(s.truth.run_s * s.truth.reference_size for s in submissions) / 3600
    assert gpu_hours == pytest.approx(3.62e6, rel=0.01)


def test_the_first_jobs_of_the_table_are_its_beginning(philly):
    first = load(f"philly:{DATA / 'philly' / 'philly_jobs.csv.gz'}?first=1000")
    assert first.submissions == philly.submissions[:1000]


@pytest.mark.parametrize("number", range(1, 9))
def test_every_pollux_workload_has_160_jobs(number):
    spec = f"pollux:{DATA / 'workloads' / 'pollux_workloads.csv.gz'}?workload=workload-{number}"
    assert len(load(spec).submissions) == 160


def test_muris_trace_is_read():
    assert len(load(f"muri:{DATA / 'workloads' / 'muri_trace3.csv.gz'}").submissions) == 992


def test_gavels_profiles_give_every_philly_job_a_speed(philly):
    gavel = parse_speeds(f"gavel:{DATA / 'profiles' / 'gavel_throughputs.json.gz'}")
    paired = gavel.apply(philly, seed=1).submissions
    assert len({s.job.model for s in paired}) == 26
    assert all(s.truth.kinds["v100"] == 1.0 and s.truth.kinds["k80"] > 0 for s in paired)
    assert [s.truth.run_s for s in paired] == [s.truth.run_s for s in philly.submissions]
