"""What must hold on a GPU: `python tests/unit/runtimes/packing/cuda_checks.py` runs it all and needs PyTorch only."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from solo import Recipe, alone, data, same, training

RECIPES = (
    Recipe("plain", steps=30),
    Recipe("dropout", kind="dropout", data_seed=None, seed=5, steps=30),
    Recipe("norm", kind="norm", optimiser="adam", schedule="cosine", batch=5, steps=30),
    Recipe("conv", kind="conv", optimiser="rmsprop", schedule="epoch", batch=16, steps=30),
    Recipe("accumulates", hidden=8, accumulate=3, clip=0.5, schedule="step", steps=25),
    Recipe("bf16", autocast=torch.bfloat16, optimiser="adagrad", steps=30),
    Recipe("fp16", scaler=True, autocast=torch.float16, clip=1.0, steps=30),
    Recipe("drops the last", kind="dropout", optimiser="adamw", steps=28, drop_last=True, batch=12),
)
CUDA = torch.device("cuda", 0)


def packed(mode: str, exact: bool, recipes: tuple[Recipe, ...] = RECIPES) -> tuple[Any, dict[str, Any]]:
    from hocket.pack import Pack

    torch.backends.cudnn.deterministic = True
    examples, pack, ended = data(), Pack("cuda", mode=mode, exact=exact), {}
    waiting = list(recipes)
    for _ in range(len(recipes) - 2):
        pack.load(training(waiting.pop(0), examples, CUDA))
    for _ in range(12):
        pack.step()
    left = {r: pack.free(r.name) for r in recipes[:3]}  # between two chunks of a sweep, say
    pack.step()
    for recipe, checkpoint in left.items():
        pack.load(training(recipe, examples, CUDA), checkpoint)
    for checkpoint in pack.run():
        ended[checkpoint.name] = checkpoint
        if waiting:
            pack.load(training(waiting.pop(0), examples, CUDA))
    return pack, ended


def check_exact_ways_are_bitwise() -> str:
    """Each model's weights are those of its solo run, whatever runs beside it."""
    said = []
    expected = {r.name: alone(r, data(), CUDA)[0] for r in RECIPES}
    for mode in ("turn", "joint", "graphs", "graph"):
        pack, ended = packed(mode, exact=True)
        wrong = [n for n, c in ended.items() if c.failed or not same(expected[n], c.state["module"])]
        said.append(f"{mode}: {len(ended) - len(wrong)} of {len(ended)} bitwise")
        assert not wrong, (mode, wrong, {n: ended[n].reason for n in wrong}, pack.certificates, pack.refusals())
    return "; ".join(said)


class Recurrent(nn.Module):
    """A recurrent layer, and one value of its last output."""

    def __init__(self, kind: type[nn.RNNBase], **settings: Any) -> None:
        super().__init__()
        self.layer = kind(6, 16, batch_first=True, **settings)
        self.out = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(x)[0][:, -1])


def sequences(name: str, module: nn.Module, steps: int = 12, seed: int = 3) -> Any:
    """A training of this module on sequences."""
    from torch.utils.data import DataLoader, TensorDataset

    from hocket.pack import Training

    torch.manual_seed(1)
    examples = TensorDataset(torch.randn(64, 5, 6), torch.randn(64, 1))
    optimiser = torch.optim.SGD(module.parameters(), 1e-3)
    return Training(name, module, optimiser, DataLoader(examples, 8), steps, loss=nn.MSELoss(), seed=seed)


def check_dropout_of_recurrent_layers_is_refused_in_exact() -> str:
    """cuDNN's dropout between recurrent layers belongs to the process."""
    from hocket.pack import Pack, Refused

    torch.backends.cudnn.deterministic = True
    said = []
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        why = ""
        try:
            Pack("cuda", exact=True).load(sequences("dropout", Recurrent(kind, num_layers=2, dropout=0.4)))
        except Refused as error:
            why = str(error)
        assert "cuDNN's state of the whole process" in why, (kind, why)
        said.append(f"{kind.__name__} with dropout is refused")
    return "; ".join(said)


class Layer(nn.Module):
    """A layer on what is made of a batch of five times six numbers, and one value of what it gives."""

    def __init__(self, layer: nn.Module, shape: tuple[int, ...] = (30,)) -> None:
        super().__init__()
        self.before, self.layer, self.out = nn.Linear(30, torch.Size(shape).numel()), layer, nn.LazyLinear(1)
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        made = self.layer(self.before(x.flatten(1)).view(-1, *self.shape))
        return self.out((made[0] if isinstance(made, tuple) else made).flatten(1))


class Attention(nn.Module):
    """Attention with dropout, as PyTorch computes it on its fastest path."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.3)


class SelfAttention(nn.MultiheadAttention):
    """Of one input."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x, x, x)[0]


LAYERS: dict[str, Any] = {
    "Dropout": lambda: Layer(nn.Dropout(0.4)),
    "Dropout2d": lambda: Layer(nn.Dropout2d(0.4), (4, 5, 5)),
    "AlphaDropout": lambda: Layer(nn.AlphaDropout(0.4)),
    "FeatureAlphaDropout": lambda: Layer(nn.FeatureAlphaDropout(0.4), (4, 5)),
    "RReLU": lambda: Layer(nn.RReLU()),
    "FractionalMaxPool2d": lambda: Layer(nn.FractionalMaxPool2d(2, output_size=3), (4, 8, 8)),
    "MultiheadAttention": lambda: Layer(SelfAttention(8, 2, dropout=0.3, batch_first=True), (6, 8)),
    "scaled_dot_product_attention": lambda: Layer(Attention(), (2, 6, 8)),
    "TransformerEncoderLayer": lambda: Layer(nn.TransformerEncoderLayer(8, 2, 16, 0.3, batch_first=True), (6, 8)),
    "LSTM": lambda: Layer(nn.LSTM(8, 8, batch_first=True), (6, 8)),
    "LSTM of two layers": lambda: Layer(nn.LSTM(8, 8, 2, batch_first=True), (6, 8)),
    "LSTM with projection": lambda: Layer(nn.LSTM(8, 8, proj_size=4, batch_first=True), (6, 8)),
    "LSTM of two layers, with dropout": lambda: Layer(nn.LSTM(8, 8, 2, dropout=0.4, batch_first=True), (6, 8)),
    "GRU of two layers, with dropout": lambda: Layer(nn.GRU(8, 8, 2, dropout=0.4, batch_first=True), (6, 8)),
    "BatchNorm1d, cumulative": lambda: Layer(nn.BatchNorm1d(30, momentum=None)),
    "InstanceNorm1d, tracking": lambda: Layer(nn.InstanceNorm1d(4, track_running_stats=True), (4, 8)),
    "GroupNorm": lambda: Layer(nn.GroupNorm(2, 4), (4, 8)),
    "Conv2d": lambda: Layer(nn.Conv2d(4, 8, 3), (4, 8, 8)),
    "ConvTranspose2d": lambda: Layer(nn.ConvTranspose2d(4, 8, 3), (4, 8, 8)),
    "spectral_norm": lambda: Layer(nn.utils.parametrizations.spectral_norm(nn.Linear(30, 30))),
    "Upsample, bilinear": lambda: Layer(nn.Upsample(scale_factor=2, mode="bilinear"), (4, 8, 8)),
    "AdaptiveAvgPool2d": lambda: Layer(nn.AdaptiveAvgPool2d(3), (4, 8, 8)),
    "AdaptiveMaxPool2d": lambda: Layer(nn.AdaptiveMaxPool2d(3), (4, 8, 8)),
    "ReflectionPad2d": lambda: Layer(nn.ReflectionPad2d(2), (4, 8, 8)),
    "PixelShuffle": lambda: Layer(nn.PixelShuffle(2), (4, 4, 4)),
}


def ends_of(names: tuple[str, ...]) -> dict[str, Any]:
    """Train these layers in one exact pack: their last states, or why one was refused."""
    from hocket.pack import Pack, Refused

    ends: dict[str, Any] = {}
    pack = Pack("cuda", exact=True)
    for name in names:
        torch.manual_seed(0)
        model = LAYERS[name]()
        model(torch.zeros(2, 5, 6))  # sizes the last layer
        torch.manual_seed(0)
        for parameter in model.parameters():
            nn.init.normal_(parameter, 0.0, 0.2)
        try:
            pack.load(sequences(name, model))
        except Refused as error:
            ends[name] = str(error)
    for checkpoint in pack.run() if pack.members else ():
        ends[checkpoint.name] = checkpoint.reason if checkpoint.failed else checkpoint.state["module"]
    return ends


def check_layers_are_exact_or_refused() -> str:
    """Each kind of layer that draws or keeps state, beside all others: as alone to the last bit, or refused."""
    torch.backends.cudnn.deterministic = True
    beside = ends_of(tuple(LAYERS))
    exact: list[str] = []
    refused: dict[str, str] = {}
    for name in LAYERS:
        one, other = ends_of((name,))[name], beside[name]
        if isinstance(one, str) or isinstance(other, str):
            assert isinstance(one, str), f"{name}: {other}, but alone it was taken"
            assert isinstance(other, str), f"{name}: alone {one}, but beside others it was taken"
            assert "cannot be trained exactly" in one, (name, one)
            refused[name] = one.partition("exactly: ")[2]
            continue
        apart = [key for key in one if not torch.equal(one[key], other[key])]
        assert not apart, (name, apart)
        exact.append(name)
    assert {"LSTM of two layers, with dropout", "GRU of two layers, with dropout"} <= {*refused}, refused
    assert {"Upsample, bilinear", "AdaptiveMaxPool2d", "ReflectionPad2d"} <= {*refused}, (
        refused
    )  # by PyTorch's own list
    assert "Dropout" in exact, refused
    return f"as alone: {', '.join(exact)}; refused: {refused}"


def check_deterministic_algorithms_make_more_layers_exact() -> str:
    """Layers that are refused for the algorithm in use are taken if the user chooses the deterministic one."""
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True)
    try:
        names = ("Upsample, bilinear", "ReflectionPad2d", "Dropout")
        beside = ends_of(names)
        for name in names:
            one, other = ends_of((name,))[name], beside[name]
            assert not isinstance(one, str), (name, one)
            assert not isinstance(other, str), (name, other)
            assert all(torch.equal(one[key], other[key]) for key in one), name
    finally:
        torch.use_deterministic_algorithms(False)
    return ", ".join(names)


def check_a_step_that_cannot_be_repeated_is_refused_in_exact() -> str:
    """A kernel that adds in any order, or random numbers of a generator that no checkpoint has."""
    from hocket.pack import Pack

    class OwnDice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(6, 1)
            self.dice = torch.Generator("cuda").manual_seed(0)

        def forward(self, x: Tensor) -> Tensor:
            x = x[:, 0]
            return self.out(x * (torch.rand(x.shape, generator=self.dice, device=x.device) > 0.5))

    pack = Pack("cuda", exact=True)
    pack.load(sequences("own dice", OwnDice()))
    pack.load(sequences("plain", nn.Sequential(nn.Flatten(), nn.Linear(30, 1))))
    ended = {c.name: c for c in pack.run()}
    assert ended["own dice"].failed
    assert "cannot be trained exactly" in ended["own dice"].reason, ended["own dice"].reason
    assert not ended["plain"].failed
    return ended["own dice"].reason


def check_fast_graphs_state_their_bound() -> str:
    """With optimisers in the graph, rates are read from tensors: a few units in the last place a step."""
    expected = {r.name: alone(r, data(), CUDA)[0] for r in RECIPES}
    said = []
    for mode in ("graphs", "graph", "graph", "graph"):
        pack, ended = packed(mode, exact=False)
        for name, checkpoint in ended.items():
            assert not checkpoint.failed, checkpoint.reason
            for key, value in expected[name].state_dict().items():
                if value.is_floating_point():
                    far = float((value.cpu() - checkpoint.state["module"][key]).abs().max())
                    assert far < 1e-2 * max(1.0, float(value.abs().max())), (mode, name, key, far)
        said += [f"{n} {c}" for n, c in pack.certificates.items()]
    return "; ".join(said)


class AsksTheHost(nn.Module):
    """Its control flow depends on numbers: it cannot be captured."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out * 2 if float(out.detach().sum()) > 0 else out


class Poisoned(nn.Module):
    """Gives NaN from some call on."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.after = after

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out: Tensor = self.layer(x)
        return out * torch.where(self.calls > self.after, torch.nan, 1.0)


def beside(module: nn.Module, name: str, steps: int = 30) -> Any:
    from hocket.pack import Training

    made = training(Recipe(name, steps=steps), data(), CUDA)
    return Training(
        name, module, lambda p: torch.optim.SGD(p, 0.01), made.data, steps, loss=nn.CrossEntropyLoss(), seed=0
    )


def check_what_cannot_be_captured_goes_in_turn_alone() -> str:
    from hocket.pack import Pack

    pack = Pack("cuda", mode="graphs", exact=True)
    pack.load(beside(AsksTheHost(), "asks"))
    pack.load(training(RECIPES[1], data(), CUDA))
    ended, why = {}, {}
    for _ in range(10):
        pack.step()
    why = pack.refusals()
    for checkpoint in pack.run():
        ended[checkpoint.name] = checkpoint
    assert set(why) == {"asks"}, why
    assert not ended["asks"].failed, ended["asks"].reason
    assert same(alone(RECIPES[1], data(), CUDA)[0], ended["dropout"].state["module"])
    return why["asks"]


def check_nan_frees_one_and_leaves_the_others() -> str:
    from hocket.pack import Pack

    said = ""
    for mode in ("turn", "graphs", "graph"):
        pack = Pack("cuda", mode=mode, exact=True, check_every=5, keep_every=4)
        pack.load(beside(Poisoned(12), "poisoned", 100))
        pack.load(training(RECIPES[1], data(), CUDA))
        ended = {c.name: c for c in pack.run()}
        poisoned = ended["poisoned"]
        assert poisoned.failed, poisoned.reason
        assert 0 < poisoned.step <= 12, poisoned.step
        assert all(bool(v.isfinite().all()) for v in poisoned.state["module"].values())
        assert same(alone(RECIPES[1], data(), CUDA)[0], ended["dropout"].state["module"]), mode
        said += f"{mode}: {poisoned.reason}, kept {poisoned.step}; "
    return said


def check_a_pack_is_split_when_memory_runs_out() -> str:
    """Real exhaustion: the process may have a little memory only."""
    from hocket.pack import Pack, Training

    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    held = torch.cuda.memory_reserved()  # Libraries keep what they took for the checks before this one.
    torch.cuda.set_per_process_memory_fraction((held + (2 << 30)) / total)
    try:
        pack = Pack("cuda", memory_mib=1 << 20)
        batches = [(torch.randn(64, 8192), torch.randint(0, 8, (64,)))]
        for k in range(6):  # 256 MiB of weights each, as much for gradients and momentum
            model = nn.Sequential(nn.Linear(8192, 8192, bias=False), nn.Linear(8192, 8, bias=False))
            make = lambda p: torch.optim.SGD(p, 1e-4, momentum=0.9)  # noqa: E731
            pack.load(Training(f"big{k}", model, make, batches, 60, loss=nn.CrossEntropyLoss()))
        ended = list(pack.run())
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    assert len(ended) == 6
    assert not [c.reason for c in ended if c.failed], [c.reason for c in ended]
    return f"{len(ended)} models of 0.75 GiB each within 2 GiB"


# By name: the one that counts memory comes before those that leave cuBLAS a workspace for each of many streams.
CHECKS = [check for name, check in sorted(globals().items()) if name.startswith("check_")]

if __name__ == "__main__":
    wrong = 0
    for check in [c for c in CHECKS if not sys.argv[1:] or c.__name__ in sys.argv[1:]]:
        try:
            print("ok  ", check.__name__, "·", check(), flush=True)
        except Exception:
            wrong += 1
            print("WRONG", check.__name__, flush=True)
            traceback.print_exc()
    sys.exit(wrong)
