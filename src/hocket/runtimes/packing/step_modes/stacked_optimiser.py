"""SGD, Adam and AdamW over stacked weights: one call for all models, each with its own numbers.

The arithmetic is PyTorch's own; where models differ in a number it is a column instead of a scalar. The optimisers'
state tensors become views of stacked ones, so that each optimiser still has its model's state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from hocket.runtimes.packing.member import Member, has_hooks

_KINDS: dict[type[Optimizer], tuple[str, ...]] = {
    SGD: ("momentum_buffer",),
    Adam: ("exp_avg", "exp_avg_sq"),
    AdamW: ("exp_avg", "exp_avg_sq"),
}
_FLAGS = ("nesterov", "maximize", "amsgrad", "differentiable", "decoupled_weight_decay")
_OFF = ("maximize", "amsgrad", "differentiable")


def kind_of(member: Member) -> tuple[object, ...] | None:
    """What must be equal for two optimisers to step as one; None if this one cannot."""
    optimiser, clip = member.optimiser, member.training.clip
    if type(optimiser) not in _KINDS or clip is not None or len(optimiser.param_groups) != 1:
        return None
    group = optimiser.param_groups[0]
    if any(group.get(flag) for flag in _OFF) or isinstance(group["lr"], Tensor):
        return None
    flags = tuple(bool(group.get(flag)) for flag in _FLAGS)
    has_momentum = type(optimiser) is not SGD or bool(group["momentum"])
    return (type(optimiser), flags, has_momentum, bool(group["weight_decay"]))


def steps_all(member: Member) -> bool:
    """Whether its optimiser steps every weight that is trained, and does nothing else."""
    stepped = {id(p) for group in member.optimiser.param_groups for p in group["params"]}
    return not has_hooks(member.optimiser) and all(id(p) in stepped for p in member.parameters)


class StackedOptimiser:
    """The optimisers of models whose parameters are all stacked."""

    def __init__(self, members: Sequence[Member], stacked: dict[str, Tensor]) -> None:
        self._groups = [member.optimiser.param_groups[0] for member in members]
        self._kind = type(members[0].optimiser)
        self._weights = list(stacked.values())
        self._state: list[dict[str, Tensor]] = []
        self._steps: list[Tensor] = []  # counters of Adam, one for each parameter
        self._firsts: list[Tensor] = []  # of these, one for each model
        self._owners = [(m, name) for m in members for name in stacked]
        for name in stacked:
            states = [m.optimiser.state[m.module.get_parameter(name)] for m in members]
            self._state.append({key: self._join(states, key) for key in _KINDS[self._kind]})
            self._steps += [s["step"] for s in states if "step" in s]
            self._firsts = self._firsts or [s["step"] for s in states if "step" in s]

    @staticmethod
    def _join(states: list[Any], key: str) -> Tensor:
        if any(not isinstance(state.get(key), Tensor) for state in states):
            return torch.empty(0)
        whole = torch.stack([state[key] for state in states])
        for number, state in enumerate(states):
            state[key] = whole[number]
        return whole

    def part(self) -> None:
        """Each optimiser gets state tensors of its own again."""
        for member, name in self._owners:
            state = member.optimiser.state[member.module.get_parameter(name)]
            for key in _KINDS[self._kind]:
                if isinstance(state.get(key), Tensor):
                    state[key] = state[key].clone()

    @torch.no_grad()
    def step(self) -> None:
        """One step of all."""
        if self._kind is SGD:
            self._sgd()
        else:
            self._adam()
        for weight in self._weights:
            weight.grad = None

    def _number(self, key: str, like: Tensor) -> float | Tensor:
        return _column([group[key] for group in self._groups], like)

    def _sgd(self) -> None:
        group = self._groups[0]
        for weight, state in zip(self._weights, self._state, strict=True):
            gradient = weight.grad
            if gradient is None:
                continue
            if group["weight_decay"]:
                gradient = _plus(gradient, weight, self._number("weight_decay", weight))
            if group["momentum"]:
                momentum = self._number("momentum", weight)
                dampening = _column([1 - g["dampening"] for g in self._groups], weight)
                buffer = state["momentum_buffer"].mul_(momentum)
                _add(buffer, gradient, dampening)
                gradient = _plus(gradient, buffer, momentum) if group["nesterov"] else buffer
            _add(weight, gradient, _column([-g["lr"] for g in self._groups], weight))

    def _adam(self) -> None:
        torch._foreach_add_(self._steps, 1)
        groups, counts = self._groups, [float(step) for step in self._firsts]
        first = [1 - g["betas"][0] ** n for g, n in zip(groups, counts, strict=True)]
        second = [(1 - g["betas"][1] ** n) ** 0.5 for g, n in zip(groups, counts, strict=True)]
        decoupled = self._kind is AdamW or bool(groups[0].get("decoupled_weight_decay"))
        for weight, state in zip(self._weights, self._state, strict=True):
            gradient = weight.grad
            if gradient is None:
                continue
            if groups[0]["weight_decay"]:
                if decoupled:
                    weight.mul_(_column([1 - g["lr"] * g["weight_decay"] for g in groups], weight))
                else:
                    gradient = _plus(gradient, weight, self._number("weight_decay", weight))
            state["exp_avg"].lerp_(gradient, _column([1 - g["betas"][0] for g in groups], weight))
            squares = state["exp_avg_sq"].mul_(_column([g["betas"][1] for g in groups], weight))
            rest = _column([1 - g["betas"][1] for g in groups], weight)
            if isinstance(rest, Tensor):
                squares.addcmul_(gradient * gradient, rest)
            else:
                squares.addcmul_(gradient, gradient, value=rest)
            root = squares.sqrt().div_(_column(second, weight)).add_(self._number("eps", weight))
            size = _column([-g["lr"] / f for g, f in zip(groups, first, strict=True)], weight)
            if isinstance(size, Tensor):
                weight.addcmul_(state["exp_avg"] / root, size)
            else:
                weight.addcdiv_(state["exp_avg"], root, value=size)


def _column(values: list[float], like: Tensor) -> float | Tensor:
    """One number if all have the same, else one for each model."""
    if all(value == values[0] for value in values):
        return values[0]
    return torch.tensor(values, dtype=like.dtype, device=like.device).view(-1, *(1,) * (like.dim() - 1))


def _add(into: Tensor, other: Tensor, factor: float | Tensor) -> None:
    if isinstance(factor, Tensor):
        into.addcmul_(other, factor)
    else:
        into.add_(other, alpha=factor)


def _plus(one: Tensor, other: Tensor, factor: float | Tensor) -> Tensor:
    return torch.addcmul(one, other, factor) if isinstance(factor, Tensor) else one.add(other, alpha=factor)
