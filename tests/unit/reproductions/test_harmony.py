from pathlib import Path

import pytest

from hocket.reproductions import Request, find
from hocket.workloads.harmony import harmony_workload, settings, subset
from hocket_reproductions.harmony.evaluation import NAIVE_SAMPLES
from hocket_reproductions.harmony.measurements import quality, reloading, scheduling, wrong_phases
from hocket_reproductions.harmony.run_result import HarmonyMoment, HarmonyRun

HARMONY = find("harmony")
REQUEST = Request((0, 1))


def played(case):
    if case.label == "measurements":
        return HarmonyRun(numbers={"quality_mean": 0.999, "work_s_80": 0.01, "kept_0.05": 0.99})
    slow = 2.0 if case.label == "isolated" else 1.0
    moments = (HarmonyMoment(0.0, 0.5, 0.4, 10, 3), HarmonyMoment(100.0, 0.0, 0.0, 0, 0))
    return HarmonyRun(
        100.0 * slow, (50.0 * slow, 70.0 * slow), moments=moments, errors=(0.02, -0.04), groups=((16, 4),)
    )


def test_figures_of_the_paper_stand_beside_ours(tmp_path: Path):
    results = [(case, played(case)) for case in HARMONY.cases(REQUEST)]
    found = {(f.group, f.what): f for f in HARMONY.findings(REQUEST, results).findings}
    ours = found["Figure 10, times faster than isolated", "harmony, makespan"]
    assert ours.paper == "1.60×"
    assert ours.ours is not None
    assert ours.ours.mean == pytest.approx(2.0)
    error = found["Figure 13(b), error of the predicted round", "foreseen, mean"].ours
    assert error is not None
    assert error.mean == pytest.approx(3.0)
    drawn = {path.stem for path in HARMONY.draw(REQUEST, results, tmp_path)}
    assert {stem.rpartition("-")[0][:9] for stem in drawn} == {"figure-10", "figure-11", "figure-12", "figure-13"}


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
