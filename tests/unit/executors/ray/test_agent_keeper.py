"""When the agent of a node of Ray must leave, and what it is started with."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.children import child

from hocket.agent.node.agent import _options
from hocket.agent.node.devices import Devices
from hocket.agent.node.gpus import Gpu
from hocket.agent.node.state_folder import StateFolder
from hocket.agent.process_tree import process
from hocket.executors.ray import agent_keeper
from hocket.executors.ray.agent_keeper import make_folder, take_over, why_stop, with_usable_gpus
from hocket.executors.ray.messages import AgentSettings, AgentSpec, Reserved, WatchSpec, encoded
from hocket.model.resources import Node

SETTINGS = AgentSettings("http://127.0.0.1:9", namespace="hocket-test", options=("--log-level", "debug"))
SPEC = AgentSpec("n1", "n1@abc#1", "hkt_secret", SETTINGS, Reserved(3.0, 2, 3 << 30, "A100"))


def test_an_agent_stays_while_its_actor_and_the_controller_are_there() -> None:
    assert why_stop(None, True, -10.0, 600.0) == ""


def test_an_agent_waits_for_its_actor_to_be_restarted_but_not_for_ever() -> None:
    assert why_stop(59.0, True, -10.0, 600.0) == ""
    assert why_stop(61.0, True, -10.0, 600.0) == "Ray has not started the agent's actor again within 60 s"


def test_an_agent_leaves_at_once_when_ray_has_ended_on_its_node() -> None:
    assert why_stop(0.0, False, -10.0, 600.0) == "Ray has ended on this node"
    assert why_stop(None, False, -10.0, 600.0) == "Ray has ended on this node"


def test_an_agent_leaves_when_no_controller_has_answered_for_long() -> None:
    assert why_stop(None, True, 599.0, 600.0) == ""
    assert why_stop(None, True, 601.0, 600.0) == "no controller has answered for 600 s"


def test_an_agent_is_started_with_what_ray_has_reserved() -> None:
    options = _options(SPEC.agent_options("/folder"), "hocket agent")
    assert (options.name, options.gpus, options.gpu_kind, options.cores, options.mem_mib) == ("n1", 2, "A100", 3, 3072)
    assert (options.url, options.state, options.ca) == ("http://127.0.0.1:9", "/folder/state", "")
    assert options.log_level == "debug"
    bare = replace(SPEC, reserved=Reserved(1.0), settings=replace(SETTINGS, ca="PEM"))
    options = _options(bare.agent_options("/folder", "http://elsewhere:1"), "hocket agent")
    assert (options.gpus, options.gpu_kind, options.mem_mib) == (0, None, None)
    assert (options.url, options.ca) == ("http://elsewhere:1", "/folder/ca.pem")


def test_other_settings_have_another_digest() -> None:
    assert SETTINGS.digest == replace(SETTINGS).digest != replace(SETTINGS, url="http://127.0.0.1:10").digest
    assert encoded(WatchSpec(SETTINGS, "token")).count(b"\n") == 1


def test_checkpoints_are_shared_where_that_is_said_and_the_token_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    spec = replace(SPEC, settings=replace(SETTINGS, checkpoints=str(tmp_path / "shared")))
    for _ in range(2):  # An actor that is restarted makes it again.
        make_folder(str(tmp_path / "n1"), spec)
        state = StateFolder(str(tmp_path / "n1" / "state"))
        (Path(state.checkpoints("job")) / "epoch").touch()
        os.close(state._lock)
    assert (tmp_path / "shared" / "job" / "epoch").exists()
    assert (tmp_path / "n1" / "token").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "n1" / "token").read_text() == "hkt_secret"


def test_checkpoints_that_are_there_are_not_hidden_by_a_shared_folder(tmp_path: Path) -> None:
    kept = tmp_path / "n1" / "state" / "checkpoints" / "job"
    kept.mkdir(parents=True)
    spec = replace(SPEC, settings=replace(SETTINGS, checkpoints=str(tmp_path / "shared")))
    with pytest.raises(OSError, match="has checkpoints in it"):
        make_folder(str(tmp_path / "n1"), spec)
    assert kept.exists()


def test_a_node_that_has_fewer_gpus_than_ray_was_told_lends_those_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(count: int) -> None:
        gpus = tuple(Gpu(n, f"GPU-{n}", "A100", 1000.0) for n in range(count))
        monkeypatch.setattr(agent_keeper, "discover", lambda *_: Devices(Node("n1"), gpus))

    found(1)
    spec, wrong = with_usable_gpus(SPEC)
    assert spec.reserved.gpus == 1
    assert wrong == "Ray says that node 'n1' has 2 GPUs for us, and 1 can be used"
    for count in (0, 2, 4):  # none at all: they are virtual
        found(count)
        assert with_usable_gpus(SPEC) == (SPEC, "")


def test_a_keeper_tells_an_earlier_one_to_leave(tmp_path: Path) -> None:
    code = "import sys, hocket.agent.run_folder as f; f.take_lock(sys.argv[1], '', 9); print(1, flush=True); input()"
    words = [sys.executable, "-c", code, str(tmp_path), "hocket.executors.ray.agent_keeper"]
    with child(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as earlier:
        assert earlier.stdout is not None
        earlier.stdout.readline()
        os.close(take_over(str(tmp_path)))
        assert earlier.wait(60) == -15
        assert process(earlier.pid) is None
