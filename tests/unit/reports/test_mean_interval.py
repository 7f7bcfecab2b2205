from __future__ import annotations

import pytest

from hocket.reports.mean_interval import MeanInterval, mean_interval


def test_one_run_has_no_interval() -> None:
    assert mean_interval([]) is None
    assert mean_interval([4.0]) == MeanInterval(4.0)


def test_the_interval_is_students() -> None:
    found = mean_interval([1.0, 2.0, 3.0])
    assert found is not None
    assert found.mean == 2.0
    assert found.half_width == pytest.approx(4.303 * 1.0 / 3**0.5)  # sd 1, 2 degrees of freedom


def test_beyond_the_table_the_interval_errs_on_the_wide_side() -> None:
    found = mean_interval([0.0, 1.0] * 50)
    assert found is not None
    assert found.half_width is not None
    assert found.half_width > 1.984 * 0.5025 / 10  # exact for 99 degrees of freedom
