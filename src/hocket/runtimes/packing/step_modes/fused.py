"""Fused: equal models with stacked weights, so that one multiplication is enough for all. For the CPU.

On a GPU captured graphs remove the same overhead for every kind of model, and keep the results bitwise.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from hocket.runtimes.packing.member import Member
from hocket.runtimes.packing.step_modes.stack import NotStackable, Stack, plan_of, signature
from hocket.runtimes.packing.step_modes.stacked_optimiser import StackedOptimiser, kind_of, steps_all
from hocket.runtimes.packing.step_modes.step_mode import OneByOne, without_frames


class StackedModels:
    """Models that are stacked at present."""

    def __init__(self, members: Sequence[Member], plan: fx.GraphModule) -> None:
        self.members = list(members)
        self.stack = Stack(members, plan)
        kinds = {kind_of(member) for member in members}
        together = self.stack.all_stacked and len(kinds) == 1 and None not in kinds and all(map(steps_all, members))
        self.optimiser = StackedOptimiser(members, self.stack.stacked) if together else None

    def part(self) -> None:
        """Split them into separate models again."""
        self.stack.part()
        if self.optimiser is not None:
            self.optimiser.part()

    def step(self) -> dict[str, Exception]:
        """One step of all; raises before anything but buffers and generators has changed."""
        failed: dict[str, Exception] = {}
        batches = [member.batches()[0] for member in self.members]
        shared = batches[0].token is not None and all(b.token == batches[0].token for b in batches)
        inputs = batches[0].aligned()[0] if shared else torch.stack([b.value[0] for b in batches])
        outputs = self.stack(inputs, stacked=not shared)
        losses = self._losses(outputs, [b.value[1] for b in batches], shared)
        for member in self.members:
            member.optimiser.zero_grad(set_to_none=True)
        for whole in self.stack.stacked.values():
            whole.grad = None
        torch.autograd.backward(losses.sum())
        if self.optimiser is not None:
            self.optimiser.step()
        else:
            self.stack.hand_out_gradients()
            for member in self.members:
                try:
                    member.update()
                except Exception as error:
                    failed[member.name] = without_frames(error)
        for member, loss in zip(self.members, losses.detach().unbind(), strict=True):
            if member.name not in failed:
                member.done(loss)
        return failed

    def _losses(self, outputs: Tensor, targets: list[Tensor], shared: bool) -> Tensor:
        functions = [member.training.loss for member in self.members]
        if all(_is_cross_entropy(f) for f in functions) and outputs.dim() == 3 and _classes(targets, shared):
            together = targets[0].repeat(len(targets)) if shared else torch.cat(targets)
            each = functional.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), together, reduction="none")
            return each.view(outputs.shape[:2]).mean(1)
        found = []
        for member, output, target in zip(self.members, outputs.unbind(), targets, strict=True):
            member.rng.install()
            try:
                assert member.training.loss is not None
                found.append(member.training.loss(output, target).reshape(()))
            finally:
                member.rng.read_back()
        return torch.stack(found)


class Fused:
    """Groups of equal models; a model without an equal steps by itself."""

    name = "fused"
    joins_cheaply = True
    exact = False

    def __init__(self) -> None:
        self._solo = OneByOne()
        self._plans: dict[str, tuple[fx.GraphModule, tuple[object, ...]]] = {}
        self._groups: dict[tuple[object, ...], StackedModels] = {}

    def refuses(self, member: Member) -> str | None:
        """Refuses models that are more than a loss over stackable layers."""
        training = member.training
        if member.device.type != "cpu":
            return "stacked weights are faster only on the CPU"
        if member.solo_only is not None:
            return member.solo_only
        if training.loss is None:
            return "its loss is not a function of outputs and targets"
        if training.autocast is not None or training.scaler is not None or training.accumulate > 1:
            return "it uses autocast, a scaler or several batches per step"
        if member.name not in self._plans:
            try:
                plan = plan_of(member.module)
            except NotStackable as error:
                return str(error)
            self._plans[member.name] = plan, signature(plan)
        return None

    def step(self, members: Sequence[Member]) -> dict[str, Exception]:
        """One step of each group, and of the other models one by one."""
        by_key: dict[tuple[object, ...], list[Member]] = {}
        for member in members:
            usual = getattr(member.training.data, "batch_size", None)
            by_key.setdefault((self._plans[member.name][1], kind_of(member), usual), []).append(member)
        for key in [k for k in self._groups if self._groups[k].members != by_key.get(k)]:
            self._groups.pop(key).part()
        failed: dict[str, Exception] = {}
        for key, equal in by_key.items():
            ready = all(member.step for member in equal)  # The first step makes the optimiser's state.
            batches = {member.batches()[0].shape for member in equal}
            if len(equal) < 2 or not ready or len(batches) > 1 or not _is_pair(equal[0].batches()[0].value):
                failed.update(self._solo.step(equal))
                continue
            if key not in self._groups:
                self._groups[key] = StackedModels(equal, self._plans[equal[0].name][0])
            failed.update(self._stepped(self._groups[key]))
        return failed

    def _stepped(self, group: StackedModels) -> dict[str, Exception]:
        for member in group.members:
            member.begin_step()
        try:
            return group.step()
        except Exception:  # One of them failed; stepping them one by one shows which.
            for member in group.members:
                member.roll_back()
            return self._solo.step(group.members)

    def is_warm(self, members: Sequence[Member]) -> bool:
        """Once the optimisers have made their state."""
        return all(member.step for member in members)

    def release(self, member: Member) -> None:
        """Split its group; the others are stacked again at their next step."""
        for key in [k for k, group in self._groups.items() if member in group.members]:
            self._groups.pop(key).part()
        self._plans.pop(member.name, None)


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(v, Tensor) for v in value)


def _is_cross_entropy(function: object) -> bool:
    if function is functional.cross_entropy:
        return True
    return (
        type(function) is nn.CrossEntropyLoss
        and function.weight is None
        and function.reduction == "mean"
        and not function.label_smoothing
        and function.ignore_index < 0
    )


def _classes(targets: list[Tensor], shared: bool) -> bool:
    """Plain class numbers, none of them to be ignored."""
    looked_at = targets[:1] if shared else targets
    return all(t.dim() == 1 and t.dtype == torch.int64 and bool((t >= 0).all()) for t in looked_at)
