"""slaq and hypersched: what reports promise, and which jobs get GPUs in a round."""

from math import nan

import pytest
from msgspec.structs import replace

from hocket.model.action import Pause, Resize, Start
from hocket.model.criterion import parse
from hocket.model.document import decode, encode, from_document, to_document
from hocket.model.event import EpochEnded, JobEnded
from hocket.policies import find
from hocket.policies.kit.gain_rounds import Trend, rank, rank_by_loss, trend_of
from hocket.policies.registry import Params
from hocket.testing import laws
from hocket.testing.builders import cluster, job, submission, submitted, workload
from hocket.testing.harness import Harness
from hocket.workloads.learning_curves import saturating


def run(policy, *jobs, nodes="1x1", **knobs) -> Harness:
    harness = Harness.of(find(policy).bound(knobs), cluster(nodes))
    for what in jobs:
        harness.tell(what)
        harness.settle()
    return harness


def report(harness, job_id, values, every_s=50.0, metric="loss", first=1):
    for epoch, value in enumerate(values, first):
        harness.tell(EpochEnded(harness.now_s + every_s, job_id, epoch, {metric: value}))
    harness.settle()


def trend(view, by_loss=False) -> Trend | None:
    """What its reports promise, whatever the rank says that a policy gave it."""
    return trend_of(replace(view, rank=(rank_by_loss if by_loss else rank)(view, 0.0, Params())))


FLAT = [1.0, 0.5, 0.49, 0.489, 0.489]
STEEP = [1.0, 0.9, 0.8, 0.7, 0.6]


def test_what_is_missing_falls_as_one_over_the_epoch():
    harness = run("slaq", submitted(job("a")))
    report(harness, "a", [1 / k for k in range(1, 6)])
    found = trend(harness.snapshot.jobs["a"])
    assert found.c == pytest.approx(1.0)
    assert found.gain(5) == pytest.approx(1 / 5 - 1 / 10)
    assert found.largest == pytest.approx(0.5)


def test_reports_count_twice_as_much_as_the_one_before():
    harness = run("slaq", submitted(job("a")))
    report(harness, "a", [1.0, 0.9, 0.9])  # c was 0.2, then 0
    assert trend(harness.snapshot.jobs["a"]).c == pytest.approx(0.2 * 0.5 / 1.5)


def test_a_loss_that_rises_or_is_no_number_promises_nothing():
    for values in ([1.0, 1.1, 1.2], [1.0, 0.9, nan], [0.5, 0.5, 0.5]):
        harness = run("slaq", submitted(job("a")))
        report(harness, "a", values)
        assert trend(harness.snapshot.jobs["a"]).gain(10) == 0.0


def test_the_metric_of_the_goal_comes_before_the_loss_and_says_what_is_better():
    harness = run("slaq", submitted(job("a", target=parse("acc >= 0.9"))))
    for epoch, value in enumerate((0.1, 0.3), 1):
        harness.tell(EpochEnded(harness.now_s + 5, "a", epoch, {"acc": value, "loss": 1.0 + value}))
    assert trend(harness.snapshot.jobs["a"]).gain(1) > 0


def test_slaq_goes_by_the_loss_of_a_job_that_reports_one_whatever_its_goal():
    harness = run("slaq", submitted(job("a", target=parse("acc >= 0.9"))))
    for epoch, loss in enumerate((1.0, 0.5, 0.3), 1):
        harness.tell(EpochEnded(harness.now_s + 5, "a", epoch, {"acc": 0.5, "loss": loss}))
    view = harness.snapshot.jobs["a"]
    assert trend_of(view) == trend(view, by_loss=True)
    assert trend_of(view).gain(1) > 0
    assert trend(view).gain(1) == 0.0


def test_hypersched_counts_accuracy_as_it_is_not_by_each_jobs_own_range():
    harness = run("hypersched", submitted(job("learns")), submitted(job("creeps")), nodes="1x2", round_s=300)
    for epoch in range(1, 11):
        harness.tell(EpochEnded(29.0 * epoch, "learns", epoch, {"acc": 0.1 + 0.05 * epoch**0.5}))
        harness.tell(EpochEnded(29.0 * epoch, "creeps", epoch, {"acc": 0.9 + 1e-6 * epoch}))
    harness.tell(submitted(job("new"), 295.0))
    harness.tell(at_s=300.0)
    assert harness.did(Pause) == ["creeps"]


def test_the_largest_fall_and_the_range_are_of_all_reports_not_of_the_last_that_are_kept():
    harness = run("slaq", submitted(job("a")))
    gains = {}
    for epoch in range(1, 201):
        loss = nan if epoch == 150 else 10.0 / epoch
        harness.tell(EpochEnded(10.0 * epoch, "a", epoch, {"loss": loss}))
        if epoch in (60, 63, 64, 65, 100, 200):
            found = trend(harness.snapshot.jobs["a"])
            assert found.largest == pytest.approx(5.0)
            assert found.scale == pytest.approx(10.0 - 10.0 / epoch)
            gains[epoch] = found.gain(1) / found.largest
    assert list(gains.values()) == sorted(gains.values(), reverse=True)


def test_what_a_metric_that_is_no_longer_reported_promised_stays():
    harness = run("slaq", submitted(job("a", target=parse("acc >= 0.9"))))
    report(harness, "a", (0.1, 0.3), metric="acc")
    before = trend(harness.snapshot.jobs["a"])
    report(harness, "a", [0.0] * 70, metric="other", first=3)
    assert trend(harness.snapshot.jobs["a"]) == before


def test_extremes_of_another_metric_or_in_another_policys_rank_count_for_nothing():
    harness = run("slaq", submitted(job("a")))
    report(harness, "a", [10.0 * k for k in range(1, 70)], metric="acc")
    assert trend(harness.snapshot.jobs["a"]).largest == pytest.approx(10.0)
    report(harness, "a", [1 / k for k in range(70, 140)], first=70)
    view = harness.snapshot.jobs["a"]
    assert trend(view).largest < 0.01
    fresh = rank(replace(view, rank=()), 0.0, Params())
    for other in [(0.0, 3), (9, 1.0, 8.0, 7.0, 6.0, 5, "loss", 4.0, 3.0, 2.0), (0.0, 1, 8.0, 7.0, 6.0)]:
        assert rank(replace(view, rank=other), 0.0, Params()) == fresh


def test_what_a_rank_carries_comes_back_from_a_file():
    harness = run("slaq", submitted(job("a")), submitted(job("b")), nodes="1x2")
    report(harness, "a", [1 / k for k in range(1, 100)])
    report(harness, "b", [nan, nan])  # It has no extremes yet.
    snapshot, order = harness.snapshot, find("slaq").bound().order
    back = from_document(decode(encode(to_document(snapshot))), order)
    for name in "ab":
        assert back.jobs[name].rank == snapshot.jobs[name].rank
    assert trend(back.jobs["a"]).largest == pytest.approx(0.5)


def test_what_a_rank_carries_changes_no_turn():
    """Of two submitted at once the first comes first, whatever their metrics are called and worth."""
    harness = run("slaq", submitted(job("a")), submitted(job("b")), nodes="1x2")
    for epoch in (1, 2):
        harness.tell(
            EpochEnded(epoch, "a", epoch, {"val_loss": 0.1}), EpochEnded(epoch, "b", epoch, {"loss": 0.9}), at_s=epoch
        )
    a, b = (harness.snapshot.jobs[j] for j in "ab")
    assert a.rank[:5] == b.rank[:5]
    assert (a.rank, a.number) < (b.rank, b.number)


@pytest.mark.parametrize(
    ("metric", "falls"),
    [
        ("answer_acc", False), ("val_loss", True),
    ],
)  # fmt: skip
def test_less_is_better_of_names_with_a_word_for_an_error(metric, falls):
    harness = run("slaq", submitted(job("a")))
    report(harness, "a", (0.1, 0.2), metric=metric)
    assert (trend(harness.snapshot.jobs["a"]).gain(1) == 0.0) == falls


def test_a_newcomer_takes_the_place_of_one_that_has_nearly_converged():
    harness = run("slaq", submitted(job("a")), round_s=300)
    report(harness, "a", FLAT, every_s=59)  # 295 s
    harness.tell(submitted(job("b"), 296))
    assert harness.did(Pause) == []  # not before the round
    harness.tell(at_s=300)
    assert harness.did(Pause) == ["a"]
    harness.settle()
    assert harness.did(Start) == ["a", "b"]
    assert "'b' gains more" in harness.snapshot.jobs["a"].reason


@pytest.mark.parametrize("policy", ["slaq", "hypersched"])
@pytest.mark.parametrize("late_s", [0.0, 0.002, 0.5])
def test_a_round_that_comes_late_is_held_at_once_and_once_only(policy, late_s):
    harness = run(policy, submitted(job("a")), submitted(job("x")), nodes="1x2", round_s=300)
    for epoch, value in enumerate(FLAT, 1):
        told = (EpochEnded(59.0 * epoch, j, epoch, {"loss": value}) for j in "ax")
        harness.tell(*told)
    harness.tell(submitted(job("b"), 296))
    harness.tell(at_s=harness.controller.next_timer_s() + late_s)
    harness.settle()
    assert len(harness.did(Pause)) == 1
    harness.tell(submitted(job("c"), 310))  # It would win against the other.
    harness.tell(at_s=500)
    assert len(harness.did(Pause)) == 1
    assert harness.controller.next_timer_s() == 600
    harness.tell(at_s=600 + late_s)
    assert len(harness.did(Pause)) == 2


def test_rounds_that_were_not_asked_for_are_not_made_up_for():
    harness = run("slaq", submitted(job("a")), round_s=300)
    report(harness, "a", FLAT, every_s=59)
    harness.tell(submitted(job("b"), 650))  # in the third round, and the first since the beginning to be asked about
    assert harness.did(Pause) == []
    harness.tell(at_s=900.5)
    assert harness.did(Pause) == ["a"]


def test_another_policys_memo_says_nothing_about_rounds():
    bound = find("slaq").bound()
    snapshot = run("slaq", submitted(job("a")), submitted(job("b"), 10)).snapshot
    plans = [bound.decide(replace(snapshot, memo=memo)) for memo in (None, 1, {"waits": {}}, {"round": 1}, [3, 1, 1])]
    assert all(plan == plans[0] for plan in plans)


def test_no_job_is_paused_before_it_has_had_a_round():
    harness = run("slaq", submitted(job("a"), 250), round_s=300)
    report(harness, "a", FLAT, every_s=5)
    harness.tell(submitted(job("b"), 290))
    harness.tell(at_s=300)
    assert harness.did(Pause) == []
    harness.tell(at_s=600)
    assert harness.did(Pause) == ["a"]


def test_slaq_gives_gpus_to_the_loss_that_falls_and_takes_them_from_the_one_that_does_not():
    harness = run("slaq", submitted(job("a", 1, 2, 3)), submitted(job("b", 1, 2, 3)), nodes="1x4")
    for epoch, (a, b) in enumerate(zip(FLAT, STEEP, strict=True), 1):
        harness.tell(
            EpochEnded(60.0 * epoch, "a", epoch, {"loss": a}), EpochEnded(60.0 * epoch, "b", epoch, {"loss": b})
        )
    harness.settle()
    harness.tell(at_s=300)
    harness.settle()
    sizes = {j: harness.snapshot.jobs[j].size for j in "ab"}
    assert sizes == {"a": 1, "b": 3}
    assert set(harness.did(Resize)) == {"a", "b"}  # a had three before any report


def test_hypersched_pauses_a_job_whose_metric_hardly_grows_any_more():
    harness = run("hypersched", submitted(job("a", deadline_s=10_000)), round_s=300, significant=0.05)
    report(harness, "a", FLAT, every_s=59)
    harness.tell(submitted(job("b", deadline_s=10_000), 296))
    harness.tell(at_s=300)
    assert harness.did(Pause) == ["a"]


def test_hypersched_leaves_the_same_job_alone_if_its_gain_counts_and_none_gains_more():
    harness = run("hypersched", submitted(job("a", deadline_s=10_000)), round_s=300)
    report(harness, "a", STEEP, every_s=59)
    late = submitted(job("b", deadline_s=3), 296)
    harness.tell(late)
    harness.tell(at_s=300)  # b's deadline has passed
    assert harness.did(Pause) == []


def test_a_deadline_that_is_over_is_worth_nothing():
    harness = run("hypersched", submitted(job("a", deadline_s=200)), round_s=300)
    report(harness, "a", STEEP, every_s=59)
    harness.tell(submitted(job("b", deadline_s=10_000), 296))
    harness.tell(at_s=300)
    assert harness.did(Pause) == ["a"]


def test_a_deadline_that_is_stated_counts_however_far_it_is():
    harness = run("hypersched", submitted(job("x", deadline_s=1e6)), round_s=300)
    harness.tell(submitted(job("three days", deadline_s=259_200), 10))
    harness.tell(submitted(job("an hour", deadline_s=3600), 89_900))
    harness.tell(JobEnded(90_000, "x"), at_s=90_000)
    assert harness.did(Start) == ["x", "three days"]


@pytest.mark.parametrize("policy", ["slaq", "hypersched"])
def test_the_laws_hold_for_jobs_that_report(policy):
    jobs = [
        submission(
            job(f"j{n}", *(1, 2, 4) if n % 2 else (2,), deadline_s=3000 + 500 * n), 150 * n, 900 + 100 * n,
            epochs=10, metric="acc", quality=saturating(10, 0.1, 0.9, 1 + n % 4),
        )
        for n in range(8)
    ]  # fmt: skip
    laws.hold_in_a_run(find(policy).bound({"round_s": 200}), workload(*jobs), cluster("1x4"))
