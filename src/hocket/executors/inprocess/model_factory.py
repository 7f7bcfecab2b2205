"""What the executor must be told of a job: how far its model is to be trained, how it is made and how it is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from torch import nn

    from hocket.runtimes.packing.training import Training


# What is told of a model's stay in a pack, among its metrics: seconds of a step, of one alone, and how many others.
STEP_S, ALONE_S, OTHERS = "pack.step_s", "pack.alone_s", "pack.others"


class Stretch(Struct, frozen=True, gc=False):
    """A job's part of a model's training: from where the model stands to this step."""

    model: str  # several jobs may train one model, one after another
    until: int  # the step at which it is over
    epoch: int  # what that is to be reported as


class ModelFactory(Protocol):
    """Knows the models that jobs train."""

    def stretch(self, job: str) -> Stretch:
        """What a job is to do."""

    def training(self, job: str) -> Training:
        """The job's model as it is before its first step."""

    def metrics(self, job: str, module: nn.Module) -> dict[str, float]:
        """What the module is worth now; it is on its device, and in evaluation mode."""
