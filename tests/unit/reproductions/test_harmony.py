from pathlib import Path
from statistics import median

import pytest
from msgspec.structs import replace

from hocket.executors.simulated import simulate
from hocket.executors.simulated.beliefs import parse_beliefs
from hocket.policies import find as find_policy
from hocket.reports.account import account
from hocket.reproductions import Case, Request, find
from hocket.reproductions.bounds import least_makespan_s, least_mean_jct_s
from hocket.workloads.harmony import READINGS, harmony_workload, settings, subset
from hocket.workloads.spec import load
from hocket_reproductions.harmony.evaluation import NAIVE_SAMPLES, run_case, works
from hocket_reproductions.harmony.measurements import quality, reloading, scheduling, wrong_phases
from hocket_reproductions.harmony.run_result import HarmonyMoment, HarmonyRun

HARMONY = find("harmony")
REQUEST = Request((0, 1))


def played(case):
    if case.label == "measurements":
        return HarmonyRun(numbers={"quality_mean": 0.999, "work_s_80": 0.01, "kept_0.05": 0.99})
    slow = {"isolated": 2.0, "isolated on 16": 3.0}.get(case.label, 1.0)
    moments = (HarmonyMoment(0.0, 0.5, 0.4, 10, 3), HarmonyMoment(100.0, 0.0, 0.0, 0, 0))
    return HarmonyRun(
        100.0 * slow, (50.0 * slow, 70.0 * slow), moments=moments, errors=(0.02, -0.04), groups=((16, 4),)
    )


@pytest.mark.long
def test_figures_of_the_paper_stand_beside_ours(tmp_path: Path):
    results = [(case, played(case)) for case in HARMONY.cases(REQUEST)]
    found = {(f.group, f.what): f for f in HARMONY.findings(REQUEST, results).findings}
    for reading in READINGS:
        for baseline, faster in (("on the fewest machines", 2.0), ("on 16 machines or more", 3.0)):
            group = f"Figure 10, times faster than isolated {baseline} ({reading})"
            ours = found[group, "harmony, makespan"]
            assert ours.paper == "1.60×"
            assert ours.ours is not None
            assert ours.ours.mean == pytest.approx(faster)
            assert ours.bound is not None
    error = found["Figure 13(b), error of the predicted round (epochs)", "foreseen, mean"].ours
    assert error is not None
    assert error.mean == pytest.approx(3.0)
    drawn = HARMONY.draw(REQUEST, [r for r in results if r[0].settings.get("reading") == "run-times"], tmp_path)
    assert {path.stem[:9] for path in drawn} == {"figure-10", "figure-11", "figure-12", "figure-13"}
    assert {path.parent.name for path in drawn} == {"run-times"}


def test_at_least_200_co_locations_are_sampled():
    assert sum(case.label == "naive" for case in HARMONY.cases(REQUEST)) == NAIVE_SAMPLES >= 200


def test_what_the_paper_leaves_open_is_said():
    said = {a.what for a in HARMONY.assumptions(REQUEST)}
    assert {"COMP", "COMM", "convergence", "link", "memory", "migration"} <= said


def test_table_one_makes_eighty_jobs():
    assert len(settings()) == 80
    assert len(subset("compute")) == len(subset("communication")) == 60
    assert len({s.job.id for s in harmony_workload().submissions}) == 80
    ratios = [sum(s.comp_machine_s / s.comm_s for s in subset(w)) for w in ("communication", "compute")]
    assert ratios[0] < ratios[1]


def test_by_epochs_a_few_jobs_have_most_of_the_work_and_by_run_times_none_have():
    for reading, least, most in (("epochs", 0.8, 0.95), ("run-times", 0.2, 0.5)):
        work = {}
        for s in harmony_workload(reading=reading).submissions:
            work[s.job.id] = s.truth.run_s * s.truth.comp_s / (s.truth.comp_s + s.truth.comm_s)
        mlr = sum(seconds for job, seconds in work.items() if job.startswith("mlr"))
        assert least < mlr / sum(work.values()) < most
    drawn = [harmony_workload(seed=n, reading="run-times") for n in range(5)]
    assert median(s.truth.run_s for w in drawn for s in w.submissions) == pytest.approx(4 * 3600, rel=0.1)
    assert load("harmony?reading=run-times", seed=3).submissions == drawn[3].submissions


def test_a_subset_has_the_run_times_of_the_whole():
    whole = {s.job.id: s.truth.run_s for s in harmony_workload(reading="run-times").submissions}
    for s in harmony_workload("compute", reading="run-times").submissions:
        assert s.truth.run_s == whole[s.job.id]


@pytest.mark.long
@pytest.mark.parametrize("reading", READINGS)
def test_isolated_jobs_beat_no_bound_and_begin_on_16_machines_where_they_shall(reading: str):
    cases = {label: Case(label, 0, {"reading": reading}) for label in ("isolated", "isolated on 16")}
    ran = {label: run_case(case, lambda _n: None, lambda _n: None) for label, case in cases.items()}
    least = works(harmony_workload(reading=reading))
    for found in ran.values():
        assert found.makespan_s > least_makespan_s(least)
        assert found.jct_mean_s > least_mean_jct_s(least)
    most = {label: max(m.jobs for m in found.moments) for label, found in ran.items()}
    assert most["isolated on 16"] == 100 // 16 < most["isolated"]


def test_what_a_job_takes_alone_is_what_the_simulator_takes_for_it():
    one = harmony_workload("compute")
    first = one.submissions[0]
    one = replace(one, submissions=(replace(first, job=replace(first.job, sizes=(100,))),))
    ran = simulate(one, one.nodes, find_policy("isolated").bound(), beliefs=parse_beliefs("oracle"))
    (needs,) = works(one)
    makespan_s = account(ran.journal.header, ran.journal).makespan_s
    assert needs.alone_s <= makespan_s <= 1.1 * needs.alone_s


def test_measurements_are_of_what_they_say():
    found = quality(5)
    assert found["printed_mean"] <= found["quality_mean"] <= 1 + 1e-9
    spill = reloading()
    assert spill["alpha_adaptive_s"] <= 1.05 * spill["alpha_fixed_s"]
    assert spill["half_fixed_best"] < spill["alpha_fixed_best"]  # Where more is read, less may be on disk.
    assert spill["half_adaptive_s"] < spill["half_fixed_s"]
    kept = wrong_phases((0.05, 0.4), orders=3)
    assert 1.02 > kept["kept_0.05"] > kept["kept_0.4"]  # Of what is nearly as good, the fewest jobs are taken.
    grouped = scheduling(((80, 100),))
    assert grouped["work_u_80"] > 0.98
    assert set(grouped) == {"work_s_80", "work_u_80", "use_s_80", "use_u_80"}
