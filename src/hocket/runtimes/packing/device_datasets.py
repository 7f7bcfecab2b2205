"""Data sets of plain tensors that are on the device as a whole, so that batches are gathered there.

They are copied once for all packs of the process and stay while the data set exists, as long as they take a small part
of the device's memory. `clear` frees the memory; from then on they are read from the host.
"""

from __future__ import annotations

import weakref
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.utils.data import TensorDataset, default_collate

from hocket.runtimes.packing.tensors import n_bytes

SHARE = 8  # All of them together take at most 1/this of the device's memory.

_known: dict[tuple[int, torch.device], DeviceDataset] = {}
_short: set[torch.device] = set()  # devices that ran out of memory


class DeviceDataset:
    """The tensors of one data set on a device. A data set that is written to is copied again."""

    def __init__(self, dataset: TensorDataset, device: torch.device) -> None:
        self._given, self._device = dataset.tensors, device
        self.tensors: tuple[Tensor, ...] = ()
        self._versions: list[int] = []

    def gathered(self, rows: Tensor) -> list[Tensor]:
        """Some of its rows, by their numbers on the same device."""
        if self._device in _short:
            return [torch.index_select(t, 0, rows.to(t.device)).to(self._device) for t in self._given]
        versions = [tensor._version for tensor in self._given]
        if versions != self._versions:  # The data set was written to, or never copied.
            self.tensors, self._versions = tuple(_brought(t, self._device) for t in self._given), versions
        return [torch.index_select(tensor, 0, rows) for tensor in self.tensors]


def is_plain(dataset: Any, collate: Any) -> TypeGuard[TensorDataset]:
    """Whether its batches are rows of tensors, and nothing else happens when they are read."""
    return type(dataset) is TensorDataset and collate is default_collate


def device_dataset_of(dataset: TensorDataset, device: torch.device) -> DeviceDataset | None:
    """The data set on the device; None if it is too large for that."""
    if all(tensor.device == device for tensor in dataset.tensors):
        return DeviceDataset(dataset, device)
    if not fits(dataset, device):
        return None
    key = id(dataset), device
    if key not in _known:
        _known[key] = DeviceDataset(dataset, device)
        weakref.finalize(dataset, _dropped, key).atexit = False
    return _known[key]


def fits(dataset: TensorDataset, device: torch.device) -> bool:
    """Whether it may stay on the device, beside those that do."""
    if device.type != "cuda" or device in _short:
        return False
    others = sum(n_bytes(r._given) for (whose, there), r in _known.items() if there == device and whose != id(dataset))
    return (others + n_bytes(dataset.tensors)) * SHARE <= torch.cuda.get_device_properties(device).total_memory


def device_dataset_bytes(device: torch.device) -> int:
    """Their bytes on the device."""
    return sum(n_bytes(r.tensors) for (_, there), r in _known.items() if there == device)


def clear(device: torch.device) -> None:
    """Memory is short: keep no data set on the device from now on."""
    if device.type == "cuda":
        _short.add(device)
        for key in [key for key in _known if key[1] == device]:
            _dropped(key)


def _brought(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.to(device)


def _dropped(key: tuple[int, torch.device]) -> None:
    there = _known.pop(key, None)
    if there is not None and there.tensors:
        torch.cuda.synchronize(key[1])  # A gather may still run on a stream that the allocator does not track.
        there.tensors = ()
