"""`hocket token`: tokens for users, agents and dashboards, each with a role."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from hocket.cli.options import AsJson, Home, owner_names

token = typer.Typer(
    name="token",
    help="Make, list and revoke tokens: what users, agents and dashboards call with.",
    no_args_is_help=True,
)
TokenName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the token, as `hocket token list` shows it.")]


@token.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="By which it is listed and revoked: ana-laptop.")],
    role: Annotated[
        Literal["admin", "user", "agent", "read"],
        typer.Option(
            help="admin: everything. user: jobs of one owner. agent: lend nodes. read: see jobs, nodes and owners."
        ),
    ],
    owner: Annotated[str, typer.Option(metavar="NAME", help="Of a user: whose jobs.", autocompletion=owner_names)] = "",
    node: Annotated[
        str, typer.Option(metavar="NODE", help="Of an agent: its node, or a pattern such as 'gpu-*' or '*'.")
    ] = "",
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="30d|DATE", help="Valid for this long, or until a date; until it is revoked if not given."
        ),
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Make a token. It is printed once and cannot be shown again; what is kept of it is a digest."""
    from hocket.cli.live.client import Client
    from hocket.cli.terminal.errors import InputError
    from hocket.job_input.units import BadValue, seconds_from_now

    said: dict[str, Any] = {"name": name, "role": role, "owner": owner, "node": node}
    if expires is not None:
        try:
            said["expires_in_s"] = seconds_from_now(expires)
        except BadValue as error:
            raise InputError(f"--expires {error}") from error
    with Client(home) as client:
        answer = client.post("/v1/tokens", said)
    if as_json:
        print(answer.body.decode())
        return
    typer.echo(answer.json()["token"])
    # Not on stdout, so that `hocket token create … > file` has the token and nothing else.
    typer.echo(f"hocket: token '{name}': {_described(answer.json())}; it is not shown again", err=True)


@token.command("list")
def listed(home: Home = None, as_json: AsJson = False) -> None:
    """List the tokens, but for that in the controller's home, which is an admin's."""
    from hocket.cli.live.client import Client

    with Client(home) as client:
        answer = client.get("/v1/tokens")
    if as_json:
        print(answer.body.decode())
        return
    from rich.table import Table
    from rich.text import Text

    from hocket.cli.live.job_table import one_line
    from hocket.cli.terminal.console import clock, console

    found = answer.json()["tokens"]
    if not found:
        console().print("no tokens")
        return
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("token", "role", "of", "created", "expires"):
        table.add_column(title)
    for each in found:
        cells = each["name"], each["role"], each["owner"] or each["node"] or "–", clock(each["created_s"]), _until(each)
        table.add_row(*(Text(one_line(cell)) for cell in cells))
    console().print(table)


@token.command()
def revoke(name: TokenName, home: Home = None, as_json: AsJson = False) -> None:
    """Make a token invalid, at once and for ever. Jobs of its user run on; an agent's node is lost after its lease."""
    from urllib.parse import quote

    from hocket.cli.live.client import Client

    with Client(home) as client:
        answer = client.post(f"/v1/tokens/{quote(name, safe='')}/revoke")
    print(answer.body.decode() if as_json else f"{name} is revoked")


@token.command()
def whoami(home: Home = None, as_json: AsJson = False) -> None:
    """Show the token that commands of this shell call with: its name and role, and whose it is."""
    from hocket.cli.live.client import Client

    with Client(home) as client:
        answer = client.get("/v1/token")
    found = answer.json()
    print(answer.body.decode() if as_json else f"{found['name']}: {_described(found)}")


def _described(found: dict[str, Any]) -> str:
    of = f" of owner '{found['owner']}'" if found["owner"] else f" of node '{found['node']}'" if found["node"] else ""
    return f"{found['role']}{of}, {'expires' if found['expires_s'] is not None else 'valid'} {_until(found)}"


def _until(found: dict[str, Any]) -> str:
    from time import time

    from hocket.cli.terminal.console import clock

    if found["expires_s"] is None:
        return "until it is revoked"
    return f"{clock(found['expires_s'])}{' (has expired)' if found['expires_s'] <= time() else ''}"
