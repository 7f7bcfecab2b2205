"""`hocket top`: the cluster at work, live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hocket.cli.options import AsJson, Home

if TYPE_CHECKING:
    from hocket.cli.live.client import Client
    from hocket.cli.live.cluster_view import Overview

_EVERY_S = 1.0
_PAUSE_FACTOR = 20  # After a call, the next waits for so many times as long as it took.


def top(home: Home = None, as_json: AsJson = False) -> None:
    """Watch devices, jobs and queue; q or Ctrl-C leaves. Prints once where there is no terminal."""
    import sys

    from hocket.cli.live.client import Client

    with Client(home) as client:
        if as_json:
            import msgspec

            now = look(client)
            told = {"status": now.status, "nodes": now.nodes, "jobs": now.jobs}
            print(msgspec.json.encode(told).decode())
        elif sys.stdout.isatty():
            _live(client)
        else:
            from hocket.cli.live.cluster_view import pictured
            from hocket.cli.terminal.console import console

            page = console()
            page.print(pictured(look(client), page.width, None))


def look(client: Client) -> Overview:
    """What the controller says now."""
    from hocket.cli.live.cluster_view import Overview
    from hocket.cli.live.job_rows import in_order, rows

    status: dict[str, Any] = client.get("/v1/status").json()
    nodes: list[dict[str, Any]] = client.get("/v1/nodes").json()["nodes"]
    return Overview(status, nodes, in_order(rows(client)))


def _live(client: Client) -> None:
    import time

    from rich.live import Live
    from rich.text import Text

    from hocket.cli.live.client import ControllerAway, ControllerRefused
    from hocket.cli.live.cluster_view import pictured
    from hocket.cli.terminal.console import console, keys

    now = look(client)  # Before the screen is cleared: an error is better read on the old one.
    page = console()
    with keys() as pressed, Live(console=page, auto_refresh=False, screen=True) as live:
        try:
            pause_s = 0.0
            while pressed(pause_s).lower() not in ("q", "\x1b", "\x03", "\x04"):
                began_s = time.monotonic()
                try:
                    now = look(client)
                    took_s = time.monotonic() - began_s
                    live.update(pictured(now, page.width, page.height), refresh=True)
                except (ControllerAway, ControllerRefused) as error:
                    took_s = 0.0
                    client.close()
                    live.update(Text(f"{error}\n\nlooking again; q leaves", style="yellow"), refresh=True)
                pause_s = max(_EVERY_S, took_s * _PAUSE_FACTOR)
        except KeyboardInterrupt:
            return
