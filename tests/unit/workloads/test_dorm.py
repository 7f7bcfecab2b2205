"""The Dorm paper's workload."""

from collections import Counter

import pytest

from hocket.control.admission import faults
from hocket.workloads.dorm import SWARM, TYPES, dorm_cluster, dorm_workload
from hocket.workloads.spec import load


def test_fifty_applications_as_table_two_has_them():
    workload = dorm_workload(3)
    assert Counter(s.job.model for s in workload.submissions) == {t.name: t.number for t in TYPES}
    assert sum(t.number for t in TYPES) == 50
    for submission in workload.submissions:
        assert not list(faults(submission.job))
        kind = next(t for t in TYPES if t.name == submission.job.model)
        assert submission.job.sizes == tuple(range(1, kind.most + 1))
        assert submission.truth.reference_size == kind.swarm
        assert submission.truth.speed is not None
        assert submission.truth.speed.at(kind.swarm).mean == pytest.approx(1.0)


def test_the_cluster_has_the_papers_totals():
    nodes = dorm_cluster()
    assert len(nodes) == 20
    assert sum(n.cores for n in nodes) == 240
    assert sum(n.gpus for n in nodes) == 5
    assert sum(n.mem_mib for n in nodes) == 2560 * 1024


def test_a_tenth_of_the_run_times_is_below_six_hours_and_gaps_are_twenty_minutes_on_average():
    workloads = [dorm_workload(seed) for seed in range(40)]
    runs = [s.truth.run_s for w in workloads for s in w.submissions]
    assert sum(r < 6 * 3600 for r in runs) / len(runs) == pytest.approx(0.1, abs=0.02)
    last = [w.submissions[-1].at_s for w in workloads]
    assert sum(last) / len(last) / 49 == pytest.approx(1200, rel=0.1)


def test_the_same_seed_gives_the_same_workload_and_the_command_line_knows_it():
    assert load("dorm", seed=5).submissions == dorm_workload(5).submissions
    assert dorm_workload(5) != dorm_workload(6)
    assert SWARM == "lr=8,mf=8,caffenet=4,vgg-16=2,googlenet=2,alexnet=2,resnet-50=3"
