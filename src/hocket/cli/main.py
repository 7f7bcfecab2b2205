"""The command line. To add a command: a file in this folder, an import and a line here."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from hocket.cli.after_dashes import AfterDashes
from hocket.cli.compare import compare
from hocket.cli.decide import decide
from hocket.cli.demo import demo
from hocket.cli.down import down
from hocket.cli.jobs import jobs
from hocket.cli.leaving import leave
from hocket.cli.logs import logs
from hocket.cli.policies import policies
from hocket.cli.refusal import BAD_INPUT, INTERRUPTED, InputError
from hocket.cli.replay import replay
from hocket.cli.reproduce import reproduce
from hocket.cli.show import show
from hocket.cli.simulate import simulate
from hocket.cli.submit import submit
from hocket.cli.top import top
from hocket.cli.tune import tune
from hocket.cli.up import up
from hocket.cli.version import version
from hocket.cli.whatif import whatif
from hocket.cli.why import why
from hocket.cli.wishes import pause, resume, stop
from hocket.cli.workloads import workloads


class Commands(TyperGroup):
    """Says in one line what is wrong with the input, and ends with an exit code that scripts can use."""

    def main(self, *args: Any, **options: Any) -> NoReturn:
        """Run a command. `hocket` alone asks for help."""
        given = args[0] if args else options.pop("args", None)
        given = list(sys.argv[1:] if given is None else given) or ["--help"]
        options |= {"prog_name": "hocket", "standalone_mode": False}
        try:
            code = super().main(given, **options)
        except InputError as error:
            code = _say(str(error))
        except (KeyboardInterrupt, typer.Abort):
            code = _say("interrupted", INTERRUPTED)
        except Exception as error:
            # Usage errors of click, which typer brings along or imports, depending on its version.
            if not hasattr(error, "format_message"):
                raise
            context = getattr(error, "ctx", None)
            hint = f" (see `{context.command_path} --help`)" if context is not None else ""
            code = _say(error.format_message() + hint)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run the command of a context. An interrupt says so, whatever click makes of it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(_say("interrupted", INTERRUPTED)) from None


def _say(message: str, code: int = BAD_INPUT) -> int:
    print(f"hocket: {' '.join(message.split())}", file=sys.stderr)
    return code


app = typer.Typer(
    cls=Commands,
    help="Shares one cluster, or one machine, among many training jobs and progressive queries.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command()(simulate)
app.command()(compare)
app.command()(policies)
app.command()(workloads)
app.command()(demo)
app.command()(reproduce)
app.command()(tune)
app.command()(whatif)
app.command()(replay)
app.command()(decide)
app.command()(up)
app.command()(down)
app.command(cls=AfterDashes)(submit)
app.command()(jobs)
app.command()(show)
app.command()(why)
app.command()(logs)
app.command()(top)
app.command()(pause)
app.command()(resume)
app.command()(stop)
app.command()(version)


@app.callback()
def hocket() -> None:
    """Shares one cluster, or one machine, among many training jobs and progressive queries."""


def run() -> None:
    """The console script."""
    try:
        app()
    finally:
        leave()


if __name__ == "__main__":
    run()
