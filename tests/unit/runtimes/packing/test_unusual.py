"""Models that are not like most: hooks, tied weights, closures, Python state, data that draw. Each still as alone.

On a machine with a GPU all of it runs there, and captured as well.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from hocket.pack import Pack, Refused, Training
from hocket.runtimes.packing.dry_run import need_of

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CAPTURED = ["graphs", "graph"] if DEVICE.type == "cuda" else []
X = torch.randn(44, 6, generator=torch.Generator().manual_seed(1))
Y = (X.sum(1) > 0).long()


class Examples(Dataset[Any]):
    """`draws`: which examples are disturbed by whose random numbers."""

    def __init__(self, draws: Callable[[int], float] | None = None) -> None:
        self._draws = draws

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return X[index] + (0.0 if self._draws is None else self._draws(index)), Y[index]


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


def loader(dataset: Dataset[Any] | None = None, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset or Examples(), 8, shuffle=True, **options)


@dataclass(frozen=True)
class Case:
    """How to make one training, again and again alike."""

    module: Callable[[], nn.Module] = plain
    optimiser: Callable[[Any], Any] = lambda p: torch.optim.SGD(p, 0.05, momentum=0.9)
    data: Callable[[], DataLoader[Any]] = loader
    steps: int = 9


def alone(case: Case) -> dict[str, Tensor]:
    """The plain loop."""
    torch.manual_seed(100)
    module = case.module().to(DEVICE)
    optimiser, data, loss_of = case.optimiser(module.parameters()), case.data(), nn.CrossEntropyLoss()
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)

    def forever() -> Iterator[Any]:
        while True:
            yield from data

    batches = forever()
    for _ in range(case.steps):
        inputs, targets = (part.to(DEVICE) for part in next(batches))

        def closure(inputs: Tensor = inputs, targets: Tensor = targets) -> Tensor:
            optimiser.zero_grad()
            loss: Tensor = loss_of(module(inputs), targets)
            loss.backward()
            return loss

        if isinstance(optimiser, torch.optim.LBFGS):
            optimiser.step(closure)
        else:
            closure()
            optimiser.step()
    return module.state_dict()


@cache
def plain_alone(steps: int) -> dict[str, Tensor]:
    """The plain models beside the case: to be read only."""
    return alone(Case(steps=steps))


def training(name: str, case: Case) -> Training:
    torch.manual_seed(100)
    return Training(name, case.module(), case.optimiser, case.data(), case.steps, loss=nn.CrossEntropyLoss(), seed=0)


def packed(case: Case, mode: str, breaks: bool = True) -> dict[str, dict[str, Tensor]]:
    """Two of the case and two plain models; with `breaks`, one of the case leaves for a step and comes back."""
    pack, ended = Pack(DEVICE, mode=mode, exact=mode in CAPTURED), {}
    for name in ("one", "other"):
        pack.load(training(name, case))
    for name in ("plain", "plain too"):
        pack.load(training(name, Case(steps=case.steps)))
    for _ in range(4):
        pack.step()
    if breaks:
        left = pack.free("other")
        pack.step()
        pack.load(training("other", case), left)
    for freed in pack.run():
        assert not freed.failed, freed.reason
        ended[freed.name] = freed.state["module"]
    return ended


def assert_as_alone(case: Case, mode: str, breaks: bool = True, within: float = 0.0) -> None:
    ended = packed(case, mode, breaks)
    expected, expected_of_plain = alone(case), plain_alone(case.steps)
    for name, weights in ended.items():
        for key, value in (expected_of_plain if name.startswith("plain") else expected).items():
            assert torch.allclose(value.cpu(), weights[key].cpu(), rtol=within, atol=within), f"{key} of {name}"


# -- what stacked weights do not do -------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(torch.relu(self.second(torch.relu(self.first(x)))))
        return out


def frozen() -> nn.Module:
    module = plain()
    module.get_parameter("0.weight").requires_grad_(False)
    return module


def forward_hook() -> nn.Module:
    module = plain()
    module.get_submodule("0").register_forward_hook(lambda _module, _inputs, output: output * 2)
    return module


def pre_hook() -> nn.Module:
    module = plain()
    module.get_submodule("2").register_forward_pre_hook(lambda _module, inputs: (inputs[0] + 1,))
    return module


def backward_hook() -> nn.Module:
    module = plain()
    module.get_submodule("2").register_full_backward_hook(lambda _module, given, _output: (given[0] * 2,))
    return module


def gradient_hook() -> nn.Module:
    module = plain()
    module.get_parameter("0.weight").register_hook(lambda gradient: gradient * 0.5)
    return module


def patched() -> nn.Module:
    module = plain()
    layer = module.get_submodule("0")
    layer.forward = lambda x: nn.functional.linear(x, layer.weight * 2, layer.bias)  # type: ignore[assignment,arg-type]
    return module


def some_parameters(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(list(parameters)[:2], 0.05, momentum=0.9)


def with_a_hook(parameters: Any) -> torch.optim.Optimizer:
    optimiser = torch.optim.SGD(parameters, 0.05, momentum=0.9)

    def smaller(chosen: torch.optim.Optimizer, *_: object) -> None:
        with torch.no_grad():
            for parameter in chosen.param_groups[0]["params"]:
                parameter.mul_(0.9)

    optimiser.register_step_post_hook(smaller)
    return optimiser


@pytest.mark.parametrize(
    "case",
    [
        *(Case(make) for make in (Tied, frozen, forward_hook, pre_hook, backward_hook, gradient_hook, patched)),
        *(Case(optimiser=make) for make in (some_parameters, with_a_hook)),
    ],
    ids=lambda case: (case.module if case.module is not plain else case.optimiser).__name__,
)
@pytest.mark.parametrize("mode", ["joint", "fused", *CAPTURED])
def test_what_is_more_than_plain_layers_is_trained_as_alone_and_so_are_plain_models_beside_it(
    case: Case, mode: str
) -> None:
    assert_as_alone(case, mode, within=1e-5 if mode == "fused" else 0.0)


# -- Python state -------------------------------------------------------------------------------------------


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = nn.Linear(6, 2), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out: Tensor = self.layer(x) * (1 + 0.01 * self.calls)
        return out


@pytest.mark.parametrize("mode", ["turn", "joint", "fused", *CAPTURED])
def test_a_module_that_counts_its_calls_is_called_as_often_as_alone(mode: str) -> None:
    assert_as_alone(Case(Counts), mode, breaks=False, within=1e-5 if mode == "fused" else 0.0)


def test_a_module_with_state_of_its_own_in_python_goes_in_turn_and_says_why() -> None:
    pack = Pack(DEVICE, mode="joint")
    for name in ("one", "other"):
        pack.load(training(name, Case(Counts)))
    pack.step()
    pack.step()
    assert "'calls'" in pack.refusals()["one"]


# -- optimisers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["turn", "joint", "fused", *CAPTURED])
@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_an_optimiser_that_evaluates_the_loss_several_times_a_step_is_served(mode: str, search: str | None) -> None:
    case = Case(optimiser=lambda p: torch.optim.LBFGS(p, 0.1, max_iter=4, line_search_fn=search))
    assert_as_alone(case, mode, within=1e-5 if mode == "fused" else 0.0)


def test_an_optimiser_with_a_closure_that_fails_in_the_middle_leaves_the_weights_as_they_were() -> None:
    class Breaks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 2)
            self.at = [0]

        def forward(self, x: Tensor) -> Tensor:
            self.at[0] += 1
            if self.at[0] == 30:
                raise RuntimeError("the thirtieth call")
            out: Tensor = self.layer(x)
            return out

    pack = Pack(DEVICE, keep_every=None)
    case = Case(Breaks, optimiser=lambda p: torch.optim.LBFGS(p, 0.1))
    pack.load(training("one", case))
    (freed,) = pack.run()
    assert freed.failed
    expected = alone(Case(lambda: Breaks(), optimiser=case.optimiser, steps=freed.step))
    assert all(torch.equal(value.cpu(), freed.state["module"][key].cpu()) for key, value in expected.items())


def test_a_closure_and_a_scaler_do_not_go_together() -> None:
    made = training("one", Case(optimiser=lambda p: torch.optim.LBFGS(p)))
    made.scaler = torch.amp.GradScaler(DEVICE.type)
    with pytest.raises(Refused, match=r"'one'.*LBFGS.*scaler"):
        Pack(DEVICE).load(made)


@pytest.mark.parametrize(
    ("optimiser", "times"),
    [
        (lambda p: torch.optim.ASGD(p), 1),
        (lambda p: torch.optim.LBFGS(p, history_size=3), 6),
        (lambda p: torch.optim.SparseAdam(p), 2),
    ],
    ids=["asgd", "lbfgs", "sparse"],
)
def test_optimisers_that_cannot_be_run_without_numbers_are_weighed_all_the_same(optimiser: Any, times: int) -> None:
    made = training("one", Case(optimiser=optimiser))
    weights = sum(p.numel() * p.element_size() for p in made.module.parameters())
    need = need_of(made, (torch.empty(8, 6), torch.empty(8, dtype=torch.int64)), DEVICE)
    assert need.optimiser >= times * weights
    Pack(DEVICE, memory_mib=1000).load(made)


# -- data that draw -----------------------------------------------------------------------------------------


def from_torch(index: int) -> float:
    return float(torch.rand(())) if index % 3 == 0 else 0.0


def from_numpy(_index: int) -> float:
    return float(np.random.rand())


def from_python(_index: int) -> float:
    return random.random()


@pytest.mark.parametrize("draws", [from_torch, from_numpy, from_python])
@pytest.mark.parametrize(("workers", "seed"), [(0, None), (2, 5), pytest.param(2, None, marks=pytest.mark.long)])
def test_data_that_draw_are_each_models_own_with_and_without_workers(
    draws: Callable[[int], float], workers: int, seed: int | None
) -> None:
    shared = Examples(draws)

    def made() -> DataLoader[Any]:
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        return loader(shared, num_workers=workers, generator=generator)

    assert_as_alone(Case(data=made, steps=8), "turn")  # Each epoch, of five steps, starts workers of its own.


def test_workers_that_draw_late_and_seldom_are_noticed_then() -> None:
    shared = Examples(lambda index: float(torch.rand(())) if index == 7 else 0.0)
    assert_as_alone(Case(data=lambda: loader(shared, num_workers=2), steps=14), "turn")


@pytest.mark.parametrize("breaks", [True, False])
def test_persistent_workers_go_on_in_the_next_epoch_as_alone(breaks: bool) -> None:
    shared = Examples()
    assert_as_alone(Case(data=lambda: loader(shared, num_workers=1, persistent_workers=True), steps=13), "turn", breaks)


def test_one_loader_with_persistent_workers_serves_several_models_that_draw() -> None:
    shared = loader(Examples(from_torch), num_workers=1, persistent_workers=True)
    case = Case(data=lambda: shared, steps=8)
    ended = packed(case, "turn", breaks=False)
    expected = alone(Case(data=lambda: loader(Examples(from_torch), num_workers=1, persistent_workers=True), steps=8))
    for name in ("one", "other"):
        assert all(torch.equal(value.cpu(), ended[name][key].cpu()) for key, value in expected.items())


# -- two that are one ---------------------------------------------------------------------------------------


def test_modules_whose_parameters_share_memory_are_refused() -> None:
    pack, first, second = Pack(DEVICE), training("one", Case()), training("other", Case())
    first.module.to(DEVICE)  # Brought there by itself it would share nothing any more.
    second.module.get_submodule("0").weight = nn.Parameter(first.module.get_parameter("0.weight").data)
    pack.load(first)
    with pytest.raises(Refused, match="'other' shares parameters with 'one'"):
        pack.load(second)


def test_a_model_that_is_loaded_is_not_loaded_again_by_itself() -> None:
    from hocket.pack import free, load

    made = training("one", Case())
    member = load(made)
    with pytest.raises(Refused, match="'one' is loaded already"):
        load(made)
    made = training("other", Case())
    made.module = member.module
    with pytest.raises(Refused, match="'other' shares parameters with 'one'"):
        load(made)
    free(member)
    free(load(training("one", Case())))


def test_an_unreachable_model_leaves_the_memory() -> None:
    from hocket.pack import load

    member = load(training("one", Case()))
    module, gone = member.module, ref(member)
    del member
    gc.collect()
    assert gone() is None
    made = training("again", Case())
    made.module = module
    load(made)
