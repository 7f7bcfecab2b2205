"""A job that reports some steps with an epoch and some alone: the metrics of the latter are the step's."""

from __future__ import annotations

from hocket.agent.progress.epoch_counter import EpochCounter
from hocket.agent.progress.reader import StepReport


def test_metrics_of_a_step_that_is_reported_alone_are_kept() -> None:
    counter = EpochCounter(counts_steps=True)
    assert counter.said(2.0, {"acc": 0.5}) == [(2, {"acc": 0.5})]
    assert counter.at_step(2.0, {"acc": 0.5}) == [StepReport(2, {})]  # They are the epoch's.
    assert counter.at_step(3.0, {"acc": 0.6}, alone=True) == [StepReport(3, {"acc": 0.6})]
    assert EpochCounter(counts_steps=True).at_step(1.0, {"acc": 0.1}, alone=True) == [StepReport(1, {"acc": 0.1})]
