"""`hocket demo` on a Ray cluster, one of whose nodes is killed on the way: the same table as on one machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.live.controller import awaited
from tests.live.processes import below, end_all

pytest.importorskip("ray", reason="Ray is not installed: `make test-ray` installs it")

from tests.ray.cluster import RayCluster

TO_THE_END = {"large": "24", "small": "10", "unlucky": "24", "late": "8"}  # epochs of the jobs that stop at no goal


def table(output: str) -> dict[str, tuple[str, ...]]:
    """What became of each job: GPUs, goal, state, epochs and accuracy; not when."""
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if line.startswith("│")]
    return {job: (gpus, goal, state, epochs, acc) for job, gpus, _w, _r, _n, goal, state, epochs, acc in rows}


def command(out: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "hocket", "demo", "--out", str(out), *options]


def environment(root: Path) -> dict[str, str]:
    root.mkdir()
    return {**os.environ, "COLUMNS": "160", "TMPDIR": str(root)}  # By which its processes are found.


@pytest.mark.slow
def test_the_demo_on_nodes_of_which_one_is_lost_gives_the_table_of_one_machine(
    cluster: RayCluster, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    nodes = [cluster.add_node(name, gpus=gpus) for name, gpus in (("large", 4), ("spot", 2))]
    try:
        local = subprocess.run(
            command(here), env=environment(here), capture_output=True, text=True, timeout=900, check=True
        )
        address = ("--ray", cluster.address)
        with subprocess.Popen(
            command(there, *address), env=environment(there), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as demo:
            awaited(
                lambda: any("/spot/" in found.command for found in below(there) if found.kind == "sidecar"),
                "a job runs on the node",
            )
            cluster.kill_raylet(nodes.pop())
            output, errors = demo.communicate(timeout=900)
        assert demo.returncode == 0, output + errors
        found, expected = table(output), table(local.stdout)
        assert found.keys() == expected.keys()
        assert {job: row[:3] for job, row in found.items()} == {job: row[:3] for job, row in expected.items()}
        assert {job: found[job][3] for job in TO_THE_END} == TO_THE_END
        assert {job: found[job][4] for job in TO_THE_END} == {job: expected[job][4] for job in TO_THE_END}
    finally:
        end_all(tmp_path)
        cluster.clear()
        for node in nodes:
            cluster.kill_raylet(node)
