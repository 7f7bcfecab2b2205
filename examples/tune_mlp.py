"""Searches for a small network that reads digits. The two functions below are all that `hocket tune` needs.

hocket tune examples/tune_mlp.py --metric accuracy --goal max --units 27 --unit-steps 20
python examples/tune_mlp.py
"""

import torch
from torch import nn
from torch.utils.data import DataLoader
from tune_data import digits

from hocket.pack import Training
from hocket.tune import Hyperband, Study, choice, loguniform, uniform

data, (pictures, labels) = digits()

space = {
    "rate": loguniform(0.003, 1.0),
    "momentum": uniform(0.0, 0.95),
    "batch_size": choice([16, 32]),
    "width": choice([32, 64]),
}


def training(config):
    """Ordinary PyTorch: a module, its optimiser and its data."""
    width = config["width"]
    model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    optimiser = torch.optim.SGD(model.parameters(), config["rate"], momentum=config["momentum"])
    loader = DataLoader(data, config["batch_size"], shuffle=True, generator=torch.Generator().manual_seed(1))
    return Training(config.name, model, optimiser, loader, config.steps, loss=nn.CrossEntropyLoss())


def evaluate(module, config):
    """The share of correctly read digits in data that it was not trained on."""
    right = module(pictures.to(config.device)).argmax(1).cpu() == labels
    return {"accuracy": right.float().mean()}


def main():
    search = Hyperband(units=27, eta=3)
    study = Study(training, space, evaluate=evaluate, metric="accuracy", goal="max", search=search, unit_steps=20)
    study.run()
    print(f"{len(study.trials)} trials, {study.steps} steps in {study.seconds:.1f} s")
    print(f"best: accuracy {study.best_result.metrics['accuracy']:.3f} with {study.best.config}")


if __name__ == "__main__":
    main()
