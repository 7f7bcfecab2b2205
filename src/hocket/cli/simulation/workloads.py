"""`hocket workloads`: what can be run."""

from __future__ import annotations

from hocket.cli.options import AsJson


def workloads(as_json: AsJson = False) -> None:
    """List where workloads come from, and how each is written."""
    from hocket.workloads import sources

    if as_json:
        import msgspec

        told = [
            {
                "name": s.name,
                "example": s.example,
                "summary": s.summary,
                "options": [o.strip() for o in s.options.split(",") if o.strip()],
                "takes_path": s.takes_path,
            }
            for s in sources()
        ]
        print(msgspec.json.encode({"workloads": told}).decode())
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from hocket.cli.terminal.console import console

    table = Table(box=SIMPLE_HEAD, header_style="bold")
    for title in ("workload", "written as", "what it is", "options (?name=value&…)"):
        table.add_column(title, no_wrap=title == "workload", overflow="fold")
    for s in sources():
        table.add_row(Text(s.name), Text(s.example), Text(s.summary), Text(s.options))
    console().print(table)
