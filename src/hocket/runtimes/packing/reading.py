"""One input stream for all who share data: an epoch's order is read, collated and copied to the device once.

An order is a data set and the sequence of its examples in one epoch. Models whose loaders give the same order share it,
whatever their batch sizes: it is read in stretches of the largest batch, and each model's batch is a slice of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset, default_collate

from hocket.runtimes.packing.tensors import joined, leaves, mapped, n_bytes

KEPT_BYTES = 64 << 20  # on the device, for models that lag behind; what is older is read again
KEPT_AT_LEAST = 2  # stretches: one in use, one on its way

Collate = Callable[[list[Any]], Any]
_numbers = count()


class Copying:
    """To the device: pinned and asynchronous, on a stream of its own, so that it goes on while models compute."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.copied_bytes = 0
        self._stream = _stream(device) if device.type == "cuda" else None

    @property
    def pins(self) -> bool:
        """Whether what is read should stand in pinned memory at once."""
        return self._stream is not None

    def __call__(self, value: Any) -> Any:
        """The same batch on the device; who computes next waits for it there, not here."""
        self.copied_bytes += n_bytes(value)
        if self._stream is None:
            return value
        with torch.cuda.stream(self._stream):
            there = mapped(value, self._sent)
        # Who asks may be at work on another stream than those who will be given the same batch later.
        for stream in {torch.cuda.current_stream(self.device), torch.cuda.default_stream(self.device)}:
            stream.wait_stream(self._stream)
            for leaf in leaves(there):
                if isinstance(leaf, Tensor):
                    leaf.record_stream(stream)
        return there

    def _sent(self, tensor: Tensor) -> Tensor:
        if tensor.device.type == "cpu" and not tensor.is_pinned():
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)


class Drew(Exception):
    """Reading this data set draws random numbers, so that everybody must read for itself."""


class Order:
    """One epoch of one data set in one order, and those stretches of it that are on the device."""

    def __init__(self, loader: DataLoader[Any], indices: Sequence[int], stretch: int, copying: Copying) -> None:
        self.dataset, self.indices, self.stretch = loader.dataset, indices, stretch
        self.number = next(_numbers)  # of no other order, ever
        self.reads = 0  # stretches that were read
        self.after: dict[tuple[object, ...], list[Tensor]] = {}  # by generators before: their states after the drawing
        self.last: Any = None  # the batch that was asked for last
        self._collate: Collate = loader.collate_fn
        self._workers = loader.num_workers
        self._copying = copying
        self._there: OrderedDict[int, Any] = OrderedDict()  # by number, the last used last
        self._ahead: tuple[int, Iterator[Any]] | None = None  # what worker processes read: next number, stretches

    def batch(self, start: int, stop: int) -> Any:
        """The examples from `start` to `stop` of this order, on the device."""
        first, last = start // self.stretch, (stop - 1) // self.stretch
        parts = []
        for number in range(first, last + 1):
            begins = number * self.stretch
            value = self._at(number)
            low, high = max(start - begins, 0), min(stop - begins, self.stretch, len(self.indices) - begins)
            whole = low == 0 and high == min(self.stretch, len(self.indices) - begins)
            parts.append(value if whole else _cut(value, low, high))
        return parts[0] if len(parts) == 1 else joined(parts, torch.cat)

    def _at(self, number: int) -> Any:
        value = self._there.get(number)
        if value is None:
            value = self._there[number] = self._copying(self._read(number))
            while len(self._there) > KEPT_AT_LEAST and sum(map(n_bytes, self._there.values())) > KEPT_BYTES:
                self._there.popitem(last=False)
        self._there.move_to_end(number)
        return value

    def _read(self, number: int) -> Any:
        self.reads += 1
        if self._workers:
            if self._ahead is None or self._ahead[0] != number:
                stretches = [list(self._examples(n)) for n in range(number, -(-len(self.indices) // self.stretch))]
                reader: DataLoader[Any] = DataLoader(
                    self.dataset, batch_sampler=stretches, num_workers=self._workers, collate_fn=self._collate,
                    generator=torch.Generator(), pin_memory=self._copying.pins,
                )  # fmt: skip
                self._ahead = number, iter(reader)
            self._ahead = number + 1, self._ahead[1]
            return next(self._ahead[1])
        before = torch.default_generator.get_state()
        value = read(self.dataset, self._examples(number), self._collate, self._copying.pins)
        if not torch.equal(before, torch.default_generator.get_state()):
            torch.default_generator.set_state(before)
            raise Drew
        return value

    def _examples(self, number: int) -> Sequence[int]:
        return self.indices[number * self.stretch : (number + 1) * self.stretch]


class Library:
    """The orders that models on one device are reading now."""

    def __init__(self, device: torch.device) -> None:
        self.copying = Copying(device)
        self.stretches: dict[int, int] = {}  # by data set: the largest batch that was asked for
        self._orders: WeakValueDictionary[tuple[object, ...], Order] = WeakValueDictionary()
        self._drawn: WeakValueDictionary[tuple[object, ...], Order] = WeakValueDictionary()
        self._drawing: set[int] = set()  # data sets whose reading draws random numbers

    def order(self, loader: DataLoader[Any], indices: list[int], batch_size: int) -> Order:
        """The order of these indices, as others read it already or as a new one."""
        sliceable = loader.collate_fn is default_collate
        key = (id(loader.dataset), id(loader.collate_fn), 0 if sliceable else batch_size, _packed(indices))
        order = self._orders.get(key)
        if order is None:
            stretch = max(self.stretches.get(id(loader.dataset), 0), batch_size) if sliceable else batch_size
            order = self._orders[key] = Order(loader, indices, stretch, self.copying)
        return order

    def remembered(self, key: tuple[object, ...]) -> Order | None:
        """The order that somebody else's loader gave from the same generators, if it is still read."""
        return self._drawn.get(key)

    def remember(self, key: tuple[object, ...], order: Order, after: list[Tensor]) -> None:
        """From these generators comes this order, and these are their states afterwards."""
        self._drawn[key] = order
        order.after[key] = after

    def asked_for(self, dataset: object, batch_size: int) -> None:
        """Somebody will read this data set in batches of this size."""
        self.stretches[id(dataset)] = max(self.stretches.get(id(dataset), 0), batch_size)

    def draws(self, dataset: object) -> bool:
        """Whether reading this data set was seen to draw random numbers."""
        return id(dataset) in self._drawing

    def seen_drawing(self, dataset: object) -> None:
        """From now on, everybody reads it for itself."""
        self._drawing.add(id(dataset))


def read(dataset: Any, indices: Sequence[int], collate: Collate, pin: bool = False) -> Any:
    """These examples as one batch, as a DataLoader reads them."""
    if type(dataset) is TensorDataset and collate is default_collate:  # The same tensors, without one call an example.
        chosen = torch.as_tensor(indices, device=dataset.tensors[0].device)
        return [_gathered(tensor, chosen, pin) for tensor in dataset.tensors]
    if hasattr(dataset, "__getitems__"):
        return collate(dataset.__getitems__(list(indices)))
    return collate([dataset[index] for index in indices])


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _gathered(tensor: Tensor, chosen: Tensor, pin: bool) -> Tensor:
    if not pin or tensor.device.type != "cpu":
        return tensor[chosen]
    out = torch.empty((len(chosen), *tensor.shape[1:]), dtype=tensor.dtype, pin_memory=True)
    return torch.index_select(tensor, 0, chosen, out=out)


def _cut(value: Any, low: int, high: int) -> Any:
    return mapped(value, lambda tensor: tensor[low:high])


def _packed(indices: list[int]) -> bytes:
    return torch.tensor(indices, dtype=torch.int64).numpy().tobytes()
