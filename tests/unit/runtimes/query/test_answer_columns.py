"""Answers as Arrow and pandas."""

from __future__ import annotations

import sys
from decimal import Decimal

import pytest

from hocket.query import Answer, QueryError
from hocket.runtimes.query.answer_columns import with_bounds

EARLY = Answer(
    ("shop", "n", "n", "top"), (("a", 10.0, 4.0, 7), (None, 20.0, None, None)),
    ((None, 2.0, 1.0, None), (None, None, None, None)), 0.25, 1.0, None, "by rows of sales", (1, 2),
)  # fmt: skip
EXACT = Answer(("g", "s"), ((1, Decimal("2.50")),), ((None, None),), 1.0, 1.0, 1.0, "by rows of sales", (1,))


def test_columns_with_intervals_have_their_ends_beside_them() -> None:
    assert with_bounds(EARLY) == [
        ("shop", ["a", None]),
        ("n", [10.0, 20.0]), ("n_lo", [8.0, None]), ("n_hi", [12.0, None]),
        ("n", [4.0, None]), ("n_lo", [3.0, None]), ("n_hi", [5.0, None]),
        ("top", [7, None]),
    ]  # fmt: skip


def test_an_exact_answer_has_the_same_columns() -> None:
    assert with_bounds(EXACT) == [("g", [1]), ("s", [Decimal("2.50")]), ("s_lo", [2.5]), ("s_hi", [2.5])]


def test_arrow() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install pyarrow")
    table = EARLY.arrow()
    assert table.column_names == ["shop", "n", "n_lo", "n_hi", "n", "n_lo", "n_hi", "top"]
    assert table.num_rows == 2
    assert table.column(2).to_pylist() == [8.0, None]
    assert str(EXACT.arrow().schema.field("s").type).startswith("decimal")


def test_pandas() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
    frame = EARLY.pandas()
    assert list(frame.columns) == ["shop", "n", "n_lo", "n_hi", "n", "n_lo", "n_hi", "top"]
    assert frame["shop"].tolist()[0] == "a"
    assert frame.iloc[0, 3] == 12.0


def test_a_library_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyarrow", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(QueryError, match="pip install pyarrow"):
        EARLY.arrow()
    with pytest.raises(QueryError, match="pip install pandas"):
        EARLY.pandas()
