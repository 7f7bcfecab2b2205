"""Ways of running: what each takes, how near it stays to the solo run, and how one is chosen."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from solo import Recipe, alone, data, training
from torch import nn

from hocket.pack import Pack
from hocket.runtimes.packing.certificate import compared, ulps
from hocket.runtimes.packing.choosing import TIMED, WARM, Chooser
from hocket.runtimes.packing.memory import need_of
from hocket.runtimes.packing.networks import NETWORKS, mlp3
from hocket.runtimes.packing.ways.stack import NotStackable, plan_of


def packed(way: str, recipes: list[Recipe]) -> tuple[Pack, dict[str, Any]]:
    pack, examples = Pack(way=way), data()
    for recipe in recipes:
        pack.load(training(recipe, examples))
    return pack, {c.name: c for c in pack.run()}


@pytest.mark.parametrize("kind", ["plain", "dropout", "norm"])
@pytest.mark.parametrize("optimiser", ["plain_sgd", "sgd", "nesterov", "adam", "adamw", "rmsprop"])
@pytest.mark.parametrize("same_rates", [True, False])
def test_fused_models_stay_near_their_solo_runs(kind: str, optimiser: str, same_rates: bool) -> None:
    recipes = [
        Recipe(f"m{k}", kind=kind, optimiser=optimiser, seed=k, rate=0.05 if same_rates else 0.02 * (k + 1), steps=15)
        for k in range(3)
    ]
    pack, ended = packed("fused", recipes)
    assert pack.certificates.keys() == {"m0", "m1", "m2"}, "nothing was fused"
    for recipe in recipes:
        assert pack.certificates[recipe.name].max_scaled < 1e-5
        model, _ = alone(recipe, data())
        for key, value in model.state_dict().items():
            assert torch.allclose(value, ended[recipe.name].state["module"][key], rtol=1e-4, atol=1e-5), key


def test_weights_are_the_models_own_again_when_they_leave_a_stack() -> None:
    pack, examples = Pack(way="fused"), data()
    members = [pack.load(training(Recipe(f"m{k}", seed=k, steps=50), examples)) for k in range(3)]
    for _ in range(5):
        pack.step()
    first = members[0].parameters[0]
    assert first.untyped_storage().data_ptr() == members[1].parameters[0].untyped_storage().data_ptr(), "not stacked"
    freed = pack.free("m0")
    assert first.untyped_storage().nbytes() == first.numel() * 4
    before = {k: v.clone() for k, v in freed.state["module"].items()}
    pack.step()
    assert all(torch.equal(before[k], v) for k, v in freed.state["module"].items())


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (nn.Sequential(nn.Conv2d(1, 1, 3)), "it has no linear layer"),
        (nn.Bilinear(2, 2, 2), "traced|inputs|calls"),
    ],
    ids=["conv", "bilinear"],
)
def test_what_cannot_be_stacked_says_why(module: nn.Module, why: str) -> None:
    with pytest.raises(NotStackable, match=why):
        plan_of(module)


def test_ulps_count_the_numbers_between() -> None:
    one = torch.tensor([1.0, -1.0, 0.0, 1.0])
    other = torch.tensor([1.0, -1.0, -0.0, 1.0 + 3 * torch.finfo(torch.float32).eps])
    assert ulps(one, other).tolist() == [0, 0, 0, 3]
    tiny = torch.tensor([torch.finfo(torch.float32).smallest_normal / 2**23])
    assert ulps(tiny, -tiny).tolist() == [2]
    found = compared("x", 1, [one], [other])
    assert (found.max_ulp, found.bitwise, found.share_equal) == (3, False, 0.75)


class Paced:
    """A way that takes as long as it is told to."""

    exact = True

    def __init__(self, name: str) -> None:
        self.name = name

    def refuses(self, _member: Any) -> str | None:
        return None


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [((1.0, 0.5), "other"), ((1.0, 0.98), "turn"), ((1.0, 1.5), "turn")],
    ids=["faster", "hardly faster", "slower"],
)
def test_another_way_is_taken_only_if_it_is_clearly_faster(
    seconds: tuple[float, float], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hocket.runtimes.packing import choosing

    clock = [0.0]
    monkeypatch.setattr(choosing, "perf_counter", lambda: clock[0])
    ways: list[Any] = [Paced("turn"), Paced("other")]
    chooser = Chooser(torch.device("cpu"), ways, {})
    examples = data()
    pack = Pack(way="turn")
    members = [pack.load(training(Recipe(f"m{k}"), examples)) for k in range(2)]
    took = dict(zip(("turn", "other"), seconds, strict=True))
    for _ in range(2 * (WARM + TIMED)):
        way = chooser.way(members)

        def step(name: str = way.name) -> None:
            clock[0] += took[name]

        chooser.measured(step)
    assert chooser.way(members).name == chosen


def test_a_dry_run_counts_what_a_step_needs() -> None:
    batch = (torch.empty(50, 3, 32, 32), torch.empty(50, dtype=torch.int64))
    made = training(Recipe("m"), data())
    made.module, made.optimiser = mlp3(), lambda p: torch.optim.Adam(p)
    need = need_of(made, batch, torch.device("cpu"))
    weights = sum(p.numel() * 4 for p in made.module.parameters())
    assert abs(need.parameters - weights) < 1024
    assert abs(need.gradients - weights) < 1024
    assert abs(need.optimiser - 2 * weights) < 2048
    assert need.inputs == 50 * 3 * 32 * 32 * 4 + 50 * 8
    assert 50 * 256 * 3 * 4 <= need.activations < 2 * weights  # or what Adam computes beside them


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("resnet-50", 25_557_032), ("mobilenet-v2", 3_504_872), ("densenet-121", 7_978_856), ("resnet-18", 11_173_962)],
)
def test_networks_have_the_published_numbers_of_parameters(name: str, parameters: int) -> None:
    make, _size, _batch = NETWORKS[name]
    with torch.device("meta"):
        assert sum(p.numel() for p in make().parameters()) == parameters


def test_the_library_needs_torch_and_numpy_only() -> None:
    program = "import sys, hocket.pack; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert {"torch", "numpy"} <= set(loaded)
    assert not set(loaded) & {"msgspec", "typer", "rich", "scipy", "matplotlib", "fastapi", "numba", "highspy"}
