"""`hocket doctor`: is a controller's home in order?"""

from __future__ import annotations

from typing import Annotated

import typer

from hocket.cli.options import AsJson, Home

_SYMBOLS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "red")}
PROBLEMS = 1  # exit code


def doctor(
    repair: Annotated[bool, typer.Option("--repair", help="Put right what can be, without a loss.")] = False,
    store: Annotated[
        str, typer.Option(metavar="FILE|URL", help="The journal, if it is not in the home.", show_default=False)
    ] = "",
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Examine a controller's home: permissions, journal, catalogue, controller, agent, processes.

    Exit code 1 if there is a problem that was not repaired.
    """
    import sys

    import msgspec
    from rich.text import Text

    from hocket.cli.live.client import home_folder
    from hocket.cli.terminal.console import console
    from hocket.service import home_check
    from hocket.service.home import Home as HomeFolder

    page = console()
    is_watched = sys.stderr.isatty()

    def progress(what: str) -> None:
        if is_watched:
            print(f"\r\x1b[K{what}", end="", file=sys.stderr, flush=True)

    found: list[dict[str, str]] = []
    for finding in home_check.examine(HomeFolder(home_folder(home)), store, progress):
        row = {"about": finding.about, "health": str(finding.health), "text": finding.text, "repair": ""}
        if finding.repair is not None:
            row["repair"] = "possible"
            if repair:
                try:
                    finding.repair()
                    row["repair"] = "done"
                except OSError as error:
                    row["repair"] = f"failed: {error}"
        found.append(row)
        if not as_json:
            if is_watched:
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            symbol, style = ("✓", "green") if row["repair"] == "done" else _SYMBOLS[row["health"]]
            note = {"": "", "possible": " (--repair puts it right)", "done": " (repaired)"}.get(
                row["repair"], f" (repair {row['repair']})"
            )
            page.print(Text(f"{symbol} ", style=style) + Text(f"{row['about']:12} {row['text']}{note}"), soft_wrap=True)
    if as_json:
        print(msgspec.json.encode({"findings": found}).decode())
    if any(row["health"] == "problem" and row["repair"] != "done" for row in found):
        raise typer.Exit(PROBLEMS)
