"""TPC-H data of the smallest size, and what a plain run says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'hocket[query]'")

from hocket.runtimes.query import split_key  # noqa: E402
from hocket.runtimes.query.data_sources import open_data  # noqa: E402
from hocket.runtimes.query.duckdb_data import DuckdbData  # noqa: E402


@pytest.fixture(scope="session")
def tpch() -> Iterator[DuckdbData]:
    pytest.importorskip("duckdb_extension_tpch")
    data = open_data("tpch:0.01")
    yield data
    data.connection.close()


@pytest.fixture
def small_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' tables are small: of what a key needs, and of what many groups are, they have less."""
    monkeypatch.setattr(split_key, "LEAST_VALUES", 500)
    monkeypatch.setattr(split_key, "MANY_GROUPS", 1000)


def same_rows(first: Any, second: Any, rel_tol: float = 1e-9) -> bool:
    """Equal, and of floats within rounding."""
    return len(first) == len(second) and all(
        len(a) == len(b) and all(_same(x, y, rel_tol) for x, y in zip(a, b, strict=True))
        for a, b in zip(first, second, strict=True)
    )


def _same(a: Any, b: Any, rel_tol: float) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=rel_tol, abs_tol=1e-9) or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and a == b
