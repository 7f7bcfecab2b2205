"""An answer of a query, as a table and as JSON: for `hocket query` and `hocket answer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from rich.table import Table

    from hocket.query import Answer, Query


class ShownAnswer(Struct, frozen=True):
    """An answer as JSON has it: decimal numbers are numbers, dates are texts."""

    columns: list[str]
    rows: list[list[Any]]
    half_widths: list[list[float | None]]
    fraction: float
    elapsed_s: float
    accuracy: float | None
    exact: bool
    split: str
    confidence: float = 0.95
    batches: int = 0
    accuracy_rule: str = "intervals"


def shown_answer(query: Query, answer: Answer, *, plain: bool = True) -> ShownAnswer:
    """The answer of a query; not `plain`, with the values as Python has them, for a table."""
    return ShownAnswer(
        list(answer.columns), [[_plain(value) if plain else value for value in row] for row in answer.rows],
        [list(widths) for widths in answer.half_widths], answer.fraction, answer.elapsed_s, answer.accuracy,
        answer.is_exact, answer.how, query.confidence, len(query.ledger), query.accuracy_rule,
    )  # fmt: skip


def in_one_line(answer: ShownAnswer) -> str:
    """How good it is, in a line."""
    if answer.exact:
        return f"exact, after {answer.elapsed_s:.2f} s"
    read = f"from {answer.fraction:.1%} of the data, after {answer.elapsed_s:.2f} s"
    if answer.accuracy is None:
        return read
    accuracy = f"{max(answer.accuracy, 0.0):.2%}"
    if answer.accuracy_rule == "envelope":
        return f"{read}: acc = {accuracy} by the envelope of the last answers, which promises nothing"
    return f"{read}: acc >= {accuracy} in all columns and rows, {answer.confidence:.0%} confident"


def answer_table(answer: ShownAnswer, most: int | None = None) -> Table:
    """Values with the half widths of their intervals; at most so many rows."""
    from rich.table import Table
    from rich.text import Text

    bounded = {n for widths in answer.half_widths for n, width in enumerate(widths) if width is not None}
    table = Table(caption=f"{answer.fraction:.1%} of the data, {answer.elapsed_s:.1f} s", caption_justify="left")
    for n, name in enumerate(answer.columns):
        table.add_column(Text(name), justify="right" if _is_number(answer, n) else "left")
        if n in bounded:
            table.add_column("±", justify="right", style="dim")
    for row, widths in list(zip(answer.rows, answer.half_widths, strict=True))[:most]:
        cells: list[str | Text] = []
        for n, (value, width) in enumerate(zip(row, widths, strict=True)):
            cells.append(Text(_cell(value, width)))  # A text may have brackets, which are no markup.
            if n in bounded:
                cells.append("" if width is None else f"{width:,.2g}" if width < 100 else f"{width:,.0f}")
        table.add_row(*cells)
    return table


def _is_number(answer: ShownAnswer, column: int) -> bool:
    from decimal import Decimal

    return any(isinstance(row[column], int | float | Decimal) for row in answer.rows[:10])


def _cell(value: Any, width: float | None) -> str:
    """An estimate, to as many digits as its interval leaves."""
    if value is None:
        return "NULL"
    if width is None or width <= 0:
        return str(value)
    from math import floor, log10

    digits = max(0, 1 - floor(log10(width)))
    return f"{float(value):,.{digits}f}"


def _plain(value: Any) -> Any:
    from decimal import Decimal

    if isinstance(value, Decimal) or (isinstance(value, int) and not -(2**63) <= value < 2**64):
        return float(value)  # JSON has no other numbers that all readers understand.
    return value if isinstance(value, int | float | str | bool | None) else str(value)
