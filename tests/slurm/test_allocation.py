"""Agents inside an allocation of a real Slurm: they lend its nodes, and end with it; their jobs go on later."""

import sys
from pathlib import Path

import pytest
from tests.live.controller import LiveController, awaited
from tests.live.processes import below
from tests.slurm.cluster import SlurmCluster, why_no_slurm

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm())]

# As in docs/slurm.md, with folders of the test.
SCRIPT = """#!/bin/bash
#SBATCH --nodes={nodes} --ntasks-per-node=1 --output={root}/batch.log
srun {python} -m hocket.agent.node --url {url} --token-file {home}/token --state {root}/nodes/$SLURM_JOB_ID \\
  --state-by-node --checkpoints {root}/checkpoints --stop-jobs --gpus 1
"""


def allocation(slurm: SlurmCluster, controller: LiveController, nodes: int) -> str:
    """The number of a batch job that has agents on so many nodes."""
    script = controller.root / f"agents-{nodes}.sh"
    values = {"root": controller.root, "home": controller.home, "url": controller.url, "python": sys.executable}
    script.write_text(SCRIPT.format(nodes=nodes, **values))
    return slurm.run("sbatch", "--parsable", str(script)).strip()


def up_nodes(controller: LiveController) -> set[str]:
    return {row["id"] for row in controller.call("GET", "/v1/nodes")["nodes"] if row["up"]}


def test_agents_end_with_their_allocation_and_jobs_go_on_in_the_next(tmp_path):
    options = ("--no-agent", "--policy", "fifo", "--lease", "8")
    with SlurmCluster(tmp_path / "slurm", 3) as slurm, LiveController(tmp_path / "root", *options) as controller:
        controller.begin()
        first = allocation(slurm, controller, 2)
        awaited(lambda: len(up_nodes(controller)) == 2, "both nodes of the allocation are lent")
        assert up_nodes(controller) <= {"s1", "s2", "s3"}
        train = [sys.executable, str(ROOT / "examples" / "train_numpy.py"), "--epochs", "600", "--pace", "0.2"]
        controller.call("POST", "/v1/jobs", {"jobs": [{"id": "long", "command": train, "cwd": "/"}]})
        awaited(lambda: (controller.jobs()["long"]["epoch"] or 0) >= 3, "it trains")

        slurm.run("scancel", first)
        awaited(
            lambda: not [p for p in below(tmp_path / "root" / "nodes") if p.kind != "controller"], "nothing is left"
        )
        awaited(lambda: not up_nodes(controller), "the nodes are lost")
        saved = controller.jobs()["long"]["epoch"]
        assert controller.jobs()["long"]["state"] in ("waiting", "paused")

        second = allocation(slurm, controller, 3)
        awaited(lambda: up_nodes(controller) == {"s1", "s2", "s3"}, "all nodes are lent")
        awaited(lambda: (controller.jobs()["long"]["epoch"] or 0) > saved + 1, "it goes on")
        log = controller.types("logs", "long").stdout
        assert "epoch 1/600" not in log
        controller.down(grace_s=5.0)
        slurm.run("scancel", second)
        awaited(lambda: not slurm.run("squeue", "-h").strip(), "the allocation is over")
    assert not list(below(tmp_path))
