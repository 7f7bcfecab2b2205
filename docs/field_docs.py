"""Explanations of fields for the generated reference, which by itself shows nothing but docstrings.

Our fields are explained by a comment beside or above them, by `Meta(description=...)`, or by the `JobField` of a job's
field. `FieldDocs` is an extension of griffe, which reads the sources for mkdocstrings: it turns these into docstrings.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import griffe

_PRAGMA = re.compile(r"noqa\b|fmt: \w+$|type: ignore\b|(?:mypy|ruff|pragma):")  # comments for tools
_HASH = re.compile(r"(?:^|\s)#\s*")
_FIRST_WORD = re.compile(r"[a-z][a-z-]*(?=[\s,;:.]|$)")


class FieldDocs(griffe.Extension):
    """Gives each attribute without a docstring its explanation, and leaves of `Annotated[...]` the type only."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Called for every attribute that griffe has read."""
        annotation = attr.annotation
        if isinstance(annotation, griffe.ExprSubscript) and annotation.canonical_name == "Annotated":
            parts = annotation.slice
            attr.annotation = parts.elements[0] if isinstance(parts, griffe.ExprTuple) else parts
        if attr.docstring is None and isinstance(attr.filepath, Path):
            inside = attr.path.removeprefix(f"{attr.module.path}.")
            if text := _of_file(attr.filepath).get(inside):
                attr.docstring = griffe.Docstring(text, parent=attr)


@cache
def _of_file(path: Path) -> dict[str, str]:
    return explanations(path.read_text(encoding="utf-8"))


def explanations(source: str) -> dict[str, str]:
    """What a module says about its constants and the fields of its classes: `Class.field` → a sentence or several."""
    tree, comments = ast.parse(source), _comments(source)
    aliases = {
        target.id: text
        for node in tree.body
        if isinstance(node, ast.Assign) and (text := _described(node.value, {}))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = {}
    for name, node in _fields(tree, ""):
        described = _described(node.annotation, aliases) if isinstance(node, ast.AnnAssign) else ""
        beside = comments.get(node.end_lineno or 0, (False, ""))[1]
        above, line = "", node.lineno - 1
        while line in comments and comments[line][0]:
            above, line = f"{comments[line][1]} {above}", line - 1
        if text := " ".join(_sentence(part) for part in (described, above, beside) if part):
            found[name] = text
    return found


def _fields(body: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, ast.Assign | ast.AnnAssign]]:
    """Public names that are assigned or declared, each with its statement."""
    for node in body.body:
        if isinstance(node, ast.ClassDef):
            yield from _fields(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name) and not target.id.startswith("_"):
                    yield prefix + target.id, node


def _described(annotation: ast.expr, aliases: dict[str, str]) -> str:
    """The description in an annotation, or in the alias that it is."""
    if isinstance(annotation, ast.Name):
        return aliases.get(annotation.id, "")
    if not (isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple)):
        return ""
    for call in annotation.slice.elts[1:]:
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        given: dict[str | None, ast.expr] = {k.arg: k.value for k in call.keywords}
        if call.func.id == "JobField":
            text = given.get("api_help", call.args[0] if call.args else None)
        else:
            text = given.get("description")
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            return text.value
    return ""


def _comments(source: str) -> dict[int, tuple[bool, str]]:
    """Line → whether the comment stands there alone, and its text without what is meant for tools."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            texts = [text.strip() for text in _HASH.split(token.string)]
            text = " ".join(text for text in texts if text and not _PRAGMA.match(text))
            if text:
                found[token.start[0]] = not token.line[: token.start[1]].strip(), text
    return found


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    if _FIRST_WORD.match(text):
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
