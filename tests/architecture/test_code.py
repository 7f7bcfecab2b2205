"""How the code is kept: lengths, names, docstrings, and no event or action without its branch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from tests.architecture import sources

from hocket.model.action import Action
from hocket.model.event import Event

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "hocket"
PAPERS = ROOT / "reproductions" / "src" / "hocket_reproductions"
FILES = [*sorted(SRC.rglob("*.py")), *sorted(PAPERS.rglob("*.py"))]

MOST_LINES = 500
# Files that may be longer, each with a sentence that says why it is one idea. A reviewer agrees to every entry.
ONE_IDEA = {
    "model/job.py": "One struct: each field of a job with its type, name, help and rule, said once.",
    "agent/node/runs.py": "One table of the runs on this machine, and what orders and events change in it.",
    "reports/account.py": "One pass over a journal: all of it folds the same few tables, event by event.",
    "testing/executor_laws.py": "One list of laws for all executors: each is a short story, in the same form.",
    "policies/kit/draft.py": "One plan being written: every method edits the same few fields.",
    "policies/harmony/search_kernel.py": "One local search, compiled as one module by numba.",
}
VAGUE = re.compile(r"(utils?|commons?|helpers?|managers?|bases?|misc)$")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: sources.tree(path) for path in FILES}


def relative(path: Path) -> str:
    return path.relative_to(SRC if path.is_relative_to(SRC) else PAPERS.parent).as_posix()


# -- files --------------------------------------------------------------------------------------------------


def test_a_long_file_is_one_idea_and_says_why() -> None:
    lengths = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    long = {name: n for name, n in lengths.items() if n > MOST_LINES}
    unexplained = {name: n for name, n in long.items() if name not in ONE_IDEA}
    assert not unexplained, f"look for the second idea in them, or say in ONE_IDEA why there is none: {unexplained}"
    assert not ONE_IDEA.keys() - long, "an exception that is not needed"
    assert all(len(why.split()) > 5 and why.endswith(".") for why in ONE_IDEA.values()), "a sentence, please"


def test_a_file_is_named_after_what_it_holds() -> None:
    tests_and_tools = [p for folder in ("tests", "benchmarks", "examples") for p in (ROOT / folder).rglob("*.py")]
    assert not [str(p) for p in [*FILES, *tests_and_tools] if VAGUE.search(p.stem.lower())]


# -- names --------------------------------------------------------------------------------------------------


def test_a_public_class_name_is_defined_in_one_file() -> None:
    defined: dict[str, list[str]] = {}
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined.setdefault(node.name, []).append(relative(path))
    recurring = {name: files for name, files in defined.items() if len(files) > 1}
    assert not recurring, "find more specific names"


# -- one cycle for all worlds -------------------------------------------------------------------------------


def test_nothing_asks_whether_it_is_simulated() -> None:
    wrong = []
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
                continue
            for part in ast.walk(node.test):
                name = part.id if isinstance(part, ast.Name) else part.attr if isinstance(part, ast.Attribute) else ""
                if "simulat" in name.lower():
                    wrong.append(f"{relative(path)}:{node.lineno}: asks for {name}")
    assert not wrong, "\n".join(wrong)


def test_the_simulator_knows_no_policy_by_name() -> None:
    from hocket.policies import policies

    names = set(policies())
    wrong = [
        f"{relative(path)}:{node.lineno}: {node.value!r}"
        for path, tree in trees().items()
        if relative(path).startswith(("executors/", "control/", "model/"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert not wrong, "\n".join(wrong)


# -- every event and action has its branch ------------------------------------------------------------------


def names_in(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def matched_in(folder: str, function: str) -> set[str]:
    """The classes that functions of this name in a folder have a case for, or ask for: `type(...) is Start`."""
    return {
        name
        for path, tree in trees().items()
        if relative(path).startswith(folder)
        for definition in ast.walk(tree)
        if isinstance(definition, ast.FunctionDef) and definition.name == function
        for node in ast.walk(definition)
        for of in classes_asked_for(node)
        for name in names_in(of)
    }


def classes_asked_for(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.MatchClass):
        return [node.cls]
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is) and ast.unparse(node.left).startswith("type("):
        return node.comparators
    return []


def test_every_event_is_folded() -> None:
    from hocket.control.fold import _FOLDS

    assert set(_FOLDS) == set(get_args(Event))


ACTIONS = {kind.__name__ for kind in get_args(Action)}


def test_every_action_is_written_down_when_it_is_sent_out() -> None:
    assert matched_in("control/", "issue") == ACTIONS


@pytest.mark.parametrize("executor", sorted(p.parent.name for p in (SRC / "executors").glob("*/executor.py")))
def test_every_executor_makes_every_action_true(executor: str) -> None:
    assert matched_in(f"executors/{executor}/", "apply") == ACTIONS


def test_every_action_can_be_answered_in_a_test() -> None:
    assert matched_in("testing/harness.py", "done") == ACTIONS


# -- docstrings ---------------------------------------------------------------------------------------------


def bases(node: ast.ClassDef) -> set[str]:
    return {name for base in node.bases for name in names_in(base)}


def protocols(tree: ast.Module) -> list[ast.ClassDef]:
    return [node for node in tree.body if isinstance(node, ast.ClassDef) and "Protocol" in bases(node)]


def public(node: ast.Module | ast.ClassDef) -> Iterator[Definition]:
    """Public definitions, those of classes too, but for setters: what is set is said where it is got."""
    for child in node.body:
        if not isinstance(child, Definition) or child.name.startswith("_"):
            continue
        if not any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in child.decorator_list):
            yield child
        if isinstance(child, ast.ClassDef) and "Protocol" not in bases(child):
            yield from public(child)


def bare(tree: ast.Module) -> Iterator[Definition]:
    said = {m.name for p in protocols(tree) for m in p.body if isinstance(m, ast.FunctionDef)}
    for definition in public(tree):
        # Each knob speaks for itself.
        is_knobs = isinstance(definition, ast.ClassDef) and any(base.endswith("Params") for base in bases(definition))
        if ast.get_docstring(definition) is None and not is_knobs and definition.name not in said:
            yield definition


def test_everything_public_has_a_docstring() -> None:
    found = [f"{relative(path)}:{d.lineno}: {d.name}" for path, tree in trees().items() for d in bare(tree)]
    found += [f"{relative(path)}: the file itself" for path, tree in trees().items() if not ast.get_docstring(tree)]
    assert not found, "\n".join(found)


def test_every_knob_of_a_policy_says_what_it_does() -> None:
    from hocket.policies import policies
    from hocket.policies.kit.parameters import parameters

    silent = [
        f"{p.name}: {knob.name}" for p in policies().values() for knob in parameters(p.params) if not knob.description
    ]
    assert not silent
