"""Answers as tables of other libraries: each column, and the ends of its interval beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hocket.runtimes.query.statement import QueryError

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from hocket.runtimes.query.progressive import Answer


def with_bounds(answer: Answer) -> list[tuple[str, list[Any]]]:
    """Names and values of the columns; after one with intervals come `NAME_lo` and `NAME_hi`.

    These are None where there is no interval yet. In an exact answer they are the value.
    """
    found: list[tuple[str, list[Any]]] = []
    for n, name in enumerate(answer.columns):
        values = [row[n] for row in answer.rows]
        found.append((name, values))
        if n in answer.bounded:
            widths = [0.0 if answer.is_exact else w[n] for w in answer.half_widths]
            for end, sign in (("lo", -1.0), ("hi", 1.0)):
                found.append((f"{name}_{end}", [_moved(v, w, sign) for v, w in zip(values, widths, strict=True)]))
    return found


def to_arrow(answer: Answer) -> pyarrow.Table:
    """The answer as a table of Arrow. Raises QueryError if pyarrow is not installed."""
    try:
        import pyarrow
    except ImportError as error:
        raise QueryError("an answer as Arrow needs pyarrow: pip install pyarrow") from error
    columns = with_bounds(answer)
    return pyarrow.Table.from_arrays([pyarrow.array(values) for _, values in columns], [name for name, _ in columns])


def to_pandas(answer: Answer) -> pandas.DataFrame:
    """The answer as a DataFrame. Raises QueryError if pandas is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise QueryError("an answer as a DataFrame needs pandas: pip install pandas") from error
    columns = with_bounds(answer)  # Two may have one name, so that there is no dict of them.
    frame = pandas.DataFrame({n: values for n, (_name, values) in enumerate(columns)})
    frame.columns = pandas.Index([name for name, _ in columns])
    return frame


def _moved(value: Any, width: float | None, sign: float) -> float | None:
    return None if value is None or width is None else float(value) + sign * width
