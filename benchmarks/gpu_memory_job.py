"""Trains a small model, written by hand, for some steps on data made up: what `benchmarks.gpu_memory` runs as jobs.

It needs PyTorch alone. `--describe` prints how many parameters each model has, as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import pairwise
from typing import Any

IMAGE, CLASSES = 64, 100
TOKENS, VOCABULARY = 256, 8192
MODELS = {  # name → data set, kind, width, layers
    "mlp-1024": ("images", "mlp", 1024, 3),
    "mlp-4096": ("images", "mlp", 4096, 3),
    "cnn-32": ("images", "cnn", 32, 5),
    "cnn-64": ("images", "cnn", 64, 5),
    "resnet-64": ("images", "resnet", 64, 4),
    "resnet-128": ("images", "resnet", 128, 6),
    "vit-256": ("images", "vit", 256, 6),
    "vit-512": ("images", "vit", 512, 8),
    "lstm-512": ("text", "lstm", 512, 2),
    "lstm-1024": ("text", "lstm", 1024, 2),
    "transformer-256": ("text", "transformer", 256, 6),
    "transformer-512": ("text", "transformer", 512, 6),
    "transformer-768": ("text", "transformer", 768, 12),
}


def model_of(name: str) -> Any:
    """The network."""
    import torch
    from torch import nn

    _data, kind, width, layers = MODELS[name]
    if kind == "mlp":
        sizes = [3 * IMAGE * IMAGE, *[width] * layers]
        hidden = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(width, CLASSES))
    if kind == "cnn":
        wide = [3, *(width * 2**n for n in range(layers))]
        blocks = [
            part
            for a, b in pairwise(wide)
            for part in (nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2))
        ]
        return nn.Sequential(*blocks, nn.Flatten(), nn.LazyLinear(CLASSES))

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width),
            )  # fmt: skip

        def forward(self, x: Any) -> Any:
            return torch.relu(x + self.parts(x))

    class Tokens(nn.Module):
        def __init__(self, first: Any, body: Any, length: int) -> None:
            super().__init__()
            self.first, self.body, self.last = first, body, nn.Linear(width, CLASSES)
            self.places = nn.Parameter(torch.zeros(1, length, width))

        def forward(self, x: Any) -> Any:
            found = self.first(x)
            found = found.flatten(2).transpose(1, 2) if found.dim() == 4 else found
            found = self.body(found + self.places)
            return self.last((found[0] if isinstance(found, tuple) else found).mean(1))

    if kind == "resnet":
        body = [Residual() for _ in range(layers)]
        return nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3), nn.ReLU(), *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(width, CLASSES),
        )  # fmt: skip
    if kind == "lstm":
        return Tokens(nn.Embedding(VOCABULARY, width), nn.LSTM(width, width, layers, batch_first=True), TOKENS)
    layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    if kind == "vit":
        return Tokens(nn.Conv2d(3, width, 8, 8), encoder, (IMAGE // 8) ** 2)
    return Tokens(nn.Embedding(VOCABULARY, width), encoder, TOKENS)


def batch_of(name: str, size: int, device: str) -> tuple[Any, Any]:
    """Made up."""
    import torch

    if MODELS[name][0] == "images":
        inputs = torch.randn(size, 3, IMAGE, IMAGE, device=device)
    else:
        inputs = torch.randint(0, VOCABULARY, (size, TOKENS), device=device)
    return inputs, torch.randint(0, CLASSES, (size,), device=device)


def parameters() -> dict[str, int]:
    """Of each model."""
    found = {}
    for name in MODELS:
        model = model_of(name)
        model(batch_of(name, 2, "cpu")[0])  # What is lazy finds its size.
        found[name] = sum(p.numel() for p in model.parameters())
    return found


def main() -> None:
    """Train, and say so after each epoch."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--describe", action="store_true")
    parser.add_argument("--model", choices=sorted(MODELS))
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="of an epoch")
    parser.add_argument("--pace", type=float, default=1.2, help="least seconds of an epoch")
    options = parser.parse_args()
    if options.describe:
        print(json.dumps(parameters()))
        return
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = model_of(options.model).to(device)
    model(batch_of(options.model, 2, device)[0])
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(1, options.epochs + 1):
        began = time.monotonic()
        for _step in range(options.steps):
            inputs, labels = batch_of(options.model, options.batch_size, device)
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        said = f"epoch {epoch}/{options.epochs} loss={loss.item():.4f}"
        if device == "cuda":
            said += f" reserved_mib={torch.cuda.max_memory_reserved() / (1 << 20):.1f}"
        time.sleep(max(0.0, began + options.pace - time.monotonic()))  # Its memory is looked at meanwhile.
        print(said, flush=True)


if __name__ == "__main__":
    main()
