"""The imports at the top of a script, done before it runs: which they are, and where to stop.

Part of `warm.py`, which loads it by path into the user's interpreter: Python 3.8 and the standard library only.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Calls that change nothing but what is named by their result.
INNOCENT = ("Path", "getLogger", "logging.getLogger", "os.path.", "pathlib.")
# Imported module → what it imports when it is first used, as any program that has it will; and a text in the program
# that shows that it has views on that.
LATE = {"torch.optim": ("torch._dynamo", b"DYNAMO")}  # torch 2: by the first optimiser that is made


class CannotPrepare(Exception):
    """The program has to be started cold; the message says why."""


class StopImporting(Exception):
    """Preparing ends at this line."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def import_all(statements: list[ast.stmt], package: str | None) -> None:
    """Do the imports among these statements, in their order; StopImporting at one that may change what the rest do."""
    for statement in statements:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            if not imported(statement, package):
                raise StopImporting(statement.lineno)
        elif isinstance(statement, ast.Try):
            import_tried(statement, package)
        elif isinstance(statement, ast.If):
            known = outcome(statement.test)
            if known is not None:
                import_all(statement.body if known else statement.orelse, package)
            elif not harmless(statement):
                raise StopImporting(statement.lineno)
        elif not harmless(statement):
            raise StopImporting(statement.lineno)


def import_tried(statement: ast.Try, package: str | None) -> None:
    """`try: import this` and, where there is none, `except ImportError: import that`."""
    done = True
    for inner in statement.body:
        if isinstance(inner, (ast.Import, ast.ImportFrom)):
            if not imported(inner, package):
                done = False
                break
        elif not harmless(inner):
            raise StopImporting(inner.lineno)
    if done:
        import_all(statement.orelse, package)
    elif statement.handlers:
        import_all(statement.handlers[0].body, package)
    import_all(statement.finalbody, package)


def imported(statement: Any, package: str | None) -> bool:
    """Do one import statement; False if there is no such module."""
    if isinstance(statement, ast.Import):
        wanted: list[tuple[str, list[str]]] = [(alias.name, []) for alias in statement.names]
    else:
        name = statement.module or ""
        if statement.level:
            if package is None:
                return False
            name = importlib.util.resolve_name("." * statement.level + name, package)
        if name == "__future__":
            return True
        wanted = [(name, [alias.name for alias in statement.names])]
    for name, parts in wanted:
        try:
            __import__(name, None, None, parts)
        except ModuleNotFoundError as error:
            # Nothing of it has run, so the script can find that out by itself.
            if error.name is not None and (name + ".").startswith(error.name + "."):
                return False
            raise CannotPrepare(f"import of '{name}' raised {error!r}") from error
        except BaseException as error:
            # It ran in part, and must not run twice in one process.
            raise CannotPrepare(f"import of '{name}' raised {error!r}") from error
    return True


def import_late(source: bytes) -> None:
    """Do what the script's imports leave for later."""
    for module, (late, view) in LATE.items():
        if module in sys.modules and view not in source.upper():
            imported(ast.parse(f"import {late}").body[0], None)


def first_import(statements: list[ast.stmt], line: int) -> int | None:
    """The line of the first import that a script does as it goes, from a line on."""
    blocks = (ast.Import, ast.ImportFrom, ast.Try, ast.If, ast.With, ast.For, ast.While)
    at_work = [s for s in statements if isinstance(s, blocks)]
    lines = [n.lineno for s in at_work for n in ast.walk(s) if isinstance(n, (ast.Import, ast.ImportFrom))]
    return min((n for n in lines if n >= line), default=None)


def harmless(statement: ast.stmt) -> bool:
    """Whether a statement only defines or names something, so that imports after it do what they would do before."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Pass)):
        return True
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return True
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.Assign):
        return all(isinstance(t, ast.Name) for t in statement.targets) and innocent(statement.value)
    if isinstance(statement, ast.AnnAssign):
        return isinstance(statement.target, ast.Name) and (statement.value is None or innocent(statement.value))
    if isinstance(statement, ast.If):
        return innocent(statement.test) and all(harmless(s) for s in statement.body + statement.orelse)
    return False


def innocent(expression: ast.expr) -> bool:
    """Whether it calls nothing that might do something."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Call) and not dotted(node.func).startswith(INNOCENT):
            return False
        if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)):
            return False
    return True


def dotted(expression: ast.expr) -> str:
    """`a.b.c` as text; of anything else the part that has names."""
    if isinstance(expression, ast.Name):
        return expression.id
    if isinstance(expression, ast.Attribute):
        return dotted(expression.value) + "." + expression.attr
    return dotted(expression.func) if isinstance(expression, ast.Call) else ""


KNOWN_NODES = (
    ast.expr_context, ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.unaryop, ast.Constant, ast.Tuple,
    ast.Subscript, ast.Slice, ast.Name, ast.Attribute,
)  # fmt: skip


def outcome(test: ast.expr) -> bool | None:
    """How a condition turns out, where that is known beforehand: versions, platforms, types, `__main__`."""
    names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    typing = types.SimpleNamespace(TYPE_CHECKING=False)
    known: dict[str, Any] = {"__name__": "__main__", "TYPE_CHECKING": False, "sys": sys, "typing": typing}
    if not names or not names <= set(known) or not all(isinstance(node, KNOWN_NODES) for node in ast.walk(test)):
        return None
    try:
        return bool(eval(compile(ast.Expression(test), "<condition>", "eval"), {"__builtins__": {}}, known))
    except Exception:
        return None
