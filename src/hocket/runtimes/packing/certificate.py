"""Compares a step mode with the solo run: one step from the same state in both, number by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from hocket.runtimes.packing.determinism import watched_operations
from hocket.runtimes.packing.member import Member
from hocket.runtimes.packing.step_modes.step_mode import OneByOne, StepMode

ENOUGH = 2  # models of a kind that are measured

_WHOLE = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}


@dataclass(frozen=True)
class Certificate:
    """The result for one model. Units in the last place (ulp) are counted over weights, buffers and optimiser state."""

    mode: str  # that was compared with the solo run
    step: int  # the step that was compared
    max_ulp: int  # 0: bitwise; less: nothing was measured
    share_equal: float  # part of all numbers that were the same, from 0 to 1
    max_scaled: float  # the largest difference over the largest number of its tensor
    repeat_ulp: int = 0  # difference of two solo steps from the same state: 0 if the device is deterministic
    measured: bool = True  # on this model; False: the mode is `turn`, or other models of its kind were measured

    @property
    def bitwise(self) -> bool:
        """Whether all numbers were the same."""
        return self.max_ulp == 0

    def __str__(self) -> str:
        if self.bitwise:
            return f"{self.mode}: bitwise"
        if self.max_ulp < 0:
            return f"{self.mode}: not measured"
        return (
            f"{self.mode}: at most {self.max_ulp:,} ulp a step, {self.share_equal:.1%} equal,"
            f" within {self.max_scaled:.1e} of each tensor's largest"
            + (f"; two solo steps differ by {self.repeat_ulp:,} ulp" if self.repeat_ulp else "")
        )


class CertificateTable:
    """Results by mode and kind of model: the first few of a kind are measured, others get their result."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], list[Certificate]] = {}

    def add(self, member: Member, certificate: Certificate) -> None:
        """Add a measured result."""
        self._found.setdefault(self._kind(member, certificate.mode), []).append(certificate)

    def of_its_kind(self, member: Member, mode: str) -> Certificate | None:
        """The worst result for such models, if enough were measured."""
        found = self._found.get(self._kind(member, mode), ())
        if len(found) < ENOUGH:
            return None
        return replace(max(found, key=lambda c: c.max_ulp), step=member.step, measured=False)

    def to_measure(self, members: Sequence[Member], mode: str) -> list[Member]:
        """The first of these of each kind, until enough of it are measured."""
        counts: dict[tuple[object, ...], int] = {}
        chosen: list[Member] = []
        for member in members:
            kind = self._kind(member, mode)
            if counts.setdefault(kind, len(self._found.get(kind, ()))) < ENOUGH:
                counts[kind] += 1
                chosen.append(member)
        return chosen

    @staticmethod
    def _kind(member: Member, mode: str) -> tuple[object, ...]:
        training = member.training
        rest = (training.autocast, training.clip is None, training.accumulate, member.schedule is None)
        return mode, str(member.device), member.layers, member.shapes, type(member.optimiser), *rest


def solo_certificate(member: Member) -> Certificate:
    """The certificate for `turn`: a model is trained by the same calls as alone."""
    return Certificate("turn", member.step, 0, 1.0, 0.0, measured=False)


def not_measured(mode: str, member: Member) -> Certificate:
    """The model was stepped in this mode, and neither it nor a similar model was compared."""
    return Certificate(mode, member.step, -1, 0.0, 0.0, measured=False)


def certified(
    mode: StepMode, members: Sequence[Member], others: Sequence[Member]
) -> tuple[dict[str, Certificate], dict[str, Exception]]:
    """Make the next step of these members in `mode` and by themselves, from the same state; others step in `mode` only.

    Afterwards the models have the state that `mode` computed.
    """
    solo = _SoloSteps(members)
    repeats: dict[str, int] = {}
    if members[0].device.type == "cuda":  # Libraries may add in another order each time.
        repeats = solo.repeat()
    solo.rewind()
    whole, alone, failed = solo.whole, solo.alone, solo.failed
    failed.update(mode.step([m for m in others if m.name not in failed]))
    found = {
        m.name: replace(
            compared(mode.name, m.step, alone[m.name], _numbers(m.copy_state())), repeat_ulp=repeats.get(m.name, 0)
        )
        for m in whole
        if m.name not in failed
    }
    return found, failed


def unrepeatable(members: Sequence[Member]) -> tuple[dict[str, str], dict[str, Exception]]:
    """Make the next step of these members by themselves: why it would not be the same if it was made again, if so.

    On a GPU it is also made with PyTorch's deterministic algorithms, to find operations that have none, or that are
    others than those in use: that two steps are the same by chance proves nothing.
    """
    found: dict[str, str] = {}
    settled: dict[str, list[Tensor]] = {}
    for member in members if members[0].device.type == "cuda" else ():
        with watched_operations() as operations:
            tried = _SoloSteps([member])
            tried.rewind()
        settled |= tried.alone
        if operations:
            found[member.name] = f"{' and '.join(operations)} may add in another order each time"
    solo = _SoloSteps(members)
    for member in solo.whole:
        if member.name in settled and member.name not in found:
            apart = compared("turn", member.step, solo.alone[member.name], settled[member.name])
            if not apart.bitwise:
                found[member.name] = (
                    f"PyTorch's deterministic algorithms give other numbers, up to {apart.max_ulp:,} ulp; set"
                    " torch.use_deterministic_algorithms(True)"
                )
    for name, ulp in solo.repeat().items():
        if ulp and name not in found:
            found[name] = f"two steps from the same state differ by up to {ulp:,} ulp"
    return found, solo.failed


class _SoloSteps:
    """One step of each member by itself, which can be made again from the same state."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._batches = {m.name: list(m.batches()) for m in members}
        self._before = {m.name: m.copy_state() for m in members}
        self.failed = OneByOne().step(members)
        self.whole = [m for m in members if m.name not in self.failed]
        self.alone = {m.name: _numbers(m.copy_state()) for m in self.whole}

    def rewind(self) -> None:
        """Go back to before the step."""
        for member in self.whole:
            member.rewind(self._before[member.name], self._batches[member.name])

    def repeat(self) -> dict[str, int]:
        """Make the step again: the difference from the first time, in ulp."""
        self.rewind()
        self.failed.update(OneByOne().step(self.whole))
        self.whole = [m for m in self.whole if m.name not in self.failed]
        found = ((m, compared("turn", m.step, self.alone[m.name], _numbers(m.copy_state()))) for m in self.whole)
        return {member.name: result.max_ulp for member, result in found}


def compared(mode: str, step: int, one: list[Tensor], other: list[Tensor]) -> Certificate:
    """Two lists of tensors, number by number; those of one type and place at once."""
    worst, scaled, equal, count = 0, 0.0, 0, 0
    kinds: dict[tuple[object, ...], list[tuple[Tensor, Tensor]]] = {}
    for left, right in zip(one, other, strict=True):
        if left.numel():
            kinds.setdefault((left.dtype, left.device), []).append((left, right))
    for pairs in kinds.values():
        lefts, rights = [left for left, _ in pairs], [right for _, right in pairs]
        apart = ulps(*(torch.cat([t.reshape(-1) for t in side]) for side in (lefts, rights)))
        count += apart.numel()
        equal += int((apart == 0).sum())
        most = int(apart.max())
        worst = max(worst, most)
        if most and lefts[0].is_floating_point():
            far = torch.stack(torch._foreach_norm(torch._foreach_sub(lefts, rights), float("inf")))
            size = torch.stack(torch._foreach_norm(lefts, float("inf")))
            scaled = max(scaled, float((far / size).nan_to_num(0.0, 0.0).max()))
    return Certificate(mode, step, worst, equal / count if count else 1.0, scaled)


def ulps(one: Tensor, other: Tensor) -> Tensor:
    """The number of representable numbers between each two; for integers, their difference."""
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
