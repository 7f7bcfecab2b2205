"""How far a way of running is from the solo run: one step from equal state both ways, compared number by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from hocket.runtimes.packing.feed import Batch
from hocket.runtimes.packing.member import Member
from hocket.runtimes.packing.ways.turn import Turn
from hocket.runtimes.packing.ways.way import Way

_WHOLE = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}


@dataclass(frozen=True)
class Certificate:
    """What was found for one model. Units in the last place are counted over weights, buffers and optimiser state."""

    way: str
    step: int  # the step that was made both ways
    max_ulp: int  # 0: bitwise
    share_equal: float  # of all numbers
    max_scaled: float  # the largest difference over the largest number of its tensor
    repeat_ulp: int = (
        0  # how far two solo steps from the same state are apart: more than 0 if the device does not repeat
    )
    measured: bool = True  # False: the way is the solo run's own

    @property
    def bitwise(self) -> bool:
        """Whether all numbers were the same."""
        return self.max_ulp == 0

    def __str__(self) -> str:
        if self.bitwise:
            return f"{self.way}: bitwise"
        return (
            f"{self.way}: at most {self.max_ulp:,} ulp a step, {self.share_equal:.1%} equal,"
            f" within {self.max_scaled:.1e} of each tensor's largest"
            + (f"; the device itself repeats to {self.repeat_ulp:,} ulp" if self.repeat_ulp else "")
        )


def of_turn(member: Member) -> Certificate:
    """In turn, a model is trained by the same calls as alone."""
    return Certificate("turn", member.step, 0, 1.0, 0.0, measured=False)


def certified(way: Way, members: Sequence[Member]) -> tuple[dict[str, Certificate], dict[str, Exception]]:
    """Make the next step of each both ways, from the same state. What stands afterwards is what `way` made."""
    batches = {m.name: list(m.batches()) for m in members}
    before = {m.name: m.kept() for m in members}
    failed = Turn().step(members)
    whole = [m for m in members if m.name not in failed]
    alone = {m.name: _numbers(m.kept()) for m in whole}
    repeats: dict[str, int] = {}
    if members[0].device.type == "cuda":  # Its libraries may add in another order each time.
        _again(whole, before, batches)
        failed.update(Turn().step(whole))
        repeats = {m.name: compared("turn", m.step, alone[m.name], _numbers(m.kept())).max_ulp for m in whole}
        whole = [m for m in whole if m.name not in failed]
    _again(whole, before, batches)
    failed.update(way.step(whole))
    found = {
        m.name: replace(
            compared(way.name, m.step, alone[m.name], _numbers(m.kept())), repeat_ulp=repeats.get(m.name, 0)
        )
        for m in whole
        if m.name not in failed
    }
    return found, failed


def _again(members: Sequence[Member], before: dict[str, Any], batches: dict[str, list[Batch]]) -> None:
    for member in members:
        member.again(before[member.name], batches[member.name])


def compared(way: str, step: int, one: list[Tensor], other: list[Tensor]) -> Certificate:
    """Two lists of tensors, number by number."""
    worst, scaled, equal, count = 0, 0.0, 0, 0
    for left, right in zip(one, other, strict=True):
        apart = ulps(left, right)
        count += apart.numel()
        if apart.numel():
            equal += int((apart == 0).sum())
            worst = max(worst, int(apart.max()))
            if left.is_floating_point():
                size = float(left.abs().max())
                scaled = max(scaled, float((left - right).abs().max()) / size if size else 0.0)
    return Certificate(way, step, worst, equal / count if count else 1.0, scaled)


def ulps(one: Tensor, other: Tensor) -> Tensor:
    """How many representable numbers lie between each two, and the difference for whole numbers."""
    if not one.is_floating_point():
        return (one.to(torch.int64) - other.to(torch.int64)).abs()
    return (_ordered(one) - _ordered(other)).abs()


def _ordered(value: Tensor) -> Tensor:
    """Bits as whole numbers that are ordered as the floating-point numbers are."""
    value = value.contiguous()
    bits = value.view(_WHOLE[value.element_size()]).to(torch.int64)
    lowest = -(1 << (8 * value.element_size() - 1))
    return torch.where(bits < 0, lowest - bits, bits)


def _numbers(state: dict[str, Any]) -> list[Tensor]:
    found = [v for v in state["module"].values() if isinstance(v, Tensor)]
    for values in state["optimiser"]["state"].values():
        found += [v.cpu() if not v.dim() else v for v in values.values() if isinstance(v, Tensor)]
    return found
