"""How the nodes of a Ray on this machine are started: those of several never share a GPU."""

import pytest

from hocket.agent.node.devices import VISIBLE, Devices
from hocket.agent.node.gpus import Gpu
from hocket.executors.ray.connection import NoRay
from hocket.executors.ray.local_head import LocalNodes, starts
from hocket.model.resources import Node


def machine(gpus: int) -> Devices:
    found = tuple(Gpu(n, f"GPU-{n}", "A100", 1000.0) for n in range(gpus))
    return Devices(Node("here", gpus, cores=6.0, mem_mib=3000.0), found)


def test_a_single_node_has_what_is_said_or_what_ray_finds() -> None:
    assert starts(LocalNodes(), machine(4)) == [([], {})]
    assert starts(LocalNodes(1, 2, 1.6), machine(0)) == [(["--num-gpus", "2", "--num-cpus", "2"], {})]


def test_several_nodes_have_equal_shares_of_the_machine() -> None:
    first, _, last = starts(LocalNodes(3), machine(7))
    assert [first.environment, last.environment] == [{VISIBLE: "0,1"}, {VISIBLE: "4,5"}]
    assert first.options[:6] == ["--num-gpus", "2", "--num-cpus", "2", "--memory", str(900 << 20)]
    assert last.options[-2:] == ["--node-name", "n3"]


def test_more_gpus_than_there_are_can_be_virtual_only_where_there_are_none() -> None:
    assert [start.environment for start in starts(LocalNodes(2, 4), machine(0))] == [{}, {}]
    with pytest.raises(NoRay, match="--ray-nodes 2 with --gpus 4 needs 8 GPUs, and 7 are here"):
        starts(LocalNodes(2, 4), machine(7))
