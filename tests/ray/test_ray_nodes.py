"""A controller on a real Ray cluster: its nodes run jobs, whatever is killed, and get back what they had lent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.live.controller import LiveController, awaited
from tests.live.processes import Found, below
from tests.whole_lines import whole_lines

if TYPE_CHECKING:
    from tests.ray.cluster import RayCluster

from tests.ray.guests import await_running, guest, node_of, submit, up_nodes


def of_kind(root: Path, kind: str, word: str = "") -> list[Found]:
    """The processes below a folder of that kind, whose command line has that word."""
    return [found for found in below(root) if found.kind == kind and word in found.command]


@pytest.mark.ray
def test_jobs_run_on_all_nodes_which_no_other_user_of_ray_gets_until_the_controller_is_down(
    cluster: RayCluster, tmp_path: Path
) -> None:
    import ray

    with guest(cluster, tmp_path) as controller:
        awaited(lambda: up_nodes(controller) == {"n1", "n2", "n3"}, "all nodes with a core are lent")
        rows = controller.call("GET", "/v1/nodes")["nodes"]
        assert {(len(row["gpus"]), row["gpu_kind"], row["cores"]) for row in rows} == {(1, "A100", 1.0)}
        assert not ray.available_resources().get("GPU")
        for name in ("a", "b", "c"):
            submit(controller, name, 600, 1.0)
        await_running(controller, "a", "b", "c")
        assert {node_of(controller, name) for name in ("a", "b", "c")} == {"n1", "n2", "n3"}

        controller.down(grace_s=0.0)
        assert cluster.is_as_before()
        awaited(lambda: ray.available_resources().get("GPU") == 3, "the GPUs are free in Ray")
        assert not list(below(tmp_path))


@pytest.mark.ray
def test_a_job_does_not_notice_the_end_of_its_actor_of_the_controller_or_of_what_was_reserved(
    cluster: RayCluster, tmp_path: Path
) -> None:
    with guest(cluster, tmp_path) as controller:
        submit(controller, "steady", 600, 1.0)
        await_running(controller, "steady")
        groups = cluster.groups()
        (training,) = of_kind(tmp_path, "training", "paced_job.py")

        agents = of_kind(tmp_path, "agent")
        actors = actor_processes()
        assert len(actors) == 3
        assert all(actor.kill() for actor in actors)
        awaited(lambda: not any(agent.lives() for agent in agents), "the agents are replaced")
        awaited(lambda: len(of_kind(tmp_path, "agent")) == 3, "each node has one agent")

        (watch,) = of_kind(tmp_path, "other", "-m hocket.executors.ray ")
        assert watch.kill()
        awaited(lambda: len(of_kind(tmp_path, "other", "-m hocket.executors.ray ")) == 1, "another one watches Ray")

        controller.kill()
        awaited(lambda: not of_kind(tmp_path, "other", "-m hocket.executors.ray "), "none watches without controller")
        controller.begin()
        awaited(lambda: up_nodes(controller) == {"n1", "n2", "n3"}, "all nodes are lent")
        assert training.lives()
        assert len(controller.call("GET", "/v1/jobs/steady")["attempt_list"]) == 1
        assert cluster.groups() == groups

        cluster.remove_groups()  # as its administrator may
        awaited(lambda: len(cluster.groups()) == 3 and len(actor_processes()) == 3, "all nodes are reserved again")
        awaited(lambda: up_nodes(controller) == {"n1", "n2", "n3"}, "all nodes are lent again")
        assert training.lives()
        controller.down(grace_s=0.0)
        assert cluster.is_as_before()


@pytest.mark.slow
def test_jobs_of_a_node_that_ray_loses_go_on_elsewhere_and_a_node_that_joins_is_lent(
    small_cluster: RayCluster, tmp_path: Path
) -> None:
    cluster = small_cluster
    others = cluster.names() - {"spot"}  # Of that name there may have been one before.
    spot = cluster.add_node("spot")
    with guest(cluster, tmp_path, "--lease", "20") as controller:
        awaited(lambda: up_nodes(controller) == {*others, "spot"}, "all nodes are lent")
        for name in others:
            controller.call("POST", f"/v1/nodes/{name}/drain", {})
        submit(controller, "moved", 600, 1.0)
        await_running(controller, "moved")
        assert node_of(controller, "moved") == "spot"
        awaited(lambda: (controller.jobs()["moved"]["epoch"] or 0) >= 2, "it has saved")
        (training,) = of_kind(tmp_path, "training", "paced_job.py")

        cluster.kill_raylet(spot)
        awaited(lambda: not training.lives(), "what ran there has ended")
        for name in others:
            controller.call("POST", f"/v1/nodes/{name}/undrain", {})
        awaited(lambda: node_of(controller, "moved") in others, "it runs elsewhere")
        awaited(lambda: logged_epochs(tmp_path, "moved", node_of(controller, "moved")) != [], "it makes progress there")
        last, first = logged_epochs(tmp_path, "moved", "spot")[-1], logged_epochs(tmp_path, "moved", "n?")[0]
        assert first == last + 1
        awaited(lambda: "spot" not in up_nodes(controller), "the node is lost")
        awaited(lambda: not [name for name in cluster.groups() if "/spot@" in name], "nothing is reserved of it")

        back = cluster.add_node("spot")
        awaited(lambda: "spot" in up_nodes(controller), "a node of that name is lent again")
        controller.down(grace_s=0.0)
    assert cluster.is_as_before()
    cluster.kill_raylet(back)


@pytest.mark.ray
def test_agents_give_their_nodes_back_when_no_controller_comes(cluster: RayCluster, tmp_path: Path) -> None:
    with guest(cluster, tmp_path, "--lease", "4", "--ray-keep", "2s") as controller:
        submit(controller, "orphan", 600, 1.0)
        await_running(controller, "orphan")
        controller.kill()
        awaited(cluster.is_as_before, "nothing is reserved in Ray")
        awaited(lambda: not of_kind(tmp_path, "training") and not of_kind(tmp_path, "agent"), "nothing runs")


@pytest.mark.slow
def test_a_ray_of_its_own_survives_the_controllers_kill_and_ends_when_that_goes_down(
    tmp_path: Path,
) -> None:
    options = ("--ray", "start", "--gpus", "2", "--cores", "1", "--ray-state", str(tmp_path / "nodes"))
    with LiveController(tmp_path, *options) as controller:
        controller.begin()
        (row,) = controller.call("GET", "/v1/nodes")["nodes"]
        assert (len(row["gpus"]), row["cores"]) == (2, 1.0)
        (raylet,) = of_kind(tmp_path, "other", "/raylet ")

        controller.kill()
        controller.begin()
        awaited(lambda: up_nodes(controller) == {row["id"]}, "the node is lent")
        assert raylet.lives()
        controller.down(grace_s=0.0)
        assert not list(below(tmp_path))


def logged_epochs(root: Path, job: str, node: str) -> list[int]:
    """The epochs that a job has logged on nodes whose name matches."""
    logs = sorted(root.glob(f"nodes/*/{node}/state/runs/{job}/*/log"))
    lines = [line.split() for log in logs for line in whole_lines(log)]
    return [int(words[1].partition("/")[0]) for words in lines if words[:1] == ["epoch"]]


def actor_processes() -> list[Found]:
    """The processes of agents' actors, as Ray calls them."""
    return [found for found in below(Path("ray::AgentActor")) if found.command.startswith("ray::AgentActor")]
