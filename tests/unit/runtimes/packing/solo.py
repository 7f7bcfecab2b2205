"""A model trained alone, by a usual PyTorch loop without Hocket: the reference for packs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Recipe:
    """How to make a model and all that trains it, again and again alike."""

    name: str = "m"
    hidden: int = 16
    kind: str = "plain"  # plain, dropout, norm, conv
    optimiser: str = "sgd"
    rate: float = 0.05
    schedule: str = "none"  # none, step, cosine, epoch
    batch: int = 8
    steps: int = 12
    seed: int = 0
    data_seed: int | None = 3  # None: the loader draws from the global generator
    examples: int = 40
    drop_last: bool = False
    clip: float | None = None
    accumulate: int = 1
    autocast: torch.dtype | None = None
    scaler: bool = False
    shuffle: bool = True


def data(examples: int = 40, inputs: int = 6) -> TensorDataset:
    rolls = torch.Generator().manual_seed(11)
    x = torch.randn(examples, inputs, generator=rolls)
    return TensorDataset(x, (x.sum(1) > 0).long() + (x[:, 0] > 1).long())


def module(recipe: Recipe) -> nn.Module:
    torch.manual_seed(recipe.seed + 100)
    layers: list[nn.Module] = [nn.Linear(6, recipe.hidden), nn.Tanh()]
    if recipe.kind == "dropout":
        layers.append(nn.Dropout(0.3))
    if recipe.kind == "norm":
        layers.append(nn.BatchNorm1d(recipe.hidden))
    if recipe.kind == "conv":
        layers = [
            nn.Unflatten(1, (1, 6)),
            nn.Conv1d(1, 4, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(24, recipe.hidden),
        ]
    return nn.Sequential(*layers, nn.Linear(recipe.hidden, 3))


def optimiser(recipe: Recipe, parameters: Any) -> torch.optim.Optimizer:
    made: dict[str, Any] = {
        "sgd": lambda p: torch.optim.SGD(p, recipe.rate, momentum=0.9),
        "plain_sgd": lambda p: torch.optim.SGD(p, recipe.rate, weight_decay=0.01),
        "nesterov": lambda p: torch.optim.SGD(p, recipe.rate, momentum=0.8, nesterov=True),
        "adam": lambda p: torch.optim.Adam(p, recipe.rate / 10),
        "adamw": lambda p: torch.optim.AdamW(p, recipe.rate / 10),
        "rmsprop": lambda p: torch.optim.RMSprop(p, recipe.rate / 10),
        "adagrad": lambda p: torch.optim.Adagrad(p, recipe.rate),
    }
    found: torch.optim.Optimizer = made[recipe.optimiser](parameters)
    return found


def schedule(recipe: Recipe, chosen: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler | None:
    if recipe.schedule == "none":
        return None
    if recipe.schedule == "cosine":
        return torch.optim.lr_scheduler.CosineAnnealingLR(chosen, recipe.steps)
    return torch.optim.lr_scheduler.StepLR(chosen, 3 if recipe.schedule == "step" else 1, 0.5)


def loader(recipe: Recipe, examples: TensorDataset) -> DataLoader[Any]:
    generator = None if recipe.data_seed is None else torch.Generator().manual_seed(recipe.data_seed)
    return DataLoader(examples, recipe.batch, shuffle=recipe.shuffle, generator=generator, drop_last=recipe.drop_last)


def forever(batches: DataLoader[Any], ends: list[int]) -> Iterator[Any]:
    while True:
        yield from batches
        ends.append(1)


def alone(
    recipe: Recipe, examples: TensorDataset, device: torch.device = CPU
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The plain loop."""
    model = module(recipe).to(device)
    chosen = optimiser(recipe, model.parameters())
    planned = schedule(recipe, chosen)
    scaler = torch.amp.GradScaler(device.type, init_scale=128.0) if recipe.scaler else None
    loss_function = nn.CrossEntropyLoss()
    ends: list[int] = []
    batches = loader(recipe, examples)
    torch.manual_seed(recipe.seed)
    random.seed(recipe.seed)
    np.random.seed(recipe.seed)
    stream, seen_ends = forever(batches, ends), 0
    for _ in range(recipe.steps):
        chosen.zero_grad()
        for _ in range(recipe.accumulate):
            inputs, targets = (t.to(device) for t in next(stream))
            if recipe.schedule == "epoch" and planned is not None:
                for _ in range(len(ends) - seen_ends):
                    planned.step()
                seen_ends = len(ends)
            with torch.autocast(device.type, recipe.autocast, enabled=recipe.autocast is not None):
                loss = loss_function(model(inputs), targets)
            loss = loss / recipe.accumulate if recipe.accumulate > 1 else loss
            (scaler.scale(loss) if scaler else loss).backward()
        if recipe.clip is not None:
            if scaler:
                scaler.unscale_(chosen)
            nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        if scaler:
            scaler.step(chosen)
            scaler.update()
        else:
            chosen.step()
        if planned is not None and recipe.schedule != "epoch":
            planned.step()
    return model, chosen


def training(recipe: Recipe, examples: TensorDataset, device: torch.device = CPU) -> Any:
    """The same for a pack, of the same parts."""
    from hocket.pack import Training

    model = module(recipe)
    return Training(
        recipe.name,
        model,
        lambda parameters: optimiser(recipe, parameters),
        loader(recipe, examples),
        recipe.steps,
        loss=nn.CrossEntropyLoss(),
        schedule=None if recipe.schedule == "none" else lambda chosen: schedule(recipe, chosen),
        schedule_every="epoch" if recipe.schedule == "epoch" else "step",
        autocast=recipe.autocast,
        scaler=torch.amp.GradScaler(device.type, init_scale=128.0) if recipe.scaler else None,
        accumulate=recipe.accumulate,
        clip=recipe.clip,
        seed=recipe.seed,
    )


def same(one: nn.Module, state: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value.cpu(), state[key].cpu()) for key, value in one.state_dict().items())
