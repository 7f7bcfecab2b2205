"""One model of a measurement: a network, its batch, its optimiser and its data, always made in the same way."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from hocket_reproductions.pack.networks import NETWORKS

RATE, MOMENTUM = 0.01, 0.9


@dataclass(frozen=True)
class Setup:
    """One model of a measurement."""

    network: str  # one of NETWORKS
    batch: int
    size: int = 224  # of its images, in pixels
    optimiser: str = "momentum"
    data: int = 0  # which data set
    preprocess: bool = False  # its images are JPEGs, decoded and normalised in each step
    examples: int = 128

    def model(self, seed: int = 0) -> nn.Module:
        """A new one."""
        torch.manual_seed(seed)
        make, usual, _ = NETWORKS[self.network]
        if self.network.startswith("mlp") and self.size != usual:
            from hocket_reproductions.pack.networks import mlp3

            return mlp3(3 * self.size**2)
        return make()

    def optimiser_of(self, model: nn.Module) -> torch.optim.Optimizer:
        """Its optimiser, as made by users."""
        kinds: dict[str, Any] = {
            "momentum": lambda p: torch.optim.SGD(p, RATE, momentum=MOMENTUM),
            "sgd": lambda p: torch.optim.SGD(p, RATE),
            "adam": lambda p: torch.optim.Adam(p, RATE / 10),
            "adagrad": lambda p: torch.optim.Adagrad(p, RATE / 10),
        }
        found: torch.optim.Optimizer = kinds[self.optimiser](model.parameters())
        return found

    def loader(self) -> DataLoader[Any]:
        """Its data, in the same order for every reader."""
        generator = torch.Generator().manual_seed(1)
        return DataLoader(self.dataset(), self.batch, shuffle=True, drop_last=True, generator=generator)

    def dataset(self) -> Dataset[Any]:
        """Generated images; equal setups share one object."""
        examples = max(self.examples, self.batch)
        if self.preprocess:
            return jpegs(self.size, examples, self.data)
        return images(self.size, examples, seed=self.data)


@cache
def images(size: int, examples: int, channels: int = 3, seed: int = 0) -> TensorDataset:
    """Generated images, with classes that depend on them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(examples, channels, size, size, generator=generator)
    return TensorDataset(x, (x.mean((1, 2, 3)) * 1000).long() % 10)


class Encoded(Dataset[Any]):
    """JPEG files in memory: reading one decodes and normalises it."""

    def __init__(self, files: list[bytes], classes: list[int]) -> None:
        self._files, self._classes = files, classes

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """One image, normalised, and its class."""
        from PIL import Image

        with Image.open(io.BytesIO(self._files[index])) as picture:
            flat = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
            wide, high = picture.size
        pixels = flat.view(high, wide, 3).permute(2, 0, 1).float()
        return pixels.div_(255).sub_(0.45).div_(0.225), self._classes[index]


@cache
def jpegs(size: int, examples: int, seed: int = 0) -> Encoded:
    """Generated pictures that are smooth enough to be compressed, as photographs are."""
    from PIL import Image

    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randint(0, 256, (examples, 8, 8, 3), dtype=torch.uint8, generator=generator)
    files = []
    for pixels in coarse:
        out = io.BytesIO()
        Image.frombytes("RGB", (8, 8), bytes(pixels.flatten().tolist())).resize((size, size)).save(out, "JPEG")
        files.append(out.getvalue())
    return Encoded(files, [int(c) % 10 for c in coarse.flatten(1).sum(1)])
