"""Random number generators per model: while a model steps, the global generators are as in its solo run."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Swapping NumPy's and Python's generators is slow: models that do not use them in their first steps go without.
WATCHED_STEPS = 3


class RngState:
    """The generator states of one model. `install` sets the global generators, `read_back` stores their new states."""

    def __init__(self, device: torch.device, seed: int | None) -> None:
        self._device = device
        self._cuda = cuda_generator(device).clone_state() if device.type == "cuda" else None
        self._python_numpy: tuple[Any, Any] | None  # None: the model does not use them
        if seed is None:
            self._cpu = torch.default_generator.get_state()
            self._python_numpy = python_numpy_states()
        else:
            self._cpu = torch.Generator().manual_seed(seed).get_state()
            if self._cuda is not None:
                self._cuda.manual_seed(seed)
            self._python_numpy = random.Random(seed).getstate(), np.random.RandomState(seed % 2**32).get_state()
        self._steps = 0
        self._uses_python_numpy = False

    @property
    def cuda(self) -> torch.Generator | None:
        """The state that CUDA's default generator has while this model steps."""
        return self._cuda

    @property
    def swaps_python_numpy(self) -> bool:
        """Whether NumPy's and Python's generators are swapped, too."""
        return self._python_numpy is not None

    def replace_cuda(self, state: Tensor) -> None:
        """A new generator in this state: a failed capture leaves the old one unusable."""
        assert self._cuda is not None
        self._cuda = torch.Generator(self._device)
        self._cuda.set_state(state)

    def install(self) -> None:
        """Make the global generators this model's."""
        torch.default_generator.set_state(self._cpu)
        if self._cuda is not None:
            cuda_generator(self._device).graphsafe_set_state(self._cuda)
        if self._python_numpy is not None:
            set_python_numpy_states(self._python_numpy)

    def read_back(self) -> None:
        """Store the state that the global generators have now. The caller restores its own, with `PreservedRng`."""
        self._cpu = torch.default_generator.get_state()
        if self._python_numpy is not None:
            now = python_numpy_states()
            self._uses_python_numpy = self._uses_python_numpy or not same_states(now, self._python_numpy)
            self._python_numpy = now

    def stepped(self) -> None:
        """Count a step; after the watched ones, generators that the model never used are no longer swapped."""
        self._steps += 1
        if self._steps == WATCHED_STEPS and not self._uses_python_numpy:
            self._python_numpy = None

    def state(self) -> dict[str, Any]:
        """Everything, as plain data and tensors. The keys are those of saved checkpoints."""
        return {
            "cpu": self._cpu,  # never written to: `read_back` makes a new tensor
            "cuda": None if self._cuda is None else self._cuda.get_state(),
            "foreign": self._python_numpy,
            "taken": self._steps,
            "draws_foreign": self._uses_python_numpy,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to what `state` returned."""
        self._cpu = state["cpu"]
        if self._cuda is not None and state["cuda"] is not None:
            self._cuda.set_state(state["cuda"].clone())
        self._python_numpy, self._steps = state["foreign"], state["taken"]
        self._uses_python_numpy = state["draws_foreign"]


class PreservedRng:
    """A context that models may install their generators in; on exit the caller's are restored."""

    def __init__(self, device: torch.device, python_numpy: bool = True) -> None:
        self._device, self._python_numpy = device, python_numpy

    def __enter__(self) -> None:
        self._cpu = torch.default_generator.get_state()
        if self._python_numpy:
            self._states = python_numpy_states()
        if self._device.type == "cuda":
            self._cuda = cuda_generator(self._device).graphsafe_get_state()

    def __exit__(self, *_: object) -> None:
        torch.default_generator.set_state(self._cpu)
        if self._python_numpy:
            set_python_numpy_states(self._states)
        if self._device.type == "cuda":
            cuda_generator(self._device).graphsafe_set_state(self._cuda)


class DrawDetector:
    """A context; afterwards `drew` says whether the host's global generators were used in it."""

    def __enter__(self) -> DrawDetector:
        self._cpu, self._python_numpy = torch.default_generator.get_state(), python_numpy_states()
        return self

    def __exit__(self, *_: object) -> None:
        same = torch.equal(self._cpu, torch.default_generator.get_state())
        self.drew = not (same and same_states(self._python_numpy, python_numpy_states()))

    def undo(self) -> None:
        """Put the generators back to where the context began."""
        torch.default_generator.set_state(self._cpu)
        set_python_numpy_states(self._python_numpy)


def cuda_generator(device: torch.device) -> torch.Generator:
    """The generator that CUDA operations on this device use."""
    torch.cuda.init()  # type: ignore[no-untyped-call]
    return torch.cuda.default_generators[device.index or 0]


def python_numpy_states() -> tuple[Any, Any]:
    """The states of Python's and NumPy's global generators."""
    return random.getstate(), np.random.get_state()


def set_python_numpy_states(states: tuple[Any, Any]) -> None:
    """Set the states of Python's and NumPy's global generators."""
    random.setstate(states[0])
    np.random.set_state(states[1])


def same_states(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Whether two states of Python's and NumPy's generators are equal."""
    return bool(one[0] == other[0] and one[1][2:] == other[1][2:] and np.array_equal(one[1][1], other[1][1]))
