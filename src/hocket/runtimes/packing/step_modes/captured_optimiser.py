"""Whether and how an optimiser's step can be part of a captured graph.

A graph replays the numbers it was captured with. So a learning rate that changes is read from a tensor where the
optimiser can do that; otherwise the optimiser stays outside the graph, or the graph is captured again when a number
changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adagrad

from hocket.runtimes.packing.member import FLAGS, Member, has_hooks


class CapturedOptimiser:
    """One model's optimiser in a captured graph. It is made before the capture begins."""

    def __init__(self, member: Member, exact: bool) -> None:
        self._member, self._groups = member, member.optimiser.param_groups
        changes = member.schedule is not None
        sgd = type(member.optimiser) is SGD
        adagrad = type(member.optimiser) is Adagrad and not any(g["lr_decay"] for g in self._groups)
        plain = sgd or (adagrad and not changes)  # Its numbers are the same in every step.
        # With the rate in a tensor, or counters on the device, the arithmetic is not quite that of the plain ones.
        can = (plain and not (changes and exact)) or (all("capturable" in g for g in self._groups) and not exact)
        # A scaler asks the host whether to step, and a hook is called there.
        self.inside = can and member.scaler is None and not has_hooks(member.optimiser)
        self._reads_rate = self.inside and (changes or not plain)
        self._counters = self._host_counters() if self.inside and adagrad else []
        self._rates: list[Tensor] = []
        self._held = self._numbers()
        if self._reads_rate:
            self._rates = [torch.tensor(float(g["lr"]), device=member.device) for g in self._groups]
        if self.inside and not plain:
            self._count_on_device()

    def _host_counters(self) -> list[Tensor]:
        return [state["step"] for state in self._member.optimiser.state.values() if "step" in state]

    def count(self) -> None:
        """Count a replayed step in the host's counters, which a replay leaves alone."""
        if self._counters:
            torch._foreach_add_(self._counters, 1)

    def _count_on_device(self) -> None:
        for group in self._groups:
            group["capturable"] = True
            for parameter in group["params"]:
                state = self._member.optimiser.state.get(parameter, {})
                if isinstance(state.get("step"), Tensor):
                    state["step"] = state["step"].to(self._member.device, torch.float32)

    @contextmanager
    def capturing(self) -> Iterator[bool]:
        """A context for the capture; True if the optimiser's step is part of it."""
        changed: tuple[str, ...] = ("lr", "fused", "foreach")
        before = [{k: group[k] for k in changed if k in group} for group in self._groups]
        counted = [counter.clone() for counter in self._counters]
        for group, rate in zip(self._groups, self._rates, strict=False):
            group["lr"] = rate
            if type(self._member.optimiser) is SGD:  # Only its fused form reads a rate on the device.
                group["fused"], group["foreach"] = True, False
        try:
            yield self.inside
        finally:
            for counter, earlier in zip(self._counters, counted, strict=True):
                counter.copy_(earlier)
            for group, was in zip(self._groups, before, strict=True):
                group.update(was)

    def refresh(self) -> None:
        """Before a replay: the rates as they are now."""
        for group, rate, held in zip(self._groups, self._rates, self._held, strict=False):
            now = float(group["lr"])
            if now != held["lr"]:
                rate.fill_(now)
                held["lr"] = now

    def stale(self) -> bool:
        """Whether a number that the graph holds is no longer the optimiser's."""
        return self.inside and any(
            group[key] != value
            for group, held in zip(self._groups, self._held, strict=True)
            for key, value in held.items()
            if key != "lr" or not self._reads_rate
        )

    def _numbers(self) -> list[dict[str, Any]]:
        return [
            {k: v for k, v in group.items() if isinstance(v, int | float | tuple) and k not in FLAGS}
            for group in self._groups
        ]


def as_made(member: Member) -> None:
    """The optimiser as the user made it. Graphs that hold it must be gone: its counters are other tensors then."""
    for group, was in zip(member.optimiser.param_groups, member.flags, strict=True):
        group.update(was)
        if "capturable" in group and not group["capturable"] and not group.get("fused"):
            for parameter in group["params"]:
                state = member.optimiser.state.get(parameter, {})
                if isinstance(state.get("step"), Tensor):
                    state["step"] = state["step"].cpu()
