"""What keeps a model from being trained exactly on a GPU: layers and operations that do not repeat themselves."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

# How PyTorch warns of an operation that may add in another order each time.
_WARNING = re.compile(r"(\S+) does not have a deterministic implementation")


def why_not_exact(module: nn.Module, device: torch.device) -> str:
    """Which layer of the module cannot be trained exactly, and what to do about it; empty if none is known.

    cuDNN keeps one state for the dropout between the layers of an LSTM, GRU or RNN in a process, and PyTorch offers
    no way to set it: models beside each other change each other's numbers, and even one alone cannot repeat a step.
    """
    cudnn = torch.backends.cudnn
    if device.type != "cuda" or not cudnn.enabled:
        return ""
    deterministic = cudnn.deterministic or torch.are_deterministic_algorithms_enabled()
    for name, layer in module.named_modules():
        told = f"layer '{name or type(layer).__name__}' ({type(layer).__name__}"
        if isinstance(layer, nn.RNNBase) and layer.training and layer.dropout > 0 and layer.num_layers > 1:
            return (
                f"{told}, dropout {layer.dropout:g}) draws from cuDNN's state of the whole process; use layers of one"
                " each with nn.Dropout between them, or set torch.backends.cudnn.enabled = False"
            )
        if isinstance(layer, _ConvNd) and (cudnn.benchmark or not deterministic):
            return (
                f"{told}) may use another algorithm of cuDNN each time; set torch.backends.cudnn.deterministic = True"
                " and torch.backends.cudnn.benchmark = False"
            )
    return ""


@contextmanager
def watched_operations() -> Iterator[list[str]]:
    """A context; afterwards the list has the operations made in it that PyTorch has no deterministic version of."""
    found: list[str] = []
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield found
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    found += dict.fromkeys(match[1] for each in said if (match := _WARNING.search(str(each.message))))
