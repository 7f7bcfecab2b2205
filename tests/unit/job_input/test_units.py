"""Times, memory and numbers of GPUs as people write them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from hocket.job_input.units import (
    BadValue,
    array_count,
    gpu_counts,
    mebibytes,
    number,
    seconds,
    seconds_from_now,
    whole,
)

NOON_S = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "time_s"),
    [("90", 90), (90, 90), ("90s", 90), ("20m", 1200), ("2h30m", 9000), ("1d", 86400), ("1.5h", 5400), ("5min", 300)],
)
def test_times_have_units_or_are_seconds(text: object, time_s: float) -> None:
    assert seconds(text) == time_s


@pytest.mark.parametrize("text", ["", "h", "soon", "0", "-1", "1h 2x", "30m2h", "nan", "inf", True, None, [1]])
def test_what_is_no_time_is_refused_with_the_rule(text: object) -> None:
    with pytest.raises(BadValue, match=r"must be a time such as 90s, 20m, 2h30m or 1d, above 0, not"):
        seconds(text)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-20 12:00",
        "2026-11-20T12:00:00",
        " 2026-11-20 13:00+01:00 ",
        "2026-11-20T12:00Z",
        datetime(2026, 11, 20, 12),
        datetime(2026, 11, 20, 12, tzinfo=UTC),
        "1h",
    ],
)
def test_a_deadline_is_a_time_or_a_date_in_local_time_or_with_an_offset(
    text: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        monkeypatch.setenv("TZ", "UTC")
        time.tzset()
        assert seconds_from_now(text, NOON_S - 3600) == 3600
        monkeypatch.setenv("TZ", "CET-1")
        time.tzset()
        assert seconds_from_now("2026-11-20 13:00", NOON_S - 3600) == 3600
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["2026-11-20 12:00", "2026-11-19", "2026-13-01 12:00", "2026-11-20 noon", "soon", 0])
def test_a_deadline_that_is_past_or_no_date_is_refused_with_its_value(text: object) -> None:
    with pytest.raises(BadValue, match=r"must be a time such as 6h, or a date to come .*, not ") as found:
        seconds_from_now(text, NOON_S + 86400 * 2)
    assert str(found.value).endswith(f"not {text!r}")


def test_a_grace_may_be_nothing_at_all() -> None:
    assert seconds("0s", zero=True) == seconds(0, zero=True) == 0


@pytest.mark.parametrize(
    ("text", "mib"), [("8G", 8192), ("512M", 512), ("512MiB", 512), ("1.5t", 1572864), ("2048", 2048), (2048, 2048)]
)
def test_memory_has_units_or_is_in_mebibytes(text: object, mib: float) -> None:
    assert mebibytes(text) == mib


@pytest.mark.parametrize("text", ["", "8X", "G", -1, "lots", None, False])
def test_what_is_no_memory_is_refused(text: object) -> None:
    with pytest.raises(BadValue, match="must be an amount of memory"):
        mebibytes(text)


@pytest.mark.parametrize(
    ("text", "counts"),
    [("2", [2]), (2, [2]), ("1,2,4", [1, 2, 4]), ("4,1,2,2", [1, 2, 4]), ("1-4", [1, 2, 3, 4]), ("1-2,8", [1, 2, 8]),
     ([1, 2, 4], [1, 2, 4]), (["1-2", 4], [1, 2, 4]), ("0", [0])],
)  # fmt: skip
def test_gpus_are_a_number_a_list_or_a_range(text: object, counts: list[int]) -> None:
    assert gpu_counts(text) == counts


@pytest.mark.parametrize("text", ["", "x", "-1", "4-1", "0,1", "1,,2", "9999999", 1.5, True, [True], [1.5], None])
def test_other_numbers_of_gpus_are_refused(text: object) -> None:
    with pytest.raises(BadValue, match="must be numbers of GPUs"):
        gpu_counts(text)


def test_an_array_is_a_count_or_a_range_from_zero() -> None:
    assert [array_count(text) for text in ("10", 10, "0-9")] == [10, 10, 10]
    for wrong in ("0", "1-9", "-1", "x", True, "99999999"):
        with pytest.raises(BadValue, match="must be a count from 1 to"):
            array_count(wrong)


def test_numbers_are_finite_and_no_truth_values() -> None:
    assert (number("0.5"), whole("-3")) == (0.5, -3)
    for wrong in ("nan", "1e999", True, None, "x"):
        with pytest.raises(BadValue):
            number(wrong)
    for wrong in ("1.5", 1.5, True, "9" * 30, ""):
        with pytest.raises(BadValue):
            whole(wrong)
