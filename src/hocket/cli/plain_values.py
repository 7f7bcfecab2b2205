"""Values of options that are plain texts, numbers and paths, read without pydantic.

typer reads every value by pydantic, also one that was not given, and to import that takes longer than most commands.
Here is what needs no rule of pydantic; whatever is not as plain as this typer reads itself, and refuses in its words.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

NOT_PLAIN = object()  # a value that typer has to read
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")


def reads_plainly(param: Any) -> Any:
    """An option or argument, once it reads plain values without pydantic."""
    if "process_value" in vars(param) or not hasattr(param, "type_descriptor"):  # A typer without pydantic has none.
        return param
    by_typer = type(param).process_value
    is_many = bool(getattr(param, "multiple", False)) or param.nargs != 1
    kind, about = param.type_descriptor.annotation, param.type_descriptor.parameter_info

    def process_value(ctx: Any, value: Any) -> Any:
        found = plain_value(kind, about, value, is_many=is_many)
        if found is NOT_PLAIN or (param.required and param.value_is_missing(found)):
            return by_typer(param, ctx, value)
        return found if param.callback is None else param.callback(ctx, param, found)

    param.process_value = process_value
    return param


def plain_value(kind: Any, about: Any, value: Any, *, is_many: bool) -> Any:
    """What typer makes of a value for an option of this kind, or `NOT_PLAIN` if it has to say that itself."""
    if about.parser is not None:
        return NOT_PLAIN
    if value is None:
        return () if is_many else None
    if not is_many:
        return _read(kind, about, value)
    if get_origin(kind) is not list or not isinstance(value, list | tuple):
        return NOT_PLAIN
    (of,) = get_args(kind)
    found = [_read(of, about, each) for each in value]
    return NOT_PLAIN if NOT_PLAIN in found else found


def _read(kind: Any, about: Any, value: Any) -> Any:
    if kind is str and type(value) is str:
        return value
    if kind is bool and type(value) is bool:
        return value
    if get_origin(kind) is Literal and type(value) is str and value in get_args(kind):
        return value
    if kind is int or kind is float:
        return _number(kind, about, value)
    if kind is Path and isinstance(value, str | Path):
        return _path(about, value)
    return NOT_PLAIN


def _number(kind: type, about: Any, value: Any) -> Any:
    if isinstance(value, str) and (_WHOLE if kind is int else _NUMBER).fullmatch(value):
        found = kind(value)
    elif type(value) is kind:
        found = value
    else:
        return NOT_PLAIN
    is_within = (about.min is None or found >= about.min) and (about.max is None or found <= about.max)
    return found if is_within else NOT_PLAIN


def _path(about: Any, value: str | Path) -> Any:
    """A path of which nothing is asked, but that it can be read if it is there."""
    asks = about.exists or not about.file_okay or not about.dir_okay or about.writable or about.resolve_path
    if asks or not about.readable or about.path_type is not None or "\0" in str(value):
        return NOT_PLAIN
    return Path(value) if os.access(value, os.R_OK) or not os.path.exists(value) else NOT_PLAIN
