"""Waits for jobs to be over, and shows meanwhile how far they are. Ctrl-C ends the waiting, not the jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from hocket.cli.live.job_rows import FAILED, MISSED, WELL, ListedJob, rows

if TYPE_CHECKING:
    from hocket.cli.live.client import Client

_FIRST_S, _LAST_S = 0.1, 1.0  # between looks: often at first, for short jobs
_AWAY_S = 120.0  # how long a controller may be away, as one that is restarted
_SHOWN = 12  # jobs at a time
T = TypeVar("T")


def exit_code(ends: Iterable[str]) -> int:
    """0: all finished or attained their criterion; 1: one failed; 3: one was stopped, overran …; 5: one missed it."""
    from hocket.cli.terminal.errors import MISSED_CRITERION, UNFINISHED

    unwell = set(ends) - set(WELL)
    if FAILED in unwell:
        return 1
    return UNFINISHED if unwell - {MISSED} else MISSED_CRITERION if unwell else 0


def await_ends(client: Client, ids: Sequence[str]) -> dict[str, str]:
    """The verdict of each job, once all have one."""
    import typer

    from hocket.cli.terminal.errors import INTERRUPTED

    ends: dict[str, str] = {}
    pause_s = _FIRST_S
    try:
        with _display() as show:
            while len(ends) < len(ids):
                live = {row.id: row for row in retry_while_away(client, partial(rows, client))}
                for job_id in ids:
                    if job_id not in ends and job_id not in live:
                        row = retry_while_away(client, partial(_one, client, job_id))
                        if row.is_over:  # Otherwise it came back between two looks.
                            ends[job_id] = row.state
                            show.over(row)
                show.live([live[job_id] for job_id in ids if job_id in live], len(ends), len(ids))
                if len(ends) < len(ids):
                    time.sleep(pause_s)
                    pause_s = min(pause_s * 1.2, _LAST_S)
    except KeyboardInterrupt:
        left = len(ids) - len(ends)
        typer.echo(f"hocket: no longer waiting; {left} job{'s go' if left > 1 else ' goes'} on", err=True)
        raise typer.Exit(INTERRUPTED) from None
    return ends


def retry_while_away(
    client: Client,
    ask: Callable[[], T],
    patience_s: float = _AWAY_S,
    on_away: Callable[[Exception], None] = lambda _error: None,
) -> T:
    """Call `ask`, again while the controller is away: it comes back from its journal, perhaps at another address.

    `on_away` is called each time it does not answer.
    """
    from hocket.cli.live.client import ControllerAway, ControllerRefused

    until_s = time.monotonic() + patience_s
    while True:
        try:
            return ask()
        except (ControllerAway, ControllerRefused) as error:
            # A restarted controller may have written its url and not yet its token.
            if isinstance(error, ControllerRefused) and error.status not in (401, 503):
                raise
            if time.monotonic() > until_s:
                raise
            on_away(error)
            client.close()
            time.sleep(_LAST_S / 2)


def _one(client: Client, job_id: str) -> ListedJob:
    from hocket.cli.live.job_rows import row_in, shown

    return row_in(shown(client, job_id))


def _reason(row: ListedJob) -> str:
    """Behind the state, which need not be said twice."""
    return row.reason.removeprefix(f"{row.state}: ")


class _Lines:
    """Output for a pipe: a line for each job that has ended."""

    def over(self, row: ListedJob) -> None:
        import typer

        why = f": {_reason(row)}" if row.reason and row.state not in WELL else ""
        typer.echo(f"{row.id} {row.state}{why}", err=True)

    def live(self, found: Sequence[ListedJob], over: int, total: int) -> None:
        pass


class _Bars(_Lines):
    """Output for a terminal: those lines, and below them the jobs that have not ended."""

    def __init__(self, live: Any) -> None:
        self._live = live

    def over(self, row: ListedJob) -> None:
        from rich.text import Text

        from hocket.cli.live.job_table import styled_state

        self._live.console.print(Text(f"{row.id} ") + styled_state(row.state) + Text(f"  {_reason(row)}", style="dim"))

    def live(self, found: Sequence[ListedJob], over: int, total: int) -> None:
        from rich.console import Group
        from rich.text import Text

        from hocket.cli.live.job_rows import in_order
        from hocket.cli.live.job_table import job_table

        lines: list[Any] = [job_table(in_order(found)[:_SHOWN], brief=True)] if found else []
        if len(found) > _SHOWN or total > 1:
            lines.append(Text(f"{over:,} of {total:,} over", style="dim"))
        self._live.update(Group(*lines), refresh=True)


@contextmanager
def _display() -> Iterator[_Lines]:
    import sys

    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield _Bars(live)
