"""What a user said of a job, written as a command line and as a TOML file that mean the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from hocket.model.job_spec import FIELDS, SpecField

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def command_line(said: Mapping[str, Any]) -> str:
    """`hocket submit … -- COMMAND`; of secrets the names, whose values the shell has there.

    What only a file can say, a table of `progress`, is left out.
    """
    words = ["hocket", "submit"]
    for field, value in _in_order(said):
        option = f"--{field.name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else f"--no-{option.removeprefix('--')}")
        elif field.name != "command":
            for text in _values(field.reads, value):  # Two dashes alone would begin the command.
                words += [f"{option}={text}"] if text == "--" else [option, text]
    command = said.get("command")
    if command:
        words += ["--", *(shlex.split(command) if isinstance(command, str) else command)]
    return shlex.join(words)


def toml(said: Mapping[str, Any]) -> str:
    """A file for `hocket submit FILE.toml`; of secrets the names."""
    return "".join(f"{field.name} = {_toml(value)}\n" for field, value in _in_order(said))


def _in_order(said: Mapping[str, Any]) -> Iterator[tuple[SpecField, Any]]:
    """What was said, in the order of the tables in the documents; of secrets the names."""
    for field in FIELDS:
        if field.name in said:
            value = said[field.name]
            yield field, sorted(value) if field.reads == "secrets" else value


def _values(reads: str, value: Any) -> list[str]:
    """The values of an option, each of which has the option before it."""
    if isinstance(value, dict):
        return [f"{name}={text}" for name, text in value.items()] if reads in ("env", "traits") else []
    if not isinstance(value, list | tuple):
        return [str(value)]
    texts = list(map(str, value))
    return [",".join(texts)] if reads == "gpus" else [shlex.join(texts)] if reads == "words" else texts


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{"".join(map(_escaped, value))}"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(str(name))} = {_toml(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value)


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    is_plain = character >= " " and character != "\x7f"
    return character if is_plain else f"\\u{ord(character):04x}"
