"""`hocket query prepare DATA --out FILE`: tables laid out so that each batch of a query reads its own part only."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli.options import AsJson
from hocket.cli.terminal.errors import InputError, refusing

if TYPE_CHECKING:
    from hocket.runtimes.query.duckdb_data import DuckdbData
    from hocket.runtimes.query.prepare import WrittenCopy
    from hocket.runtimes.query.prepared_layout import LayoutKey


def prepare(
    data: Annotated[
        str,
        typer.Argument(metavar="DIR|FILE|tpch:SF", help="The tables: Parquet or CSV files, a DuckDB file, or TPC-H."),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The DuckDB file to write, as sales.duckdb.")],
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE.COLUMN", help="Lay a table out by this column; by rows if it is only a table. Repeatable."
        ),
    ] = None,
    for_: Annotated[
        list[Path] | None,
        typer.Option("--for", metavar="QUERY.sql", help="By the keys that this query is split by. Repeatable."),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="Of DuckDB; all cores by default.")] = None,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="That DuckDB may use, as 4GB.")] = "",
    as_json: AsJson = False,
) -> None:
    """Lay tables out for `hocket query`, so that each batch reads its own part and not the whole table.

    Without --key and --for, tables are laid out by the columns that they are joined by, as names and values tell. A
    table with several keys is written once for each. FILE appears when it is complete; `hocket query --data FILE` uses
    it.
    """
    try:
        from hocket.query import QueryError
        from hocket.runtimes.query.data_sources import open_data
        from hocket.runtimes.query.duckdb_errors import ctrl_c_as_interrupt
    except ImportError as error:
        raise InputError(f"queries need DuckDB and sqlglot ({error}): pip install 'hocket[query]'") from error

    with refusing():
        texts = [path.read_text(encoding="utf-8") for path in for_ or ()]
    try:
        with ctrl_c_as_interrupt():
            opened = open_data(data, threads, memory, may_write=True)
            with closing(opened.connection):
                written = _written(opened, data, out, _keys(opened, key or [], texts))
    except QueryError as error:
        raise InputError(str(error)) from error
    _print(out, written, as_json)


def _keys(data: DuckdbData, named: list[str], queries: list[str]) -> list[LayoutKey]:
    from hocket.runtimes.query.prepare import key_named, keys_of_queries, keys_of_schema

    if not named and not queries:
        return keys_of_schema(data)
    return [*(key_named(data, text) for text in named), *keys_of_queries(data, queries)]


def _written(data: DuckdbData, source: str, out: Path, keys: list[LayoutKey]) -> list[WrittenCopy]:
    from hocket.cli.terminal.progress import bars
    from hocket.runtimes.query.prepare import WrittenCopy, prepare

    written = []
    with bars("rows") as progress:
        task = progress.add_task("tables are laid out", total=None)
        for step in prepare(data, source, out, keys):
            if isinstance(step, WrittenCopy):
                written.append(step)
            else:
                by = f"{step.table} by {step.key}" if step.key else step.table
                progress.update(task, description=by, completed=int(step.done), total=int(step.total))
    return written


def _print(out: Path, written: list[WrittenCopy], as_json: bool) -> None:
    total_bytes = out.stat().st_size
    if as_json:
        import msgspec

        copies = [{"table": c.table, "key": c.key or None, "rows": c.rows, "size_bytes": c.size_bytes} for c in written]
        print(msgspec.json.encode({"file": str(out), "size_bytes": total_bytes, "copies": copies}).decode())
        return
    from rich.table import Table

    from hocket.cli.terminal.console import console

    table = Table()
    for title, justify in (("table", "left"), ("laid out by", "left"), ("rows", "right"), ("size", "right")):
        table.add_column(title, justify=justify)  # type: ignore[arg-type]
    for copy in written:
        by = {"rowid": "rows", "": "(read whole)"}.get(copy.key, copy.key)
        table.add_row(copy.table, by, f"{copy.rows:,}", _size(copy.size_bytes))
    console().print(table)
    times = {copy.table: sum(c.table == copy.table for c in written) for copy in written}
    several = ", ".join(f"{name} {count} times" for name, count in times.items() if count > 1)
    print(f"'{out}': {_size(total_bytes)}{f'; stored {several}' if several else ''}")


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.2f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.1f} MB"
