"""The command line. The commands are in `command_list.py`; only that which is called is imported and made."""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated, Any, NoReturn

import typer

from hocket.cli.command_list import COMMANDS, LazyCommands
from hocket.cli.light_commands import LightGroup
from hocket.cli.other_words import ALIASES, unknown_command
from hocket.cli.terminal.errors import BAD_INPUT, INTERRUPTED, InputError
from hocket.cli.terminal.fast_exit import leave
from hocket.cli.terminal.interrupts import keep_interrupts
from hocket.cli.version import version

# No room, or no permission: the machine's owner can help, and no traceback says more.
_OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG}


class Commands(LightGroup):
    """Says in one line what is wrong with the input, and ends with an exit code that scripts can use."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: LazyCommands = LazyCommands(COMMANDS)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 -- click's signature
        """Their names, in the order of the list."""
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 -- click's signature
        """What `hocket --help` and completion show of a command; `resolve_command` is for those that are called."""
        return self.commands.summary(cmd_name)

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
        if args[0] in self.commands:
            return args[0], self.commands[args[0]], args[1:]
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
    keep_interrupts()
    try:
        app()
    finally:
        leave()


if __name__ == "__main__":
    run()
