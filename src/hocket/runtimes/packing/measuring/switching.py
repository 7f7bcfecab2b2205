"""What it costs to train one model after the other on a device, beside their training: Table 2.1 of the paper."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.runtimes.packing.measuring.setups import Setup
from hocket.runtimes.packing.measuring.stepping import Alone, clean, clock, loaded, settled, wait


@dataclass(frozen=True)
class Switching:
    """Seconds; an epoch is a number of steps."""

    steps: int
    sequence_s: float  # two models, one after the other: loaded, trained, taken off the device
    models_s: tuple[float, float]  # their training alone
    packed_s: float  # both in one pack, loading, probe and taking off included

    @property
    def overhead_s(self) -> float:
        """The paper's SwOH(2)."""
        return self.sequence_s - sum(self.models_s)


def switching(setup: Setup, steps: int, device: str) -> Switching:
    """Two models of one kind for an epoch each."""
    clean(device)
    Alone(setup, device).step()  # What the process pays once is no switch.
    clean(device)
    now = clock(device)
    trained: list[float] = []
    began = now()
    for seed in range(2):
        model = Alone(setup, device, seed)
        model.step()  # The first step makes the optimiser's state and lets libraries choose: part of the switch.
        wait(device)
        since = now()
        for _ in range(steps):
            model.step()
        wait(device)
        trained.append(now() - since)
        model.model.cpu()
        del model
        clean(device)
    sequence_s = now() - began
    began = now()
    pack = loaded([setup, setup], device)
    settled(pack)
    while pack.steps < steps:
        pack.step()
    for name in list(pack.members):
        pack.free(name)
    wait(device)
    return Switching(steps, sequence_s, (trained[0], trained[1]), now() - began)
