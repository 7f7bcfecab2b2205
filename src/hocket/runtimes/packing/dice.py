"""Each model's own random numbers: the global generators stand as they would in its solo run while it is at work."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

WATCHED_STEPS = 3  # NumPy's and Python's generators are dear to swap: models that leave them alone so long do without


class Dice:
    """Generator states of one model. `take` puts them in place, `leave` takes them back."""

    def __init__(self, device: torch.device, seed: int | None) -> None:
        self._device = device
        self._cuda = cuda_generator(device).clone_state() if device.type == "cuda" else None
        self._foreign: tuple[Any, Any] | None
        if seed is None:
            self._cpu = torch.default_generator.get_state()
            self._foreign = random.getstate(), np.random.get_state()
        else:
            self._cpu = torch.Generator().manual_seed(seed).get_state()
            if self._cuda is not None:
                self._cuda.manual_seed(seed)
            self._foreign = random.Random(seed).getstate(), np.random.RandomState(seed % 2**32).get_state()
        self._taken = 0
        self._draws_foreign = False

    @property
    def cuda(self) -> torch.Generator | None:
        """The state that CUDA's default generator has while this model is at work."""
        return self._cuda

    @property
    def foreign(self) -> bool:
        """Whether NumPy's and Python's generators are swapped, too."""
        return self._foreign is not None

    def renew(self, state: Tensor) -> None:
        """Another generator in the same state, in place of one that a capture which failed has spoilt."""
        assert self._cuda is not None
        self._cuda = torch.Generator(self._device)
        self._cuda.set_state(state)

    def take(self) -> None:
        """From now on, whoever draws draws this model's numbers."""
        torch.default_generator.set_state(self._cpu)
        if self._cuda is not None:
            cuda_generator(self._device).graphsafe_set_state(self._cuda)
        if self._foreign is not None:
            set_foreign(self._foreign)

    def leave(self) -> None:
        """Remember how far the model has drawn. Whoever called restores the generators, by `Outside`."""
        self._cpu = torch.default_generator.get_state()
        if self._foreign is not None:
            now = foreign_states()
            self._draws_foreign = self._draws_foreign or not same_states(now, self._foreign)
            self._foreign = now

    def stepped(self) -> None:
        """A step is over: once watched long enough, generators that the model never used are left alone."""
        self._taken += 1
        if self._taken == WATCHED_STEPS and not self._draws_foreign:
            self._foreign = None

    def state(self) -> dict[str, Any]:
        """All of it, as plain data and tensors."""
        return {
            "cpu": self._cpu,  # never written to: `leave` reads a new one
            "cuda": None if self._cuda is None else self._cuda.get_state(),
            "foreign": self._foreign,
            "taken": self._taken,
            "draws_foreign": self._draws_foreign,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """As it was when `state` was read."""
        self._cpu = state["cpu"]
        if self._cuda is not None and state["cuda"] is not None:
            self._cuda.set_state(state["cuda"].clone())
        self._foreign, self._taken = state["foreign"], state["taken"]
        self._draws_foreign = state["draws_foreign"]


class Outside:
    """Within, models take and leave their dice; afterwards the caller's generators stand as they stood."""

    def __init__(self, device: torch.device, foreign: bool = True) -> None:
        self._device, self._foreign = device, foreign  # `foreign`: some model may draw from NumPy's or Python's

    def __enter__(self) -> None:
        self._cpu = torch.default_generator.get_state()
        if self._foreign:
            self._python, self._numpy = random.getstate(), np.random.get_state()
        if self._device.type == "cuda":
            self._cuda = cuda_generator(self._device).graphsafe_get_state()

    def __exit__(self, *_: object) -> None:
        torch.default_generator.set_state(self._cpu)
        if self._foreign:
            random.setstate(self._python)
            np.random.set_state(self._numpy)
        if self._device.type == "cuda":
            cuda_generator(self._device).graphsafe_set_state(self._cuda)


def cuda_generator(device: torch.device) -> torch.Generator:
    """The generator that CUDA's operations on this device draw from."""
    torch.cuda.init()  # type: ignore[no-untyped-call]
    return torch.cuda.default_generators[device.index or 0]


def foreign_states() -> tuple[Any, Any]:
    """Of Python's and NumPy's generators."""
    return random.getstate(), np.random.get_state()


def set_foreign(states: tuple[Any, Any]) -> None:
    """As they were."""
    random.setstate(states[0])
    np.random.set_state(states[1])


class Watched:
    """Whether anybody draws within from the global generators of the host; `undo` puts these back."""

    def __enter__(self) -> Watched:
        self._cpu, self._foreign = torch.default_generator.get_state(), foreign_states()
        return self

    def __exit__(self, *_: object) -> None:
        same = torch.equal(self._cpu, torch.default_generator.get_state())
        self.drew = not (same and same_states(self._foreign, foreign_states()))

    def undo(self) -> None:
        """As they stood."""
        torch.default_generator.set_state(self._cpu)
        set_foreign(self._foreign)


def same_states(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Whether nobody drew in between."""
    return bool(one[0] == other[0] and one[1][2:] == other[1][2:] and np.array_equal(one[1][1], other[1][1]))
