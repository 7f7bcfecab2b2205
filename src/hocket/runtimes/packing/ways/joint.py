"""One joint graph: all models forward, one backward over the sum of their losses, then each optimiser."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hocket.runtimes.packing.dice import cuda_generator
from hocket.runtimes.packing.member import Member
from hocket.runtimes.packing.ways.turn import Turn
from hocket.runtimes.packing.ways.way import without_frames


class Unfaithful(Exception):
    """The step did not keep each model's random numbers its own."""


class Joint:
    """The paper's packing: the outputs are concatenated, and differentiated at once."""

    name = "joint"
    light = True
    exact = True

    def __init__(self) -> None:
        self._turn = Turn()
        self._drawing: set[str] = set()  # models of steps whose backward drew random numbers: whose, nobody can tell

    def refuses(self, member: Member) -> str | None:
        """Models with several batches to a step: their graphs would all be held at once."""
        if member.in_turn_only is not None:
            return member.in_turn_only
        if member.training.accumulate > 1:
            return "accumulates gradients over several batches"
        if member.name in self._drawing:
            return "its backward pass, or that of a model beside it, draws random numbers"
        return None

    def step(self, members: Sequence[Member]) -> dict[str, Exception]:
        """All forward, all backward; if anything fails, everybody is rolled back and goes in turn."""
        losses: list[Tensor] = []
        for member in members:
            member.mark()
        try:
            for member in members:
                member.optimiser.zero_grad(set_to_none=True)
                member.dice.take()
                try:
                    losses.append(member.loss_of(member.batches()[0].aligned()))
                finally:
                    member.dice.leave()
            before = drawn(members[0].device)
            torch.autograd.backward([m.scaled(loss) for m, loss in zip(members, losses, strict=True)])
            if not torch.equal(before, drawn(members[0].device)):
                self._drawing.update(member.name for member in members)
                raise Unfaithful
        except Exception:
            for member in members:
                member.roll_back()
            return self._turn.step(members)
        failed: dict[str, Exception] = {}
        for member, loss in zip(members, losses, strict=True):
            member.dice.take()
            try:
                member.update()
            except Exception as error:
                member.dice.leave()
                member.roll_back()
                failed[member.name] = without_frames(error)
                continue
            member.dice.leave()
            member.done(loss.detach())
        return failed

    def settled(self, members: Sequence[Member]) -> bool:  # noqa: ARG002
        """At once."""
        return True

    def release(self, member: Member) -> None:
        """Nothing was done to it."""
        self._drawing.discard(member.name)


def drawn(device: torch.device) -> Tensor:
    """Changes whenever somebody draws from the generators."""
    if device.type == "cuda":
        return torch.cat([torch.default_generator.get_state(), cuda_generator(device).get_state()])
    return torch.default_generator.get_state()
