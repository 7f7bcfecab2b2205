"""`hocket query "SELECT …" --data DIR`: an answer that refines in place, with intervals, until it is good enough."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hocket.cli.light_commands import LightCommand
from hocket.cli.options import AsJson
from hocket.cli.terminal.errors import INTERRUPTED, MISSED_CRITERION, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hocket.query import Answer, Query

_MOST_ROWS = 40  # of an answer that refines in place


class QueryCommand(LightCommand):
    """A query, or `prepare`, which no SQL is."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the command line."""
        if args[:1] != ["prepare"]:
            return super().make_context(info_name, args, parent, **extra)
        return prepare_command().make_context(f"{info_name} prepare", args[1:], parent, **extra)


def prepare_command() -> Any:
    """`hocket query prepare`, as a command of its own."""
    from typer.main import get_command

    from hocket.cli.query_prepare import prepare

    around = typer.Typer(add_completion=False, rich_markup_mode="rich")
    around.command("prepare", cls=LightCommand)(prepare)
    return get_command(around)


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
    engine: Annotated[
        Literal["duckdb", "spark"], typer.Option(help="What computes the batches; spark for data of many machines.")
    ] = "duckdb",
    master: Annotated[
        str, typer.Option(metavar="URL", help="Master of Spark: spark://HOST:PORT, local[N] or yarn.")
    ] = "",
    spark_conf: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting of Spark, as spark.executor.memory=4g. Repeatable."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw how the estimates went, with their intervals: .png or .svg."),
    ] = None,
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

    Ctrl-C prints the best answer so far. Exit code 5: the goal was not met in time. `hocket query prepare DATA --out
    FILE` lays data out so that queries cost less (`hocket query prepare --help`). As a job of Hocket
    (`hocket submit --query`), a query has as many threads as the job has replicas, and keeps its state by itself.
    """
    try:
        from hocket.query import Query, QueryError
        from hocket.runtimes.query.duckdb_errors import ctrl_c_as_interrupt
        from hocket.runtimes.query.engines import open_engine
    except ImportError as error:
        raise InputError(f"queries need DuckDB and sqlglot ({error}): pip install 'hocket[query]'") from error

    import os
    import sys

    from hocket.cli.query_job import QueryJob

    weights, conf = _weights(weight or []), _settings(spark_conf or [])
    if plot is not None:
        _must_be_a_figure(plot)
    answers: list[Answer] | None = None if plot is None else []
    every_s = _every_s(interrupted_every)
    job = QueryJob.of(os.environ)
    if job is not None:
        state, every_s = job.state, every_s or job.interrupted_every_s
    try:
        text = sys.stdin.read() if sql == "-" else sql
        with ExitStack() as within:
            within.enter_context(ctrl_c_as_interrupt())
            opened = open_engine(
                data, engine, master, conf, threads=threads, memory=memory,
                state=None if state is None else state.expanduser().absolute(),
            )  # fmt: skip
            within.callback(opened.close)
            found = within.enter_context(
                closing(
                    Query(
                        text, opened, until=until, confidence=confidence, accuracy=accuracy, weights=weights,
                        accuracy_rule=accuracy_rule, exact=exact, state=state, interrupted_every_s=every_s,
                    )
                )
            )  # fmt: skip
            if job is not None:
                code = job.run(found)
            else:
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


def _every_s(text: str) -> float | None:
    from hocket.job_input.units import BadValue, seconds

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


def _settings(given: list[str]) -> dict[str, str]:
    for text in given:
        if not text.partition("=")[0].startswith("spark.") or "=" not in text:
            raise InputError(f"--spark-conf must be spark.KEY=VALUE, not '{text}'")
    return {name: value for name, _, value in (text.partition("=") for text in given)}


def _show(found: Query, answers: list[Answer] | None) -> int:
    from rich.live import Live

    from hocket.cli.answer_table import ShownAnswer, answer_table, in_one_line, shown_answer
    from hocket.cli.terminal.console import console

    def shown(answer: Answer) -> ShownAnswer:
        return shown_answer(found, answer, plain=False)

    screen, last, interrupted = console(), None, False
    print(f"split {found.how}" if found.mode is not None else found.how, file=_stderr())
    with ExitStack() as within:
        live = within.enter_context(Live(console=screen, auto_refresh=False)) if screen.is_terminal else None
        try:
            for answer in _kept(found, answers):
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
    print(in_one_line(shown(last)), file=_stderr())
    return INTERRUPTED if interrupted else _code(found, last)


def _stderr() -> Any:
    import sys

    return sys.stderr


def _code(found: Query, answer: Answer) -> int:
    return 0 if found.meets_goal(answer) and found.is_in_time(answer) else MISSED_CRITERION


def _print_json(found: Query, answers: list[Answer] | None) -> int:
    import msgspec

    from hocket.cli.answer_table import shown_answer

    code = 0
    try:
        for answer in _kept(found, answers):
            shown = shown_answer(found, answer)
            print(msgspec.json.encode(shown).decode(), flush=True)
            code = _code(found, answer)
    except KeyboardInterrupt:
        return INTERRUPTED
    return code
