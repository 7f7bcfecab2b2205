"""A policy that breaks a law is reported in a few lines, in its author's terminal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IDLE = """
from hocket.policies import Draft, policy

@policy("idler", reads_beliefs=False)
def decide(snapshot, _params):
    "Never starts a job."
    return Draft(snapshot).plan()
"""


@pytest.mark.parametrize(
    ("test", "law"),
    [
        ("test_every_decision_keeps_the_laws", "works_or_says_why_not"),
        ("test_every_run_keeps_the_laws", "every_job_ends"),
    ],
)
def test_a_broken_law_prints_a_dozen_lines(tmp_path: Path, test: str, law: str) -> None:
    (tmp_path / "idler.py").write_text(IDLE, encoding="utf-8")
    name = f"tests/laws/test_policies.py::{test}[idler]"
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short", "--no-header")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", name, *options],
        cwd=ROOT, env={**os.environ, "HOCKET_POLICIES": str(tmp_path)}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    found = [line for line in done.stdout.splitlines() if line.startswith("E ")]
    assert f"policy 'idler' breaks the law '{law}'" in found[0]
    assert any(f"repeat it: python -m pytest '{name}'" in line for line in found)
    assert len(found) <= 12, "five of the law, and the drawn example"
    assert len(done.stdout.splitlines()) <= 40
    assert len(done.stdout) < 5000
