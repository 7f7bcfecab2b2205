"""All that users import from `hocket.model`, `pack`, `paramserver`, `query`, `ray`, `tune`, `testing` is explained."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FunctionType, ModuleType, UnionType
from typing import Any

import griffe
import pytest

ROOT = Path(__file__).parents[2]
EXTENSION = ROOT / "docs" / "field_docs.py"
PUBLIC = ("model", "pack", "paramserver", "query", "ray", "tune", "testing")
PACKAGES = tuple(f"hocket.{name}" for name in PUBLIC)


def field_docs() -> Any:
    """The extension of the site's generator: what it finds is what readers see."""
    spec = spec_from_file_location("field_docs", EXTENSION)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


explanations = field_docs().explanations


def public(package: ModuleType) -> Iterator[tuple[str, Any]]:
    """What a package exports; of one that exports nothing itself, what its modules define."""
    if names := getattr(package, "__all__", None):
        yield from ((f"{package.__name__}.{name}", getattr(package, name)) for name in names)
        return
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__:
                yield f"{module.__name__}.{name}", value


def gaps(name: str, value: Any) -> Iterator[str]:
    """The parameters, fields and methods of one public name that nothing explains."""
    if isinstance(value, FunctionType):
        yield from parameter_gaps(name, value, inspect.getdoc(value) or "")
    elif isinstance(value, UnionType):
        for kind in value.__args__:
            yield from gaps(f"{name}: {kind.__name__}", kind)
    elif isinstance(value, type) and value.__module__.startswith("hocket."):
        yield from class_gaps(name, value)


def constant_gaps(package: ModuleType) -> Iterator[str]:
    """Exported constants that no comment explains in the module they come from."""
    for node in ast.parse(inspect.getsource(package)).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            said = explanations(inspect.getsource(importlib.import_module(node.module)))
            for name in (alias.asname or alias.name for alias in node.names):
                value = getattr(package, name)
                if not isinstance(value, FunctionType | type) and name not in said:
                    yield f"{package.__name__}.{name}: constant"


def parameter_gaps(name: str, function: FunctionType, said: str, by_class: str = "") -> Iterator[str]:
    """Parameters that mean the same in a whole class or module may be explained in its docstring, in backticks."""
    if not said:
        yield f"{name}: no docstring"
    shared = by_class + (inspect.getdoc(inspect.getmodule(function)) or "")
    for parameter in inspect.signature(function).parameters:
        explained = re.search(rf"\b{parameter.strip('_')}\b", said) or f"`{parameter}`" in shared
        if parameter not in ("self", "cls") and not explained:
            yield f"{name}: parameter `{parameter}`"


def class_gaps(name: str, kind: type) -> Iterator[str]:
    said = inspect.getdoc(kind) or ""
    if not kind.__dict__.get("__doc__"):
        yield f"{name}: no docstring"
    yield from (f"{name}: field `{field}`" for field in unexplained_fields(kind) if f"`{field}`" not in said)
    for member, value in vars(kind).items():
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not isinstance(function, FunctionType) or "<locals>" in function.__qualname__:
            continue
        if member == "__init__" and not is_dataclass(kind):
            yield from parameter_gaps(name, function, said + (inspect.getdoc(function) or ""))
        elif not member.startswith("_"):
            yield from parameter_gaps(f"{name}.{member}", function, inspect.getdoc(function) or "", said)


def unexplained_fields(kind: type) -> Iterator[str]:
    """Public fields, own and inherited, without a description and without a comment beside or above them."""
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] not in ("hocket", __name__.partition(".")[0]):
            continue
        said = explanations(inspect.getsource(importlib.import_module(base.__module__)))
        for field in base.__members__ if issubclass(base, Enum) else inspect.get_annotations(base):
            if not field.startswith("_") and f"{base.__qualname__}.{field}" not in said:
                yield field


@pytest.mark.parametrize("package", PACKAGES)
def test_every_parameter_and_field_of_the_public_api_is_explained(package: str) -> None:
    module = importlib.import_module(package)
    found = [gap for name, value in public(module) for gap in gaps(name, value)]
    found += constant_gaps(module)
    assert not found, f"{len(found)} are not explained:\n" + "\n".join(found)


def test_what_is_not_explained_is_found() -> None:
    def silent(one: int) -> None:
        """It says nothing about it."""

    assert list(gaps("silent", silent)) == ["silent: parameter `one`"]
    assert list(unexplained_fields(Sample)) == ["bare", "pragma"]


class Sample:
    """For the test above."""

    bare: int
    beside: int  # explained beside it
    # Explained above it.
    above: int
    pragma: int  # fmt: skip
    _private: int


SOURCE = '''"""A module."""

Count = Annotated[int, Meta(ge=0, description="how many")]
LIMIT = 3  # attempts of one job


class Sample(Struct):
    """A struct."""

    beside: int  # explained beside it
    # Explained in two lines
    # above it.
    above: int = 0
    described: Annotated[int, Meta(ge=0, description="explained by its type")] = 0  # in seconds
    alias: Count = 0
    job: Annotated[
        str,
        JobField("Explained for users.", name="x"),
    ] = ""  # empty: none  # fmt: skip
    own: int  # not this
    """Explained by its docstring."""

    bare: int
'''


def test_the_reference_shows_what_explains_a_field(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text(SOURCE)
    module = griffe.visit("sample", path, SOURCE, extensions=griffe.load_extensions(str(EXTENSION)))
    found = {name: member.docstring and member.docstring.value for name, member in module["Sample"].members.items()}
    assert found == {
        "beside": "Explained beside it.",
        "above": "Explained in two lines above it.",
        "described": "Explained by its type. In seconds.",
        "alias": "How many.",
        "job": "Explained for users. Empty: none.",
        "own": "Explained by its docstring.",
        "bare": None,
    }
    assert module["LIMIT"].docstring.value == "Attempts of one job."
    assert str(module["Sample.described"].annotation) == "int"


def test_the_reference_explains_the_fields_of_the_model() -> None:
    path = ROOT / "src" / "hocket" / "model" / "plan.py"
    extensions = griffe.load_extensions(str(EXTENSION))
    module = griffe.visit("hocket.model.plan", path, path.read_text(encoding="utf-8"), extensions=extensions)
    assert module["Wake.arrival"].docstring.value == "Ask when a job is submitted."
