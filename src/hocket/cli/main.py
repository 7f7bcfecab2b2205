"""The command line. To add a command: a file in one of the folders here, an import and a line below."""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from hocket.cli.live.agent import agent
from hocket.cli.live.demo import demo
from hocket.cli.live.down import down
from hocket.cli.live.job_options import JobCommand
from hocket.cli.live.jobs import jobs
from hocket.cli.live.logs import logs
from hocket.cli.live.node import node, nodes
from hocket.cli.live.owners import owners
from hocket.cli.live.pause_resume_stop import pause, resume, stop
from hocket.cli.live.run import run as run_job
from hocket.cli.live.show import show
from hocket.cli.live.submit import submit
from hocket.cli.live.top import top
from hocket.cli.live.up import up
from hocket.cli.live.why import why
from hocket.cli.options import AsJson
from hocket.cli.other_words import ALIASES, unknown_command
from hocket.cli.simulation.compare import compare
from hocket.cli.simulation.decide import decide
from hocket.cli.simulation.policies import policies
from hocket.cli.simulation.replay import replay
from hocket.cli.simulation.reproduce import reproduce
from hocket.cli.simulation.simulate import simulate
from hocket.cli.simulation.whatif import whatif
from hocket.cli.simulation.workloads import workloads
from hocket.cli.terminal.errors import BAD_INPUT, INTERRUPTED, InputError
from hocket.cli.terminal.fast_exit import leave
from hocket.cli.tune import TuneCommand, tune

# No room, or no permission: the machine's owner can help, and no traceback says more.
_OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG}


class Commands(TyperGroup):
    """Says in one line what is wrong with the input, and ends with an exit code that scripts can use."""

    def main(self, *args: Any, **options: Any) -> NoReturn:
        """Run a command. `hocket` alone asks for help."""
        given = args[0] if args else options.pop("args", None)
        given = list(sys.argv[1:] if given is None else given) or ["--help"]
        options |= {"prog_name": "hocket", "standalone_mode": False}
        try:
            code = super().main(given, **options)
            if sys.stdout is not None:  # as it is where it was closed before we started
                sys.stdout.flush()
        except InputError as error:
            code = _say(str(error))
        except (KeyboardInterrupt, typer.Abort):
            code = _say("interrupted", INTERRUPTED)
        except OSError as error:
            if error.errno not in _OF_THE_MACHINE:
                raise
            code = _say(f"{error.filename or 'standard output'}: {error.strerror}")
            _let_go_of_output()
        except Exception as error:
            # Usage errors of click, which typer brings along or imports, depending on its version.
            if not hasattr(error, "format_message"):
                raise
            context = getattr(error, "ctx", None)
            hint = f" (see `{context.command_path} --help`)" if context is not None else ""
            code = _say(error.format_message().rstrip(".") + _given(error, given) + hint)
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that a word stands for: another scheduler's word for one of ours may do."""
        word = args[0]
        if word not in self.commands and word in ALIASES:
            args = [ALIASES[word], *args[1:]]
        elif word not in self.commands and not word.startswith("-"):
            raise InputError(unknown_command(word, self.list_commands(ctx)))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command of a context. An interrupt says so, whatever click makes of it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(_say("interrupted", INTERRUPTED)) from None


def _given(error: Any, words: list[str]) -> str:
    """The value that an option was given, for a message that does not name it."""
    names = getattr(getattr(error, "param", None), "opts", ())
    for word, after in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name in names and name.startswith("-"):
            value = value if equals else after
            return "" if repr(value) in str(error.format_message()) else f", not {value!r}"
    return ""


def _let_go_of_output() -> None:
    """What could not be written is not tried again when the process ends."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


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
app.command(cls=TuneCommand)(tune)
app.command()(whatif)
app.command()(replay)
app.command()(decide)
app.command()(up)
app.command()(down)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)(agent)
app.command(cls=JobCommand)(submit)
app.command("run", cls=JobCommand)(run_job)
app.command()(jobs)
app.command()(show)
app.command()(why)
app.command()(logs)
app.command()(top)
app.command()(pause)
app.command()(resume)
app.command()(stop)
app.add_typer(owners)
app.command()(nodes)
app.add_typer(node)


@app.command()
def version(as_json: AsJson = False) -> None:
    """Print the version."""
    import platform

    import msgspec

    from hocket import __version__

    if as_json:
        print(msgspec.json.encode({"hocket": __version__, "python": platform.python_version()}).decode())
    else:
        print(f"hocket {__version__} (Python {platform.python_version()})")


def _say_version(is_asked: bool) -> None:
    if is_asked:
        version()
        raise typer.Exit


@app.callback()
def hocket(
    _says_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_say_version, help="Print the version.")
    ] = False,
) -> None:
    """Shares one cluster, or one machine, among many training jobs and progressive queries."""


def run() -> None:
    """The console script."""
    try:
        app()
    finally:
        leave()


if __name__ == "__main__":
    run()
