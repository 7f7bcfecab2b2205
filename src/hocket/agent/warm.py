"""Stands a Python program before its main, and runs it when told to, as Python would have.

Run by the sidecar in the user's own interpreter, by path: `python [options] warm.py HEAR,TELL script …` or
`… HEAR,TELL -m module …`. It compiles the script, does the imports at its top, tells through one pipe what it did, and
waits at the other for the environment to run in. So: Python 3.8 and the standard library only, nothing of hocket.

What a script does between its imports may change what the later ones do (`os.environ[…] = …`, `sys.path.insert(…)`), so
preparing ends at the first statement that does more than define or name something. What is left is left to the script.
"""

from __future__ import annotations

import sys

# Whether the folder of the script is the first on the path.
WITH_FOLDER = not (sys.flags.isolated or getattr(sys.flags, "safe_path", False))
if __name__ == "__main__" and WITH_FOLDER:
    del sys.path[0]  # It is ours, and our files must not be taken for Python's.

import ast  # noqa: E402
import importlib.machinery  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import types  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HERE = __file__
# Calls that change nothing but what is named by their result.
INNOCENT = ("Path", "getLogger", "logging.getLogger", "os.path.", "pathlib.")


class CannotPrepare(Exception):
    """The program has to be started cold; the message says why."""


# -- the program as Python would have it ----------------------------------------------------------------------


def stage(program: list[str]) -> tuple[str, bytes, str | None]:
    """Make `sys` and `__main__` as the program expects them; its file, source and package."""
    own = sys.modules["__main__"]
    is_module = program[0] == "-m"
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = [*sys.orig_argv[: len(sys.orig_argv) - len(sys.argv)], *program]
    sys.argv[:] = ["-m", *program[2:]] if is_module else program
    if WITH_FOLDER:
        sys.path.insert(0, os.getcwd() if is_module else os.path.dirname(os.path.realpath(program[0])))
    special = {name: value for name, value in vars(own).items() if name.startswith("__")}
    main = types.ModuleType("__main__")
    vars(main).clear()
    vars(main).update(special, __doc__=None)
    if "__annotations__" in special:
        vars(main)["__annotations__"] = {}
    sys.modules["__main__"] = main
    if is_module:
        for name in ("__file__", "__cached__"):
            vars(main).pop(name, None)
        vars(main)["__loader__"] = importlib.machinery.BuiltinImporter
        return module_source(program[1])
    path = program[0] if sys.version_info < (3, 9) else os.path.abspath(program[0])
    vars(main).update(__file__=path, __loader__=importlib.machinery.SourceFileLoader("__main__", path))
    if not os.path.isfile(path):
        raise CannotPrepare(f"'{program[0]}' is not a file")
    with open(path, "rb") as file:
        return path, file.read(), None


def module_source(name: str) -> tuple[str, bytes, str | None]:
    """File, source and package of a module; the packages it is in are imported for that, as `-m` does."""
    import runpy  # noqa: F401 - it will be needed to run it

    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(name + ".__main__")
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise CannotPrepare(f"module '{name}' has no source")
    with open(spec.origin, "rb") as file:
        return spec.origin, file.read(), spec.parent


def run(program: list[str], path: str, code: Any, stamp: Any) -> None:
    """Run it as `__main__`. Whatever it raises goes on to Python, which then ends as it always does."""
    try:
        if program[0] == "-m":
            import runpy

            runpy._run_module_as_main(program[1])  # type: ignore[attr-defined]
            return
        if stamp_of(path) != stamp:  # It was edited since.
            with open(path, "rb") as file:
                code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, vars(sys.modules["__main__"]))
    except SystemExit:
        raise
    except BaseException:
        shown_by = sys.excepthook

        def without_us(kind: Any, error: Any, trace: Any) -> None:
            sys.excepthook = shown_by
            while trace is not None and trace.tb_frame.f_code.co_filename == HERE:
                trace = trace.tb_next
            shown_by(kind, error.with_traceback(trace), trace)

        sys.excepthook = without_us
        raise


def stamp_of(path: str) -> tuple[int, int]:
    """What changes when a file is edited."""
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size


# -- its imports ----------------------------------------------------------------------------------------------


class Stop(Exception):
    """Preparing ends at this line."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def import_all(statements: list[ast.stmt], package: str | None) -> None:
    """Do the imports among these statements, in their order; Stop at one that may change what the rest do."""
    for statement in statements:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            if not imported(statement, package):
                raise Stop(statement.lineno)
        elif isinstance(statement, ast.Try):
            import_tried(statement, package)
        elif isinstance(statement, ast.If):
            known = outcome(statement.test)
            if known is not None:
                import_all(statement.body if known else statement.orelse, package)
            elif not harmless(statement):
                raise Stop(statement.lineno)
        elif not harmless(statement):
            raise Stop(statement.lineno)


def import_tried(statement: ast.Try, package: str | None) -> None:
    """`try: import this` and, where there is none, `except ImportError: import that`."""
    done = True
    for inner in statement.body:
        if isinstance(inner, (ast.Import, ast.ImportFrom)):
            if not imported(inner, package):
                done = False
                break
        elif not harmless(inner):
            raise Stop(inner.lineno)
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


# -- what the imports looked at -------------------------------------------------------------------------------


TOUCHED: set[str] = set()
SWEEP: list[str] = []  # what the last one to go through all variables has still to get


class Watched(type(os.environ)):  # type: ignore[misc]
    """An environment that knows which of its variables were read or written.

    Many packages go through all of them for those with their own prefix, or copy them. That is no interest in any one.
    """

    def __iter__(self) -> Any:
        """All names, and then their values will be wanted in this order."""
        SWEEP[:] = list(super().__iter__())[::-1]
        return iter(SWEEP[::-1])

    def __getitem__(self, key: str) -> str:
        """Get, and remember."""
        if SWEEP[-1:] == [key]:
            del SWEEP[-1:]
        else:
            TOUCHED.add(key)
        return super().__getitem__(key)  # type: ignore[no-any-return]

    def __setitem__(self, key: str, value: str) -> None:
        """Set, and remember."""
        TOUCHED.add(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        """Delete, and remember."""
        TOUCHED.add(key)
        super().__delitem__(key)


def gpus_looked_for() -> bool:
    """Whether something asked the driver for GPUs: what it was told then is not what the job will be given.

    The driver is loaded with most frameworks. Once asked, it keeps a thread, although it was told to show no GPU.
    """
    return any(content(f"/proc/self/task/{task}/comm").startswith("cuda") for task in listed("/proc/self/task")) or any(
        target(f"/proc/self/fd/{fd}").startswith("/dev/nvidia") for fd in listed("/proc/self/fd")
    )


def listed(folder: str) -> list[str]:
    """What is in a folder; nothing if it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def content(path: str) -> str:
    """What is in a file; nothing if it is gone."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def target(link: str) -> str:
    """Where a link leads; nowhere if it is gone."""
    try:
        return os.readlink(link)
    except OSError:
        return ""


# -- the conversation with the sidecar ------------------------------------------------------------------------


def prepare(program: list[str]) -> tuple[str, Any, Any, dict[str, Any]]:
    """Do all that can be done beforehand; what is to be run, and what to tell."""
    unwatched = type(os.environ)
    os.environ.__class__ = Watched
    line = None
    try:
        path, source, package = stage(program)
        stamp = stamp_of(path)
        code = compile(source, path, "exec", dont_inherit=True)
        statements = ast.parse(source).body
        import_all(statements, package)
    except Stop as stop:
        line = first_import(statements, stop.line)
    except (SyntaxError, ValueError) as error:
        raise CannotPrepare(f"it cannot be compiled: {error}") from error
    finally:
        os.environ.__class__ = unwatched
    if gpus_looked_for():
        raise CannotPrepare("its imports look for GPUs")
    return path, code, stamp, {"touched": sorted(map(str, TOUCHED)), "line": line}


def main() -> None:
    """Prepare, tell, wait, run."""
    hear, tell = (int(fd) for fd in sys.argv[1].split(","))
    for fd in (hear, tell):
        os.set_inheritable(fd, False)
    program = sys.argv[2:]
    try:
        path, code, stamp, facts = prepare(program)
    except BaseException as error:
        send(tell, {"cannot": str(error) if isinstance(error, CannotPrepare) else repr(error)})
        os._exit(1)
    send(tell, facts)
    told = b""
    while not told.endswith(b"\n"):
        more = os.read(hear, 1 << 16)
        if not more:  # The sidecar changed its mind.
            os._exit(1)
        told += more
    changes = json.loads(told)
    for name in changes["unset"]:
        os.environ.pop(name, None)
    os.environ.update(changes["set"])
    os.close(hear)
    os.close(tell)
    run(program, path, code, stamp)


def send(tell: int, facts: dict[str, Any]) -> None:
    """One line to the sidecar."""
    line = json.dumps(facts).encode() + b"\n"
    while line:
        line = line[os.write(tell, line) :]


if __name__ == "__main__":
    main()
