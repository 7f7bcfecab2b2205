"""Peak memory: predicted before a model is loaded, and seen by the allocator while it is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from hocket.runtimes.packing.measuring.setups import Setup
from hocket.runtimes.packing.measuring.stepping import clean
from hocket.runtimes.packing.pack import Pack
from hocket.runtimes.packing.training import Training

STEPS = 12


@dataclass(frozen=True)
class Peak:
    """Of one pack, in MiB."""

    predicted_mib: float
    seen_mib: float | None  # None where no allocator can be asked


def peak(setups: Sequence[Setup], device: str, way: str = "turn") -> Peak:
    """Predicted for all of them before the first is loaded; seen over a few steps."""
    clean(device)
    if device == "cuda":
        torch._C._cuda_clearCublasWorkspaces()
    trainings = []
    for number, setup in enumerate(setups):
        model = setup.model(number)
        made = setup.optimiser_of(model)
        trainings.append(Training(f"m{number}", model, made, setup.loader(), STEPS, loss=nn.CrossEntropyLoss()))
    pack = Pack(device, way=way, keep_every=2, check_every=2)
    before = 0
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    predicted = pack.memory.total(way != "turn", [(t, pack.predict(t)) for t in trainings])
    for training in trainings:
        pack.load(training)
    for _ in pack.run():
        pass
    seen = None if device != "cuda" else (torch.cuda.max_memory_allocated() - before) / (1 << 20)
    return Peak(predicted / (1 << 20), seen)
