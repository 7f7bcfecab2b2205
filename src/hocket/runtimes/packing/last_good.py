"""The last good state of each model: copied every so many steps, and good once a loss computed from it is finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hocket.runtimes.packing.member import Member
from hocket.runtimes.packing.tensors import n_bytes

ON_DEVICE_BYTES = 32 << 20  # A small state is copied within the device, without synchronisation.


class LastGoodState:
    """Two states of one model: one that is known to be good, and one whose first loss is not known yet."""

    def __init__(self, member: Member, every: int) -> None:
        self._member, self._every = member, every
        state = member.state()
        small = n_bytes((state["module"], state["optimiser"])) <= ON_DEVICE_BYTES
        self._place = member.device if small else torch.device("cpu")
        self.good: dict[str, Any] = member.copy_state(self._place)
        self._fresh: dict[str, Any] | None = None

    def confirm(self, step: int) -> None:
        """The loss of this step was finite: the state that it was computed from is good."""
        if self._fresh is not None and self._fresh["step"] < step:
            self.good, self._fresh = self._fresh, None

    def keep(self) -> None:
        """Copy the state, if it is time."""
        if self._member.step - self.good["step"] >= self._every and self._fresh is None:
            self._fresh = self._member.copy_state(self._place)


class LossMonitor:
    """Looks for losses that are not finite: at once on the CPU, on a GPU every so many steps and without waiting."""

    def __init__(self, device: torch.device, every: int) -> None:
        self._device, self._every = device, every
        self._steps = 0
        self._asked: tuple[list[tuple[Member, int]], torch.Tensor, torch.cuda.Event] | None = None

    def look(self, members: Sequence[Member]) -> list[tuple[Member, int, float]]:
        """Members with the step and the value of a loss, as far as known by now."""
        if self._device.type == "cpu":
            return [(m, m.step, float(m.loss)) for m in members if m.loss is not None]
        found: list[tuple[Member, int, float]] = []
        self._steps += 1
        if self._asked is not None and self._asked[2].query():  # type: ignore[no-untyped-call]
            checked, losses, _ = self._asked
            found = [(m, step, loss) for (m, step), loss in zip(checked, losses.tolist(), strict=True)]
            self._asked = None
        if self._asked is None and self._steps % self._every == 0:
            known = [m for m in members if m.loss is not None]
            if known:
                stacked = torch.stack([m.loss.reshape(()).float() for m in known if m.loss is not None])
                host = torch.empty(stacked.shape, pin_memory=True).copy_(stacked, non_blocking=True)
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record()
                self._asked = [(m, m.step) for m in known], host, event
        return found
