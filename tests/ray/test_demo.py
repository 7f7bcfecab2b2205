"""`hocket demo --ray start`: on three nodes, of which one is killed on the way, the same table as on one machine."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.live.processes import below, end_all

TO_THE_END = {"large": "24", "small": "10", "unlucky": "24", "late": "8"}  # epochs of the jobs that stop at no goal


def cells(output: str) -> list[list[str]]:
    """The table that the demo prints."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if line.startswith("│")]


def table(output: str) -> dict[str, tuple[str, ...]]:
    """What became of each job: GPUs, goal, state, epochs and accuracy; not when."""
    return {job: (gpus, goal, state, epochs, acc) for job, gpus, _w, _r, _n, goal, state, epochs, acc in cells(output)}


def demo(root: Path, *options: str) -> str:
    """Run it; what it printed."""
    root.mkdir()
    command = [sys.executable, "-m", "hocket", "demo", "--out", str(root), *options]
    env = {**os.environ, "COLUMNS": "160", "TMPDIR": str(root)}  # By which its processes are found.
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.ray
def test_the_demo_on_three_nodes_of_which_one_is_lost_gives_the_table_of_one_machine(tmp_path: Path) -> None:
    try:
        output = demo(tmp_path / "there", "--ray", "start")
        assert not list(below(tmp_path))
        found, expected = table(output), table(demo(tmp_path / "here"))
    finally:
        end_all(tmp_path)
    assert re.search(r"node 'n[23]' was killed with -9", output)
    assert sum(int(row[4]) for row in cells(output)) >= len(found) + 2  # the killed job, and at least one of that node
    assert found.keys() == expected.keys()
    assert {job: row[:3] for job, row in found.items()} == {job: row[:3] for job, row in expected.items()}
    assert {job: found[job][3] for job in TO_THE_END} == TO_THE_END
    assert {job: found[job][4] for job in TO_THE_END} == {job: expected[job][4] for job in TO_THE_END}
