"""Reshape's evaluation on a seed or two: not what it shows, but that it is what it says."""

import pytest
from msgspec.structs import replace

from hocket.control.ports import Cycle
from hocket.model.event import JobEnded, JobResized, JobStarted, JobSubmitted
from hocket.model.partition import Partition, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Slice
from hocket.model.view import Costs
from hocket.reproductions import Request, find
from hocket.testing.builders import job
from hocket.workloads.reshape import READINGS, reshape_workload
from hocket_reproductions.reshape.bounds import least_s
from hocket_reproductions.reshape.evaluation import POLICIES
from hocket_reproductions.reshape.run_result import Adjustment, retold

RESHAPE = find("reshape")


@pytest.fixture(scope="module")
def results():
    cases = [c for c in RESHAPE.cases(Request((0,))) if c.settings["workload"] in (2, 4)]
    return [(case, RESHAPE.run(case, lambda _n: None, lambda _n: None)) for case in cases]


def test_every_workload_is_run_under_every_approach_for_every_seed():
    cases = RESHAPE.cases(Request((0, 1, 2)))
    told_apart = {(c.label, c.seed, c.settings["workload"], c.settings["reading"]) for c in cases}
    assert len(cases) == len(told_apart) == 3 * 4 * 3 * 2
    assert {c.label for c in cases} == set(POLICIES)


@pytest.mark.long
def test_all_jobs_end_and_only_our_approach_removes_gpus(results):
    for case, played in results:
        assert not played.unfinished
        assert len(played.jcts_s) == (20 if played.workload == 2 else 40)
        assert case.label == "reshape" or not played.removed
        assert case.label != "default" or not played.adjustments
        assert max(m.gpus for m in played.moments) <= 16
        assert played.moments[-1].running == played.moments[-1].pending == 0


@pytest.mark.long
def test_the_same_case_gives_the_same_result(results):
    case, played = results[0]
    assert RESHAPE.run(case, lambda _n: None, lambda _n: None) == played


@pytest.mark.long
def test_every_figure_of_the_paper_has_one_of_ours(results):
    whole = [*results, *((c, p) for c, p in _as_workloads(results, {2: (1,), 4: (3,)}))]
    found = RESHAPE.findings(Request((0,)), whole)
    assert all(f.ours is not None for f in found.findings)
    for reading in READINGS:
        bounded = [f for f in found.findings if f.group.endswith(f"({reading})") and f.bound is not None]
        assert len(bounded) == 16
    assert any("fall short" in r for r in found.remarks)


@pytest.mark.long
def test_no_approach_beats_the_bounds(results):
    for case, played in results:
        workload = reshape_workload(played.workload, case.seed, reading=case.settings["reading"])
        makespan_s, jct_s = least_s(workload)
        assert played.makespan_s >= makespan_s
        assert played.jct_mean_s >= jct_s


def test_bounds_are_reached_where_nothing_is_in_the_way():
    whole = reshape_workload(1, reading="table-iv")
    first = replace(whole.submissions[0], at_s=0.0)

    def least(many):
        alike = tuple(replace(first, job=replace(first.job, id=f"j{n}")) for n in range(many))
        return least_s(replace(whole, submissions=alike))

    run_s = first.truth.run_s
    assert least(1) == pytest.approx([174 + run_s / 1.636] * 2, rel=1e-3)  # eight V100
    # Sixteen at a time, each on a GPU of its own, in whole rounds of both kinds.
    assert least(160)[0] == pytest.approx(174 + 160 * run_s / (8 + 8 * 0.72), rel=1e-3)
    assert least(2)[0] == pytest.approx(174 + run_s / 1.5, rel=1e-3)  # four V100 each


@pytest.mark.long
def test_figures_like_the_papers_are_drawn(results, tmp_path):
    whole = [*results, *_as_workloads(results, {2: (1,), 4: (3,)})]
    files = RESHAPE.draw(Request((0,)), [r for r in whole if r[0].settings["reading"] == "table-iv"], tmp_path)
    assert {f.parent.name for f in files} == {"table-iv"}
    assert {f.name.split("-")[1] for f in files} == {"6", "7", "8", "9", "10", "11"}
    assert all(f.stat().st_size > 1000 for f in files)


def _as_workloads(results, also):
    return [(c, replace(p, workload=n)) for c, p in results for n in also[p.workload]]


def test_what_is_assumed_is_said_and_profiles_change_it(tmp_path):
    said = {a.what for a in RESHAPE.assumptions(Request((0,)))}
    assert {"run time on one V100", "speed by GPUs", "speed by kind", "switching"} <= said
    measured = RESHAPE.assumptions(Request((0,), profiles=str(tmp_path / "p.json")))
    pairing = next(a for a in measured if a.what == "speed by GPUs and kind")
    assert "VGG16 (batch size 64, ImageNet) as ResNet-50 (batch size 64)" in pairing.taken
    assert str(tmp_path) not in pairing.source


def test_a_run_is_retold_by_plan_and_resizes_by_their_cost():
    def gives(name, *slices):
        return Partition(name, slices, (Tenant(name, tuple(len(s.gpus) for s in slices)),))

    costs = Costs(100.0, 20.0, 3.0, 2.0)
    one = JobSubmitted(0.0, job("one", 1, 2, warm=True), costs=costs)
    two = JobSubmitted(5.0, job("two", 1))
    moments, adjustments = retold(
        [
            Cycle(0.0, (one,), Plan(put=(gives("one", Slice("a", (0, 1))),))),
            Cycle(1.0, (JobStarted(1.0, "one"),)),
            Cycle(5.0, (two,), Plan(put=(gives("one", Slice("a", (0,))), gives("two", Slice("a", (1,)))))),
            Cycle(9.0, (JobResized(9.0, "one"),)),
            Cycle(20.0, (JobEnded(20.0, "two"),), Plan(put=(gives("one", Slice("b", (0, 1))),))),
            Cycle(150.0, (JobResized(150.0, "one"),)),
        ]
    )
    assert adjustments == (Adjustment(9.0, -1, 25.0), Adjustment(150.0, 1, 125.0))
    assert [(m.at_s, m.pending, m.running, m.gpus) for m in moments] == [
        (0.0, 0, 1, 2),
        (5.0, 0, 2, 2),
        (20.0, 0, 1, 2),
    ]
