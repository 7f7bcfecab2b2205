"""`hocket query "SELECT …" --data DIR`: an answer that refines in place, with intervals, until it is good enough."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hocket.cli.options import AsJson
from hocket.cli.terminal.errors import INTERRUPTED, MISSED_CRITERION, InputError

if TYPE_CHECKING:
    from hocket.query import Answer, Query

_MOST_ROWS = 40  # of an answer that refines in place


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
    exact: Annotated[bool, typer.Option("--exact", help="Read all data at once.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="Of DuckDB; all cores by default.")] = None,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="That DuckDB may use, as 4GB.")] = "",
    state: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep what is known after each batch there, and go on from it."),
    ] = None,
    interrupted_every: Annotated[
        str,
        typer.Option(metavar="TIME", help="Keep it only where that pays, if the query is killed so often, as 1h."),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Answer an aggregate query from part of its data, with intervals, and refine it until it is exact.

    Ctrl-C prints the best answer so far. Exit code 5: the goal was not met in time. As a job of Hocket
    (`hocket submit --query`), it has as many threads as the job has replicas, and keeps its state by itself.
    """
    try:
        from hocket.query import Query, QueryError
        from hocket.runtimes.query.data_sources import open_data
    except ImportError as error:
        raise InputError(f"queries need DuckDB and sqlglot ({error}): pip install 'hocket[query]'") from error

    import os
    import sys

    from hocket.cli.query_job import QueryJob

    weights = _weights(weight or [])
    every_s = _every_s(interrupted_every)
    job = QueryJob.of(os.environ)
    if job is not None:
        state, every_s = job.state, every_s or job.interrupted_every_s
    try:
        text = sys.stdin.read() if sql == "-" else sql
        found = Query(
            text, open_data(data, threads, memory, None if state is None else state.expanduser().absolute()),
            until=until, confidence=confidence, accuracy=accuracy, weights=weights, exact=exact, state=state,
            interrupted_every_s=every_s,
        )  # fmt: skip
        with closing(found):
            code = job.run(found) if job is not None else _print_json(found) if as_json else _show(found)
    except QueryError as error:
        raise InputError(str(error)) from error
    raise typer.Exit(code)


def _every_s(text: str) -> float | None:
    from hocket.cli.units import BadValue, seconds

    try:
        return seconds(text) if text else None
    except BadValue as error:
        raise InputError(f"--interrupted-every {error}") from None


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


def _show(found: Query) -> int:
    from rich.live import Live

    from hocket.cli.answer_table import ShownAnswer, answer_table, said, shown_answer
    from hocket.cli.terminal.console import console

    def shown(answer: Answer) -> ShownAnswer:
        return shown_answer(answer, found.confidence, len(found.ledger), plain=False)

    screen, last, interrupted = console(), None, False
    print(f"split {found.how}" if found.mode is not None else found.how, file=_stderr())
    with ExitStack() as within:
        live = within.enter_context(Live(console=screen, auto_refresh=False)) if screen.is_terminal else None
        try:
            for answer in found:
                last = answer
                if live is not None:
                    live.update(answer_table(shown(answer), _MOST_ROWS), refresh=True)
        except KeyboardInterrupt:
            interrupted = True
        if live is not None and last is not None:
            live.update(answer_table(shown(last)), refresh=True)
    if last is None:
        return INTERRUPTED
    if live is None:
        screen.print(answer_table(shown(last)))
    print(said(shown(last)), file=_stderr())
    return INTERRUPTED if interrupted else _code(found, last)


def _stderr() -> Any:
    import sys

    return sys.stderr


def _code(found: Query, answer: Answer) -> int:
    return 0 if found.meets_goal(answer) and found.is_in_time(answer) else MISSED_CRITERION


def _print_json(found: Query) -> int:
    import msgspec

    from hocket.cli.answer_table import shown_answer

    code = 0
    try:
        for answer in found:
            shown = shown_answer(answer, found.confidence, len(found.ledger))
            print(msgspec.json.encode(shown).decode(), flush=True)
            code = _code(found, answer)
    except KeyboardInterrupt:
        return INTERRUPTED
    return code
