"""What is heavy is imported when it is used, and not before."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# typer has pydantic read every value and brings a Markdown parser (markdown_it, pygments, attr) for each help page.
HEAVY = {
    "attr", "duckdb", "fastapi", "highspy", "hypothesis", "kubernetes", "markdown_it", "matplotlib", "numba", "numpy",
    "opentelemetry", "pydantic", "pygments", "pyspark", "ray", "scipy", "sqlite3", "torch", "uvicorn",
}  # fmt: skip

PROGRAM = """
import sys
sys.argv = ["hocket", *sys.argv[1:]]
from hocket.cli.main import run
try:
    run()
except SystemExit as end:
    print("code:", end.code or 0, file=sys.stderr)
print("loaded:", *sorted(sys.modules), file=sys.stderr)
"""


def loaded_by(*arguments: str, code: int = 0, **environment: str) -> set[str]:
    """The modules that are loaded when a command ends with this code."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True, text=True, check=True, timeout=300, env={**os.environ, **environment},
    )  # fmt: skip
    said, _, loaded = done.stderr.rpartition("loaded:")
    assert said.endswith(f"code: {code}\n"), done.stderr
    assert "typer" in loaded.split(), "the list of loaded modules is not what it should be"
    return set(loaded.split())


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def commands(modules: set[str]) -> set[str]:
    """The files of commands among these modules."""
    return {
        name for name in modules if name.startswith(("hocket.cli.live.", "hocket.cli.simulation.", "hocket.cli.tune"))
    }


def test_help_loads_no_command_and_nothing_heavy() -> None:
    loaded = loaded_by("--help")
    assert not packages(loaded) & HEAVY
    assert not commands(loaded)
    assert "msgspec" not in packages(loaded)


def test_the_help_of_a_command_loads_no_other_command_and_nothing_heavy() -> None:
    loaded = loaded_by("submit", "--help")
    assert not packages(loaded) & HEAVY
    assert commands(loaded) == {"hocket.cli.live.submit", "hocket.cli.live.job_options"}


def test_a_command_that_asks_a_controller_loads_neither_rich_nor_the_model(tmp_path: Path) -> None:
    loaded = loaded_by("jobs", "--owner", "ana", code=2, HOCKET_HOME=str(tmp_path))
    assert commands(loaded) == {f"hocket.cli.live.{name}" for name in ("jobs", "client", "job_rows")}
    assert not packages(loaded) & (HEAVY | {"rich"})
    assert "hocket.model" not in loaded


def test_commands_within_a_command_load_nothing_heavy_either(tmp_path: Path) -> None:
    loaded = loaded_by("owners", "set", "ana", "--weight", "2", code=2, HOCKET_HOME=str(tmp_path))
    assert not packages(loaded) & HEAVY


def test_a_controller_loads_its_server_and_nothing_else_that_is_heavy(tmp_path: Path) -> None:
    arguments = ("up", "--home", str(tmp_path), "--policy", "fifo", "--tls-cert", "/nowhere/at/all")
    loaded = loaded_by(*arguments, code=2)
    assert "hocket.service.app" in loaded
    assert not packages(loaded) & (HEAVY - {"sqlite3", "uvicorn"})
    assert not {name for name in loaded if name.startswith(("hocket.executors.simulated", "hocket.cli.simulation"))}


def test_completion_of_a_command_loads_no_command() -> None:
    words = {"_HOCKET_COMPLETE": "complete_bash", "COMP_WORDS": "hocket su", "COMP_CWORD": "1"}
    assert not commands(loaded_by(**words))


@pytest.mark.parametrize("arguments", [("simulate", "demo", "--policy", "fifo", "--json"), ("policies",)])
def test_a_simulation_without_plots_loads_nothing_to_draw_or_compute_with(arguments: tuple[str, ...]) -> None:
    assert not packages(loaded_by(*arguments)) & (HEAVY - {"sqlite3"})


def test_a_query_loads_neither_pandas_nor_arrow(tmp_path: Path) -> None:
    """DuckDB imports them for the first parameter of a statement, which takes longer than most queries."""
    assert find_spec("pandas") is not None, "what is not installed is not loaded in any case"
    sql = "SELECT count(*) AS n FROM lineitem"
    loaded = loaded_by("query", sql, "--data", "tpch:0.001", "--state", str(tmp_path))
    assert not packages(loaded) & {"numpy", "pandas", "pyarrow"}
