"""One joint graph: all models forward, one backward over the sum of their losses, then each optimiser."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hocket.runtimes.packing.member import Member
from hocket.runtimes.packing.rng_state import cuda_generator
from hocket.runtimes.packing.step_modes.step_mode import OneByOne, without_frames


class Unfaithful(Exception):
    """The step mixed the random numbers of several models."""


class JointBackward:
    """The paper's packing: the outputs are concatenated, and differentiated at once."""

    name = "joint"
    joins_cheaply = True
    exact = True

    def __init__(self) -> None:
        self._solo = OneByOne()
        self._drawing: set[str] = set()  # models of steps whose backward pass drew random numbers

    def refuses(self, member: Member) -> str | None:
        """Refuses models with several batches per step: their graphs would all be held at once."""
        if member.solo_only is not None:
            return member.solo_only
        if member.training.accumulate > 1:
            return "accumulates gradients over several batches"
        if member.name in self._drawing:
            return "its backward pass, or that of a model beside it, draws random numbers"
        return None

    def step(self, members: Sequence[Member]) -> dict[str, Exception]:
        """All forward, all backward; if anything fails, all are rolled back and step one by one."""
        losses: list[Tensor] = []
        for member in members:
            member.begin_step()
        try:
            for member in members:
                member.optimiser.zero_grad(set_to_none=True)
                member.rng.install()
                try:
                    losses.append(member.loss_of(member.batches()[0].aligned()))
                finally:
                    member.rng.read_back()
            before = drawn(members[0].device)
            torch.autograd.backward([m.scaled(loss) for m, loss in zip(members, losses, strict=True)])
            if not torch.equal(before, drawn(members[0].device)):
                self._drawing.update(member.name for member in members)
                raise Unfaithful
        except Exception:
            for member in members:
                member.roll_back()
            return self._solo.step(members)
        failed: dict[str, Exception] = {}
        for member, loss in zip(members, losses, strict=True):
            member.rng.install()
            try:
                member.update()
            except Exception as error:
                member.rng.read_back()
                member.roll_back()
                failed[member.name] = without_frames(error)
                continue
            member.rng.read_back()
            member.done(loss.detach())
        return failed

    def is_warm(self, members: Sequence[Member]) -> bool:  # noqa: ARG002
        """At once."""
        return True

    def release(self, member: Member) -> None:
        """Nothing to undo."""
        self._drawing.discard(member.name)


def drawn(device: torch.device) -> Tensor:
    """The state of the generators: it changes with every draw."""
    if device.type == "cuda":
        return torch.cat([torch.default_generator.get_state(), cuda_generator(device).get_state()])
    return torch.default_generator.get_state()
