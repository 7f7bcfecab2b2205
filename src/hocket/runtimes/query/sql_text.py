"""Names and values as SQL.

Values stand in the text and not in parameters: for the first parameter, DuckDB imports NumPy, pandas and Arrow where
they are installed, which takes longer than most queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def quoted(name: str) -> str:
    """A name."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: object) -> str:
    """A text, a number or a list of them; anything else as the text that it is shown as."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, float):
        return f"'{value!r}'::DOUBLE"  # Also what is not finite.
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def row_values(rows: Iterable[Sequence[object]]) -> str:
    """The rows of an INSERT."""
    return "VALUES " + ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
