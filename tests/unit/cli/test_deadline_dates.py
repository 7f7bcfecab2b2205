"""Deadlines as dates, through the command line."""

from __future__ import annotations

import time
from typing import Any

from tests.unit.cli.typed import hocket, refused


def test_a_deadline_may_be_a_date_which_is_shown(controller: Any) -> None:
    then = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() + 90_000))
    hocket("submit", "-n", "net", "--deadline", then, "--", "true")
    assert 89_900 < controller.specs["net"]["deadline_s"] <= 90_000
    assert f"deadline    {then}:0" in hocket("show", "net").stdout


def test_a_deadline_may_not_be_past(controller: Any) -> None:
    late = refused("submit", "--deadline", "2020-01-31 12:00", "--", "true")
    assert late.startswith("hocket: --deadline must be a time such as 6h, or a date to come")
    assert late.endswith(" (this one is past), not '2020-01-31 12:00'\n")
    assert not controller.calls("POST", "/v1/jobs")
