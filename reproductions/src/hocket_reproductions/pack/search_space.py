"""The models of the paper's hyperparameter search: Table 2.3 on images of CIFAR-10's size, which are generated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from hocket.runtimes.packing.pack import Pack
from hocket.runtimes.packing.training import Training
from hocket_reproductions.pack.networks import densenet121, mlp3, mobilenet_v2, resnet50, with_activation

BATCH_SIZES = tuple(range(20, 71, 5))
OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "Adam": torch.optim.Adam,
    "SGD": torch.optim.SGD,
    "Adagrad": torch.optim.Adagrad,
    "Momentum": partial(torch.optim.SGD, momentum=0.9),
}
RATES = (0.000001, 0.00001, 0.0001, 0.001, 0.01, 0.1)
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "Sigmoid": nn.Sigmoid,
    "Leaky ReLu": nn.LeakyReLU,
    "Tanh": nn.Tanh,
    "ReLu": nn.ReLU,
}
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "mlp-3": mlp3,
    "mobilenet-v2": partial(mobilenet_v2, 10),
    "resnet-50": partial(resnet50, 10),
    "densenet-121": partial(densenet121, 10),
}


def training(network: str, examples: int, config: Any) -> Training:
    """One configuration; what `hocket.tune` asks for. All read the same images in the same order."""
    torch.manual_seed(config.seed)
    with config.device:  # Weights are drawn where they are needed: on the host it takes a quarter of a second.
        model = with_activation(NETWORKS[network](), ACTIVATIONS[config["activation"]])
    make = OPTIMISERS[config["optimiser"]]
    generator = torch.Generator().manual_seed(1)
    data = DataLoader(seen_images(examples), config["batch_size"], shuffle=True, drop_last=True, generator=generator)
    return Training(
        config.name, model, lambda parameters: make(parameters, lr=config["rate"]), data, config.steps,
        loss=nn.CrossEntropyLoss(), seed=config.seed,
    )  # fmt: skip


def warm_up(device: str, examples: int) -> None:
    """One-time costs of a process, packed or not: data are generated, and PyTorch imports many modules."""
    seen_images(examples)
    _held_out(str(torch.device(device, 0) if device == "cuda" else device))
    for make in OPTIMISERS.values():
        model = mlp3(8, 8)
        pack = Pack(device, mode="turn", memory_mib=1 << 20)
        batches = [(torch.zeros(4, 8), torch.zeros(4, dtype=torch.int64))]
        pack.load(Training("warm", model, partial(make, lr=0.1), batches, 2, loss=nn.CrossEntropyLoss()))
        for _ in pack.run():
            pass


@torch.no_grad()
def held_out_loss(module: nn.Module, _config: Mapping[str, Any]) -> float:
    """The mean loss over images that no model was trained on."""
    images, classes = _held_out(str(next(module.parameters()).device))
    return float(functional.cross_entropy(module(images), classes))


@cache
def _held_out(device: str) -> tuple[Tensor, Tensor]:
    images, classes = _generated(512, 1)
    return images.to(device), classes.to(device)


@cache
def seen_images(examples: int) -> TensorDataset:
    """Images of 32×32 in ten classes."""
    return TensorDataset(*_generated(examples, 0))


def _generated(examples: int, seed: int) -> tuple[Tensor, Tensor]:
    """One of ten patterns with noise, so that models can learn, but not perfectly."""
    patterns = torch.randn(10, 3, 8, 8, generator=torch.Generator().manual_seed(9))
    generator = torch.Generator().manual_seed(seed)
    classes = torch.randint(0, 10, (examples,), generator=generator)
    coarse = patterns[classes] + 2.0 * torch.randn(examples, 3, 8, 8, generator=generator)
    images = functional.interpolate(coarse, scale_factor=4) + 0.5 * torch.randn(
        examples, 3, 32, 32, generator=generator
    )
    return images, classes
