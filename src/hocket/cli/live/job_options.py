"""Options for the fields of a job, and the job's command behind two dashes: for `hocket submit` and `hocket tune`."""

from __future__ import annotations

from functools import cache
from inspect import Parameter, Signature
from typing import Annotated, Any, ClassVar

import typer

from hocket.cli.light_commands import LightCommand
from hocket.cli.options import job_names, owner_names
from hocket.cli.plain_values import reads_plainly

_COMMAND, _OPTIONS = "hocket.command", "hocket.job_options"


def given_command(ctx: typer.Context) -> list[str] | None:
    """What stands behind `--`; None if there are no dashes."""
    found: list[str] | None = ctx.meta.get(_COMMAND)
    return found


def given_job_options(ctx: typer.Context) -> dict[str, Any]:
    """The job's options that were given, by the names of its fields."""
    found: dict[str, Any] = ctx.meta[_OPTIONS]
    return found


class JobCommand(LightCommand):
    """Has an option for each field of a job, and takes what stands behind `--` as the job's command.

    The options are made from the fields (model/job.py) when they are needed: other commands start without them.
    """

    left_out: ClassVar[frozenset[str]] = frozenset()  # fields that the command decides itself

    def get_params(self, ctx: Any) -> list[Any]:
        """The options of the job, and then those of the command."""
        return [*map(reads_plainly, self._job_options()), *super().get_params(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the job's command and its options apart."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        rest = super().parse_args(ctx, args)
        said = {option.name: ctx.params.pop(option.name) for option in self._job_options()}
        ctx.meta[_OPTIONS] = {name: value for name, value in said.items() if value not in (None, [], ())}
        return rest

    def _job_options(self) -> list[Any]:
        return [option for option in _job_options() if option.name not in self.left_out]


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
    is_many = field.reads in ("names", "kinds", "env", "secrets", "traits", "pip")
    is_flag = field.reads == "flag"
    text = about.help + (" Repeatable." if is_many else "") + (f" (default: {about.default})" if about.default else "")
    kind: Any = list[str] if is_many else bool if is_flag else str
    option = typer.Option(
        f"{flag}/--no-{field.name.replace('_', '-')}" if is_flag else flag,
        *([about.short] if about.short else []),
        *([f"--{about.also}"] if about.also else []),
        help=text.replace("`", ""),
        metavar=about.metavar or None,
        rich_help_panel=str(about.panel),
        autocompletion={"jobs": job_names, "owners": owner_names}.get(about.completes),
    )
    return Annotated[kind | None, option]
