"""From what a job counts to epochs that are over."""

from __future__ import annotations

from itertools import pairwise
from math import inf, isnan, nan

from hypothesis import given
from hypothesis import strategies as st

from hocket.agent.progress.epoch_counter import MAX_EPOCH, EpochCounter
from hocket.agent.progress.reader import Report, StepReport


def told(epochs: EpochCounter, *said: tuple[float, dict[str, float]], within: bool = False) -> list[Report]:
    return [report for count, metrics in said for report in epochs.said(count, metrics, within)]


def test_a_count_from_1_is_the_number_of_epochs_done() -> None:
    assert told(EpochCounter(), (1, {"acc": 0.5}), (2, {"acc": 0.6})) == [(1, {"acc": 0.5}), (2, {"acc": 0.6})]


def test_a_job_that_names_epoch_0_counts_from_0() -> None:
    epochs = EpochCounter()
    assert told(epochs, (0, {"acc": 0.5}), (1, {"acc": 0.6})) == [(1, {"acc": 0.5}), (2, {"acc": 0.6})]
    assert epochs.first_epoch == 0


def test_what_was_learnt_of_the_count_holds_for_the_next_attempt() -> None:
    assert told(EpochCounter(first_epoch=0), (5, {"acc": 0.5})) == [(6, {"acc": 0.5})]
    assert told(EpochCounter(), (5, {"acc": 0.5})) == [(5, {"acc": 0.5})]


def test_a_count_that_is_said_to_begin_at_1_may_evaluate_before_it() -> None:
    assert told(EpochCounter(first_epoch=1), (0, {"acc": 0.1}), (1, {"acc": 0.5})) == [
        (0, {"acc": 0.1}),
        (1, {"acc": 0.5}),
    ]


def test_metrics_of_one_epoch_are_merged_and_the_last_value_counts() -> None:
    said = told(EpochCounter(), (1, {"loss": 0.5}), (1, {"acc": 0.8}), (1, {"loss": 0.4}))
    assert said == [(1, {"loss": 0.5}), (1, {"loss": 0.5, "acc": 0.8}), (1, {"loss": 0.4, "acc": 0.8})]
    assert dict(said) == {1: {"loss": 0.4, "acc": 0.8}}


def test_what_changes_nothing_is_not_said_again() -> None:
    assert len(told(EpochCounter(), (1, {"loss": nan}), (1, {"loss": nan}), (1, {}))) == 1


def test_values_within_an_epoch_wait_for_its_end() -> None:
    epochs = EpochCounter()
    assert told(epochs, (1, {"loss": 0.9, "lr": 0.1}), (1, {"loss": 0.8}), within=True) == []
    assert told(epochs, (1, {"acc": 0.5})) == [(1, {"loss": 0.8, "lr": 0.1, "acc": 0.5})]


def test_without_a_result_they_are_reported_when_the_next_epoch_begins() -> None:
    epochs = EpochCounter()
    assert told(epochs, (1, {"loss": 0.9}), (2, {"loss": 0.7}), within=True) == [(1, {"loss": 0.9})]
    assert epochs.finish() == [(2, {"loss": 0.7})]
    assert epochs.finish() == []


def test_an_epoch_that_only_begins_says_that_the_one_before_is_over() -> None:
    assert told(EpochCounter(), (1, {}), (2, {}), (3, {}), within=True) == [(1, {}), (2, {})]


def test_a_fraction_makes_the_count_an_amount() -> None:
    epochs = EpochCounter()
    assert told(epochs, (0.5, {"loss": 0.9}), (1.0, {"eval_loss": 0.8}), (1.5, {"loss": 0.7})) == [
        (1, {"loss": 0.9, "eval_loss": 0.8})
    ]
    assert told(epochs, (2.25, {"loss": 0.6})) == [(2, {"loss": 0.7})]
    assert told(epochs, (0, {"loss": 2.0})) == [(0, {"loss": 2.0})]  # nothing done, whatever a count from 0 would say


def test_another_length_makes_epochs_of_steps() -> None:
    epochs = EpochCounter(epoch_length=100)
    assert told(epochs, (40, {"loss": 0.9}), (100, {"loss": 0.8}), (150, {"loss": 0.7}), (260, {"loss": 0.6})) == [
        (1, {"loss": 0.8}),
        (2, {"loss": 0.7}),
    ]
    assert told(EpochCounter(epoch_length=0.25), (0.3, {"loss": 2.0}), (0.5, {"loss": 1.0})) == [(2, {"loss": 1.0})]


def test_a_count_that_goes_back_is_followed_and_the_unfinished_epoch_dropped() -> None:
    epochs = EpochCounter()
    assert told(epochs, (6, {"acc": 0.6})) == [(6, {"acc": 0.6})]
    assert told(epochs, (7, {"acc": 0.9}), within=True) == []
    assert told(epochs, (5, {"acc": 0.5}), (6, {"acc": 0.61}), (7, {"acc": 0.7})) == [
        (5, {"acc": 0.5}),
        (6, {"acc": 0.61}),
        (7, {"acc": 0.7}),
    ]


def test_counts_that_can_be_no_epochs_are_passed_over() -> None:
    assert told(EpochCounter(), *((count, {"acc": 0.5}) for count in (nan, inf, -1, -0.5, MAX_EPOCH * 10.0))) == []


def test_nothing_known_is_nothing_finished() -> None:
    assert EpochCounter().finish() == []


def test_a_value_that_came_back_is_not_said_again() -> None:
    epochs = EpochCounter()
    assert epochs.said(1, {"loss": 1.0}) == [(1, {"loss": 1.0})]
    assert epochs.said(1, {"loss": 0.5}, within=True) == []
    assert epochs.said(1, {"loss": 1.0}) == []


def test_a_job_without_epochs_is_reported_step_by_step() -> None:
    epochs = EpochCounter()
    assert epochs.at_step(10, {"loss": 0.5}) == [StepReport(10, {"loss": 0.5})]
    assert epochs.at_step(10, {"val_loss": 0.6}) == [StepReport(10, {"loss": 0.5, "val_loss": 0.6})]
    assert epochs.at_step(10, {"loss": 0.5}) == []
    (diverged,) = epochs.at_step(20, {"loss": nan})
    assert isinstance(diverged, StepReport)
    assert (diverged.step, isnan(diverged.metrics["loss"])) == (20, True)
    assert epochs.at_step(20, {"loss": nan}) == []
    assert [epochs.at_step(count, {}) for count in (nan, inf, -1, MAX_EPOCH * 10.0)] == [[]] * 4
    assert epochs.names == {"loss", "val_loss"}
    assert epochs.finish() == []


def test_once_an_epoch_is_named_steps_are_counted_only_if_asked_for() -> None:
    epochs = EpochCounter()
    epochs.said(1, {"loss": 0.5}, within=True)
    assert epochs.at_step(100, {"loss": 0.5}) == []
    assert epochs.names == {"loss"}


def test_steps_that_begin_anew_in_each_epoch_are_summed_up() -> None:
    epochs = EpochCounter(counts_steps=True)
    steps = []
    for epoch, step in ((1, 300), (1, 600), (2, 300), (2, 600), (3, 600)):
        epochs.said(epoch, {}, within=True)
        steps += epochs.at_step(step, {})
    assert steps == [StepReport(step, {}) for step in (300, 600, 900, 1200, 1800)]


def test_steps_that_go_on_over_epochs_are_taken_as_they_are() -> None:
    epochs = EpochCounter(counts_steps=True)
    steps = []
    for epoch, step in ((1, 300), (1, 600), (2, 900), (2, 880), (2, 900)):
        epochs.said(epoch, {}, within=True)
        steps += epochs.at_step(step, {})
    assert steps == [StepReport(step, {}) for step in (300, 600, 900, 880, 900)]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5) | st.floats(0, 5),
            st.dictionaries(st.sampled_from(["loss", "acc"]), st.floats(), max_size=2),
            st.booleans(),
        )
    ),
    st.sampled_from([1, 0.5, 3]),
)
def test_no_report_is_edited_later_and_none_repeats_the_one_before(
    said: list[tuple[float, dict[str, float], bool]], length: float
) -> None:
    epochs = EpochCounter(epoch_length=length)
    said.sort(key=lambda one: one[0])  # It never goes back.
    reports = [report for count, metrics, within in said for report in epochs.said(count, metrics, within)]
    copies = [(epoch, dict(metrics)) for epoch, metrics in reports]
    reports += epochs.finish()
    assert repr(reports[: len(copies)]) == repr(copies)
    for (epoch, metrics), (next_epoch, next_metrics) in pairwise(reports):
        same = metrics.keys() == next_metrics.keys() and all(
            value == next_metrics[name] or (isnan(value) and isnan(next_metrics[name]))
            for name, value in metrics.items()
        )
        assert epoch != next_epoch or not same
