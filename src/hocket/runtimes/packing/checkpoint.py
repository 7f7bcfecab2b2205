"""A model's complete saved state: training continues from it as if there had been no break."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hocket.runtimes.packing.tensors import leaves


@dataclass(frozen=True)
class ModelCheckpoint:
    """Module, optimiser, schedule, scaler, generators and place in the data, after `step` steps."""

    name: str  # name of the model
    step: int  # steps of the optimiser done
    reason: str  # why the model was freed
    state: dict[str, Any]  # the state of all that is named above
    failed: bool = False  # freed because it could not go on

    @property
    def loss(self) -> float | None:
        """The loss of its last step."""
        loss = self.state["loss"]
        return None if loss is None else float(loss)

    def strange_to(self, module: nn.Module, optimiser: Optimizer) -> str:
        """Why it cannot be loaded into this `module` and `optimiser`; empty if it can."""
        theirs, own = self.state["module"], module.state_dict()
        for name in sorted(own.keys() ^ theirs.keys()):
            return (
                f"it has {'no ' if name in own else ''}'{name}', and the module has {'one' if name in own else 'none'}"
            )
        for name, value in own.items():
            here, there = (tuple(getattr(v, "shape", ())) for v in (value, theirs[name]))
            if here != there:
                return f"its '{name}' has the shape {there}, the module's {here}"
        counts = [[len(g["params"]) for g in of["param_groups"]] for of in (self.state["optimiser"], vars(optimiser))]
        if counts[0] != counts[1]:
            return f"its optimiser has groups of {counts[0]} parameters, this one of {counts[1]}"
        return ""

    def save(self, path: Path | str) -> None:
        """Write it to `path`, whole or not at all: a file beside it is written, brought to disk, and renamed."""
        path = Path(path)
        part = path.with_name(path.name + ".part")
        with open(part, "wb") as file:
            torch.save((self.name, self.step, self.reason, self.state, self.failed), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)

    @staticmethod
    def read(path: Path | str) -> ModelCheckpoint:
        """Read a saved checkpoint from the file `path`. It is unpickled: read only files that you trust."""
        return ModelCheckpoint(*torch.load(path, map_location="cpu", weights_only=False))


def copied(value: Any, device: torch.device) -> Any:
    """A copy that shares no memory: tensors of more than a number on `device`, numbers where they were."""
    tensors = {id(t): t for t in leaves(value) if isinstance(t, Tensor)}
    copies = dict(zip(tensors, _copies([t.detach() for t in tensors.values()], device), strict=True))
    return _rebuilt(value, copies)


def _copies(tensors: list[Tensor], device: torch.device) -> list[Tensor]:
    """Within a GPU, all of one type by one call."""
    made: list[Tensor | None] = [None] * len(tensors)
    together: dict[torch.dtype, list[int]] = {}
    for number, tensor in enumerate(tensors):
        where = device if tensor.dim() or device.type == "cpu" else tensor.device
        if where.type == "cuda" and tensor.device == where and tensor.numel():
            together.setdefault(tensor.dtype, []).append(number)
        else:
            made[number] = tensor.to(where, copy=True)
    for numbers in together.values():
        sources = [tensors[n] for n in numbers]
        into = [torch.empty_like(t) for t in sources]
        torch._foreach_copy_(into, sources)
        for number, tensor in zip(numbers, into, strict=True):
            made[number] = tensor
    return [t for t in made if t is not None]


def _rebuilt(value: Any, copies: dict[int, Tensor]) -> Any:
    if isinstance(value, Tensor):
        return copies[id(value)]
    if isinstance(value, dict):
        return {key: _rebuilt(part, copies) for key, part in value.items()}
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_rebuilt(part, copies) for part in value)
    if isinstance(value, list):
        return [_rebuilt(part, copies) for part in value]
    return value


def put_back(module: nn.Module, optimiser: Optimizer, state: dict[str, Any]) -> None:
    """Weights, buffers and optimiser state as they were, written into the tensors that are there."""
    with torch.no_grad():
        now = module.state_dict()
        for key, value in state["module"].items():
            if isinstance(value, Tensor):
                now[key].copy_(value)
        numbered = [p for group in optimiser.param_groups for p in group["params"]]
        saved = state["optimiser"]["state"]
        for number, parameter in enumerate(numbered):
            if number not in saved:
                optimiser.state.pop(parameter, None)
                continue
            for key, value in saved[number].items():
                there = optimiser.state[parameter].get(key)
                if isinstance(there, Tensor) and isinstance(value, Tensor) and there.shape == value.shape:
                    there.copy_(value)
                else:
                    optimiser.state[parameter][key] = value
        for group, was in zip(optimiser.param_groups, state["optimiser"]["param_groups"], strict=True):
            for key, value in was.items():
                if key != "params" and not isinstance(group.get(key), Tensor):
                    group[key] = value
