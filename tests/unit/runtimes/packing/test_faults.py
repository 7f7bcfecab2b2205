"""A model that fails is freed with its last good checkpoint and a reason; other models are not affected."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from solo import Recipe, alone, data, same, training
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from hocket.pack import Memory, ModelCheckpoint, Need, NoRoom, Pack, Refused, Training

NEIGHBOUR = Recipe("neighbour", kind="dropout", data_seed=None, seed=5, steps=20)


class Trouble(nn.Module):
    """Works for some calls, and then does what it is told to."""

    def __init__(self, after: int, what: Any) -> None:
        super().__init__()
        self.layer, self.after, self.what, self.calls = nn.Linear(6, 3), after, what, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out: Tensor = self.layer(x)
        if self.calls > self.after:
            if isinstance(self.what, Exception):
                raise self.what
            out = out * self.what
        return out


def troubled(module: nn.Module, steps: int = 20) -> Training:
    made = training(Recipe("troubled", steps=steps), data())
    made.module, made.optimiser = module, lambda p: torch.optim.SGD(p, 0.01)
    return made  # type: ignore[no-any-return]


@pytest.mark.parametrize("mode", ["turn", "joint", "fused"])
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (float("nan"), "its loss was nan in step"),
        (ValueError("no such luck"), "ValueError: no such luck"),
        (torch.OutOfMemoryError("gone"), "out of memory, even alone on the device"),
    ],
    ids=["nan", "exception", "out of memory"],
)
def test_trouble_frees_one_model_and_leaves_the_others_as_alone(mode: str, what: Any, reason: str) -> None:
    pack = Pack(mode=mode, keep_every=3)
    pack.load(troubled(Trouble(7, what)))
    for k in range(2):
        pack.load(training(Recipe(**{**vars(NEIGHBOUR), "name": f"n{k}"}), data()))
    ended = {c.name: c for c in pack.run()}
    freed = ended["troubled"]
    assert freed.failed
    assert freed.reason.startswith(reason)
    assert freed.step in (3, 6), "not the last state that was kept"
    assert all(bool(v.isfinite().all()) for v in freed.state["module"].values())
    for k in range(2):
        assert not ended[f"n{k}"].failed
        if mode != "fused":
            assert same(alone(NEIGHBOUR, data())[0], ended[f"n{k}"].state["module"])


def test_the_last_good_checkpoint_is_the_solo_run_at_that_step() -> None:
    recipe = Recipe("m", steps=6, optimiser="adam")
    pack = Pack(keep_every=3)
    made = training(Recipe("m", steps=20, optimiser="adam"), data())
    loss, made.loss, calls = made.loss, None, []

    def forward(module: nn.Module, batch: Any) -> Tensor:
        calls.append(1)
        assert loss is not None
        found = loss(module(batch[0]), batch[1])
        return found * float("nan") if len(calls) > 9 else found

    made.forward = forward
    pack.load(made)
    (freed,) = pack.run()
    assert freed.step == 6
    assert same(alone(recipe, data())[0], freed.state["module"])


def test_without_kept_states_a_model_that_fails_is_freed_as_it_stands_and_the_others_go_on() -> None:
    pack = Pack(mode="turn", keep_every=None)
    made = training(Recipe("bad", steps=20), data())
    loss, made.loss = made.loss, None

    def forward(module: nn.Module, batch: Any) -> Tensor:
        assert loss is not None
        if pack.members["bad"].step == 4:
            raise RuntimeError("broken")
        return loss(module(batch[0]), batch[1])

    made.forward = forward
    pack.load(made)
    pack.load(training(NEIGHBOUR, data()))
    ended = {c.name: c for c in pack.run()}
    assert ended["bad"].failed
    assert (ended["bad"].step, ended["bad"].reason) == (4, "RuntimeError: broken")
    assert same(alone(Recipe("bad", steps=4), data())[0], ended["bad"].state["module"])
    assert same(alone(NEIGHBOUR, data())[0], ended[NEIGHBOUR.name].state["module"])


def test_data_that_fails_frees_its_model_only() -> None:
    class Broken(Dataset[Any]):
        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> Any:
            if index > 20:
                raise OSError("disk gone")
            return torch.zeros(6), 0

    pack = Pack()
    bad = troubled(nn.Linear(6, 3))
    bad.data = DataLoader(Broken(), 8)
    pack.load(bad)
    pack.load(training(NEIGHBOUR, data()))
    ended = {c.name: c for c in pack.run()}
    assert ended["troubled"].reason == "its data failed: OSError: disk gone"
    assert same(alone(NEIGHBOUR, data())[0], ended["neighbour"].state["module"])


class Greedy(nn.Module):
    """Out of memory while more than two of its kind are on the device: their parameters say where they are."""

    here: list[Greedy] = []  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if len([g for g in Greedy.here if not getattr(g, "parked", False)]) > 2:
            raise torch.OutOfMemoryError("too many at once")
        out: Tensor = self.layer(x)
        return out


def test_out_of_memory_splits_the_pack_which_then_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU a parked model is where it was, so moving is watched instead of memory."""
    from hocket.runtimes.packing import host_offload

    monkeypatch.setattr(host_offload, "TURN_STEPS", 4)
    pack, Greedy.here = Pack(mode="turn"), []
    moved: dict[int, int] = {}

    def move(member: Any, _device: torch.device) -> None:
        moved[id(member)] = moved.get(id(member), 0) + 1
        member.module.parked = moved[id(member)] % 2 == 1

    monkeypatch.setattr(host_offload, "move", move)
    for k in range(5):
        torch.manual_seed(k)
        made = troubled(Greedy(), steps=10)
        made.name = f"m{k}"
        pack.load(made)
        Greedy.here.append(made.module)  # type: ignore[arg-type]
    ended = []
    for checkpoint in pack.run():
        ended.append(checkpoint)
        gone = {c.name for c in ended}
        Greedy.here = [m.module for m in pack.members.values() if m.name not in gone]  # type: ignore[misc]
    assert sorted(c.name for c in ended) == [f"m{k}" for k in range(5)]
    assert all(c.step == 10 and not c.failed for c in ended), [c.reason for c in ended]


# -- bad input ----------------------------------------------------------------------------------------------


def good(**changes: Any) -> Training:
    made = training(Recipe("m"), data())
    for key, value in changes.items():
        setattr(made, key, value)
    return made  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 0}, "model 'm': steps is at least 1, not 0"),
        ({"loss": None}, "model 'm': either `loss` or `forward` is needed, and not both"),
        ({"clip": -1.0}, "model 'm': clip is a positive norm, not -1.0"),
        ({"data": DataLoader(data(5), 8)}, "model 'm': its data set has 5 examples, fewer than the batch's 8"),
        ({"data": iter([])}, "model 'm': its data is an iterator, which can be read only once"),
        ({"data": []}, "model 'm': its data has no batch"),
        ({"module": "resnet"}, "model 'm': an nn.Module is needed, not a str"),
        ({"steps": 1.5}, "model 'm': steps is a whole number, not 1.5"),
        ({"accumulate": "2"}, "model 'm': accumulate is a whole number, not '2'"),
        ({"optimiser": None}, "model 'm': its optimiser must be one, or a function that makes it, not a NoneType"),
        ({"schedule_every": "hour"}, "model 'm': schedule_every is 'step' or 'epoch', not 'hour'"),
        ({"autocast": torch.float64}, "autocast is torch.bfloat16 or torch.float16, not torch.float64"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_bad_input_is_refused_in_one_line_before_anything_is_moved(changes: dict[str, Any], said: str) -> None:
    pack = Pack()
    with pytest.raises(Refused, match=r"^[^\n]*$") as error:
        pack.load(good(**changes))
    assert said in str(error.value)
    assert not pack.members


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"memory_mib": -3.0}, "memory_mib is more than 0, not -3.0"),
        ({"keep_every": 0}, "keep_every is at least 1, or None, not 0"),
        ({"check_every": 0}, "check_every is at least 1, not 0"),
    ],
)
def test_a_pack_that_makes_no_sense_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        Pack(**options)


def test_what_is_no_training_is_refused() -> None:
    with pytest.raises(Refused, match=r"a hocket.pack.Training is needed, not a Linear"):
        Pack().load(nn.Linear(2, 2))  # type: ignore[arg-type]


def test_models_that_share_parameters_or_names_or_optimisers_are_refused() -> None:
    pack, first = Pack(), good()
    pack.load(first)
    with pytest.raises(Refused, match="model 'm' is loaded already"):
        pack.load(good())
    with pytest.raises(Refused, match="model 'other' shares parameters with 'm': each needs its own"):
        pack.load(good(name="other", module=nn.Sequential(first.module, nn.Linear(3, 3))))
    foreign = torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1)
    with pytest.raises(Refused, match="model 'third': its optimiser holds 2 parameters that are not the module's"):
        pack.load(good(name="third", optimiser=foreign))
    with pytest.raises(Refused, match="model 'nobody' is not loaded here"):
        pack.free("nobody")
    assert list(pack.members) == ["m"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"module": nn.Linear(6, 3)}, "it has '0.bias', and the module has none"),
        ({"module": nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))}, "it has no '1.bias', and the module has one"),
        ({"module": nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))}, r"its '0.weight' has the shape \("),
        ({"optimiser": lambda p: torch.optim.SGD([{"params": [q]} for q in p], 0.1)}, "its optimiser has groups of"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused_and_the_module_left_as_it_was(
    changes: dict[str, Any], said: str
) -> None:
    pack = Pack()
    pack.load(good())
    saved = pack.free("m")
    other = good(name="other", **changes)
    before = {name: value.clone() for name, value in other.module.state_dict().items()}
    with pytest.raises(Refused, match=rf"^model 'other': the checkpoint of 'm' is of another model: {said}"):
        pack.load(other, saved)
    assert same(other.module, before)
    assert not pack.members
    pack.load(good(), saved)


def test_a_loss_that_is_a_vector_frees_its_model_with_the_rule() -> None:
    pack = Pack()
    pack.load(good(loss=nn.CrossEntropyLoss(reduction="none")))
    pack.load(training(NEIGHBOUR, data()))
    ended = {c.name: c for c in pack.run()}
    assert ended["m"].failed
    assert ended["m"].reason == "model 'm': its loss must be one number, not (8,)"
    assert same(alone(NEIGHBOUR, data())[0], ended["neighbour"].state["module"])


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(Refused, match="device 'cuda:99' is not there: PyTorch sees"):
        Pack("cuda:99")
    with pytest.raises(Refused, match="device 'teapot' is not one that PyTorch knows"):
        Pack("teapot")
    with pytest.raises(Refused, match="mode 'sideways' is not one of turn, joint"):
        Pack(mode="sideways")


def test_a_model_without_room_is_refused_before_it_is_loaded() -> None:
    pack = Pack(memory_mib=1)
    pack.load(good(name="small"))
    with pytest.raises(NoRoom, match=r"model 'large' would bring the device from \d+ to \d+ MiB, more than its 1 MiB"):
        pack.load(good(name="large", module=nn.Sequential(nn.Linear(6, 100_000), nn.Linear(100_000, 3))))
    assert list(pack.members) == ["small"]


def test_a_checkpoint_says_how_it_ended() -> None:
    pack = Pack()
    pack.load(good(steps=3))
    (freed,) = pack.run()
    assert isinstance(freed, ModelCheckpoint)
    assert (freed.name, freed.step, freed.reason, freed.failed) == ("m", 3, "all 3 steps are made", False)
    assert freed.loss is not None
    assert freed.loss > 0


def test_data_that_do_not_fit_on_the_device_split_the_pack_instead_of_failing_their_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from hocket.runtimes.packing.shared_reading import EpochOrder

    pack, plain, calls = Pack(mode="turn"), EpochOrder.batch, []

    def batch(self: EpochOrder, start: int, stop: int) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise torch.OutOfMemoryError("no room for a batch")
        return plain(self, start, stop)

    monkeypatch.setattr(EpochOrder, "batch", batch)
    recipes = [Recipe(f"m{k}", data_seed=k, steps=12) for k in range(3)]
    for recipe in recipes:
        pack.load(training(recipe, data()))
    ended = {c.name: c for c in pack.run()}
    monkeypatch.undo()
    assert len(calls) > 4
    for recipe in recipes:
        assert not ended[recipe.name].failed, ended[recipe.name].reason
        assert same(alone(recipe, data())[0], ended[recipe.name].state["module"])


def test_what_was_seen_of_one_model_corrects_the_next_of_its_kind_once() -> None:
    """Thirty models need a tenth more than predicted: the next one is predicted a tenth higher, not 1.1**30."""
    memory, need = Memory(torch.device("cpu"), 1 << 40), Need(100, 100, 100, 1000, 10)
    for k in range(30):
        memory.enter(good(name=f"m{k}"), memory.corrected(good(), need))
    for k in range(30):
        memory.learn(f"m{k}", 100 + 1100)
    assert memory.corrected(good(), need).activations == pytest.approx(1100, rel=0.01)
    assert memory.error()["m0"] == pytest.approx(1100 / 1200 - 1), "how far a prediction was off is told"
    memory.enter(good(name="later"), memory.corrected(good(), need))
    memory.learn("later", 100 + 1100)
    assert memory.corrected(good(), need).activations == pytest.approx(1100, rel=0.01)
