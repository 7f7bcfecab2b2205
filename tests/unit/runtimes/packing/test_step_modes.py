"""Ways of running: what each takes, how near it stays to the solo run, and how one is chosen."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from solo import Recipe, alone, data, training
from torch import nn

from hocket.pack import Pack
from hocket.runtimes.packing import admission, mode_choice
from hocket.runtimes.packing.certificate import compared, not_measured, ulps
from hocket.runtimes.packing.dry_run import need_of
from hocket.runtimes.packing.mode_choice import LOOK_NOT_BEFORE, Measurements, ModeChooser
from hocket.runtimes.packing.mode_probe import LOOK, TIMED
from hocket.runtimes.packing.step_modes.stack import NotStackable, plan_of
from hocket_reproductions.pack.networks import NETWORKS, mlp3


def packed(mode: str, recipes: list[Recipe]) -> tuple[Pack, dict[str, Any]]:
    pack, examples = Pack(mode=mode), data()
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


@pytest.mark.parametrize(("exact", "measured"), [(False, 2), (True, 5)])
def test_two_models_of_a_kind_are_measured_and_all_where_the_mode_must_be_exact(exact: bool, measured: int) -> None:
    pack, examples = Pack(mode="joint", exact=exact), data()
    for k in range(5):
        pack.load(training(Recipe(f"m{k}", seed=k), examples))
    for _ in range(6):
        pack.step()
    found = pack.certificates
    assert found.keys() == pack.members.keys()
    assert sum(c.measured for c in found.values()) == measured
    assert all(c.bitwise for c in found.values())


def test_a_model_that_was_probed_in_an_inexact_mode_is_not_called_bitwise_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In turn is taken after the probe, whatever that has found."""
    pack, examples = Pack(remembered=Measurements()), data()
    monkeypatch.setattr(pack._chooser, "_fastest", lambda _times: pack._solo)
    recipes = [Recipe(f"m{k}", seed=k, hidden=32, steps=80) for k in range(3)]
    for recipe in recipes:
        pack.load(training(recipe, examples))
    modes = {"turn"}
    while pack.steps < 79:
        pack.step()
        modes.add(pack.mode)
    assert pack.mode == "turn"
    assert "fused" in modes, "nothing else was tried"
    for recipe in recipes:
        model, _ = alone(replace(recipe, steps=79), examples)
        theirs = pack.members[recipe.name].module.state_dict()
        is_same = all(torch.equal(value, theirs[key]) for key, value in model.state_dict().items())
        assert is_same or not pack.certificate(recipe.name).bitwise
        assert pack.certificate(recipe.name).mode == "fused"
    unknown = not_measured("graphs", pack.members["m0"])
    assert "not measured" in str(unknown)
    assert not unknown.bitwise


def test_weights_are_the_models_own_again_when_they_leave_a_stack() -> None:
    pack, examples = Pack(mode="fused"), data()
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


WARM = 2  # steps of a paced mode that do not count: one before it is settled, and the first that is


class Paced:
    """A mode that takes as long as it is told to. All but in turn are settled after the first step of a model."""

    exact = True

    def __init__(self, name: str, joins_cheaply: bool = True) -> None:
        self.name, self.joins_cheaply = name, joins_cheaply
        self._stepped: set[int] = set()

    def is_warm(self, members: list[Any]) -> bool:
        known = self.name == "turn" or all(id(m) in self._stepped for m in members)
        self._stepped.update(id(m) for m in members)
        return known

    def refuses(self, _member: Any) -> str | None:
        return None


class World:
    """A chooser between two modes, and a clock that only steps move."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        remembered: Measurements | None = None,
        heavy: tuple[str, ...] = (),
        other: str = "other",
    ) -> None:
        self.now_s, self.took_s = 0.0, {"turn": 1.0, other: 1.0}
        self.others_s, self.delayed_s = 0.0, {"turn": 0.0, "other": 0.0}  # work of others on the machine
        self.made: list[str] = []
        monkeypatch.setattr(mode_choice, "thread_time", lambda: self.now_s)
        monkeypatch.setattr(mode_choice, "perf_counter", lambda: self.now_s + self.others_s)
        modes: list[Any] = [Paced("turn"), Paced(other), *(Paced(name, joins_cheaply=False) for name in heavy)]
        self.chooser = ModeChooser(torch.device("cpu"), modes, remembered or Measurements())

    def step(self, members: list[Any], times: int = 1) -> None:
        for _ in range(times):
            mode = self.chooser.mode(members)
            name = "turn" if self.chooser.must_recheck() else mode.name
            self.chooser.measured(lambda name=name: self._pass(name))

    def _pass(self, name: str) -> None:
        self.made.append(name)
        self.now_s += self.took_s[name]
        self.others_s += self.delayed_s.get(name, 0.0)


def loaded(n: int, batch: int = 8) -> list[Any]:
    pack, examples = Pack(mode="turn"), data()
    return [pack.load(training(Recipe(f"m{k}", batch=batch), examples)) for k in range(n)]


@pytest.mark.parametrize(
    ("other_s", "chosen"), [(0.5, "other"), (0.98, "turn"), (1.5, "turn")], ids=["faster", "hardly faster", "slower"]
)
def test_another_mode_is_taken_only_if_it_is_clearly_faster(
    other_s: float, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, members = World(monkeypatch), loaded(2)
    world.took_s["other"] = other_s
    world.step(members, 2 * (WARM + TIMED))
    assert world.chooser.mode(members).name == chosen


@pytest.mark.parametrize(("threads", "chosen"), [(1, "other"), (2, "turn")])
def test_where_one_thread_computes_the_work_of_others_spoils_no_probe(
    threads: int, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(threads)
    world, members = World(monkeypatch), loaded(2)
    world.took_s["other"], world.delayed_s["other"] = 0.5, 5.0
    world.step(members, 2 * (WARM + TIMED))
    assert world.chooser.mode(members).name == chosen


@pytest.mark.parametrize("slow_s", [1.05, 3.0], ids=["a little", "three times"])
def test_a_mode_that_becomes_slower_than_one_by_one_is_given_up(slow_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    world, members = World(monkeypatch), loaded(2)
    world.took_s["other"] = 0.5
    world.step(members, 100)
    assert world.made[-1] == "other"
    world.took_s["other"] = slow_s
    began, steps = world.now_s, 10_000
    world.step(members, steps)
    assert world.made[-1] == "turn"
    lost = (world.now_s - began) / steps - 1
    assert lost < 0.02, f"{lost:.1%} slower than in turn"


def test_comparing_again_costs_next_to_nothing_while_the_mode_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    world, members = World(monkeypatch), loaded(2)
    world.took_s["other"] = 0.05
    world.step(members, 50)
    began, steps = world.now_s, 50_000
    world.step(members, steps)
    assert world.chooser.looks >= 3
    assert (world.now_s - began) / (0.05 * steps) < 1.01


def test_models_of_the_same_sizes_are_not_probed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered, probe = Measurements(), 2 * (WARM + TIMED)
    first = World(monkeypatch, remembered)
    first.took_s["other"] = 0.2
    first.step(loaded(2), probe + 1)
    alike = World(monkeypatch, remembered)
    alike.took_s["other"] = 0.2
    alike.step(loaded(2, batch=5), 3000)
    assert alike.made.count("turn") == LOOK, "more steps in turn than it takes to look"
    unlike = World(monkeypatch, remembered)
    unlike.took_s["other"] = 2.0  # What was right for its similar is wrong for this one.
    unlike.step(loaded(2, batch=4), 200)
    assert unlike.made[-1] == "turn"
    assert unlike.made.count("other") <= LOOK_NOT_BEFORE + 10 + LOOK + WARM + TIMED


@pytest.mark.parametrize("chunk", [5, 8, 20])
def test_a_probe_goes_on_while_models_come_and_go(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.took_s["other"] = 0.2
    for wave in range(12):
        world.step(loaded(3, batch=2 + wave), chunk)
    assert world.made[-1] == "other"
    assert world.made.count("turn") < 3 * (WARM + TIMED), "every wave began the probe anew"


@pytest.mark.parametrize("chunk", [1, 2])
def test_a_mode_that_never_gets_warm_is_given_up(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.took_s["other"] = 2.0
    waves = [loaded(3, batch=2 + k) for k in range(30)]
    for wave in range(150):
        world.step(waves[wave % 30], chunk)
    assert set(world.made[-20:]) == {"turn"}


def test_a_mode_that_is_slow_to_enter_is_taken_once_models_no_longer_change(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered, took = Measurements(), {"turn": 1.0, "other": 0.2, "heavy": 0.1}
    first = World(monkeypatch, remembered, heavy=("heavy",))
    first.took_s = dict(took)
    first.step(loaded(3), 3 * (WARM + TIMED) + 1)
    assert first.made[-1] == "heavy"
    then = World(monkeypatch, remembered, heavy=("heavy",))
    then.took_s = dict(took)
    for n in (4, 5, 6):
        then.step(loaded(n), 12)
    assert "heavy" not in then.made, "all models were made to enter it for every newcomer"
    then.step(loaded(7), 100)
    assert then.made[-1] == "heavy"


@pytest.mark.parametrize(("step_s", "tried"), [(0.0004, True), (0.4, False)], ids=["short", "long"])
def test_one_graph_for_all_is_tried_only_where_launches_count(
    step_s: float, tried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(monkeypatch, heavy=("graph",), other="graphs")
    world.took_s = {"turn": 20 * step_s, "graphs": step_s, "graph": step_s}
    world.step(loaded(3), 60)
    assert ("graph" in world.made) is tried


def test_a_mode_that_all_must_enter_again_is_given_up_when_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, heavy=("heavy",))
    world.took_s = {"turn": 1.0, "other": 0.2, "heavy": 0.1}
    members = loaded(3)
    while "heavy" not in world.made:
        world.step(members)
    for wave in range(12):
        world.step(loaded(3, batch=2 + wave), 4)
    assert world.made.count("heavy") == 1
    assert world.made[-1] == "other"


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


def test_a_dry_run_is_made_for_two_batches_and_drawn_through_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from hocket.runtimes.packing import dry_run

    monkeypatch.setattr(dry_run, "_passes", {})
    made, runs, plain = training(Recipe("m", kind="norm"), data()), [], dry_run._differentiated
    monkeypatch.setattr(dry_run, "_differentiated", lambda *args: runs.append(1) or plain(*args))

    def need(rows: int) -> int:
        batch = (torch.empty(rows, 6, device="meta"), torch.empty(rows, dtype=torch.int64, device="meta"))
        return need_of(made, batch, torch.device("cpu")).activations

    predicted = {rows: need(rows) for rows in (200, 400, 1000)}
    assert len(runs) == 2
    dry_run._passes.clear()
    assert need(1000) == pytest.approx(predicted[1000], rel=0.01)
    assert predicted[200] < predicted[400] < predicted[1000]


def test_a_training_is_weighed_once_unless_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, plain = [], admission.need_of
    monkeypatch.setattr(admission, "need_of", lambda *args: runs.append(1) or plain(*args))
    made, pack = training(Recipe("m"), data()), Pack(memory_mib=100)
    first = pack.predict(made)
    pack.load(made)
    assert Pack(memory_mib=100).predict(made) == first
    assert len(runs) == 1
    made.module = mlp3()
    assert pack.predict(made).parameters > first.parameters


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
