"""One input stream for all who share data: an epoch's order is read, collated and copied to the device once.

An order is a data set and the sequence of its examples in one epoch. Models whose loaders give the same order share it,
whatever their batch sizes: it is read in stretches of the largest batch or more, and each model's batch is a slice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from hocket.runtimes.packing.dice import Watched
from hocket.runtimes.packing.resident import Resident, fits, is_plain, resident_of
from hocket.runtimes.packing.tensors import joined, leaves, mapped, n_bytes

KEPT_BYTES = 64 << 20  # on the device at least, for models that lag behind; what is older is read again
KEPT_AT_LEAST = 2  # stretches: one in use, one on its way
STRETCH_BYTES = {"cuda": 8 << 20, "cpu": 256 << 10}  # of plain tensors, several small batches are read in one go

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
        """The same batch on the device."""
        self.copied_bytes += n_bytes(value)
        return value if self._stream is None else self.beside(lambda: mapped(value, self._sent))

    def beside(self, make: Callable[[], Any]) -> Any:
        """What is made on the stream for copies; who computes next waits for it there, not here."""
        if self._stream is None:
            return make()
        with torch.cuda.stream(self._stream):
            there = make()
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

    def __init__(self, loader: DataLoader[Any], indices: Tensor, stretch: int, copying: Copying) -> None:
        self.dataset, self.indices, self.stretch = loader.dataset, indices, stretch
        self.examples = len(indices)
        self.number = next(_numbers)  # of no other order, ever
        self.reads = 0  # stretches that were read
        self.after: dict[tuple[object, ...], list[Tensor]] = {}  # by generators before: their states after the drawing
        self.last: dict[int, Any] = {}  # by size: the batch that was asked for last
        self._collate: Collate = loader.collate_fn
        self._workers = loader.num_workers
        self._copying = copying
        self._there: OrderedDict[int, Any] = OrderedDict()  # by number, the last used last
        self._there_bytes = 0
        self._kept_bytes = kept_bytes(copying.device)
        self._ahead: tuple[int, Iterator[Any]] | None = None  # what worker processes read: next number, stretches
        self._resident: Resident | None = None
        self._places: Tensor | None = None  # the indices on the device, where the data set is there
        if is_plain(self.dataset, self._collate):
            self._workers = 0  # A slice of tensors is nearer than another process.
            self._resident = resident_of(self.dataset, copying.device)
            if self._resident is not None:
                self._places = indices if copying.device.type == "cpu" else copying(indices)

    def batch(self, start: int, stop: int) -> Any:
        """The examples from `start` to `stop` of this order, on the device."""
        first, last = start // self.stretch, (stop - 1) // self.stretch
        if first == last and self._resident is not None:  # The usual case, and many models ask in every step.
            begins = first * self.stretch
            return [tensor[start - begins : stop - begins] for tensor in self._at(first)]
        parts = []
        for number in range(first, last + 1):
            begins = number * self.stretch
            value = self._at(number)
            low, high = max(start - begins, 0), min(stop - begins, self.stretch, self.examples - begins)
            whole = low == 0 and high == min(self.stretch, self.examples - begins)
            parts.append(value if whole else _cut(value, low, high))
        return parts[0] if len(parts) == 1 else joined(parts, torch.cat)

    def _at(self, number: int) -> Any:
        value = self._there.get(number)
        if value is None:
            value = self._there[number] = self._read(number)
            self._there_bytes += n_bytes(value)
            while len(self._there) > KEPT_AT_LEAST and self._there_bytes > self._kept_bytes:
                self._there_bytes -= n_bytes(self._there.popitem(last=False)[1])
        self._there.move_to_end(number)
        return value

    def _read(self, number: int) -> Any:
        self.reads += 1
        begins, ends = number * self.stretch, (number + 1) * self.stretch
        if self._resident is not None and self._places is not None:
            resident, places = self._resident, self._places[begins:ends]
            return self._copying.beside(lambda: resident.gathered(places))
        if self._workers:
            return self._copying(self._read_ahead(number))
        with Watched() as watched:
            value = read(self.dataset, self.indices[begins:ends], self._collate, self._copying.pins)
        if watched.drew:
            watched.undo()
            raise Drew
        return self._copying(value)

    def _read_ahead(self, number: int) -> Any:
        if self._ahead is None or self._ahead[0] != number:
            begins = range(number * self.stretch, self.examples, self.stretch)
            stretches = [self.indices[first : first + self.stretch].tolist() for first in begins]
            reader: DataLoader[Any] = DataLoader(
                Seen(self.dataset, self._collate), batch_sampler=stretches, num_workers=self._workers,
                collate_fn=_as_it_is, generator=torch.Generator(), pin_memory=self._copying.pins,
            )  # fmt: skip
            self._ahead = number, iter(reader)
        self._ahead = number + 1, self._ahead[1]
        value, drew = next(self._ahead[1])
        if drew:
            raise Drew
        return value


class Seen(Dataset[Any]):
    """A data set that is read in a worker process, where somebody looks whether reading draws."""

    def __init__(self, dataset: Any, collate: Collate) -> None:
        self._dataset, self._collate = dataset, collate

    def __getitems__(self, indices: list[int]) -> tuple[Any, bool]:
        with Watched() as watched:
            value = read(self._dataset, torch.tensor(indices), self._collate)
        return value, watched.drew


def _as_it_is(value: Any) -> Any:
    return value


class Library:
    """The orders that models on one device are reading now."""

    def __init__(self, device: torch.device) -> None:
        self.copying = Copying(device)
        self.stretches: dict[int, int] = {}  # by data set: the largest batch that was asked for
        self._orders: WeakValueDictionary[tuple[object, ...], Order] = WeakValueDictionary()
        self._drawn: WeakValueDictionary[tuple[object, ...], Order] = WeakValueDictionary()
        self._drawing: set[int] = set()  # data sets whose reading draws random numbers

    def order(self, loader: DataLoader[Any], indices: Tensor, batch_size: int) -> Order:
        """The order of these indices, as others read it already or as a new one."""
        sliceable = loader.collate_fn is default_collate
        key = (id(loader.dataset), id(loader.collate_fn), 0 if sliceable else batch_size, indices.numpy().tobytes())
        order = self._orders.get(key)
        if order is None:
            stretch = self._stretch(loader, batch_size) if sliceable else batch_size
            order = self._orders[key] = Order(loader, indices, stretch, self.copying)
        return order

    def _stretch(self, loader: DataLoader[Any], batch_size: int) -> int:
        dataset = loader.dataset
        largest = max(self.stretches.get(id(dataset), 0), batch_size)
        if not is_plain(dataset, loader.collate_fn):
            return largest
        return largest * max(1, STRETCH_BYTES[self.copying.device.type] // (_row_bytes(dataset) * largest))

    def footprint(self, loader: Any) -> int:
        """Bytes of this data that will be on the device beside the batches in use: once for all who share it."""
        dataset, size = getattr(loader, "dataset", None), getattr(loader, "batch_size", None)
        if self.copying.device.type == "cpu" or not is_plain(dataset, getattr(loader, "collate_fn", None)) or not size:
            return 0
        kept = max(kept_bytes(self.copying.device), KEPT_AT_LEAST * self._stretch(loader, size) * _row_bytes(dataset))
        whole = n_bytes(dataset.tensors)
        return min(kept, whole) + (whole if fits(dataset, self.copying.device) else 0)

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


def read(dataset: Any, indices: Tensor, collate: Collate, pin: bool = False) -> Any:
    """These examples as one batch, as a DataLoader reads them."""
    if is_plain(dataset, collate):  # The same tensors, without one call an example.
        return [_gathered(tensor, indices, pin) for tensor in dataset.tensors]
    chosen = indices.tolist()
    if hasattr(dataset, "__getitems__"):
        return collate(dataset.__getitems__(chosen))
    return collate([dataset[index] for index in chosen])


def kept_bytes(device: torch.device) -> int:
    """How much of an order stays for those that lag behind: on a large GPU, most data sets as a whole."""
    if device.type == "cpu":
        return KEPT_BYTES
    return max(KEPT_BYTES, torch.cuda.get_device_properties(device).total_memory // 128)


def _row_bytes(dataset: TensorDataset) -> int:
    return max(1, sum(t[:1].numel() * t.element_size() for t in dataset.tensors))


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _gathered(tensor: Tensor, chosen: Tensor, pin: bool) -> Tensor:
    if not pin or tensor.device.type != "cpu":
        return tensor[chosen.to(tensor.device)]
    out = torch.empty((len(chosen), *tensor.shape[1:]), dtype=tensor.dtype, pin_memory=True)
    return torch.index_select(tensor, 0, chosen, out=out)


def _cut(value: Any, low: int, high: int) -> Any:
    return mapped(value, lambda tensor: tensor[low:high])
