"""Plain values are read as typer reads them by pydantic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.main import get_command

from hocket.cli.plain_values import NOT_PLAIN, plain_value

TEXTS = (
    "", " ", "x", "0", "-0", "7", "007", "+7", " 7", "7 ", "1_000", "٣", "-3", "9" * 18, "9" * 25, "3.0", "3.5", ".5",
    "5.",    "-1.25", "1e3", "nan", "inf", "true", "no", "/nowhere/at/all", ".", "~", "-", "a\0b",
)  # fmt: skip


def nothing(
    text: Annotated[str | None, typer.Option()] = None,
    whole: Annotated[int | None, typer.Option()] = None,
    bounded: Annotated[int | None, typer.Option(min=0, max=5)] = None,
    number: Annotated[float | None, typer.Option()] = None,
    share: Annotated[float | None, typer.Option(min=0.5)] = None,
    path: Annotated[Path | None, typer.Option()] = None,
    there: Annotated[Path | None, typer.Option(exists=True)] = None,
    folder: Annotated[Path | None, typer.Option(file_okay=False)] = None,
    texts: Annotated[list[str] | None, typer.Option()] = None,
    wholes: Annotated[list[int] | None, typer.Option(min=1)] = None,
    paths: Annotated[list[Path] | None, typer.Argument()] = None,
    flag: Annotated[bool, typer.Option("--flag")] = False,
    word: Annotated[Literal["x", "no"] | None, typer.Option()] = None,
    parsed: Annotated[str | None, typer.Option(parser=str.upper)] = None,
) -> None:
    """Nothing; its options are of all kinds."""


def options() -> list[Any]:
    made = typer.Typer(add_completion=False)
    made.command()(nothing)
    return [p for p in get_command(made).params if hasattr(p, "type_descriptor")]


if not options():  # A typer without pydantic reads its values itself.
    pytest.skip("this version of typer reads values without pydantic", allow_module_level=True)


def read(option: Any, value: Any) -> tuple[bool, Any]:
    """Whether it is plain, and what it is."""
    is_many = getattr(option, "multiple", False) or option.nargs != 1
    descriptor = option.type_descriptor
    found = plain_value(descriptor.annotation, descriptor.parameter_info, value, is_many=is_many)
    return found is not NOT_PLAIN, found


def read_by_typer(option: Any, value: Any) -> Any:
    context = typer.Context(get_command(_app()))
    return type(option).process_value(option, context, value)


def _app() -> typer.Typer:
    made = typer.Typer(add_completion=False)
    made.command()(nothing)
    return made


@pytest.mark.parametrize("option", options(), ids=lambda option: option.name)
def test_what_is_read_plainly_is_what_typer_reads(option: Any) -> None:
    is_many = getattr(option, "multiple", False) or option.nargs != 1
    values: list[Any] = [None, *TEXTS, 0, 7, -1, 2.5, True, False, Path("x"), [], ["a"], ("1", "2"), ["1", "x"], ["0"]]
    for value in values:
        if is_many and isinstance(value, str):
            continue  # click never gives one text to these
        is_plain, found = read(option, value)
        if is_plain:
            by_typer = read_by_typer(option, value)
            assert (found, type(found)) == (by_typer, type(by_typer)), (option.name, value)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("text", "x", "x"),
        ("text", None, None),
        ("whole", "7", 7),
        ("bounded", "5", 5),
        ("number", "3.5", 3.5),
        ("number", "7", 7.0),
        ("path", "/nowhere/at/all", Path("/nowhere/at/all")),
        ("path", ".", Path()),
        ("texts", ("a", "b"), ["a", "b"]),
        ("paths", ("a",), [Path("a")]),
        ("paths", None, ()),
        ("flag", True, True),
        ("word", "no", "no"),
    ],
)
def test_usual_values_are_plain(name: str, value: Any, expected: Any) -> None:
    (option,) = [option for option in options() if option.name == name]
    assert read(option, value) == (True, expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [("bounded", "6"), ("bounded", "-1"), ("share", "0.25"), ("whole", "x"), ("whole", "1.0"), ("wholes", ("1", "0")),
     ("there", "/nowhere/at/all"), ("folder", __file__), ("parsed", "x"), ("word", "NO"), ("path", "a\0b")],
)  # fmt: skip
def test_what_breaks_a_rule_is_left_to_typer(name: str, value: Any) -> None:
    (option,) = [option for option in options() if option.name == name]
    assert not read(option, value)[0]
