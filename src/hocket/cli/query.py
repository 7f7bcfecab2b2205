"""`hocket query "SELECT …" --data DIR`: an answer that refines in place, with intervals, until it is good enough."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hocket.cli.light_commands import LightCommand
from hocket.cli.options import AsJson
from hocket.cli.terminal.errors import INTERRUPTED, MISSED_CRITERION, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from hocket.query import Answer, Query

_MOST_ROWS = 40  # of an answer that refines in place


class QueryCommand(LightCommand):
    """A query, or `prepare`, which no SQL is."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the command line."""
        if args[:1] != ["prepare"]:
            return super().make_context(info_name, args, parent, **extra)
        from typer.main import get_command

        from hocket.cli.query_prepare import prepare

        around = typer.Typer(add_completion=False, rich_markup_mode="rich")
        around.command("prepare", cls=LightCommand)(prepare)
        return get_command(around).make_context(f"{info_name} prepare", args[1:], parent, **extra)


def query(
    sql: Annotated[str, typer.Argument(help="One SELECT, or - to read it from standard input.")],
    data: Annotated[
        str,
        typer.Option(metavar="DIR|FILE|tpch:SF", help="Its tables: Parquet or CSV files, a DuckDB file, or TPC-H."),
    ],
    until: Annotated[
        str, typer.Option(metavar="GOAL", help="Stop early: 'acc >= 99% within 30s'. By default at the exact answer.")
    ] = "",
    confidence: Annotated[float, typer.Option(help="Of the intervals, and of the goal.")] = 0.95,
    accuracy: Annotated[
        Literal["mean", "worst"], typer.Option(help="How acc is made of the columns' relative errors.")
    ] = "mean",
    weight: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=NUMBER", help="Weight of a column in the mean. Repeatable.")
    ] = None,
    accuracy_rule: Annotated[
        Literal["intervals", "envelope"],
        typer.Option(help="Intervals promise acc; Rotary's envelope looks at how little estimates still move."),
    ] = "intervals",
    exact: Annotated[bool, typer.Option("--exact", help="Read all data at once.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="Of DuckDB; all cores by default.")] = None,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="That DuckDB may use, as 4GB.")] = "",
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw how the estimates went, with their intervals: .png or .svg."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer an aggregate query from part of its data, with intervals, and refine it until it is exact.

    Ctrl-C prints the best answer so far. Exit code 5: the goal was not met in time. `hocket query prepare DATA --out
    FILE` lays data out so that queries cost less (`hocket query prepare --help`).
    """
    try:
        from hocket.query import Query, QueryError
        from hocket.runtimes.query.data_sources import open_data
    except ImportError as error:
        raise InputError(f"queries need DuckDB and sqlglot ({error}): pip install 'hocket[query]'") from error

    import sys

    weights = _weights(weight or [])
    if plot is not None:
        _must_be_a_figure(plot)
    answers: list[Answer] | None = None if plot is None else []
    try:
        text = sys.stdin.read() if sql == "-" else sql
        found = Query(
            text, open_data(data, threads, memory), until=until, confidence=confidence, accuracy=accuracy,
            weights=weights, accuracy_rule=accuracy_rule, exact=exact,
        )  # fmt: skip
        code = _print_json(found, answers) if as_json else _show(found, answers)
    except QueryError as error:
        raise InputError(str(error)) from error
    if plot is not None and answers:
        from hocket.reports.query_plot import plot_answers

        plot_answers(answers, plot)
        print(f"plot in {plot}", file=_stderr())
    raise typer.Exit(code)


def _must_be_a_figure(path: Path) -> None:
    from hocket.cli.terminal.errors import refusing
    from hocket.cli.terminal.output_files import must_be_writable

    with refusing():
        if path.suffix not in (".png", ".svg"):
            raise ValueError(f"--plot '{path}' must end in .png or .svg")
        must_be_writable(path, "--plot")


def _kept(found: Query, answers: list[Answer] | None) -> Iterator[Answer]:
    """The answers, as they come; they are kept if they are wanted later."""
    for answer in found:
        if answers is not None:
            answers.append(answer)
        yield answer


def _weights(given: list[str]) -> dict[str, float]:
    weights = {}
    for text in given:
        name, equals, number = text.rpartition("=")
        try:
            weights[name] = float(number)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InputError(f"--weight must be COLUMN=NUMBER, not '{text}'")
    return weights


def _show(found: Query, answers: list[Answer] | None) -> int:
    from rich.live import Live

    from hocket.cli.terminal.console import console

    screen, last, interrupted = console(), None, False
    print(f"split {found.how}" if found.mode is not None else found.how, file=_stderr())
    with ExitStack() as within:
        live = within.enter_context(Live(console=screen, auto_refresh=False)) if screen.is_terminal else None
        try:
            for answer in _kept(found, answers):
                last = answer
                if live is not None:
                    live.update(_table(answer, _MOST_ROWS), refresh=True)
        except KeyboardInterrupt:
            interrupted = True
        if live is not None and last is not None:
            live.update(_table(last, None), refresh=True)
    if last is None:
        return INTERRUPTED
    if live is None:
        screen.print(_table(last, None))
    print(_said(found, last), file=_stderr())
    return INTERRUPTED if interrupted else _code(found, last)


def _stderr() -> Any:
    import sys

    return sys.stderr


def _said(found: Query, answer: Answer) -> str:
    if answer.is_exact:
        return f"exact, after {answer.elapsed_s:.2f} s"
    read = f"from {answer.fraction:.1%} of the data, after {answer.elapsed_s:.2f} s"
    if answer.accuracy is None:
        return read
    accuracy = f"{max(answer.accuracy, 0.0):.2%}"
    if found.accuracy_rule == "envelope":
        return f"{read}: acc = {accuracy} by the envelope of the last answers, which promises nothing"
    return f"{read}: acc >= {accuracy} in all columns and rows, {found.confidence:.0%} confident"


def _code(found: Query, answer: Answer) -> int:
    return 0 if found.meets_goal(answer) and found.is_in_time(answer) else MISSED_CRITERION


def _table(answer: Answer, most: int | None) -> Table:
    from rich.table import Table

    bounded = {n for widths in answer.half_widths for n, width in enumerate(widths) if width is not None}
    table = Table(caption=f"{answer.fraction:.1%} of the data, {answer.elapsed_s:.1f} s", caption_justify="left")
    for n, name in enumerate(answer.columns):
        table.add_column(name, justify="right" if _is_number(answer, n) else "left")
        if n in bounded:
            table.add_column("±", justify="right", style="dim")
    for row, widths in list(zip(answer.rows, answer.half_widths, strict=True))[:most]:
        cells = []
        for n, (value, width) in enumerate(zip(row, widths, strict=True)):
            cells.append(_cell(value, width))
            if n in bounded:
                cells.append("" if width is None else f"{width:,.2g}" if width < 100 else f"{width:,.0f}")
        table.add_row(*cells)
    return table


def _is_number(answer: Answer, column: int) -> bool:
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


def _print_json(found: Query, answers: list[Answer] | None) -> int:
    import msgspec

    code = 0
    try:
        for answer in _kept(found, answers):
            rows = [[_plain(value) for value in row] for row in answer.rows]
            said = {
                "columns": answer.columns, "rows": rows, "half_widths": answer.half_widths,
                "fraction": answer.fraction, "elapsed_s": answer.elapsed_s, "accuracy": answer.accuracy,
                "exact": answer.is_exact, "split": answer.how,
            }  # fmt: skip
            print(msgspec.json.encode(said).decode(), flush=True)
            code = _code(found, answer)
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _plain(value: Any) -> Any:
    """As JSON has it: a decimal number is a number, a date is text."""
    from decimal import Decimal

    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, int | float | str | bool | None) else str(value)
