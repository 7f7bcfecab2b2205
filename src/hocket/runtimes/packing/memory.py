"""How much memory a model will take at its peak, before it is loaded; and what was learned from those that were.

A dry run makes one step on the `meta` device, where tensors have sizes and no contents, and counts what is alive.
"""

from __future__ import annotations

import copy
import os
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from hocket.runtimes.packing.keeping import ON_DEVICE_BYTES
from hocket.runtimes.packing.tensors import leaves, mapped, n_bytes
from hocket.runtimes.packing.training import Training

BLOCK = 512  # bytes: CUDA's allocator rounds up to it
SPARE = 1.02  # Fragments and what no dry run sees.


@dataclass(frozen=True)
class Need:
    """Bytes that one model takes; `stays` all the time, `passes` at the height of a step."""

    parameters: int
    gradients: int
    optimiser: int
    activations: int  # at the peak, with workspaces as far as they were seen
    inputs: int  # its batches; shared ones count once for a pack
    kept: int = 0  # its last good states, where they are kept on the device

    @property
    def stays(self) -> int:
        """What is held between two steps."""
        return self.parameters + self.optimiser + self.kept

    @property
    def passes(self) -> int:
        """What a step needs beside that, without its input."""
        return self.gradients + self.activations

    @property
    def peak(self) -> int:
        """All of it."""
        return self.stays + self.passes + self.inputs


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
    """One step of it, on the meta device. The training itself is not touched.

    A module that asks for numbers cannot be run without any: what its activations take is learned when it runs.
    """
    block = BLOCK if device.type == "cuda" else 64
    module = copy.deepcopy(training.module).to("meta")
    parameters = [p for p in module.parameters() if p.requires_grad]
    held = _sum([*module.parameters(), *module.buffers()], block)
    optimiser = _like(training.optimiser, training.module, module)
    inputs = mapped(batch, lambda tensor: tensor.to("meta"))
    counting = Counting(block)
    try:
        with counting:
            _differentiated(replace(training, module=module), parameters, inputs, device)
        most = counting.peak
    except Exception:  # whatever a module may do that needs numbers
        most = 0
        for parameter in parameters:
            parameter.grad = torch.empty_like(parameter)
    gradients = _sum([p.grad for p in parameters if p.grad is not None], block)
    counting.alive = counting.peak = gradients
    with counting:
        if training.clip is not None:
            nn.utils.clip_grad_norm_(parameters, training.clip)
        if optimiser is not None:
            optimiser.step()
    state = _optimiser_bytes(optimiser, block)
    # The first step makes the optimiser's state; those that follow have it all along.
    later = max(most, counting.peak - state)
    small = device.type == "cuda" and held + state <= ON_DEVICE_BYTES
    kept = 2 * (held + state) if small else 0
    return Need(held, gradients, state, max(later - gradients, 0), n_bytes(batch) * training.accumulate, kept)


def _differentiated(training: Training, parameters: list[nn.Parameter], batch: Any, device: torch.device) -> None:
    loss = _loss(training, training.module, batch, device)
    found = torch.autograd.grad(loss, parameters, allow_unused=True)  # `backward` would copy, being watched.
    for parameter, gradient in zip(parameters, found, strict=True):
        parameter.grad = gradient


def _loss(training: Training, module: nn.Module, batch: Any, device: torch.device) -> Tensor:
    with torch.autocast(device.type, training.autocast, enabled=training.autocast is not None):
        if training.forward is not None:
            return training.forward(module, batch).reshape(())
        assert training.loss is not None
        return training.loss(module(batch[0]), batch[1]).reshape(())


def _like(given: Optimizer | Callable[[Any], Optimizer], original: nn.Module, module: nn.Module) -> Optimizer | None:
    if not isinstance(given, Optimizer):
        return given(module.parameters())
    twins = dict(zip(original.parameters(), module.parameters(), strict=True))
    groups = [
        {**{k: v for k, v in g.items() if k != "params"}, "params": [twins[p] for p in g["params"] if p in twins]}
        for g in given.param_groups
    ]
    maker: Any = type(given)
    try:
        made: Optimizer = maker(groups, **given.defaults)
    except TypeError:  # It takes other arguments than its defaults: its state is learned from the first step.
        return None
    return made


def _optimiser_bytes(optimiser: Optimizer | None, block: int) -> int:
    if optimiser is None:
        return 0
    return _sum([v for s in optimiser.state.values() for v in s.values() if isinstance(v, Tensor) and v.dim()], block)


def _sum(tensors: Iterable[Tensor], block: int) -> int:
    return sum(-(-t.numel() * t.element_size() // block) * block for t in tensors)


class Memory:
    """What the device has, what the models on it need, and how far predictions were from what was seen."""

    def __init__(self, device: torch.device, limit: int) -> None:
        self.device, self.limit = device, limit
        self.workspace = workspace_of(device)  # of the libraries, for each stream
        self.needs: dict[str, Need] = {}
        self.seen: dict[str, tuple[int, int]] = {}  # by model: passing bytes as predicted, as seen
        self._kinds: dict[str, object] = {}
        self._learned: dict[object, float] = {}  # by kind of module: seen over predicted

    def corrected(self, training: Training, need: Need) -> Need:
        """The prediction, by what was seen of the same kind of module."""
        factor = self._learned.get(kind_of(training), 1.0)
        return replace(need, activations=int(need.activations * factor))

    def enter(self, training: Training, need: Need) -> None:
        """This model is on the device from now on."""
        self.needs[training.name], self._kinds[training.name] = need, kind_of(training)

    def leave(self, name: str) -> None:
        """This one no longer."""
        self.needs.pop(name, None)

    def learn(self, name: str, passed: int) -> None:
        """A step of this model had this many bytes beside what stays."""
        need = self.needs[name]
        if name in self.seen or not need.passes:
            return
        self.seen[name] = need.passes, passed
        kind = self._kinds[name]
        if need.activations:
            actual = max(passed - need.gradients, 0) / need.activations
            self._learned[kind] = self._learned.get(kind, 1.0) * actual

    def total(self, side_by_side: bool, extra: Need | None = None) -> int:
        """Of all models at once: in turn only one of them is at the height of its step."""
        needs = [*self.needs.values(), *([extra] if extra is not None else [])]
        if not needs:
            return 0
        passing = [need.passes for need in needs]
        inputs = max(need.inputs for need in needs)
        height = sum(passing) if side_by_side else max(passing)
        height += self.workspace * (1 + len(needs) * side_by_side)
        return int((sum(need.stays for need in needs) + height + inputs) * SPARE)

    def error(self) -> dict[str, float]:
        """By model: how far the predicted bytes of a step were off, as a share of what was seen."""
        return {name: predicted / seen - 1 for name, (predicted, seen) in self.seen.items() if seen}


def kind_of(training: Training) -> object:
    """Modules of one kind need memory alike: the same classes, types and precision."""
    layers = tuple(type(m).__name__ for m in training.module.modules())
    return layers, training.autocast


@cache
def workspace_of(device: torch.device) -> int:
    """What the libraries for matrices take on a stream that they had not seen: measured, for it differs by device."""
    if device.type != "cuda":
        return 0
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    with torch.cuda.stream(stream):
        layer = nn.Linear(64, 64, device=device)
        layer(torch.ones(64, 64, device=device)).sum().backward()
        del layer
    torch.cuda.synchronize(device)
    return int(torch.cuda.memory_allocated(device) - before)


def limit_of(device: torch.device) -> int:
    """What the device can give us now."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free + held)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") if hasattr(os, "sysconf") else 1 << 62
