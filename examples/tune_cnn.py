"""Searches for a small convolutional network; a function asks for its hyperparameters, as in Optuna.

hocket tune examples/tune_cnn.toml
hocket tune examples/tune_cnn.py --metric accuracy --goal max --search asha --trials 12 --units 9 --unit-steps 20
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tune_data import digits

from hocket.pack import Training

data, (pictures, labels) = digits()
data = TensorDataset(data.tensors[0].reshape(-1, 1, 8, 8), data.tensors[1])

OPTIMISERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


def space(trial):
    """Which hyperparameters there are may depend on earlier ones."""
    trial.suggest_int("channels", 4, 12)
    trial.suggest_categorical("batch_size", [16, 32])
    if trial.suggest_categorical("optimiser", list(OPTIMISERS)) == "sgd":
        trial.suggest_float("rate", 0.01, 0.5, log=True)
    else:
        trial.suggest_float("rate", 0.0003, 0.03, log=True)


def training(config):
    """Two convolutions, batch norm and a linear layer."""
    channels = config["channels"]
    model = nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, padding=1, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * channels, 10),
    )  # fmt: skip
    optimiser = OPTIMISERS[config["optimiser"]](model.parameters(), config["rate"])
    loader = DataLoader(data, config["batch_size"], shuffle=True, generator=torch.Generator().manual_seed(1))
    return Training(config.name, model, optimiser, loader, config.steps, loss=nn.CrossEntropyLoss())


def evaluate(module, config):
    """The share of correctly read digits in data that it was not trained on."""
    right = module(pictures.reshape(-1, 1, 8, 8).to(config.device)).argmax(1).cpu() == labels
    return {"accuracy": right.float().mean()}
