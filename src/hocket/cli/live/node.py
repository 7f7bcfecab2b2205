"""`hocket nodes`: the machines and what is on them; `hocket node drain` closes one for new jobs, `undrain` opens it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hocket.cli.options import AsJson, Home

node = typer.Typer(name="node", help="Close a node for new jobs, or open it again; list nodes.", no_args_is_help=True)
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node, as `hocket nodes` shows it.")]


def nodes(home: Home = None, as_json: AsJson = False) -> None:
    """List nodes: state, GPUs in use, cores, memory, and the jobs that hold GPUs."""
    from hocket.cli.live.client import Client

    with Client(home) as client:
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
    told = _told(name, "drain", {"now": now}, home, as_json)
    if told is None:
        return
    typer.echo(f"{name} is drained: it gets no new jobs")
    for job in told["jobs"]:
        if not now:
            typer.echo(f"{job['id']} runs on")
        elif job["protected"]:
            typer.echo(f"{job['id']} stays until it may be preempted: {job['protected']}")
        else:
            typer.echo(f"{job['id']} is told to save and leave")


@node.command()
def undrain(name: NodeName, home: Home = None, as_json: AsJson = False) -> None:
    """Give a drained node jobs again."""
    if _told(name, "undrain", {}, home, as_json) is not None:
        typer.echo(f"{name} gets jobs again")


node.command("resume", hidden=True)(undrain)


def _told(name: str, what: str, said: dict[str, Any], home: Any, as_json: bool) -> dict[str, Any] | None:
    """The controller's answer; None if it was printed as JSON."""
    from urllib.parse import quote

    from hocket.cli.live.client import Client, login

    with Client(home) as client:
        answer = client.post(f"/v1/nodes/{quote(name, safe='')}/{what}", said | {"by": login()})
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
    for title in ("node", "state", "gpus", "kind", "cores", "memory", "jobs"):
        table.add_column(title, justify="right" if title in ("gpus", "cores", "memory") else "left")
    for each in found:
        jobs = list(dict.fromkeys(gpu["job"] for gpu in each["gpus"] if gpu["job"]))
        used = sum(1 for gpu in each["gpus"] if gpu["job"])
        memory = f"{each['mem_mib'] / 1024:.4g}G" if each["mem_mib"] else "–"
        cells = (
            each["id"], _state(each), f"{used} of {len(each['gpus'])}", each.get("gpu_kind") or "–",
            f"{each['cores']:g}" if each["cores"] else "–", memory, ", ".join(jobs) or "–",
        )  # fmt: skip
        table.add_row(*(Text(one_line(cell)) for cell in cells))
    return table


def _state(each: dict[str, Any]) -> str:
    said = "up" if each["up"] else "away"
    return f"{said}, drained{' (being cleared)' if each.get('cleared') else ''}" if each.get("drained") else said
