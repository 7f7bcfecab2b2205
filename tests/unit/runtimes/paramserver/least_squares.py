"""Small algorithms for tests, least squares by gradient descent above all; and hosts that are threads."""

import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hocket.runtimes.paramserver.algorithm import Algorithm, Array, DataBlock
from hocket.runtimes.paramserver.launch_variables import LaunchVariables
from hocket.runtimes.paramserver.training import Trained, train
from hocket.runtimes.paramserver.wire import CHUNK_BYTES

TRUTH = np.arange(6.0)


class LeastSquares(Algorithm):
    """Counts in a block's state how often it was computed on."""

    def init(self, rng: np.random.Generator) -> Mapping[str, Array]:
        return {"weights": rng.normal(size=len(TRUTH))}

    def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:
        block.state["seen"] = block.state.get("seen", np.zeros(1)) + 1
        x, y = block.data["x"], block.data["y"]
        return {"weights": -0.1 * x.T @ (x @ params["weights"] - y) / len(y)}

    def objective(self, block: DataBlock, params: Mapping[str, Array]) -> float:
        return float(np.square(block.data["x"] @ params["weights"] - block.data["y"]).sum())


class SparseLeastSquares(LeastSquares):
    """The same; each block has two of the features, and pulls these rows only."""

    def needs(self, block: DataBlock) -> Mapping[str, Array | None]:
        return {"weights": block.data["features"]}


def dense_blocks(count: int = 5) -> list[DataBlock]:
    rng = np.random.default_rng(1)
    made = []
    for i in range(count):
        x = rng.normal(size=(20, len(TRUTH)))
        made.append(DataBlock(f"block {i}", {"x": x, "y": x @ TRUTH}))
    return made


def sparse_blocks() -> list[DataBlock]:
    rng = np.random.default_rng(2)
    made = []
    for i in range(len(TRUTH)):
        features = np.array(sorted({i, (i + 2) % len(TRUTH)}))
        x = rng.normal(size=(20, 2))
        made.append(DataBlock(f"features {features}", {"features": features, "x": x, "y": x @ TRUTH[features]}))
    return made


class LazyBlocks(Sequence[DataBlock]):
    """Blocks that are made when they are asked for."""

    def __init__(self, count: int, size: int) -> None:
        self._count, self._size = count, size
        self.total_bytes = count * size

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: Any) -> DataBlock:
        return DataBlock(f"block {i}", {"x": np.full(self._size // 8, float(i))})


class Mean(Algorithm):
    def init(self, rng: np.random.Generator) -> Mapping[str, Array]:
        del rng
        return {"mean": np.zeros(1)}

    def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:
        state = block.state.setdefault("seen", np.zeros(len(block.data["x"]) // 2))
        state += 1
        return {"mean": np.array([block.data["x"].mean() - params["mean"][0] + state[-1]])}

    def objective(self, block: DataBlock, params: Mapping[str, Array]) -> float:
        return float(block.data["x"][0] + params["mean"][0] + block.state["seen"].mean())


class Counters(Algorithm):
    """A large model of which each block has a part: too large for the memory of a test."""

    def __init__(self, rows: int, parts: int) -> None:
        self.rows, self.parts = rows, parts

    def init(self, rng: np.random.Generator) -> Mapping[str, Array]:
        del rng
        return {"counts": np.zeros((self.rows, 256))}

    def needs(self, block: DataBlock) -> Mapping[str, Array | None]:
        first = self.rows * int(block.data["x"][0]) // self.parts
        return {"counts": np.arange(first, first + self.rows // self.parts)}

    def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"counts": np.full_like(params["counts"], 1 + block.data["x"][0])}

    def objective(self, block: DataBlock, params: Mapping[str, Array]) -> float:
        del block
        return float(params["counts"].sum())


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def on_hosts(hosts: int, run: Callable[[LaunchVariables], Trained], **launch: Any) -> list[Trained | BaseException]:
    """Run the same on so many hosts, each a thread of this process; they talk by TCP as real ones do."""
    found: list[Any] = [None] * hosts
    master = ("127.0.0.1", free_port())

    def host(number: int) -> None:
        try:
            found[number] = run(LaunchVariables(number, hosts, master, **launch))
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=host, args=(number,)) for number in range(hosts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def trained(algorithm: Algorithm, blocks: list[DataBlock], **options: Any) -> Trained:
    return train(algorithm, blocks, launch=LaunchVariables(), **{"workers": 2, "epochs": 5, **options})


def hosts_train(hosts: int, algorithm: type[Algorithm], blocks: Any, launch: Any = None, **options: Any) -> Any:
    def run(at: LaunchVariables) -> Trained:
        return train(algorithm(), blocks(), launch=at, **{"workers": 2, "epochs": 5, **options})

    return on_hosts(hosts, run, **(launch or {}))


class Large(LeastSquares):
    """A model of four chunks; nothing is computed."""

    def init(self, rng: np.random.Generator) -> Mapping[str, Array]:  # noqa: ARG002
        return {"weights": np.zeros(4 * CHUNK_BYTES // 8)}

    def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:  # noqa: ARG002
        return {"weights": params["weights"] + 1}

    def objective(self, block: DataBlock, params: Mapping[str, Array]) -> float:  # noqa: ARG002
        return float(params["weights"].sum() / len(params["weights"]))
