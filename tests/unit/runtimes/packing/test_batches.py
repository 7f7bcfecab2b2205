"""One input stream for all models that share data, and for each exactly the batches of its own loader."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from solo import CPU, Recipe, data, loader, training
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from hocket.pack import Pack
from hocket.runtimes.packing import device_datasets
from hocket.runtimes.packing.batches import OwnBatches, SharedBatches, batch_source_of
from hocket.runtimes.packing.shared_reading import SharedReader


class Counted(Dataset[Any]):
    """Counts how often an example is read."""

    def __init__(self, examples: int = 40) -> None:
        self.inner, self.reads = data(examples), 0

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        return self.inner[index]


class Augmented(Counted):
    """Reading draws random numbers."""

    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return x + torch.randn(()), y


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 20), min_size=2, max_size=5),
    drop_last=st.booleans(),
    shuffle=st.booleans(),
    steps=st.integers(1, 30),
)
def test_batches_of_any_sizes_are_those_of_the_loader_alone(
    sizes: list[int], drop_last: bool, shuffle: bool, steps: int
) -> None:
    examples, reader = data(), SharedReader(CPU)
    chosen = [Recipe(batch=size, drop_last=drop_last, shuffle=shuffle) for size in sizes]
    feeds = [batch_source_of("m", loader(recipe, examples), reader) for recipe in chosen]
    alone = [iter(loader(recipe, examples)) for recipe in chosen]
    loaders = [loader(recipe, examples) for recipe in chosen]
    alone = [iter(each) for each in loaders]
    for _ in range(steps):
        for k, feed in enumerate(feeds):
            expected = next(alone[k], None)
            if expected is None:
                alone[k] = iter(loaders[k])
                expected = next(alone[k])
            value = feed.next().value
            assert torch.equal(value[0], expected[0])
            assert torch.equal(value[1], expected[1])


def test_what_several_models_read_is_read_once() -> None:
    examples = Counted()
    pack = Pack(mode="turn")
    for k in range(6):
        made = training(Recipe(f"m{k}", steps=25, batch=8), data())
        made.data = DataLoader(examples, 8, shuffle=True, generator=torch.Generator().manual_seed(1))
        pack.load(made)
    for _ in pack.run():
        pass
    # 25 steps of 8 are five epochs; beyond that, each model reads its very first batch by itself.
    assert examples.reads <= 5 * 40 + 6 * 8, f"{examples.reads} reads of 40 examples in 5 epochs by 6 models"


def test_batches_of_one_order_have_one_token_and_one_memory() -> None:
    reader, examples = SharedReader(CPU), data()
    feeds = [batch_source_of("m", loader(Recipe(batch=8), examples), reader) for _ in range(2)]
    for feed in feeds:
        feed.next()  # Each looks for itself whether reading draws random numbers.
    one, other = (feed.next() for feed in feeds)
    assert one.token == other.token is not None
    assert one.value[0].data_ptr() == other.value[0].data_ptr()


def test_another_order_is_not_shared() -> None:
    reader, examples = SharedReader(CPU), data()
    feeds = [batch_source_of("m", loader(Recipe(batch=8, data_seed=seed), examples), reader) for seed in (1, 2)]
    for feed in feeds:
        feed.next()
    assert feeds[0].next().token != feeds[1].next().token


def test_a_data_set_that_draws_is_read_by_each_model_with_its_own_generators() -> None:
    def weights(beside: int) -> dict[str, Tensor]:
        examples, pack = Augmented(), Pack(mode="turn")
        for k in range(1 + beside):
            made = training(Recipe(f"m{k}", steps=12, seed=k, batch=5 + 3 * k), data())
            made.data = DataLoader(examples, 5 + 3 * k, shuffle=True)
            pack.load(made)
        found: dict[str, Tensor] = {c.name: c for c in pack.run()}["m0"].state["module"]
        return found

    alone, packed = weights(0), weights(3)
    assert all(torch.equal(alone[key], packed[key]) for key in alone)


def test_a_loader_given_to_several_models_serves_each_from_its_beginning() -> None:
    examples = data()
    common = loader(Recipe(batch=8), examples)
    reader = SharedReader(CPU)
    feeds = [batch_source_of("m", common, reader) for _ in range(3)]
    first = [feed.next().value[0] for feed in feeds]
    expected = next(iter(loader(Recipe(batch=8), examples)))[0]
    assert all(torch.equal(batch, expected) for batch in first)


def test_a_custom_collate_is_shared_by_equal_batches_only() -> None:
    def padded(items: list[Any]) -> Any:
        return torch.stack([x for x, _ in items]) * 2, torch.stack([y for _, y in items])

    reader, examples = SharedReader(CPU), data()
    feeds = [
        batch_source_of("m", DataLoader(examples, size, collate_fn=padded), reader) for size in (8, 8, 5)
    ]  # fmt: skip
    for feed in feeds:
        feed.next()
    tokens = [feed.next() for feed in feeds]
    assert tokens[0].token == tokens[1].token
    assert tokens[2].token != tokens[0].token
    assert torch.equal(tokens[2].value[0], examples.tensors[0][5:10] * 2)


def test_plain_lists_of_batches_go_round() -> None:
    batches = [(torch.ones(2, 6) * k, torch.zeros(2, dtype=torch.int64)) for k in range(3)]
    feed = batch_source_of("m", batches, SharedReader(CPU))
    assert isinstance(feed, OwnBatches)
    assert [int(feed.next().value[0][0, 0]) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.slow
def test_worker_processes_read_ahead_for_all() -> None:
    examples, reader = data(), SharedReader(CPU)
    feed = batch_source_of("m", DataLoader(examples, 8, num_workers=1), reader)
    assert isinstance(feed, SharedBatches)
    got = torch.cat([feed.next().value[0] for _ in range(5)])
    assert torch.equal(got, examples.tensors[0])


def test_a_feed_goes_on_where_its_state_was_read() -> None:
    for examples in (data(), Augmented()):
        reader = SharedReader(CPU)
        torch.manual_seed(0)
        feed = batch_source_of("m", loader(Recipe(batch=8), examples), reader)  # type: ignore[arg-type]
        for _ in range(7):
            feed.next()
        state, dice = feed.state(), torch.get_rng_state()
        expected = [feed.next().value[0] for _ in range(6)]
        other = batch_source_of("m", loader(Recipe(batch=8), examples), SharedReader(CPU))  # type: ignore[arg-type]
        other.restore(state)
        torch.set_rng_state(dice)
        assert all(torch.equal(other.next().value[0], batch) for batch in expected)


def test_tensor_data_sets_are_gathered_as_they_would_be_collated() -> None:
    examples = TensorDataset(torch.randn(10, 2, 3), torch.arange(10))
    feed = batch_source_of("m", DataLoader(examples, 4), SharedReader(CPU))
    (x, y), (again, _) = feed.next().value, next(iter(DataLoader(examples, 4)))
    assert torch.equal(x, again)
    assert y.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("order", [("own", "outside"), ("outside", "own")], ids=" first, then ".join)
def test_a_loaders_own_generator_is_not_taken_for_the_global_one_in_the_same_state(order: tuple[str, str]) -> None:
    reader, examples = SharedReader(CPU), data()
    recipes = {"own": Recipe(batch=8, data_seed=3), "outside": Recipe(batch=8, data_seed=None)}
    expected = {}
    for name, recipe in recipes.items():
        torch.manual_seed(3)
        alone = loader(recipe, examples)
        expected[name] = [batch[0] for _ in range(3) for batch in alone]
    torch.manual_seed(3)
    states = dict.fromkeys(recipes, torch.default_generator.get_state())
    feeds = {name: batch_source_of(name, loader(recipes[name], examples), reader) for name in order}
    for step in range(12):
        for name in order:
            torch.default_generator.set_state(states[name])
            value = feeds[name].next().value[0]
            states[name] = torch.default_generator.get_state()
            assert torch.equal(value, expected[name][step]), f"{name}, batch {step}"


def test_slices_stand_where_fresh_tensors_would() -> None:
    """Libraries choose their arithmetic by addresses: a slice at an odd one could give other bits."""
    reader, examples = SharedReader(CPU), data(40, inputs=7)
    feeds = [batch_source_of("m", loader(Recipe(batch=size, shuffle=False), examples), reader) for size in (3, 8)]
    for _ in range(12):
        for feed in feeds:
            assert all(tensor.data_ptr() % 64 == 0 for tensor in feed.next().aligned())


def test_a_data_set_that_is_written_to_is_read_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_datasets, "_brought", lambda tensor, _device: tensor.clone())  # as to another device
    examples = TensorDataset(torch.zeros(16, 2), torch.zeros(16, dtype=torch.int64))
    there, rows = device_datasets.DeviceDataset(examples, CPU), torch.arange(4)
    assert float(there.gathered(rows)[0].max()) == 0.0
    kept = there.tensors
    there.gathered(rows)
    assert there.tensors is kept, "copied again for nothing"
    examples.tensors[0].fill_(5.0)
    assert float(there.gathered(rows)[0].min()) == 5.0
