"""The memory of one step of a model, by a dry run on the `meta` device, where tensors have sizes but no contents.

Most models of a pack differ in batch, optimiser or rate only, so what is known is used again: the forward and backward
pass by layers, its peak at another batch on the line through two batches; the optimiser's state by its kind.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from hocket.runtimes.packing.last_good import ON_DEVICE_BYTES
from hocket.runtimes.packing.memory import Need
from hocket.runtimes.packing.tensors import leaves, mapped, n_bytes
from hocket.runtimes.packing.training import Training

BLOCK = 512  # bytes: CUDA's allocator rounds up to it

Key = tuple[object, ...]
_passes: dict[Key, dict[int, tuple[int, int]]] = {}  # by layers and batch size: the peak, and the gradients in it
_states: dict[Key, tuple[int, int]] = {}  # by weights and optimiser: its state, and what a step of it takes beside


class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of all tensors that operations made and that are still alive, and the most there ever were."""

    def __init__(self, block: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = self.peak = 0
        self._block = block
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation, and count the storages it made."""
        result = func(*args, **(kwargs or {}))
        for leaf in leaves(result):
            if isinstance(leaf, Tensor) and leaf.device.type == "meta":
                self.count(leaf)
        return result

    def count(self, tensor: Tensor) -> None:
        """A tensor's storage, if it is a new one."""
        storage = tensor.untyped_storage()
        if storage in self._known:
            return
        self._known.add(storage)
        size = -(-storage.nbytes() // self._block) * self._block
        self.alive += size
        self.peak = max(self.peak, self.alive)
        weakref.finalize(storage, self._freed, size)

    def _freed(self, size: int) -> None:
        self.alive -= size


def need_of(training: Training, batch: Any, device: torch.device) -> Need:
    """The memory of one step. The training itself is not changed."""
    block = BLOCK if device.type == "cuda" else 64
    layers = (block, *((type(m).__name__, m.extra_repr()) for m in training.module.modules()))
    held = _sum([*training.module.parameters(), *training.module.buffers()], block)
    most, gradients = _passing(training, batch, layers, device)
    state, beside = _optimising(training, block)
    small = device.type == "cuda" and held + state <= ON_DEVICE_BYTES
    kept = 2 * (held + state) if small else 0
    activations = max(most - gradients, beside, 0)
    return Need(held, gradients, state, activations, n_bytes(batch) * training.accumulate, kept)


def _passing(training: Training, batch: Any, layers: Key, device: torch.device) -> tuple[int, int]:
    """The peak memory of a forward and backward pass, and how much of it is gradients."""
    tensors = [leaf for leaf in leaves(batch) if isinstance(leaf, Tensor)]
    rows = {len(t) if t.dim() else 0 for t in tensors}
    shapes = tuple((tuple(t.shape[1:]), t.dtype) for t in tensors)
    function = training.forward or training.loss
    user = getattr(function, "__code__", type(function))  # Functions that differ only in captured values count as one.
    known = _passes.setdefault((*layers, shapes, len(rows), training.autocast, user), {})
    size = max(rows, default=0)
    if size not in known:
        one, other = sorted(known)[:2] if len(known) > 1 and len(rows) == 1 else (0, 0)
        if one == other:
            known[size] = _differentiated(training, batch, int(str(layers[0])), device)
        else:
            slope = (known[other][0] - known[one][0]) / (other - one)
            return round(known[one][0] + slope * (size - one)), known[one][1]
    return known[size]


def _differentiated(training: Training, batch: Any, block: int, device: torch.device) -> tuple[int, int]:
    """A module that reads values cannot be run on `meta`: the memory of its activations is measured when it runs."""
    module = twin(training.module)
    parameters = [p for p in module.parameters() if p.requires_grad]
    inputs = mapped(batch, lambda tensor: tensor.to("meta"))
    counting = Counting(block)
    try:
        with counting:
            loss = _loss(training, module, inputs, device)
            found = torch.autograd.grad(loss, parameters, allow_unused=True)  # `backward` would make copies here.
        return counting.peak, _sum([g for g in found if g is not None], block)
    except Exception:  # anything in a module that needs values
        return 0, _sum(parameters, block)


def _optimising(training: Training, block: int) -> tuple[int, int]:
    """The bytes of the optimiser's state, and the most that a step of it takes beside state and gradients."""
    given = training.optimiser
    real = given if isinstance(given, Optimizer) else given(training.module.parameters())
    groups = [(len(g["params"]), *(bool(v) for k, v in g.items() if k != "params")) for g in real.param_groups]
    shapes = tuple((tuple(p.shape), p.dtype) for p in training.module.parameters())
    key = (block, shapes, type(real), *groups, training.clip is None)
    if key not in _states:
        _states[key] = _optimised(training, real, block)
    return _states[key]


def _optimised(training: Training, real: Optimizer, block: int) -> tuple[int, int]:
    module = twin(training.module)
    parameters = [p for p in module.parameters() if p.requires_grad]
    for parameter in parameters:
        parameter.grad = torch.empty_like(parameter)
    counting = Counting(block)
    try:
        optimiser = _like(training.optimiser, training.module, module)
        with counting:
            if training.clip is not None:
                nn.utils.clip_grad_norm_(parameters, training.clip)
            optimiser.step()
    except Exception:  # Some need values or the loss. Most have two numbers for each weight.
        history = max(int(group.get("history_size", 1)) for group in real.param_groups)
        return 2 * history * _sum(parameters, block), 0
    state = _optimiser_bytes(optimiser, block)
    # The first step creates the optimiser's state; later steps have it from the start.
    return state, counting.peak - state


def twin(module: nn.Module) -> nn.Module:
    """The same module without contents; nothing of the original is copied."""
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        empty = torch.empty_like(parameter, device="meta")
        memo[id(parameter)] = nn.Parameter(empty, parameter.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    made: nn.Module = copy.deepcopy(module, memo)
    return made.to("meta")


def _loss(training: Training, module: nn.Module, batch: Any, device: torch.device) -> Tensor:
    with torch.autocast(device.type, training.autocast, enabled=training.autocast is not None):
        if training.forward is not None:
            return training.forward(module, batch).reshape(())
        assert training.loss is not None
        return training.loss(module(batch[0]), batch[1]).reshape(())


def _like(given: Optimizer | Callable[[Any], Optimizer], original: nn.Module, module: nn.Module) -> Optimizer:
    if not isinstance(given, Optimizer):
        return given(module.parameters())
    twins = dict(zip(original.parameters(), module.parameters(), strict=True))
    groups = [
        {**{k: v for k, v in g.items() if k != "params"}, "params": [twins[p] for p in g["params"] if p in twins]}
        for g in given.param_groups
    ]
    maker: Any = type(given)
    made: Optimizer = maker(groups, **given.defaults)
    return made


def _optimiser_bytes(optimiser: Optimizer, block: int) -> int:
    return _sum([v for s in optimiser.state.values() for v in s.values() if isinstance(v, Tensor) and v.dim()], block)


def _sum(tensors: Iterable[Tensor], block: int) -> int:
    return sum(-(-t.numel() * t.element_size() // block) * block for t in tensors)
