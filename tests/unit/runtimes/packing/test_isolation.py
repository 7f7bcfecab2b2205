"""Whatever is packed with it, a model becomes what it becomes alone: bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from solo import Recipe, alone, data, same, training
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from hocket.pack import ModelCheckpoint, Pack, Training

MIXED = (
    Recipe("plain"),
    Recipe("dropout", kind="dropout", data_seed=None, seed=5),
    Recipe("norm", kind="norm", optimiser="adam", schedule="cosine", batch=5),
    Recipe("conv", kind="conv", optimiser="rmsprop", schedule="epoch", batch=16),
    Recipe("accumulates", hidden=8, accumulate=3, clip=0.5, schedule="step"),
    Recipe("bf16", autocast=torch.bfloat16, optimiser="adagrad"),
    Recipe("fp16", scaler=True, autocast=torch.float16, clip=1.0),
    Recipe("short", kind="dropout", optimiser="adamw", steps=5, drop_last=True, batch=12),
)


def optimiser_state(optimiser: torch.optim.Optimizer) -> list[torch.Tensor]:
    states = optimiser.state_dict()["state"].values()
    return [v for state in states for v in state.values() if isinstance(v, torch.Tensor)]


def assert_as_alone(recipe: Recipe, freed: ModelCheckpoint) -> None:
    model, optimiser = alone(recipe, data(recipe.examples))
    assert not freed.failed, freed.reason
    assert freed.step == recipe.steps
    assert same(model, freed.state["module"]), f"{recipe} has other weights than alone"
    states = freed.state["optimiser"]["state"].values()
    packed = [v for state in states for v in state.values() if isinstance(v, torch.Tensor)]
    assert all(torch.equal(a, b) for a, b in zip(optimiser_state(optimiser), packed, strict=True))


@pytest.mark.parametrize("mode", ["turn", "joint"])
def test_every_feature_of_training_gives_the_solo_runs_weights(mode: str) -> None:
    examples, pack = data(), Pack(mode=mode)
    for recipe in MIXED:
        pack.load(training(recipe, examples))
    by_name = {recipe.name: recipe for recipe in MIXED}
    for freed in pack.run():
        assert_as_alone(by_name.pop(freed.name), freed)
    assert not by_name


@st.composite
def recipes(draw: Any) -> Recipe:
    return Recipe(
        hidden=draw(st.sampled_from([4, 8])),
        kind=draw(st.sampled_from(["plain", "plain", "dropout", "norm", "conv"])),
        optimiser=draw(st.sampled_from(["sgd", "plain_sgd", "nesterov", "adam", "adamw", "rmsprop", "adagrad"])),
        rate=draw(st.sampled_from([0.1, 0.03])),
        schedule=draw(st.sampled_from(["none", "step", "cosine", "epoch"])),
        batch=draw(st.sampled_from([4, 5, 8, 16])),
        steps=draw(st.integers(1, 9)),
        seed=draw(st.integers(0, 3)),
        data_seed=draw(st.sampled_from([None, 3, 3, 4])),
        drop_last=draw(st.booleans()),
        shuffle=draw(st.booleans()),
        clip=draw(st.sampled_from([None, None, 0.3])),
        accumulate=draw(st.sampled_from([1, 1, 2])),
        autocast=draw(st.sampled_from([None, None, None, torch.bfloat16])),
    )


@pytest.mark.long
@settings(
    max_examples=50,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    mixture=st.lists(recipes(), min_size=5, max_size=5),
    entering=st.lists(st.integers(0, 6), min_size=5, max_size=5),
    leaving=st.lists(st.none() | st.integers(0, 7), min_size=5, max_size=5),
    mode=st.sampled_from([None, "turn", "joint"]),
)
def test_mixtures_that_enter_and_leave_are_bitwise_as_alone(
    mixture: list[Recipe], entering: list[int], leaving: list[int | None], mode: str | None
) -> None:
    """Five models; each enters at some step, and some leave at some step and come back from their checkpoint later."""
    examples, pack = data(), Pack(mode=mode, exact=True)
    named = {f"m{k}": replace(recipe, name=f"m{k}") for k, recipe in enumerate(mixture)}
    order = sorted(named, key=lambda name: entering[int(name[1:])])
    waiting: list[tuple[str, ModelCheckpoint | None]] = [(name, None) for name in order]
    now, ended = 0, {}
    torch.manual_seed(99)
    while waiting or pack.members:
        while waiting and (entering[int(waiting[0][0][1:])] <= now or not pack.members):
            name, checkpoint = waiting.pop(0)
            pack.load(training(named[name], examples), checkpoint)
        outside = torch.default_generator.get_state()
        pack.step()
        assert torch.equal(outside, torch.default_generator.get_state()), "the caller's generator was used"
        ended.update({freed.name: freed for freed in pack.take_freed()})
        for name in [n for n in pack.members if leaving[int(n[1:])] == now]:
            waiting.append((name, pack.free(name)))
        now += 1
    assert ended.keys() == named.keys()
    for name, freed in ended.items():
        assert_as_alone(named[name], freed)


@pytest.mark.parametrize("key", ["rng", "dice"])  # the second is of earlier versions
def test_a_checkpoint_on_disk_goes_on_as_if_there_had_been_no_break(tmp_path: Any, key: str) -> None:
    recipe = Recipe("m", kind="dropout", optimiser="adam", schedule="cosine", data_seed=None, steps=14)
    pack = Pack()
    pack.load(training(recipe, data()))
    for _ in range(7):
        pack.step()
    left = pack.free("m")
    left.state[key] = left.state.pop("rng")
    left.save(tmp_path / "m.pt")
    saved = ModelCheckpoint.read(tmp_path / "m.pt")
    assert saved.step == 7
    other = Pack()
    other.load(training(recipe, data()), saved)
    (freed,) = other.run()
    assert_as_alone(recipe, freed)


def test_models_that_draw_from_python_and_numpy_keep_their_own_numbers() -> None:
    import random

    import numpy as np
    from torch import nn

    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layer(x * (1 + 0.1 * random.random()) + 0.1 * float(np.random.rand()))
            return out

    def trained(beside: int) -> dict[str, Tensor]:
        pack = Pack()
        for k in range(1 + beside):
            torch.manual_seed(4)
            made = training(Recipe(f"m{k}", steps=9), data())
            made.module, made.optimiser = Noisy(), lambda p: torch.optim.SGD(p, 0.1)
            pack.load(made)
        found: dict[str, Tensor] = {c.name: c for c in pack.run()}["m0"].state["module"]
        return found

    assert all(torch.equal(a, b) for a, b in zip(trained(0).values(), trained(3).values(), strict=True))


def test_primitives_load_pack_and_free() -> None:
    from hocket.pack import free, load, pack

    examples = data()
    first, second = (load(training(Recipe(name, steps=20), examples)) for name in "ab")
    together = pack([first, second], mode="turn")
    for _ in range(4):
        together.step()
    freed = free(second)
    assert freed.step == 4
    assert same(alone(Recipe("b", steps=4), examples)[0], freed.state["module"])
    assert list(together.members) == ["a"]


class OwnGenerator(nn.Module):
    """Draws from a generator that no checkpoint has."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.generator = nn.Linear(6, 1), torch.Generator().manual_seed(0)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x * (torch.rand(x.shape, generator=self.generator) > 0.5))


@pytest.mark.parametrize("exact", [True, False])
def test_exact_refuses_a_model_whose_steps_cannot_be_repeated(exact: bool) -> None:
    examples = TensorDataset(torch.randn(32, 6), torch.randn(32, 1))
    pack = Pack(exact=exact)
    for name, module in (("drawing", OwnGenerator()), ("plain", nn.Linear(6, 1))):
        optimiser = torch.optim.SGD(module.parameters(), 0.01)
        pack.load(Training(name, module, optimiser, DataLoader(examples, 8), 12, loss=nn.MSELoss(), seed=1))
    ended = {checkpoint.name: checkpoint for checkpoint in pack.run()}
    assert not ended["plain"].failed
    assert ended["plain"].reason == "all 12 steps are made"
    assert ended["drawing"].failed == exact
    if exact:
        assert "it cannot be trained exactly: two steps from the same state differ by up to" in ended["drawing"].reason
