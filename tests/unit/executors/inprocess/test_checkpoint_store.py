"""Where models wait between two stretches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hocket.executors.inprocess.checkpoint_store import CheckpointStore, MemoryBudget
from hocket.runtimes.packing.checkpoint import ModelCheckpoint

SIZE = 400  # bytes of a model


class OnGpu:
    """Speaks as a model on a GPU does, and writes down where it was copied to: no GPU is needed to count bytes."""

    device = torch.device("cuda", 0)

    def __init__(self, name: str, breaks: bool = False) -> None:
        self.name, self._breaks = name, breaks
        self.places: list[str] = []

    def state(self) -> dict[str, Any]:
        return {"module": {"w": torch.zeros(SIZE // 4)}, "optimiser": {"state": {}}}

    def checkpoint(self, reason: str, place: torch.device = torch.device("cpu")) -> ModelCheckpoint:
        if self._breaks and place.type == "cuda":
            raise torch.OutOfMemoryError
        self.places.append(place.type)
        return ModelCheckpoint(self.name, 1, reason, {**self.state(), "loss": None})


def put(store: CheckpointStore, name: str, **how: Any) -> str:
    model: Any = OnGpu(name, **how)
    store.put(model, "waits")
    return str(model.places[-1])


def test_models_wait_on_their_device_while_there_is_space_and_on_the_host_then() -> None:
    budget = MemoryBudget(2 * SIZE)
    store = CheckpointStore(None, budget)
    assert [put(store, name) for name in "abc"] == ["cuda", "cuda", "cpu"]
    assert budget.taken == 2 * SIZE
    store.drop("a")
    assert put(store, "d") == "cuda"
    assert budget.taken == 2 * SIZE
    for name in "bcd":
        assert store.get(name) is not None
        store.drop(name)
    assert (budget.taken, store.get("d")) == (0, None)


def test_a_model_that_comes_again_takes_its_space_once() -> None:
    budget = MemoryBudget(3 * SIZE)
    store = CheckpointStore(None, budget)
    for _ in range(5):
        assert put(store, "a") == "cuda"
    assert budget.taken == SIZE


def test_where_the_device_has_no_memory_left_a_model_waits_on_the_host() -> None:
    budget = MemoryBudget(10 * SIZE)
    store = CheckpointStore(None, budget)
    assert put(store, "a", breaks=True) == "cpu"
    assert (budget.taken, store.get("a") is not None) == (0, True)


@pytest.mark.parametrize("again", [False, True], ids=["same process", "after a kill"])
def test_what_shall_survive_a_kill_is_on_disk(again: bool, tmp_path: Path) -> None:
    budget = MemoryBudget(10 * SIZE)
    store = CheckpointStore(tmp_path, budget)
    assert put(store, "a") == "cpu"
    found = (CheckpointStore(tmp_path) if again else store).get("a")
    assert found is not None
    assert (found.name, found.reason, budget.taken) == ("a", "waits", 0)
