"""`hocket submit job.toml …` and `hocket submit [options] -- COMMAND`."""

from __future__ import annotations

from functools import cache
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from hocket.cli.options import AsJson, Home, job_names, owner_names

_COMMAND, _OPTIONS = "hocket.command", "hocket.job_options"


class SubmitCommand(TyperCommand):
    """Has an option for each field of a job, and takes what stands behind `--` as the job's command.

    The options are made from the fields (model/job.py) when they are needed: other commands start without them.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """The options of the job, and then those of submitting it."""
        return [*_job_options(), *super().get_params(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the job's command and its options apart."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        rest = super().parse_args(ctx, args)
        said = {option.name: ctx.params.pop(option.name) for option in _job_options()}
        ctx.meta[_OPTIONS] = {name: value for name, value in said.items() if value not in (None, [], ())}
        return rest


@cache
def _job_options() -> list[Any]:
    """One option for each field that users can set."""
    from hocket.model.job_spec import FIELDS

    def options() -> None:
        pass

    fields = [field for field in FIELDS if field.about.panel is not None]
    names = [field.name for field in fields]
    kinds = [_option(field) for field in fields]
    options.__signature__ = Signature(  # type: ignore[attr-defined]
        [Parameter(n, Parameter.KEYWORD_ONLY, default=None, annotation=k) for n, k in zip(names, kinds, strict=True)]
    )
    made = typer.Typer(add_completion=False)
    made.command(add_help_option=False)(options)
    return list(typer.main.get_command(made).params)


def _option(field: Any) -> Any:
    about, flag = field.about, f"--{field.name.replace('_', '-')}"
    is_many = field.reads in ("names", "kinds", "env")
    is_flag = field.reads == "flag"
    text = about.help + (" Repeatable." if is_many else "") + (f" (default: {about.default})" if about.default else "")
    kind: Any = list[str] if is_many else bool if is_flag else str
    option = typer.Option(
        f"{flag}/--no-{field.name.replace('_', '-')}" if is_flag else flag,
        *([about.short] if about.short else []),
        help=text.replace("`", ""),
        metavar=about.metavar or None,
        rich_help_panel=str(about.panel),
        autocompletion={"jobs": job_names, "owners": owner_names}.get(about.completes),
    )
    return Annotated[kind | None, option]


def submit(
    ctx: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE.toml… | -- COMMAND…]", help="Files of jobs, or a command behind two dashes."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; Ctrl-C ends the waiting only.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the jobs, print what would be sent, and send nothing.")
    ] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Submit jobs; prints their names.

    Options given with a file hold for all its jobs. With --wait: exit code 0 if all finished or attained their
    criterion, 1 if one failed, 5 if all others missed their criterion, 3 otherwise.
    """
    import msgspec

    from hocket.cli.live.client import Client
    from hocket.cli.live.submission import described_jobs, sent, warn_of_missing_folders

    jobs = described_jobs(ctx.meta.get(_COMMAND), files or [], ctx.meta[_OPTIONS])
    warn_of_missing_folders(jobs)
    if dry_run:
        specs = [each.spec for each in jobs]
        print(msgspec.json.format(msgspec.json.encode({"jobs": specs})).decode())
        return
    with Client(home) as client:
        ids = sent(client, jobs)
        if not as_json:
            print("\n".join(ids), flush=True)
        ends = {}
        if wait:
            from hocket.cli.live.waiting import await_ends

            ends = await_ends(client, ids)
    if as_json:
        told = [{"id": job_id} | ({"state": ends[job_id]} if wait else {}) for job_id in ids]
        print(msgspec.json.encode({"jobs": told}).decode())
    if wait:
        from hocket.cli.live.waiting import exit_code

        raise typer.Exit(exit_code(ends.values()))
