"""`hocket owners`: weights, quotas and use of each owner; `hocket owners set` changes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from hocket.cli.options import AsJson, Home, OwnerName
from hocket.job_input import units
from hocket.job_input.units import BadValue

owners = typer.Typer(name="owners", invoke_without_command=True)
_LIFTED = "0 or none for no limit"


@owners.callback()
def show(ctx: typer.Context, home: Home = None, as_json: AsJson = False) -> None:
    """List owners: weight, what they use of their quotas, how many of their jobs wait; or set weight and quotas."""
    if ctx.invoked_subcommand is not None:
        return
    from hocket.cli.live.client import Client
    from hocket.cli.live.owner_rows import owner_rows

    with Client(home) as client:
        if as_json:
            print(client.get("/v1/owners").body.decode())
            return
        found = owner_rows(client)
    from hocket.cli.live.owner_rows import owner_table
    from hocket.cli.terminal.console import console

    console().print(owner_table(found) if found else "no owners with live jobs, a weight or quotas")


@owners.command("set")
def set_owner(
    ctx: typer.Context,
    name: OwnerName,
    weight: Annotated[
        str | None, typer.Option(metavar="N", help="Its part in shares, where the policy is a fair one; 1 at first.")
    ] = None,
    max_gpus: Annotated[
        str | None, typer.Option(metavar="N", help=f"GPUs that its jobs may have at once; {_LIFTED}.")
    ] = None,
    max_cores: Annotated[str | None, typer.Option(metavar="N", help=f"Cores likewise; {_LIFTED}.")] = None,
    max_mem: Annotated[str | None, typer.Option(metavar="64G", help=f"Memory likewise; {_LIFTED}.")] = None,
    max_jobs: Annotated[
        str | None, typer.Option(metavar="N", help=f"Jobs that may have a place at once; {_LIFTED}.")
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Set an owner's weight and quotas; what is not named stays as it is. Jobs that run already run on."""
    import msgspec

    from hocket.cli.live.client import Client
    from hocket.cli.live.owner_rows import ListedOwner, owner_path

    given = {"weight": weight, "max_gpus": max_gpus, "max_cores": max_cores, "max_mem": max_mem, "max_jobs": max_jobs}
    spec = _spec({option: value for option, value in given.items() if value is not None})
    before = ctx.parent.params if ctx.parent is not None else {}  # `hocket owners --home DIR set …`
    with Client(home or before.get("home")) as client:
        answer = client.put(owner_path(name), spec)
    if as_json or before.get("as_json"):
        print(answer.body.decode())
        return
    from hocket.cli.live.owner_rows import owner_table
    from hocket.cli.terminal.console import console

    console().print(owner_table([msgspec.json.decode(answer.body, type=ListedOwner)]))


def _spec(given: dict[str, str]) -> dict[str, float]:
    """What is sent. Raises InputError, which names the option, the rule and the value."""
    from hocket.cli.terminal.errors import InputError

    if not given:
        raise InputError(f"say what to set: {', '.join(map(_as_typed, _READ))}")
    spec = {}
    for option, text in given.items():
        field, read = _READ[option]
        try:
            spec[field] = read(text)
        except BadValue as error:
            raise InputError(f"{_as_typed(option)} {error}") from error
    return spec


def _as_typed(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _weight(text: str) -> float:
    rule = "a number above 0"
    found = units.number(text, rule)
    if found <= 0:
        raise BadValue(rule, text)
    return found


def _limit(text: str, read: Callable[[str], float], rule: str) -> float:
    """A limit as it is sent: 0 for none."""
    try:
        found = 0 if text.strip().lower() == "none" else read(text)
    except BadValue:
        raise BadValue(rule, text) from None
    if found < 0:
        raise BadValue(rule, text)
    return found


_count = partial(_limit, read=units.whole, rule="a whole number from 0 up, or none")
_READ: dict[str, tuple[str, Callable[[str], float]]] = {
    "weight": ("weight", _weight),
    "max_gpus": ("max_gpus", _count),
    "max_cores": ("max_cores", partial(_limit, read=units.number, rule="a number from 0 up, or none")),
    "max_mem": ("max_mem_mib", partial(_limit, read=units.mebibytes, rule="memory such as 512M or 8G, or none")),
    "max_jobs": ("max_jobs", _count),
}
