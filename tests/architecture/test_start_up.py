"""What is heavy is imported when it is used, and not before."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "duckdb", "fastapi", "highspy", "hypothesis", "kubernetes", "matplotlib", "numba", "numpy", "pyspark", "ray",
    "scipy", "sqlite3", "torch", "uvicorn",
)  # fmt: skip

PROGRAM = """
import sys
sys.argv = ["hocket", *sys.argv[1:]]
from hocket.cli.main import run
try:
    run()
except SystemExit as end:
    assert not end.code, end.code
print("loaded:", *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def loaded_by(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True, timeout=300
    )
    return set(done.stderr.rpartition("loaded:")[2].split())


def test_help_loads_nothing_heavy() -> None:
    loaded = loaded_by("--help")
    assert "typer" in loaded, "the list of loaded modules is not what it should be"
    assert not loaded & set(HEAVY)


@pytest.mark.parametrize("arguments", [("simulate", "demo", "--policy", "fifo", "--json"), ("policies",)])
def test_a_simulation_without_plots_loads_nothing_to_draw_or_compute_with(arguments: tuple[str, ...]) -> None:
    assert not loaded_by(*arguments) & (set(HEAVY) - {"sqlite3"})
