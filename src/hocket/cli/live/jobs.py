"""`hocket jobs`: what there is, and where it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hocket.cli.options import AsJson, At, Home, OwnerFilter

if TYPE_CHECKING:
    from hocket.cli.live.client import Client, ControllerAnswer
    from hocket.cli.live.job_rows import ListedJob

SHOWN = 50  # rows on a terminal
_EVERY_S = 1.0


def jobs(
    every: Annotated[bool, typer.Option("--all", "-a", help="Those that are over, too.")] = False,
    owner: OwnerFilter = "",
    state: Annotated[
        str,
        typer.Option(metavar="STATE", help="Only those in this state: running, waiting, failed … (or several, a,b)."),
    ] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again every second, until Ctrl-C.")] = False,
    at: At = "",
    all_rows: Annotated[bool, typer.Option("--all-rows", help=f"More than {SHOWN} rows on a terminal, too.")] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """List jobs: those that run first, then the queue, then (with --all) those that are over."""
    import sys

    from hocket.cli.live.client import Client

    states = _states(state)
    if at and watch:
        from hocket.cli.terminal.errors import InputError

        raise InputError("--watch shows the present as it changes, and --at the past: give one of them")
    with Client(home) as client:
        if as_json and not (states or watch):
            # As the controller says it; what is not looked at need not be read.
            print(_answer(client, every, owner, at).body.decode())
            return
        if watch:
            _watch(client, every, owner, states)
            return
        found = _found(client, every, owner, states, at)
    if as_json:
        import msgspec

        print(msgspec.json.encode({"jobs": found}).decode())
        return
    if all_rows or not sys.stdout.isatty():
        from hocket.cli.live.job_table import plain_lines

        print("\n".join(plain_lines(found)))
        return
    from hocket.cli.terminal.console import console

    console().print(_page(found, SHOWN, every))


def _states(text: str) -> frozenset[str]:
    """The states that --state names. Raises InputError for one that no job can be in."""
    if not text:
        return frozenset()
    from hocket.cli.live.job_rows import LIVE
    from hocket.cli.terminal.errors import InputError
    from hocket.model.plan import Verdict

    known = (*LIVE, *Verdict)
    wanted = frozenset(word.strip() for word in text.split(",") if word.strip())
    for word in sorted(wanted - set(known)):
        from difflib import get_close_matches

        near = get_close_matches(word, known, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise InputError(f"--state must be one of {', '.join(known)}, not '{word}'{hint}")
    return wanted


def _answer(client: Client, every: bool, owner: str, at: str) -> ControllerAnswer:
    """What the controller lists, now or at some time."""
    if not at:
        return client.get("/v1/jobs", all=every or "", owner=owner)
    from hocket.cli.live.past import past

    return past(client, at, all=every or "", owner=owner, parts="jobs")


def _found(client: Client, every: bool, owner: str, states: frozenset[str], at: str = "") -> list[ListedJob]:
    from hocket.cli.live.job_rows import LIVE, in_order, rows_in

    over_too = every or bool(states - set(LIVE))
    found = rows_in(_answer(client, over_too, owner, at))
    return in_order(row for row in found if not states or row.state in states)


def _page(found: list[ListedJob], shown: int, every: bool) -> Any:
    from rich.console import Group
    from rich.text import Text

    from hocket.cli.live.job_table import job_table

    if not found:
        return Text("no jobs" if every else "no live jobs (--all shows those that are over)", style="dim")
    table = job_table(found[:shown])
    if len(found) <= shown:
        return table
    return Group(table, Text(f"… and {len(found) - shown:,} more (--all-rows shows them)", style="dim"))


def _watch(client: Client, every: bool, owner: str, states: frozenset[str]) -> None:
    import sys
    import time

    from rich.live import Live

    from hocket.cli.live.waiting import retry_while_away
    from hocket.cli.terminal.console import console

    page = console()
    if not sys.stdout.isatty():
        from hocket.cli.terminal.errors import InputError

        raise InputError("--watch needs a terminal; for scripts there are --json and GET /v1/events")
    with Live(console=page, auto_refresh=False, screen=True) as live:
        try:
            while True:
                found = retry_while_away(client, lambda: _found(client, every, owner, states))
                live.update(_page(found, max(page.height - 4, 1), every), refresh=True)
                time.sleep(_EVERY_S)
        except KeyboardInterrupt:
            return
