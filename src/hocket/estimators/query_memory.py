"""The memory of a query, from the plan that EXPLAIN gives before it runs: what its operators have to hold at once.

Scans, filters and projections pass rows on. A join holds the rows of its build side, an aggregation its groups, a sort
or a window all of its rows: rows and columns as the database estimates them from its statistics, a cell at 16 bytes.
What a process has anyway and how far cells are from 16 bytes are fitted to queries that were measured; the spread
around that fit is the estimate's uncertainty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, inf, isfinite, log, sqrt
from typing import Any

import msgspec
from msgspec import Struct

from hocket.estimators.quality import nonnegative
from hocket.model.curve import Estimate

_CELL_BYTES = 16.0
_MIB = float(1 << 20)
_HOLDS_ALL = ("ORDER_BY", "WINDOW", "STREAMING_WINDOW", "CROSS_PRODUCT", "NESTED_LOOP_JOIN", "PIECEWISE_MERGE_JOIN")
_JOINS = ("HASH_JOIN", "RIGHT_DELIM_JOIN", "LEFT_DELIM_JOIN")
_LISTS = ("Projections", "Groups", "Aggregates", "Expressions", "Order By")


class MemoryLaw(Struct, frozen=True, gc=False):
    """Memory of a query = base + factor × what its plan holds, off by the factor e^±spread."""

    base_mib: float  # of the process, the buffers and the code
    factor: float  # MiB for each MiB that the plan is taken to hold
    spread: float  # standard deviation of the logarithm of measured over estimated memory

    def of(self, held_mib: float) -> Estimate:
        """The memory of a query whose plan holds so much."""
        mean = self.base_mib + self.factor * held_mib
        return Estimate(mean, mean * sqrt(exp(self.spread**2) - 1.0))


# Fitted to the 22 queries of TPC-H at scale factor 1 with one thread; `python -m benchmarks.rotary` prints it, and how
# well it does on queries that it was not fitted to.
USUAL = MemoryLaw(base_mib=218.0, factor=0.074, spread=0.124)


def held_mib(plan: str | bytes) -> float:
    """What the operators of a plan hold at once, in MiB, from `EXPLAIN (FORMAT json)`. Raises ValueError."""
    try:
        roots = msgspec.json.decode(plan)
    except msgspec.DecodeError as error:
        raise ValueError(f"the plan of a query is no JSON: {error}") from error
    held = [0.0]
    for root in roots if isinstance(roots, list) else [roots]:
        _through(root, held)
    return sum(held)


def fitted(measured: Sequence[tuple[float, float]]) -> MemoryLaw:
    """The law from (what the plan holds, peak memory) of queries that were measured, in MiB; at least two of them."""
    if len(measured) < 2:
        raise ValueError(f"a law of memory needs at least 2 measured queries, not {len(measured)}")
    # Relative errors count, for a query of 10 GiB must not hide what is said of one of 200 MiB.
    weights = [1.0 / (peak * peak) for _held, peak in measured]
    aa = sum(w * h * h for w, (h, _p) in zip(weights, measured, strict=True))
    ab = sum(w * h for w, (h, _p) in zip(weights, measured, strict=True))
    ay = sum(w * h * p for w, (h, p) in zip(weights, measured, strict=True))
    by = sum(w * p for w, (_h, p) in zip(weights, measured, strict=True))
    factor, base = nonnegative(aa, ab, sum(weights), ay, by)
    off = [log(p / max(base + factor * h, 1e-9)) for h, p in measured]
    return MemoryLaw(base, factor, sqrt(sum(o * o for o in off) / max(len(off) - 2, 1)))


def _through(operator: Mapping[str, Any], held: list[float]) -> tuple[float, int]:
    """The rows and columns that an operator passes on; what it holds is added to the list."""
    name = str(operator.get("name", "")).strip().upper()
    info = operator.get("extra_info") or {}
    below = [_through(child, held) for child in operator.get("children") or ()]
    columns = sum(len(found) if isinstance(found := info.get(key), list) else bool(found) for key in _LISTS)
    columns = columns or sum(c for _r, c in below) or 1
    rows = _number(info.get("Estimated Cardinality"), inf)
    if below:  # Joins are by keys: estimates beyond the larger side add up to nonsense over several joins.
        rows = min(rows, max(r for r, _c in below))
    rows = rows if rows < inf else 0.0
    if name in _JOINS and len(below) > 1:
        _hold(held, *below[1])  # the build side; the other streams past it
    elif "GROUP_BY" in name or name == "DISTINCT":
        _hold(held, rows, columns)
    elif name in _HOLDS_ALL and below:
        _hold(held, *below[-1])
    return rows, columns


def _hold(held: list[float], rows: float, columns: int) -> None:
    held.append(rows * columns * _CELL_BYTES / _MIB)


def _number(text: Any, otherwise: float) -> float:
    try:
        found = float(str(text).lstrip("~"))
    except ValueError:
        return otherwise
    return found if isfinite(found) and found >= 0 else otherwise
