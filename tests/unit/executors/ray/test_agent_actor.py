"""What the actor of a node gives its agent."""

from importlib import import_module
from typing import Any

import pytest

from hocket.executors.ray.messages import AgentSettings, AgentSpec, Reserved


@pytest.fixture(scope="module")
def agent_actor() -> Any:
    """Not imported above: it imports Ray, which takes each of pytest's workers a second."""
    pytest.importorskip("ray", reason="Ray is not installed: `make test` installs it")
    return import_module("hocket.executors.ray.agent_actor")


def test_jobs_see_the_environment_of_their_node_and_nothing_that_ray_adds(agent_actor: Any) -> None:
    initial = b"PATH=/bin\0RAY_JOB_ID=01\0CUDA_VISIBLE_DEVICES=7\0EMPTY=\0A=b=c\0"
    assert agent_actor.agent_environment(initial, "1,2") == {
        "PATH": "/bin",
        "EMPTY": "",
        "A": "b=c",
        "CUDA_VISIBLE_DEVICES": "1,2",
    }
    assert agent_actor.agent_environment(initial, None) == {"PATH": "/bin", "EMPTY": "", "A": "b=c"}


def test_each_controller_and_node_has_a_folder_of_its_own(agent_actor: Any) -> None:
    def folder(namespace: str, name: str) -> str:
        settings = AgentSettings("http://h:1", namespace=namespace, state="/local")
        found: str = agent_actor.node_folder(AgentSpec(name, "actor", "token", settings, Reserved(1.0)))
        return found

    assert folder("hocket-1", "n1") == "/local/hocket-1/n1"
    assert folder("hocket-1", "../n1") == "/local/hocket-1/%2E%2E%2Fn1"
