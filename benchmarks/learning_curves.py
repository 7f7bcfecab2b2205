"""New learning curves to test OptStop on: `python -m benchmarks.learning_curves CURVES.csv [--set N] [--seed N]`.

OptStop was tuned on Pollux's curves, so it is tested on others: small models trained on generated data,
each with four batch sizes, for sixty epochs. The set-ups of a set were fixed before its first curve was drawn. The
first set showed that OptStop gave up on curves that had not begun to improve; the second, of other models, was drawn
after that was fixed, to test it. The third was drawn when OptStop had learned from both. `benchmarks.convergence
--shipped` takes the weights that are shipped.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterator
from math import cos, pi
from pathlib import Path
from typing import Any

from msgspec import Struct

EPOCHS = 60
BATCH_SIZES = (32, 64, 128, 256)
EXAMPLES = 3000
HELD_OUT = 1000
CLASSES = 10


class Setup(Struct, frozen=True):
    """A model, its data and how its learning rate goes."""

    name: str
    model: Callable[[], Any]
    data: Callable[[int], tuple[Any, Any]]
    rate: float  # at batch size 32; larger ones in proportion to the root of theirs
    schedule: str  # constant, steps, cosine
    decay: float = 0.0
    regresses: bool = False  # the metric is its squared error, which falls
    adam: bool = False


def rate_at(schedule: str, epoch: int) -> float:
    """Of the first learning rate, what is left in an epoch from 0 up."""
    if schedule == "steps":  # as for ImageNet: after half and three quarters, to a tenth
        return 0.1 ** ((epoch >= EPOCHS // 2) + (epoch >= EPOCHS * 3 // 4))
    return 0.5 * (1 + cos(pi * epoch / EPOCHS)) if schedule == "cosine" else 1.0


def teacher(seed: int) -> tuple[Any, Any]:
    """Points labelled by a random network, a tenth of them wrongly."""
    import torch

    torch.manual_seed(seed)
    x = torch.randn(EXAMPLES + HELD_OUT, 24)
    y = (torch.tanh(x @ torch.randn(24, 32)) @ torch.randn(32, CLASSES)).argmax(1)
    wrong = torch.rand(len(y)) < 0.1
    return x, torch.where(wrong, torch.randint(0, CLASSES, y.shape), y)


def pictures(seed: int) -> tuple[Any, Any]:
    """Noisy pictures of one of ten small patterns, somewhere."""
    import torch

    torch.manual_seed(seed)
    patterns = (torch.rand(CLASSES, 5, 5) < 0.5).float()
    y = torch.randint(0, CLASSES, (EXAMPLES + HELD_OUT,))
    x = 0.7 * torch.randn(len(y), 1, 12, 12)
    for i, (row, column) in enumerate(torch.randint(0, 8, (len(y), 2)).tolist()):
        x[i, 0, row : row + 5, column : column + 5] += patterns[y[i]]
    return x, y


def sequences(seed: int) -> tuple[Any, Any]:
    """Sequences of numbers, by how often they change their sign."""
    import torch

    torch.manual_seed(seed)
    x = torch.randn(EXAMPLES + HELD_OUT, 12, 1)
    changes = ((x[:, 1:, 0] > 0) != (x[:, :-1, 0] > 0)).sum(1)
    return x, changes.clamp(1, CLASSES) - 1


def parity(seed: int) -> tuple[Any, Any]:
    """Twelve bits, by the parity of three of them: nothing is learned for long, and then all."""
    import torch

    torch.manual_seed(seed)
    x = torch.randint(0, 2, (EXAMPLES + HELD_OUT, 12)).float()
    return 2 * x - 1, x[:, :3].sum(1).long() % 2


def itself(seed: int) -> tuple[Any, Any]:
    """Points near a curved surface, to be told from a few numbers."""
    import torch

    torch.manual_seed(seed)
    x = torch.tanh(torch.randn(EXAMPLES + HELD_OUT, 4) @ torch.randn(4, 24)) + 0.1 * torch.randn(
        EXAMPLES + HELD_OUT, 24
    )
    return x, x


def waves(seed: int) -> tuple[Any, Any]:
    """A sum of waves over five numbers, to be told with some noise."""
    import torch

    torch.manual_seed(seed)
    x = torch.rand(EXAMPLES + HELD_OUT, 5)
    y = torch.sin(6 * x @ torch.randn(5, 6)).sum(1, keepdim=True)
    return x, y + 0.1 * torch.randn_like(y)


def bags(seed: int) -> tuple[Any, Any]:
    """Bags of twenty words, by which of ten vocabularies most of them are from."""
    import torch

    torch.manual_seed(seed)
    y = torch.randint(0, CLASSES, (EXAMPLES + HELD_OUT,))
    own = torch.randint(0, 40, (len(y), 20)) + 40 * y[:, None]
    any_word = torch.randint(0, 40 * CLASSES, own.shape)
    return torch.where(torch.rand(own.shape) < 0.2, own, any_word), y


def spirals(seed: int) -> tuple[Any, Any]:
    """Three spirals that wind around each other."""
    import torch

    torch.manual_seed(seed)
    y = torch.randint(0, 3, (EXAMPLES + HELD_OUT,))
    far = torch.rand(len(y)) * 2.5 + 0.2
    angle = 3.0 * far + y * (2 * pi / 3)
    x = torch.stack([far * torch.cos(angle), far * torch.sin(angle)], 1)
    return x + 0.1 * torch.randn_like(x), y


def chirps(seed: int) -> tuple[Any, Any]:
    """Noisy signals of ten frequencies, begun anywhere."""
    import torch

    torch.manual_seed(seed)
    y = torch.randint(0, CLASSES, (EXAMPLES + HELD_OUT,))
    at = torch.arange(40)[None, :] / 40 + torch.rand(len(y), 1)
    x = torch.sin(2 * pi * (2 + y[:, None]) * at) + 0.8 * torch.randn(len(y), 40)
    return x[:, None], y


def sums(seed: int) -> tuple[Any, Any]:
    """Two numbers below 19, by their sum modulo 19."""
    import torch

    torch.manual_seed(seed)
    x = torch.randint(0, 19, (EXAMPLES + HELD_OUT, 2))
    return x, x.sum(1) % 19


def marked(seed: int) -> tuple[Any, Any]:
    """Sequences of numbers of which one is marked, by how large that one is."""
    import torch

    torch.manual_seed(seed)
    x = torch.rand(EXAMPLES + HELD_OUT, 10, 2)
    which = torch.randint(0, 10, (len(x),))
    x[:, :, 1] = 0.0
    x[torch.arange(len(x)), which, 1] = 1.0
    return x, (x[torch.arange(len(x)), which, 0] * 5).long().clamp(max=4)


def products(seed: int) -> tuple[Any, Any]:
    """Sums of products of six numbers, to be told with some noise."""
    import torch

    torch.manual_seed(seed)
    x = torch.randn(EXAMPLES + HELD_OUT, 6)
    y = (x[:, :3] * x[:, 3:]).sum(1, keepdim=True)
    return x, y + 0.2 * torch.randn_like(y)


def third_set() -> list[Setup]:
    """Others again."""
    from torch import nn

    class Residual(nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.into, self.out = nn.Linear(inputs, 48), nn.Linear(48, outputs)
            self.blocks = nn.ModuleList([nn.Linear(48, 48) for _ in range(4)])

        def forward(self, x: Any) -> Any:
            x = self.into(x)
            for block in self.blocks:
                x = x + block(x.relu())
            return self.out(x)

    class Remembers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.out = nn.LSTM(2, 32, batch_first=True), nn.Linear(32, 5)

        def forward(self, x: Any) -> Any:
            return self.out(self.cells(x)[0][:, -1])

    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.into, self.out = nn.Linear(2, 24), nn.Linear(24, 5)
            self.looks = nn.MultiheadAttention(24, 2, batch_first=True)

        def forward(self, x: Any) -> Any:
            x = self.into(x)
            return self.out((x + self.looks(x, x, x)[0]).relu().mean(1))

    def signals() -> Any:
        return nn.Sequential(
            nn.Conv1d(1, 12, 7), nn.ReLU(), nn.Conv1d(12, 24, 5), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(),
            nn.Linear(24, CLASSES),
        )  # fmt: skip

    def adds() -> Any:
        return nn.Sequential(nn.Embedding(19, 24), nn.Flatten(), nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 19))

    return [
        Setup("spirals-constant", lambda: Residual(2, 3), spirals, 0.01, "constant"),
        Setup("spirals-cosine", lambda: nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(),
              nn.Linear(64, 3)), spirals, 0.05, "cosine"),
        Setup("chirps-steps", signals, chirps, 0.02, "steps"),
        Setup("chirps-adam", signals, chirps, 5e-4, "constant", adam=True),
        Setup("sums-adam", adds, sums, 1e-3, "constant", adam=True),
        Setup("lstm-steps", Remembers, marked, 0.1, "steps"),
        Setup("attention-adam", Attends, marked, 1e-3, "cosine", adam=True),
        Setup("products-steps", lambda: Residual(6, 1), products, 0.01, "steps", regresses=True),
    ]  # fmt: skip


def second_set() -> list[Setup]:
    """Other models than the first."""
    from torch import nn

    def deep() -> Any:
        layers: list[Any] = [nn.Linear(24, 48), nn.Tanh()]
        for _ in range(4):
            layers += [nn.Linear(48, 48), nn.Tanh()]
        return nn.Sequential(*layers, nn.Linear(48, CLASSES))

    def wide(inputs: int, outputs: int) -> Callable[[], Any]:
        return lambda: nn.Sequential(nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, outputs))

    return [
        Setup("flat-steps", lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, CLASSES)), pictures, 0.05, "steps"),
        Setup("deep-cosine", deep, teacher, 0.05, "cosine"),
        Setup("parity-constant", wide(12, 2), parity, 0.05, "constant"),
        Setup("parity-steps", wide(12, 2), parity, 0.1, "steps"),
        Setup("autoencoder-adam", lambda: nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 4), nn.Tanh(),
              nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 24)), itself, 1e-3, "constant", regresses=True, adam=True),
        Setup("waves-steps", wide(5, 1), waves, 0.05, "steps", regresses=True),
        Setup("words-adam", lambda: nn.Sequential(nn.EmbeddingBag(40 * CLASSES, 16), nn.Linear(16, CLASSES)), bags,
              1e-3, "constant", adam=True),
        Setup("words-steps", lambda: nn.Sequential(nn.EmbeddingBag(40 * CLASSES, 16), nn.Linear(16, CLASSES)), bags,
              0.5, "steps"),
    ]  # fmt: skip


def first_set() -> list[Setup]:
    """Those that were drawn first."""
    from torch import nn

    def mlp() -> Any:
        return nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def cnn() -> Any:
        return nn.Sequential(
            nn.Conv2d(1, 8, 5), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(),
            nn.Linear(16, CLASSES),
        )  # fmt: skip

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.out = nn.GRU(1, 24, batch_first=True), nn.Linear(24, CLASSES)

        def forward(self, x: Any) -> Any:
            return self.out(self.cells(x)[0][:, -1])

    return [
        Setup("mlp-steps", mlp, teacher, 0.1, "steps"),
        Setup("mlp-constant", mlp, teacher, 0.02, "constant"),
        Setup("mlp-cosine", mlp, teacher, 0.1, "cosine", 5e-4),
        Setup("cnn-steps", cnn, pictures, 0.05, "steps"),
        Setup("cnn-constant", cnn, pictures, 0.01, "constant"),
        Setup("gru-steps", Recurrent, sequences, 0.1, "steps"),
        Setup("gru-constant", Recurrent, sequences, 0.03, "constant"),
        Setup("linear-constant", lambda: nn.Linear(24, CLASSES), teacher, 0.01, "constant"),
    ]


def curve(setup: Setup, batch_size: int, seed: int) -> list[float]:
    """Accuracy, or squared error, on examples held out, after each epoch."""
    import torch
    from torch.nn.functional import cross_entropy, mse_loss

    torch.set_num_threads(1)
    x, y = setup.data(seed)
    torch.manual_seed(seed + batch_size)
    model = setup.model()
    scale = (batch_size / BATCH_SIZES[0]) ** 0.5
    learns: Any = (
        torch.optim.Adam(model.parameters(), setup.rate * scale)
        if setup.adam
        else torch.optim.SGD(model.parameters(), setup.rate * scale, momentum=0.9, weight_decay=setup.decay)
    )
    objective = mse_loss if setup.regresses else cross_entropy
    seen = []
    for epoch in range(EPOCHS):
        for group in learns.param_groups:
            group["lr"] = setup.rate * scale * rate_at(setup.schedule, epoch)
        order: Any = torch.randperm(EXAMPLES)
        for batch in order.split(batch_size):
            learns.zero_grad()
            loss: Any = objective(model(x[batch]), y[batch])
            loss.backward()
            learns.step()
        with torch.no_grad():
            told, truth = model(x[EXAMPLES:]), y[EXAMPLES:]
            seen.append(float(mse_loss(told, truth) if setup.regresses else (told.argmax(1) == truth).float().mean()))
    return seen


def curves(which: int, seed: int) -> Iterator[tuple[str, int, list[float]]]:
    """Every set-up of a set with every batch size."""
    for setup in (first_set, second_set, third_set)[which - 1]():
        for batch_size in BATCH_SIZES:
            yield setup.name, batch_size, curve(setup, batch_size, seed)


def main(arguments: list[str]) -> None:
    """Train, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning_curves", description="Curves of small models.")
    parser.add_argument("out", type=Path, metavar="CURVES.csv")
    parser.add_argument("--set", type=int, choices=(1, 2, 3), default=1, dest="which")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    with chosen.out.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["app", "batch_size", "epoch", "metric"])
        for name, batch_size, values in curves(chosen.which, chosen.seed):
            table.writerows((name, batch_size, epoch, f"{v:.4f}") for epoch, v in enumerate(values, 1))
            file.flush()
            print(f"{name} {batch_size}: {values[0]:.3f} → {values[-1]:.3f}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
