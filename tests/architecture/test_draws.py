"""What tests draw is the same in every run, whichever other tests ran before in the same process."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DRAWN = """
import importlib, os, sys
sys.path.insert(0, os.getcwd())
import tests.conftest
for module in sys.argv[1:]:
    importlib.import_module(module)
from hypothesis import given, strategies as st
drawn = []
@given(st.integers(0, 10**9), st.floats(0, 1e9), st.text(max_size=20))
def draws(number, share, text):
    drawn.append((number, share, text))
draws()
print(drawn)
"""


def test_what_is_drawn_does_not_depend_on_the_modules_that_are_loaded(tmp_path: Path) -> None:
    script = tmp_path / "draws.py"  # Draws depend on its text, too.
    script.write_text(DRAWN)
    printed = []
    for modules in ([], ["hocket.policies", "hocket.cli.main", "hocket.workloads.mlfs"]):
        run = subprocess.run(
            [sys.executable, str(script), *modules], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr
        printed.append(run.stdout)
    assert printed[0].count("(") > 50
    assert printed[0] == printed[1]
