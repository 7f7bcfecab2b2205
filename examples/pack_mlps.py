"""Sixteen small networks with different learning rates and batch sizes, trained in one pack: ordinary PyTorch code.

    python examples/pack_mlps.py --device cpu --models 16 --steps 300

Prints how the pack was run, how far each model is from its solo run in one step, and the losses.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hocket.pack import Pack, Training


def arguments():
    parser = argparse.ArgumentParser(description="Trains many small networks in one pack.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", type=int, default=16)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--exact", action="store_true", help="only step modes that are bitwise equal to training alone")
    return parser.parse_args()


def generated_data(examples=2000, inputs=32):
    rolls = torch.Generator().manual_seed(0)
    x = torch.randn(examples, inputs, generator=rolls)
    y = (torch.tanh(x @ torch.randn(inputs, 8, generator=rolls)) @ torch.randn(8, 4, generator=rolls)).argmax(1)
    return TensorDataset(x, y)


def training(number, steps, data):
    torch.manual_seed(number)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    rate, batch = 0.2 / 1.4**number, (25, 50)[number % 2]
    optimiser = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    loader = DataLoader(data, batch, shuffle=True, generator=torch.Generator().manual_seed(1))
    name = f"rate {rate:.4f}, batch {batch}"
    return Training(name, model, optimiser, loader, steps, loss=nn.CrossEntropyLoss(), schedule=schedule, seed=number)


def main():
    options = arguments()
    data = generated_data()
    pack = Pack(options.device, exact=options.exact)
    for number in range(options.models):
        pack.load(training(number, options.steps, data))
    began = time.perf_counter()
    for checkpoint in pack.run():
        print(f"{checkpoint.name}: loss {checkpoint.loss:.4f} after {checkpoint.step} steps; {checkpoint.reason}")
    took = time.perf_counter() - began
    print(f"{options.models} models in {took:.2f} s, run '{pack.mode}'")
    for name, certificate in sorted(pack.certificates.items())[:3]:
        print(f"{name}: {certificate}")


if __name__ == "__main__":
    main()
