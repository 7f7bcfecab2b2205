"""The bar of a job towards its criterion, and the colour of its state."""

from __future__ import annotations

from typing import Any

import pytest

from hocket.cli.live.job_rows import ListedJob
from hocket.cli.live.job_table import bar_of, styled_state


def bar(state: str, until: str, epoch: int = 0, **metrics: float) -> str:
    shown: Any = bar_of(ListedJob("a", state=state, until=until, epoch=epoch, metrics=metrics), width=10)
    return str(shown)


@pytest.mark.parametrize("state", ["running", "attained"])
def test_a_bar_is_full_when_the_goal_is_met(state: str) -> None:
    assert bar(state, "acc >= 90%", acc=0.9) == "━━━━━━━━━━ 100%"


@pytest.mark.parametrize("state", ["running", "missed", "stopped"])
def test_a_bar_is_never_full_before_the_goal_is_met(state: str) -> None:
    assert bar(state, "acc >= 99.99%", acc=0.9998) == "━━━━━━━━━━  99%"
    found: Any = bar_of(ListedJob("a", state=state, until="acc >= 99.99%", metrics={"acc": 0.9998}), width=10)
    left = [(span.start, span.end) for span in found.spans if span.style == "bright_black"]
    assert (found.style, left) == ("red" if state == "missed" else "green", [(9, 10)])


@pytest.mark.parametrize("until", ["acc >= 90% within 3 epochs", "acc changes < 0.1 within 3 epochs"])
def test_spent_epochs_are_no_bar_of_a_job_that_missed_its_goal(until: str) -> None:
    assert bar("missed", until, epoch=3) == ""
    assert bar("running", until, epoch=3).endswith("100%")


def test_a_value_that_came_too_late_is_no_full_bar() -> None:
    assert bar("missed", "acc >= 90% within 3 epochs", epoch=4, acc=0.95) == ""


def test_a_missed_job_is_coloured_as_none_that_ended_well() -> None:
    assert styled_state("missed").style not in {styled_state(state).style for state in ("finished", "attained")}
