"""Several hosts, by TCP on this machine: the same result, and checkpoints over all shards."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.children import child
from tests.unit.cli.typed import hocket
from tests.unit.runtimes.paramserver.least_squares import (
    Large,
    LeastSquares,
    SparseLeastSquares,
    dense_blocks,
    free_port,
    hosts_train,
    on_hosts,
    sparse_blocks,
    trained,
)
from tests.unit.runtimes.paramserver.turns import CountChunks, LeaveAfter

from hocket.runtimes.paramserver import host_parts, training_checkpoints
from hocket.runtimes.paramserver.algorithm import Algorithm, Array, DataBlock
from hocket.runtimes.paramserver.generators import generate
from hocket.runtimes.paramserver.launch_variables import LaunchVariables
from hocket.runtimes.paramserver.training import Paused, Trained, train
from hocket.runtimes.paramserver.wire import CHUNK_BYTES


@pytest.mark.parametrize("hosts", [2, 3])
@pytest.mark.parametrize(("algorithm", "blocks"), [(LeastSquares, dense_blocks), (SparseLeastSquares, sparse_blocks)])
def test_several_hosts_find_what_one_finds(hosts: int, algorithm: type[Algorithm], blocks: Any) -> None:
    alone = trained(algorithm(), blocks(), batch=4)
    first, *rest = hosts_train(hosts, algorithm, blocks, batch=4)
    np.testing.assert_allclose(first.model["weights"], alone.model["weights"], rtol=1e-12)
    assert first.objective == pytest.approx(alone.objective, rel=1e-12)
    assert {other.objective for other in rest} == {first.objective}  # to the last bit
    assert [dict(other.model) for other in rest] == [{}] * (hosts - 1)


class Momentum(SparseLeastSquares):
    """Some blocks need all rows, others two of them; servers have a rule of their own."""

    def init(self, rng: np.random.Generator) -> Mapping[str, Array]:
        return {**super().init(rng), "pace": np.zeros(6), "total": np.zeros((2, 3), np.int64)}

    def needs(self, block: DataBlock) -> Mapping[str, Array | None]:
        return {"weights": None if block.name == "features [0 2]" else block.data["features"], "total": None}

    def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:
        some = params["weights"] if len(params["weights"]) == 2 else params["weights"][block.data["features"]]
        found = super().compute(block, {"weights": some})["weights"]
        if len(params["weights"]) != 2:
            whole = np.zeros(6)
            whole[block.data["features"]] = found
            found = whole
        return {"weights": found, "total": np.ones((2, 3), np.int32)}

    def objective_needs(self, block: DataBlock) -> Mapping[str, Array | None]:
        return super().needs(block)

    def apply(self, values: Mapping[str, Array], updates: Mapping[str, Array], iteration: int) -> None:
        if "weights" in updates:
            values["pace"][...] = 0.5 * values["pace"] + updates["weights"]
            values["weights"][...] += values["pace"]
        if "total" in updates:
            values["total"][...] += updates["total"] * iteration

    def objective(self, block: DataBlock, params: Mapping[str, Array]) -> float:
        some = params["weights"]
        return super().objective(block, {"weights": some if len(some) == 2 else some[block.data["features"]]})


def test_whole_and_sparse_pulls_and_a_servers_own_rule_agree_on_any_number_of_hosts() -> None:
    alone = trained(Momentum(), sparse_blocks(), epochs=20)
    assert alone.objective is not None
    assert alone.objective < 3
    for hosts in (2, 4):
        first, *_rest = hosts_train(hosts, Momentum, sparse_blocks, epochs=20)
        np.testing.assert_allclose(first.model["weights"], alone.model["weights"], rtol=1e-9)
        assert first.model["total"].tolist() == alone.model["total"].tolist() == [[6 * 210] * 3] * 2


def test_training_goes_on_with_another_number_of_hosts(tmp_path: Path) -> None:
    alone = trained(Momentum(), sparse_blocks(), epochs=6)
    leaving = [LeaveAfter(2), LeaveAfter(99), LeaveAfter(99)]  # One host is told so, and all leave.

    def run(at: LaunchVariables) -> Trained:
        return train(
            Momentum(), sparse_blocks(), workers=1, epochs=6, turns=CountChunks(leaving[at.host]), launch=at,
            checkpoint=tmp_path / f"of host {at.host}",
        )  # fmt: skip

    assert [type(found) for found in on_hosts(3, run)] == [Paused] * 3
    assert [path.name for path in tmp_path.iterdir()] == ["of host 0"]  # which needs no disk of the others
    with pytest.raises(Paused):
        trained(Momentum(), sparse_blocks(), epochs=6, checkpoint=tmp_path / "of host 0", turns=LeaveAfter(4))
    first, _second = hosts_train(2, Momentum, sparse_blocks, {"checkpoint": tmp_path / "of host 0"}, epochs=6)
    np.testing.assert_allclose(first.model["weights"], alone.model["weights"], rtol=1e-12)
    assert first.objective == pytest.approx(alone.objective, rel=1e-9)


def test_hosts_that_see_the_same_folder_write_and_read_their_own_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = trained(Momentum(), sparse_blocks(), epochs=6)

    def not_asked(*_arguments: object) -> Any:
        raise AssertionError("a host was asked for what the other can see")

    monkeypatch.setattr(host_parts.HostParts, "rows", not_asked)
    monkeypatch.setattr(host_parts, "BlockStates", not_asked)
    for request in ("SavedRows", "SavedStates"):
        monkeypatch.setattr(training_checkpoints, request, not_asked)

    def run(at: LaunchVariables) -> Trained:
        turns = CountChunks(LeaveAfter(2))
        return train(Momentum(), sparse_blocks(), workers=1, epochs=6, turns=turns, launch=at, checkpoint=tmp_path)

    assert [type(found) for found in on_hosts(3, run)] == [Paused] * 3
    (saved,) = tmp_path.iterdir()
    assert len(list(saved.glob("states-*.npz"))) == 3
    first, _second = hosts_train(2, Momentum, sparse_blocks, {"checkpoint": tmp_path}, epochs=6)
    np.testing.assert_allclose(first.model["weights"], alone.model["weights"], rtol=1e-12)


class Larger(Large):
    """A host's part alone has more chunks than are sent before the receiver asks for more."""

    def init(self, rng: np.random.Generator) -> Mapping[str, Array]:  # noqa: ARG002
        return {"weights": np.zeros(10 * CHUNK_BYTES // 8)}


def test_a_large_part_is_saved_by_a_host_that_must_ask_for_it(tmp_path: Path) -> None:
    def run(at: LaunchVariables) -> Trained:
        checkpoint = tmp_path / f"of host {at.host}"
        return train(Larger(), dense_blocks(2), epochs=2, objective_every=0, launch=at, checkpoint=checkpoint)

    first, _second = on_hosts(2, run)
    assert isinstance(first, Trained)
    (saved,) = (tmp_path / "of host 0").iterdir()
    np.testing.assert_array_equal(np.load(saved / "weights.npy"), first.model["weights"])
    assert (first.model["weights"] == 8).all()


@pytest.mark.slow
def test_processes_that_pretend_to_be_hosts_train_as_one_does(tmp_path: Path) -> None:
    data = tmp_path / "ratings.txt"
    generate("nmf", data, scale=1e-3)
    words = ["paramserver", "nmf", "--data", str(data), "--epochs", "3", "--workers", "1", "--json"]
    alone = hocket(*words).stdout
    env = {k: v for k, v in os.environ.items() if not k.startswith("HOCKET_")}
    env |= {"NNODES": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [sys.executable, "-m", "hocket", *words]
    with (
        child(command, env={**env, "NODE_RANK": "1"}, stdout=subprocess.PIPE, text=True) as second,
        child(command, env={**env, "NODE_RANK": "0"}, stdout=subprocess.PIPE, text=True) as first,
    ):
        said = first.communicate()[0]
        assert second.communicate()[0] == ""  # Only host 0 tells.
        assert (first.returncode, second.returncode) == (0, 0)
    one, two = ([json.loads(line)["objective"] for line in text.splitlines()] for text in (alone, said))
    assert len(one) == 3
    assert two == pytest.approx(one, rel=1e-5)
