"""A workshop of two functions: one makes a model of a configuration, the other says what it is worth."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy
import torch
from msgspec import Struct
from torch import nn

from hocket.executors.inprocess.model_factory import Stretch
from hocket.runtimes.packing.training import Refused, Training


class Configuration(dict[str, Any]):
    """The values of one trial, and what its function may want to know beside them."""

    def __init__(self, values: Mapping[str, Any], name: str, steps: int, seed: int, device: torch.device) -> None:
        super().__init__(values)
        self.name, self.steps, self.seed, self.device = name, steps, seed, device  # steps: the most it may ever make


class TrainingTask(Struct, frozen=True):
    """What a job is to train."""

    stretch: Stretch
    config: dict[str, Any]
    seed: int


class Trainer:
    """Makes and judges the models of the jobs that it was told of."""

    def __init__(
        self,
        training: Callable[[Any], Training],
        evaluate: Callable[..., Any] | None,
        metric: str,
        steps: int,
        device: torch.device,
    ) -> None:
        self._training, self._evaluate, self._metric = training, evaluate, metric
        self._steps, self._device = steps, device
        self._tasks: dict[str, TrainingTask] = {}

    def expect(self, job: str, order: TrainingTask) -> None:
        """The job was submitted."""
        self._tasks[job] = order

    def stretch(self, job: str) -> Stretch:
        """What a job is to do."""
        return self._tasks[job].stretch

    def training(self, job: str) -> Training:
        """The job's model before its first step: the same one every time, for all random generators are seeded."""
        order = self._tasks[job]
        name = order.stretch.model
        self._seed_all(order.seed)
        made = self._training(self._configuration(job))
        if not isinstance(made, Training):
            raise Refused(f"trial '{name}': the function must give a hocket.pack.Training, not {_kind(made)}")
        # Its end is told by the stretch, not by the number of steps.
        return replace(made, name=name, steps=self._steps + 1)

    def metrics(self, job: str, module: nn.Module) -> dict[str, float]:
        """What the module is worth: one number is the study's metric, several come by name."""
        if self._evaluate is None:
            return {}
        self._seed_all(self._tasks[job].seed)
        found = self._evaluate(module, self._configuration(job))
        named = found if isinstance(found, Mapping) else {self._metric: found}
        numbers: dict[str, float] = {}
        for name, value in named.items():
            try:
                numbers[str(name)] = float(value)
            except (TypeError, ValueError) as error:
                wanted = f"one number as '{name}'" if named is found else "a number or numbers by name"
                raise Refused(f"evaluate must give {wanted}, not {_kind(value)}") from error
        if self._metric not in numbers and self._metric != "loss":
            raise Refused(f"evaluate must give '{self._metric}', and gives {', '.join(numbers) or 'nothing'}")
        return numbers

    def _seed_all(self, seed: int) -> None:
        torch.default_generator.manual_seed(seed)  # `torch.manual_seed` notes a traceback where there is no GPU: slow.
        if self._device.type == "cuda":
            torch.cuda.manual_seed_all(seed)
        numpy.random.seed(seed % 2**32)
        random.seed(seed)

    def _configuration(self, job: str) -> Configuration:
        order = self._tasks[job]
        return Configuration(order.config, order.stretch.model, self._steps, order.seed, self._device)


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"
