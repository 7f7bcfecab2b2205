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


def check_out_of_memory_splits_the_pack() -> str:
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
