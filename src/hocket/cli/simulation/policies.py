"""`hocket policies`: what there is, and what can be set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hocket.cli.options import AsJson, policy_names

if TYPE_CHECKING:
    from hocket.policies.registry import Policy


def policies(
    name: Annotated[
        str | None, typer.Argument(help="One policy, with its parameters.", autocompletion=policy_names)
    ] = None,
    advise: Annotated[bool, typer.Option("--advise", help="Say which policy to choose in which situation.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the policies, or show one with its parameters."""
    if advise:
        _advise(as_json)
        return
    from hocket.cli.terminal.errors import refusing
    from hocket.policies.registry import find
    from hocket.policies.registry import policies as registered

    with refusing():
        found = [find(name)] if name is not None else list(registered().values())
    if as_json:
        import msgspec

        told = [_told(p) for p in found]
        print(msgspec.json.encode(told[0] if name is not None else {"policies": told}).decode())
        return
    from hocket.cli.terminal.console import console

    page = console()
    if name is None:
        page.print(_list(found))
        page.print(
            "[dim]hocket policies NAME shows a policy's parameters; "
            "hocket policies --advise says which to choose when[/dim]",
            highlight=False,
        )
    else:
        _show(found[0], page)


def _advise(as_json: bool) -> None:
    from hocket.cli.simulation.policy_advice import ADVICE

    if as_json:
        import msgspec

        print(msgspec.json.encode({"advice": ADVICE}).decode())
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from hocket.cli.terminal.console import console

    table = Table(box=SIMPLE_HEAD, header_style="bold")
    for title in ("if you have", "try first", "because"):
        table.add_column(title)
    for advice in ADVICE:
        table.add_row(Text(advice.situation), Text(", ".join(advice.policies)), Text(advice.why))
    page = console()
    page.print(table)
    page.print("[dim]hocket compare WORKLOAD P1 P2 … tries them on your own jobs[/dim]", highlight=False)


def _told(policy: Policy) -> dict[str, Any]:
    from hocket.policies.kit.parameters import parameters

    return {
        "name": policy.name,
        "summary": policy.summary,
        "paper": policy.paper,
        "source": policy.source,
        "reads": policy.bound().reads,
        "parameters": parameters(policy.params),
    }


def _list(found: list[Policy]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, header_style="bold")
    table.add_column("policy", no_wrap=True)
    table.add_column("what it does")
    table.add_column("options it uses")
    table.add_column("from")
    for p in found:
        table.add_row(Text(p.name), Text(p.summary), Text(_options(p)), Text(p.paper))
    return table


def _options(policy: Policy) -> str:
    """Those that it uses of the options that only some policies use."""
    from hocket.model.job_spec import option_of

    if policy.reads is None:
        return "not said"
    return ", ".join([*map(option_of, policy.reads), *(["those of inner"] if policy.is_layer else [])])


def _all_options() -> str:
    from hocket.model.job_spec import option_of
    from hocket.policies.registry import OPTIONAL_FIELDS

    return ", ".join(map(option_of, OPTIONAL_FIELDS))


def _show(policy: Policy, page: Any) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from hocket.policies.kit.parameters import parameters

    page.print(Text(policy.name, style="bold") + Text(f"  {policy.paper}", style="dim"))
    page.print(Text(policy.summary))
    page.print(Text(policy.source, style="dim"), soft_wrap=True)
    page.print(Text(f"of {_all_options()} it uses: {_options(policy) or 'none'}"))
    rows = parameters(policy.params)
    if not rows:
        page.print("no parameters")
        return
    table = Table(box=SIMPLE_HEAD, header_style="bold")
    for title in ("parameter", "type", "default", "what it does"):
        table.add_column(title, no_wrap=title == "parameter", overflow="fold")
    for row in rows:
        table.add_row(Text(row.name), Text(row.type), Text(row.default_text), Text(row.description))
    page.print(table)
