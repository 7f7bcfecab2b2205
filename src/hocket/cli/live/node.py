"""`hocket nodes`: the machines and what is on them; `hocket node` drains them, or reserves them for owners."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hocket.cli.live.node_notes import node_notes, reserved_text
from hocket.cli.options import AsJson, At, Home, owner_names

node = typer.Typer(
    name="node", help="Close a node for new jobs, or reserve it for owners; list nodes.", no_args_is_help=True
)
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node, as `hocket nodes` shows it.")]


def nodes(at: At = "", home: Home = None, as_json: AsJson = False) -> None:
    """List nodes: state, reservations, GPUs in use, cores, memory, what contains jobs, and the jobs that hold GPUs."""
    from hocket.cli.live.client import Client

    with Client(home) as client:
        if at:
            from hocket.cli.live.past import past

            answer = past(client, at, parts="nodes")
        else:
            answer = client.get("/v1/nodes")
    if as_json:
        print(answer.body.decode())
        return
    from hocket.cli.terminal.console import console

    found = answer.json()["nodes"]
    console().print(_table(found) if found else "no nodes")


node.command("list")(nodes)


@node.command()
def drain(
    name: NodeName,
    now: Annotated[
        bool, typer.Option("--now", help="Pause the jobs on it and place them elsewhere, once they may be preempted.")
    ] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Give a node no new jobs. Jobs on it run to their end; with --now they leave as soon as they may be preempted."""
    answer = _changed_node(name, "drain", {"now": now}, home, as_json)
    if answer is None:
        return
    typer.echo(f"{name} is drained: it gets no new jobs")
    for job in answer["jobs"]:
        if not now:
            typer.echo(f"{job['id']} runs on")
        elif job["protected"]:
            typer.echo(f"{job['id']} stays until it may be preempted: {job['protected']}")
        else:
            typer.echo(f"{job['id']} is told to save and leave")


@node.command()
def undrain(name: NodeName, home: Home = None, as_json: AsJson = False) -> None:
    """Give a drained node jobs again."""
    if _changed_node(name, "undrain", {}, home, as_json) is not None:
        typer.echo(f"{name} gets jobs again")


node.command("resume", hidden=True)(undrain)


@node.command()
def reserve(
    name: NodeName,
    owner: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="Whose jobs get the node: alice or alice,bob.", autocompletion=owner_names),
    ],
    begin: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="6h|DATE", help="Begin in this time, or at a date: '2026-11-20 12:00'; now if not given."
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="8h|DATE", help="End in this time from now, or at a date; never if not given."),
    ] = None,
    called: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Name of the reservation; made up if not given.")
    ] = "",
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Give a node only to jobs of some owners. Jobs of others on it run to their end, and no other of theirs starts."""
    owners = [name for text in owner for name in map(str.strip, text.split(",")) if name]
    body = {"owners": owners, "begin_in_s": _in_s("--from", begin) or 0.0, "end_in_s": _in_s("--until", until)}
    answer = _changed_node(name, "reserve", body | {"name": called}, home, as_json)
    if answer is None:
        return
    made = answer["reservation"]
    typer.echo(f"{name} is {reserved_text(made)}, as '{made['name']}'")
    for job in answer["jobs"]:
        typer.echo(f"{job['id']} of {job['owner']} runs on")


@node.command()
def unreserve(
    name: Annotated[str, typer.Argument(metavar="NODE|NAME", help="Name of a node, or of one of its reservations.")],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Remove a reservation, or all of a node: jobs of all owners start there again."""
    if (answer := _changed_node(name, "unreserve", {}, home, as_json)) is not None:
        typer.echo(f"removed: {', '.join(answer['removed'])}")


def _in_s(option: str, text: str | None) -> float | None:
    """A time or date as seconds from now; None if it is not given. Raises InputError."""
    from hocket.cli.terminal.errors import InputError
    from hocket.job_input.units import BadValue, seconds_from_now

    if text is None:
        return None
    try:
        return seconds_from_now(text)
    except BadValue as error:
        raise InputError(f"{option} {error}") from error


def _changed_node(name: str, what: str, body: dict[str, Any], home: Any, as_json: bool) -> dict[str, Any] | None:
    """The controller's answer; None if it was printed as JSON."""
    from urllib.parse import quote

    from hocket.cli.live.client import Client, login

    with Client(home) as client:
        answer = client.post(f"/v1/nodes/{quote(name, safe='')}/{what}", body | {"by": login()})
    if as_json:
        print(answer.body.decode())
        return None
    found: dict[str, Any] = answer.json()
    return found


def _table(found: list[dict[str, Any]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    from hocket.cli.live.job_table import one_line

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("node", "state", "gpus", "kind", "cores", "memory", "contained by", "jobs"):
        table.add_column(title, justify="right" if title in ("gpus", "cores", "memory") else "left")
    for each in found:
        jobs = list(dict.fromkeys(gpu["job"] for gpu in each["gpus"] if gpu["job"]))
        used = sum(1 for gpu in each["gpus"] if gpu["job"])
        memory = f"{each['mem_mib'] / 1024:.4g}G" if each["mem_mib"] else "–"
        state = ", ".join(["up" if each["up"] else "away", *node_notes(each)])
        cells = (
            each["id"], state, f"{used} of {len(each['gpus'])}", each.get("gpu_kind") or "–",
            f"{each['cores']:g}" if each["cores"] else "–", memory, each.get("containment") or "–",
            ", ".join(jobs) or "–",
        )  # fmt: skip
        table.add_row(*(Text(one_line(cell)) for cell in cells))
    return table
