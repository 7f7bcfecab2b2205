"""Dorm's evaluation: what is read off a run, by the paper's formulas."""

import pytest

from hocket.control.ports import Cycle
from hocket.model.event import JobEnded, JobSubmitted
from hocket.model.partition import Partition, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Slice
from hocket.reproductions import Case, Request, find
from hocket.testing.builders import cluster, job
from hocket.workloads.dorm import READINGS, dorm_workload
from hocket_reproductions.dorm import DormMoment, DormRun, compare_with_paper, fastest_s, most_utilisation, retold

NODES = cluster("2x4", cores=8.0, mem_mib=1000.0)
ONE = job("a", 1, 2, cores=2, mem_mib=100)
OTHER = job("b", 1, cores=1, mem_mib=100)


def partition(of, n):
    part = Slice("n0", tuple(range(n)), of.demand.cores * n, of.demand.mem_mib * n)
    return Partition(of.id, (part,), (Tenant(of.id, (n,)),))


def test_utilisation_loss_and_adjustments_are_those_of_the_plan():
    moments = retold(
        [
            Cycle(0.0, (JobSubmitted(0.0, ONE),), Plan((partition(ONE, 1),)), ()),
            Cycle(5.0, (JobSubmitted(5.0, OTHER),), Plan((partition(ONE, 2), partition(OTHER, 1))), ()),
            Cycle(6.0, (), Plan(), ()),
            Cycle(9.0, (JobEnded(9.0, "a"),), None, ()),
        ],
        NODES,
    )
    assert [(m.at_s, m.adjusted, m.running) for m in moments] == [(0.0, 0, 1), (5.0, 1, 2), (9.0, 0, 1)]
    # One container of a: 2 of 16 cores, 1 of 8 GPUs, 100 of 2000 MiB. Fair were two containers.
    assert moments[0].utilisation == pytest.approx(2 / 16 + 1 / 8 + 100 / 2000)
    assert moments[0].loss == pytest.approx(1 / 8)
    assert moments[1].loss == pytest.approx(0.0)


def test_a_refused_plan_changes_nothing():
    refused = Cycle(0.0, (JobSubmitted(0.0, ONE),), Plan((partition(ONE, 1),)), ("no",))
    assert retold([refused], NODES) == ()


def test_means_are_over_time_from_the_beginning():
    played = DormRun((DormMoment(10.0, 1.0, 0.2, 0, 1, 0), DormMoment(30.0, 2.0, 0.4, 2, 1, 0)), {}, {}, 0)
    assert played.mean_utilisation(50.0) == pytest.approx((20 * 1 + 20 * 2) / 50)
    assert played.mean_utilisation(20.0) == pytest.approx(10 / 20)
    assert played.most_loss(20.0) == 0.2
    assert played.adjusted_before(20.0) == 0
    assert played.adjusted_before(50.0) == played.most_adjusted == 2


def run(use, jct_s):
    return DormRun((DormMoment(0.0, use, use, 1, 1, 0),), {"lr-1": jct_s}, {"lr-1": jct_s}, 0)


def case_of(label, reading):
    return Case(label, 0, {"profiles": None, "reading": reading})


def test_no_scheduler_is_faster_than_all_containers_at_once():
    for reading, scaling in (("figure-1", 2.06), ("figure-8", 3.62)):
        fastest = fastest_s(case_of("swarm", reading))
        truths = {s.job.id: s.truth.run_s for s in dorm_workload(0, reading=reading).submissions}
        ratios = [truths[job] / (least_s - 180.0) for job, least_s in fastest.items()]
        assert sum(ratios) / len(ratios) == pytest.approx(scaling, abs=0.01)  # n_max over Swarm's size


def test_figures_are_ratios_to_swarm_and_shortfalls_are_said():
    runs = {"dorm-1": run(2.0, 50.0), "dorm-2": run(2.0, 50.0), "dorm-3": run(0.5, 25.0), "swarm": run(1.0, 100.0)}
    runs["swarm, pooled"] = run(1.0, 75.0)
    results = [(case_of(label, reading), played) for reading in READINGS for label, played in runs.items()]
    found = compare_with_paper(Request((0,)), results)
    ours = {f.what: f.ours.mean for f in found.findings if f.ours is not None}
    assert ours["dorm-1, mean, relative to swarm"] == pytest.approx(2.0)
    assert ours["swarm's, relative to dorm-3's, mean over 24 hours"] == pytest.approx(2.0)
    assert ours["dorm-3, from submission to end"] == pytest.approx(4.0)
    assert ours["dorm-3, from submission to end, against a pooled swarm"] == pytest.approx(3.0)
    assert ours["swarm against a pooled swarm"] == pytest.approx(0.75)
    assert any("dorm-1, mean, relative to swarm: 2.00 instead of 2.55×" in r for r in found.remarks)
    assert not any("dorm-3, from submission" in r for r in found.remarks)


def test_every_approach_meets_the_same_applications():
    reproduction = find("dorm")
    cases = reproduction.cases(Request((0, 1)))
    assert [(c.label, c.seed) for c in cases[:4]] == [("dorm-1", 0), ("dorm-2", 0), ("dorm-3", 0), ("swarm", 0)]
    assert len(cases) == 20
    assert [c.settings["reading"] for c in cases[::10]] == ["figure-1", "figure-8"]
    taken = {a.what for a in reproduction.assumptions(Request((0,)))}
    assert {"run times", "switching", "speed by containers", "θ1 and θ2"} <= taken


def test_fixed_sizes_are_placed_about_as_well_as_on_one_server_with_everything():
    """Where containers without GPUs take the cores beside the GPUs, applications with GPUs wait for hours."""
    ratios = []
    for seed in range(5):
        jct_s = {}
        for label in ("swarm", "swarm, pooled"):
            case = Case(label, seed, {"profiles": None, "reading": "figure-8"})
            jct_s[label] = find("dorm").run(case, lambda _n: None, lambda _n: None).jct_s
        ratios.append(sum(jct_s["swarm"].values()) / sum(jct_s["swarm, pooled"].values()))
    assert max(ratios) < 1.01
    crowded = [
        find("dorm").run(Case(label, 9, {"profiles": None, "reading": "figure-1"}), lambda _n: None, lambda _n: None)
        for label in ("swarm", "swarm, pooled")
    ]
    assert sum(crowded[0].jct_s.values()) > sum(crowded[1].jct_s.values())  # Here cores do lie in pieces.


def test_no_scheduler_uses_more_than_all_applications_with_all_their_containers():
    case = case_of("swarm", "figure-8")
    first, second = dorm_workload(0, reading="figure-8").submissions[:2]
    until_s = second.at_s
    demand, most = first.job.demand, first.job.sizes[-1]
    alone = min(1, most * demand.cores / 240) + min(1, most * demand.gpus / 5) + most * demand.mem_mib / (2560 * 1024)
    assert most_utilisation(case, until_s) == pytest.approx(alone)
    played = find("dorm").run(case, lambda _n: None, lambda _n: None)
    assert played.mean_utilisation(5 * 3600.0) < most_utilisation(case, 5 * 3600.0) < 3


def test_a_run_of_the_baseline_ends_and_never_adjusts():
    played = find("dorm").run(case_of("swarm", "figure-8"), lambda _n: None, lambda _n: None)
    assert played.unfinished == 0
    assert len(played.jct_s) == 50
    assert played.most_adjusted == 0
