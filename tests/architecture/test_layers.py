"""Imports point down only, and what is heavy or impure stays where it belongs: read off the source."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.architecture.sources import tree

SRC = Path(__file__).parents[2] / "src" / "hocket"

# From the top to the bottom. Those of one row may not import each other either.
ROWS = (
    ("ray",),
    ("cli", "dashboard"),
    ("reproductions", "learn"),
    ("service", "reports"),
    ("tune",),
    ("executors",),
    ("job_input",),
    ("control",),
    ("policies",),
    ("estimators",),
    ("workloads",),
    ("agent",),
    ("pack", "paramserver", "query"),
    ("runtimes",),
    ("model",),
)
RANK = {layer: rank for rank, row in enumerate(ROWS) for layer in row}
ABOVE_ALL = ("testing", "__init__", "__main__")  # may import everything; nothing imports `testing`

# What is heavy to import, and the folders it may be imported in. Plain `import hocket` must never need it.
HEAVY = {
    "duckdb": ("runtimes/query",),
    "highspy": ("policies",),
    "kubernetes": ("executors/kubernetes",),
    "matplotlib": ("reports",),
    "numba": ("policies", "estimators", "executors/simulated", "runtimes/paramserver"),
    "numpy": (
        "learn",
        "reports",
        "policies",
        "estimators",
        "runtimes",
        "executors/inprocess",
        "executors/simulated",
    ),
    "opentelemetry": ("service",),
    "optuna": ("learn", "tune"),
    "pandas": ("runtimes/query",),
    "psycopg": ("control/journal", "testing"),
    "pyarrow": ("runtimes/query",),
    "pyspark": ("runtimes/query",),
    "ray": ("executors/ray", "ray"),
    "scipy": ("policies", "estimators"),
    "torch": ("runtimes", "executors/inprocess", "ray"),
}

PURE = ("model", "policies", "estimators", "control")
IMPURE = {
    "asyncio", "datetime", "glob", "http", "io", "importlib", "logging", "multiprocessing", "os", "pathlib", "random",
    "secrets", "shutil", "signal", "socket", "sqlite3", "subprocess", "tempfile", "threading", "time", "urllib",
    "uuid",
}  # fmt: skip
IMPURE_NAMES = {"input", "open", "print", "sys.exit", "sys.stdin", "sys.stdout", "sys.stderr", "sys.argv"}
# Each exception with what it needs and why.
EXCEPTIONS = {
    "model/snapshot.py": {"random"},  # `rng()`, seeded by the run and the decision
    "control/admission.py": {"signal"},  # the names of signals
    "control/controller.py": {"time"},  # how long a decision took; no decision sees it
    "control/cycle_log.py": {"logging"},  # what people read; no decision sees it
    "control/journal/archive.py": {"os", "pathlib"},  # the effect itself
    "control/journal/history.py": {"pathlib"},  # where archives are
    "control/journal/stored.py": {"datetime"},  # dates in messages
    "control/journal/lock.py": {"datetime", "os", "pathlib", "socket"},  # the lock, and which process has it
    "control/journal/open.py": {"pathlib"},  # the effect itself
    "control/journal/postgresql.py": {"os", "time"},  # how long to wait for a server that is away
    # Whether the process that holds a journal still runs is told and seen in real time.
    "control/journal/postgresql_presence.py": {"logging", "os", "secrets", "threading", "time"},
    "control/journal/postgresql_standby.py": {"logging", "time"},
    "control/journal/sqlite.py": {"sqlite3", "pathlib"},  # the effect itself
    "policies/mlfs/weights_file.py": {"pathlib"},  # weights, which are read before the first decision with them
    "policies/registry.py": {"importlib", "os", "pathlib"},  # finding policies, before any is asked
}

FILES = sorted(SRC.rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


def layer_of(path: Path) -> str:
    return path.relative_to(SRC).with_suffix("").parts[0]


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """(line, module) of every import, those within functions and for type checkers too."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(path)}:{node.lineno} imports relatively; say `from hocket.… import`"
            module = node.module or ""
            # `from hocket.model import criterion` may mean a module.
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def own(module: str) -> list[str]:
    """The parts below `hocket`, empty for other packages."""
    parts = module.split(".")
    return parts[1:] if parts[0] == "hocket" else []


def test_every_folder_is_a_layer() -> None:
    known = {*RANK, *ABOVE_ALL}
    assert {layer_of(path) for path in FILES} <= known, "a new folder needs a place among the rows"


def test_hocket_does_not_import_the_papers_that_are_a_package_of_their_own() -> None:
    wrong = [
        f"{relative(path)}:{line}: {module}"
        for path in FILES
        for line, module in imports(path)
        if module.split(".")[0] == "hocket_reproductions"
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_point_down_only() -> None:
    wrong = []
    for path in FILES:
        layer = layer_of(path)
        for line, module in imports(path):
            target = next(iter(own(module)), None)
            if target is None or target == layer or layer in ABOVE_ALL or target.startswith("__"):
                continue
            if target == "testing" or (target in RANK and RANK[target] <= RANK[layer]):
                wrong.append(f"{relative(path)}:{line}: {layer} imports {module}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("layer", ["executors", "runtimes"])
def test_siblings_never_import_each_other(layer: str) -> None:
    wrong = []
    for path in FILES:
        if layer_of(path) != layer:
            continue
        sibling = path.relative_to(SRC).parts[1]
        for line, module in imports(path):
            parts = own(module)
            if parts[:1] == [layer] and len(parts) > 1 and parts[1] != Path(sibling).stem:
                wrong.append(f"{relative(path)}:{line}: {sibling} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_a_policy_sees_the_model_and_nothing_else() -> None:
    wrong = [
        f"{relative(path)}:{line}: {module}"
        for path in FILES
        if layer_of(path) == "policies"
        for line, module in imports(path)
        if own(module)[:1] not in ([], ["model"], ["policies"])
    ]
    assert not wrong, "\n".join(wrong)


def test_the_model_needs_msgspec_and_the_standard_library_only() -> None:
    allowed = {*sys.stdlib_module_names, "msgspec", "hocket"}
    wrong = [
        f"{relative(path)}:{line}: {module}"
        for path in FILES
        if layer_of(path) == "model"
        for line, module in imports(path)
        if module.split(".")[0] not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_heavy_packages_stay_in_their_folders() -> None:
    wrong = []
    for path in FILES:
        for line, module in imports(path):
            folders = HEAVY.get(module.split(".")[0])
            if folders is not None and not any(relative(path).startswith(f"{folder}/") for folder in folders):
                wrong.append(f"{relative(path)}:{line}: {module} belongs in {', '.join(folders)}")
    assert not wrong, "\n".join(wrong)


def test_pure_layers_have_no_clock_no_dice_and_no_files() -> None:
    wrong = []
    for path in FILES:
        if layer_of(path) not in PURE:
            continue
        allowed = EXCEPTIONS.get(relative(path), set())
        for line, module in imports(path):
            name = module.split(".")[0]
            if name in IMPURE and name not in allowed:
                wrong.append(f"{relative(path)}:{line}: imports {module}")
        wrong += [
            f"{relative(path)}:{node.lineno}: uses {name}"
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Name | ast.Attribute) and (name := ast.unparse(node)) in IMPURE_NAMES
        ]
    assert not wrong, "\n".join(wrong)


def test_every_exception_is_still_needed() -> None:
    for name, modules in EXCEPTIONS.items():
        used = {module.split(".")[0] for _line, module in imports(SRC / name)}
        assert modules <= used, f"{name} no longer needs {modules - used}: take it off the list"


def test_of_the_clock_the_controller_reads_only_how_long_a_decision_took() -> None:
    clock = {module for _line, module in imports(SRC / "control" / "controller.py") if module.startswith("time")}
    assert clock == {"time.perf_counter"}
