"""Models that wait on the host while others use the device's memory: the halves of a split pack take turns."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hocket.runtimes.packing.member import Member

TURN_STEPS = 50  # steps of the pack before the next group is moved to the device


class HostOffload:
    """Groups of models; one is on the device, the others wait on the host. Usually there is one group."""

    def __init__(self) -> None:
        self._waiting: list[list[Member]] = []  # groups that wait, the next first
        self._left = TURN_STEPS
        self.too_large: list[Member] = []  # models that could not be moved back to the device

    def present(self, members: Sequence[Member]) -> list[Member]:
        """The models on the device for the next step; swaps in the next group when its turn has come."""
        self._waiting = [group for group in self._waiting if group]
        here = [m for m in members if not self.is_offloaded(m)]
        if not self._waiting:
            return here
        self._left -= 1
        if here and self._left > 0:
            return here
        self._left = TURN_STEPS
        coming = self._waiting.pop(0)
        if here:
            for member in here:
                move(member, torch.device("cpu"))
            self._waiting.append(here)
        return self._arrived(coming)

    def _arrived(self, coming: list[Member]) -> list[Member]:
        """Move as many to the device as fit; the others become the next group."""
        for number, member in enumerate(coming):
            try:
                move(member, member.device)
            except torch.OutOfMemoryError:
                move(member, torch.device("cpu"))
                if not number:  # It does not fit, even alone on the device.
                    self.too_large.append(coming.pop(0))
                self._waiting.insert(0, coming[number:])
                return coming[:number]
        return coming

    def is_offloaded(self, member: Member) -> bool:
        """Whether it waits on the host."""
        return any(member in group for group in self._waiting)

    def split(self, members: Sequence[Member], keep: Member | None = None) -> bool:
        """Move half of the models on the device, except `keep`, to the host; False if there is no other."""
        others = [m for m in members if m is not keep and not self.is_offloaded(m)]
        if not others:
            return False
        going = others[len(others) // 2 :]
        for member in going:
            move(member, torch.device("cpu"))
        self._waiting.append(going)
        return True

    def fetch(self, member: Member) -> None:
        """Bring it back before it is freed."""
        if self.is_offloaded(member):
            move(member, member.device)
            self.forget(member)

    def forget(self, member: Member) -> None:
        """It has left."""
        self._waiting = [[m for m in group if m is not member] for group in self._waiting]


def move(member: Member, device: torch.device) -> None:
    """Weights, buffers and optimiser state to another device, within the same objects."""
    member.optimiser.zero_grad(set_to_none=True)
    for tensor in (*member.module.parameters(), *member.module.buffers()):
        tensor.data = tensor.data.to(device)
    for state in member.optimiser.state.values():
        for key, value in state.items():
            if isinstance(value, Tensor) and value.dim():
                state[key] = value.to(device)
