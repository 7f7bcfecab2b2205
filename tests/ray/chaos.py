"""Short jobs on a real Ray cluster while everything is killed at random with -9, Ray's own processes among it.

python -m tests.ray.chaos --seconds 600 --seed 7
"""

import os
from pathlib import Path
from typing import Any

from tests.live.chaos import Chaos
from tests.live.chaos_command import chaos_command
from tests.live.controller import LiveController, awaited
from tests.live.processes import Found, below
from tests.ray.cluster import RayCluster

from hocket.agent.process_tree import process, read

_WEIGHTS = {"controller": 2, "watch": 2, "actor": 3, "keeper": 2, "agent": 2, "sidecar": 3, "training": 4, "raylet": 1}


class RayChaos(Chaos):
    """As `Chaos`, with nodes that come from Ray and may be lost to it; one that is lost comes back under its name."""

    def __init__(self, root: Path, seed: int, cluster: RayCluster) -> None:
        super().__init__(root, seed, "las")
        self._cluster = cluster
        self._nodes = {name: cluster.add_node(name, gpus=2, cpus=2) for name in ("n1", "n2")}
        folders = ("--ray-state", str(root / "nodes"), "--ray-checkpoints", str(root / "checkpoints"))
        policy = ("--policy", "las", "--param", "levels_gpu_s=[2,6]", "--lease", "20")
        self._controller = LiveController(root, *policy, "--ray", cluster.address, *folders)

    def check(self) -> None:
        """What holds without Ray must hold with it; and nothing of ours is left in Ray."""
        super().check()
        awaited(self._cluster.is_as_before, "nothing is reserved in Ray")

    def _spared(self) -> set[str]:
        return _WEIGHTS.keys() - self.kills.keys()

    def _new_wave(self) -> None:
        super()._new_wave()
        for job in self._to_submit:
            job["max_nodes"] = 1  # The processes of a job on two nodes could not be told from a job that runs twice.

    def _kill_some(self) -> None:
        (kind,) = self._dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        if kind == "raylet":
            name = self._dice.choice(sorted(self._nodes))
            self._cluster.kill_raylet(self._nodes[name])
            self._nodes[name] = self._cluster.add_node(name, gpus=2, cpus=2)
            self.kills[kind] += 1
            return
        there = [(_kind(found), found) for found in below(self._controller.root)]
        there += [("actor", found) for found in below(Path("ray::AgentActor"))]
        victims = sorted((found for of_kind, found in there if of_kind == kind), key=lambda found: found.pid)
        if victims and self._dice.choice(victims).kill():
            self.kills[kind] += 1

    def _stands_by(self, found: Found) -> bool:
        # A run of that number may stand prepared on one node when the job is started on another one: its sidecar tells.
        known = process(found.pid)
        sidecar = read(f"/proc/{known.parent}/cmdline") if known is not None else None
        folder = Path(os.fsdecode(sidecar.split(b"\0")[-2])) if sidecar and b"hocket.agent.sidecar" in sidecar else None
        is_warm = "hocket/agent/sidecar/warm.py" in found.command
        return is_warm and folder is not None and not (folder / "start.json").exists()


def _kind(found: Found) -> str:
    if "hocket.executors.ray.agent_keeper" in found.command:
        return "keeper"
    return "watch" if "-m hocket.executors.ray " in found.command else found.kind


def run(root: Path, seconds: float, seed: int) -> None:
    """The whole run; AssertionError with all that is needed to understand it if anything is wrong."""
    with RayCluster() as cluster:
        chaos: Any = RayChaos(root, seed, cluster)
        try:
            chaos.torment(seconds)
            chaos.check()
        except AssertionError as error:
            chaos.wrongs.append(str(error))
        finally:
            explained = chaos.explained() if chaos.wrongs else ""
            chaos.clean_up()
            cluster.clear()
    print(chaos.summary(), flush=True)
    assert not chaos.wrongs, explained


if __name__ == "__main__":
    chaos_command("chaos", __doc__, run)
