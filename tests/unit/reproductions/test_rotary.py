"""Rotary's evaluation: its cases, what counts as attained, and where ours differs from what the paper says."""

from collections import namedtuple

import pytest

from hocket.model.criterion import parse
from hocket.model.event import JobPaused, JobStarted, StateStored, WorkLost
from hocket.model.view import Costs, Tier
from hocket.reproductions import Request
from hocket.testing.builders import job, submission
from hocket.workloads.errors import WorkloadError
from hocket.workloads.learning_curves import by_epoch
from hocket.workloads.rotary import measured_queries, rotary_workload
from hocket.workloads.truth import Truth
from hocket_reproductions.rotary import evaluation
from hocket_reproductions.rotary.evaluation import (
    AQP,
    MINUTES,
    REPRODUCTION,
    RotaryRun,
    _is_false,
    _rate,
    cases,
    compare_with_paper,
    run_case,
)
from hocket_reproductions.rotary.suspended import PauseCosts, pause_costs

Events = namedtuple("Events", "events")  # all of a cycle that is read


def ran(attained: int) -> RotaryRun:
    times = [60.0 * n for n in range(attained)]
    rates = {str(m): [0.5, 1.0] for m in MINUTES}
    spent_s = {"TTR": 0.1, "TEE": 0.2, "TME": 0.3}
    return RotaryRun({"heavy": attained}, {"heavy": 30}, 0, 5.0, times, rates, 1.0, times, 1000.0, spent_s)


def test_every_case_is_another_one():
    found = cases(Request((0, 1)))
    assert len({(c.label, c.seed, str(c.settings)) for c in found}) == len(found)


def test_a_case_counts_attained_queries_by_class():
    case = next(c for c in cases(Request((0,))) if c.label == "edf")
    found = run_case(case, lambda _n: None, lambda _n: None)
    assert found.jobs == {"light": 12, "medium": 9, "heavy": 9}
    assert 0 < found.all == len(found.ended_s) <= 30


def test_what_estimators_take_is_told_by_their_share_of_the_run():
    case = next(c for c in cases(Request((0,))) if c.settings["workload"] == {"trainings": 10})
    found = run_case(case, lambda _n: None, lambda _n: None)
    assert sum(found.jobs.values()) == 10
    assert set(found.spent_s) == {"TTR", "TEE", "TME"}
    assert all(0 < spent_s < found.took_s for spent_s in found.spent_s.values())
    told = compare_with_paper(Request((0,)), [(c, ran(20)) for c in cases(Request((0,)))])
    (share,) = [f for f in told.findings if f.group.endswith(", 30 training jobs") and f.what == "TEE"]
    assert (share.paper, share.ours.mean) == ("0.0058", 0.02)


def test_where_a_baseline_attains_as_much_a_sentence_says_so():
    results = [(c, ran(20)) for c in cases(Request((0, 1, 2)))]
    alike = compare_with_paper(Request((0, 1, 2)), results)
    assert any("rotary_aqp above relaqs" in remark for remark in alike.remarks)
    results = [(c, ran(25 if c.label == "rotary_aqp" else 20 - c.seed % 2)) for c, _run in results]
    better = compare_with_paper(Request((0, 1, 2)), results)
    assert not any("rotary_aqp above" in remark for remark in better.remarks)
    assert {f.what for f in better.findings if f.group.startswith("Figure 3.5, attained")} >= set(AQP)


def test_attainment_rates_are_those_of_the_paper():
    runtime = submission(job("r", criterion=parse("for 15 epochs")))
    assert _rate(runtime, 5, {}) == 5 / 15
    accuracy = submission(job("a", criterion=parse("acc >= 80%")))
    assert round(_rate(accuracy, 1, {"acc": 0.56}), 6) == 0.7
    curve = by_epoch([0.5, 0.7, 0.75, 0.755, 0.756])
    converges = submission(job("c", criterion=parse("acc changes < 1% within 5 epochs")), quality=curve, metric="acc")
    assert _rate(converges, 2, {}) == 0.5  # It converges at epoch 4.


def test_a_query_that_stopped_too_early_is_a_false_attainment():
    order = measured_queries()["q5"].orders[0]
    half = next(b for b in order if b.fraction == 0.5)
    report = [(0.0, 1, {"fraction": 0.5, "acc": 1.0})]
    assert _is_false("heavy-1-q5.0", parse(f"acc >= {half.true + 0.01}"), report)
    assert not _is_false("heavy-1-q5.0", parse(f"acc >= {half.true - 0.01}"), report)


def test_queries_measured_on_more_data_are_cases_of_their_own_where_the_table_has_them(monkeypatch):
    monkeypatch.setattr(evaluation, "measured_scales", lambda: (1.0,))
    plain = cases(Request((0,)))
    monkeypatch.setattr(evaluation, "measured_scales", lambda: (1.0, 10.0))
    found = cases(Request((0,)))
    more = [c for c in found if c.settings["workload"].get("scale") == 10.0]
    assert len(found) == len(plain) + len(more) == len(plain) + 2 * (len(AQP) + 1)
    results = [(c, ran(27 if c.settings["workload"].get("scale") else 20)) for c in found]
    told = evaluation.compare_with_paper(Request((0,)), results)
    (heavy,) = [
        f for f in told.findings if f.group.endswith("factor 10, attained of 30 heavy queries") and f.what == "edf"
    ]
    assert heavy.ours.mean == 27
    of_true = {}
    monkeypatch.setattr(evaluation, "true_accuracy", lambda *about: of_true.setdefault(about, 0.9))
    assert evaluation._is_false("heavy-1-q5.2", parse("acc >= 95%"), [(0.0, 1, {"fraction": 0.5})], 10.0)
    assert of_true == {("q5", 2, 0.5, 10.0): 0.9}


def test_it_is_found_by_its_name():
    assert REPRODUCTION.name == "rotary"


def test_what_a_pause_costs_depends_on_where_the_state_is_kept():
    truths = {"a": Truth(100.0, costs=Costs(start_s=1.0, checkpoint_s=5.0), load_s=4.0)}
    on_disk = [JobPaused(1.0, "a", tier=Tier.DISK), JobStarted(2.0, "a")]
    assert pause_costs([Events(on_disk)], truths) == PauseCosts(1, 0, 0, 0, 5.0 + 1.0 + 4.0)
    in_memory = [JobPaused(1.0, "a", tier=Tier.MEMORY, node="n"), JobStarted(2.0, "a", in_place=True)]
    assert pause_costs([Events(in_memory)], truths) == PauseCosts(1, 1, 0, 0, 0.0)
    brought_to_disk = [in_memory[0], StateStored(1.5, "a", Tier.DISK), JobStarted(2.0, "a")]
    assert pause_costs([Events(brought_to_disk)], truths) == PauseCosts(1, 1, 0, 1, 5.0 + 1.0 + 4.0)
    redone = [WorkLost(1.0, "a", 60.0, 1, "paused"), JobPaused(1.0, "a", tier=Tier.NONE), JobStarted(2.0, "a")]
    assert pause_costs([Events(redone)], truths) == PauseCosts(1, 0, 1, 0, 61.0)
    assert pause_costs([Events([JobStarted(0.0, "a")])], truths).lost_s == 0.0


def test_measured_curves_are_the_truth_of_training_and_none_is_known_beforehand(tmp_path):
    lines = ["app,batch_size,metric"]
    for app in ("cifar10", "imagenet", "deepspeech2", "bert"):
        lines += [f"{app},{size},{10 * epoch + size / 100}" for size in (1, 2, 3, 4) for epoch in range(1, 6)]
    path = tmp_path / "curves.csv"
    path.write_text("\n".join(lines) + "\n")
    found = rotary_workload("dlt", curves=str(path))
    told = {s.job.traits["batch_size"] for s in found.submissions}
    past = {job.traits["batch_size"] for job in found.changes[0].jobs}
    assert (told, past) == ({1.0, 3.0}, {2.0, 4.0})
    images = next(s for s in found.submissions if s.job.traits["dataset"] == "cifar10")
    assert images.truth.quality.at(1.0).mean == round(0.1 + images.job.traits["batch_size"] / 10_000, 6)
    without = tmp_path / "without.csv"
    without.write_text("\n".join(line for line in lines if not line.startswith("bert,")) + "\n")
    with pytest.raises(WorkloadError, match="must have curves of 'bert' at two batch sizes at least, and has 0"):
        [rotary_workload("dlt", seed, curves=str(without)) for seed in range(9)]


def test_cases_with_measured_curves_are_there_only_where_a_file_is_given():
    plain, measured = cases(Request((0,))), cases(Request((0,), curves="c.csv"))
    more = [case for case in measured if case.settings.get("curves")]
    assert len(measured) == len(plain) + len(more)
    assert {case.label for case in more} == {
        "rotary",
        "srf",
        "bcf",
        "laf",
        *(f"rotary_dlt, T = {t} %" for t in (0, 50, 100)),
    }
    told = compare_with_paper(Request((0,), curves="c.csv"), [(c, ran(20)) for c in measured])
    assert any(f.group == "Measured learning curves, attained of 30 training jobs within 2 h" for f in told.findings)
