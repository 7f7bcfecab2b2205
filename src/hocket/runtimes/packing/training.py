"""What a user gives for one model: the module and everything that trains it, unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader


class Refused(ValueError):
    """A call breaks a rule; the message names the object, the rule and the value."""


class NoRoom(Refused):
    """The model would not fit into what is left of the device's memory."""


@dataclass(eq=False)
class Training:
    """One model with its optimiser, data, schedule and number of steps: one step is one step of the optimiser.

    `loss(module(inputs), targets)` is for batches of the form (inputs, targets); `forward(module, batch)` returns
    the loss itself and is for all others. Optimiser and schedule are objects, or functions that make them.
    """

    name: str  # unique in its pack
    module: nn.Module  # the model, with its first weights; trained in place
    # An optimiser of the module's parameters, or a function that makes it of them.
    optimiser: Optimizer | Callable[[Iterator[nn.Parameter]], Optimizer]
    data: Iterable[Any]  # a DataLoader, or anything that gives its batches anew when iterated again
    steps: int  # steps of the optimiser, in all
    loss: Callable[[Any, Any], Tensor] | None = None  # gives the loss of (outputs, targets); None if `forward` is given
    # Gives the loss of (module, batch); None if `loss` is given.
    forward: Callable[[nn.Module, Any], Tensor] | None = None
    schedule: LRScheduler | Callable[[Optimizer], LRScheduler] | None = None  # of the learning rate; None: constant
    schedule_every: Literal["step", "epoch"] = "step"  # when the schedule is stepped
    autocast: torch.dtype | None = None  # bfloat16 or float16; None: full precision
    scaler: GradScaler | None = None  # of the loss, for float16; None: not scaled
    accumulate: int = 1  # batches to a step; each loss is divided by their number
    clip: float | None = None  # the most that the norm of all gradients may be; None: any
    seed: int | None = 0  # as `torch.manual_seed(seed)` right before the loop; None: the generators as they are

    def refuse(self) -> None:
        """Raise for the first rule that this breaks, if any."""
        if not self.name:
            raise Refused("a model needs a name")
        if not isinstance(self.module, nn.Module):
            raise Refused(f"model '{self.name}': an nn.Module is needed, not a {type(self.module).__name__}")
        if (self.loss is None) == (self.forward is None):
            raise Refused(f"model '{self.name}': either `loss` or `forward` is needed, and not both")
        for rule, value, least in (("steps", self.steps, 1), ("accumulate", self.accumulate, 1)):
            if not isinstance(value, Integral):
                raise Refused(f"model '{self.name}': {rule} is a whole number, not {value!r}")
            if value < least:
                raise Refused(f"model '{self.name}': {rule} is at least {least}, not {value}")
        if not callable(self.optimiser) and not isinstance(self.optimiser, Optimizer):
            kind = type(self.optimiser).__name__
            raise Refused(f"model '{self.name}': its optimiser must be one, or a function that makes it, not a {kind}")
        if self.schedule_every not in ("step", "epoch"):
            raise Refused(f"model '{self.name}': schedule_every is 'step' or 'epoch', not '{self.schedule_every}'")
        if self.clip is not None and not self.clip > 0:
            raise Refused(f"model '{self.name}': clip is a positive norm, not {self.clip}")
        if self.autocast not in (None, torch.bfloat16, torch.float16):
            raise Refused(f"model '{self.name}': autocast is torch.bfloat16 or torch.float16, not {self.autocast}")
        if not any(p.requires_grad for p in self.module.parameters()):
            raise Refused(f"model '{self.name}': no parameter of it can be trained")
        self._refuse_data()

    def _refuse_data(self) -> None:
        if not hasattr(self.data, "__iter__"):
            raise Refused(f"model '{self.name}': its data cannot be iterated, it is a {type(self.data).__name__}")
        if hasattr(self.data, "__next__"):
            raise Refused(f"model '{self.name}': its data is an iterator, which can be read only once")
        if not isinstance(self.data, DataLoader):
            if isinstance(self.data, Sized) and not len(self.data):
                raise Refused(f"model '{self.name}': its data has no batch")
            return
        if self.data.batch_size is None:
            return
        dataset = self.data.dataset
        if hasattr(dataset, "__len__") and len(dataset) < self.data.batch_size:
            raise Refused(
                f"model '{self.name}': its data set has {len(dataset)} examples, fewer than the batch's"
                f" {self.data.batch_size}"
            )


def device_of(name: torch.device | str) -> torch.device:
    """The device of this name, with its number; an error if it does not exist."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise Refused(f"device '{name}' is not one that PyTorch knows") from error
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type != "cuda":
        raise Refused(f"device '{name}': models are packed on 'cpu' and 'cuda' only")
    there = torch.cuda.device_count()
    number = torch.cuda.current_device() if device.index is None and there else device.index or 0
    if number >= there:
        raise Refused(f"device '{name}' is not there: PyTorch sees {there} CUDA devices")
    return torch.device("cuda", number)
