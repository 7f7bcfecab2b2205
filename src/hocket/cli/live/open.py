"""`hocket open`: the controller's page in a browser, signed in."""

from __future__ import annotations

from typing import Annotated

import typer

from hocket.cli.options import AsJson, Home


def open(  # noqa: A001 - the command's name
    browser: Annotated[bool, typer.Option(help="Open a browser; otherwise only print the link.")] = True,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Open the controller's page in a browser, signed in; where there is none, print a link that signs in once."""
    from hocket.cli.live.client import Client
    from hocket.cli.terminal.errors import InputError

    with Client(home) as client:
        made = client.post("/v1/page/links").json()
        url = client.url
    if url.startswith("unix:"):
        raise InputError(f"the controller listens at {url}, which no browser calls: say `hocket up --listen ADDRESS`")
    link = url.replace("://0.0.0.0:", "://127.0.0.1:") + made["path"]
    if as_json:
        import msgspec

        print(msgspec.json.encode({"url": link, "expires_s": made["expires_s"]}).decode())
    elif not (browser and _opened(link)):
        typer.echo(link)
        typer.echo("hocket: open this link in a browser within five minutes; it signs in once", err=True)
    else:
        typer.echo(f"hocket: the page at {url} is open in your browser")


def _opened(link: str) -> bool:
    """Whether a browser of this desktop was asked to open it; one in a terminal would not show the page."""
    import os
    import sys
    import webbrowser

    has_desktop = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return has_desktop and webbrowser.open(link)
