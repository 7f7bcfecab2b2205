"""One input stream for all models that share data: an epoch's order is read, collated and copied to the device once.

An order is a data set and the sequence of its examples in one epoch. Models whose loaders give the same order share it,
whatever their batch sizes: it is read in chunks of the largest batch or more, and each model's batch is a slice.
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

from hocket.runtimes.packing.device_datasets import DeviceDataset, device_dataset_of, fits, is_plain
from hocket.runtimes.packing.rng_state import DrawDetector
from hocket.runtimes.packing.tensors import joined, leaves, mapped, n_bytes

KEPT_BYTES = 64 << 20  # on the device at least, for models that lag behind; what is older is read again
KEPT_AT_LEAST = 2  # chunks: one in use, one being copied
CHUNK_BYTES = {"cuda": 8 << 20, "cpu": 256 << 10}  # of plain tensors, several small batches are read in one go

Collate = Callable[[list[Any]], Any]
_numbers = count()


class DeviceCopier:
    """Copies to the device: pinned and asynchronous, on its own stream, so that models compute meanwhile."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.copied_bytes = 0
        self._stream = _stream(device) if device.type == "cuda" else None

    @property
    def pins(self) -> bool:
        """Whether batches should be read into pinned memory."""
        return self._stream is not None

    def __call__(self, value: Any) -> Any:
        """The same batch on the device."""
        self.copied_bytes += n_bytes(value)
        return value if self._stream is None else self.beside(lambda: mapped(value, self._sent))

    def beside(self, make: Callable[[], Any]) -> Any:
        """Run `make` on the copy stream; the computing streams wait for its result, the host does not."""
        if self._stream is None:
            return make()
        with torch.cuda.stream(self._stream):
            there = make()
        # The same batch may be used on the default stream later.
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


class ReadingDraws(Exception):
    """Reading this data set draws random numbers, so that each model must read it separately."""


class EpochOrder:
    """One epoch of one data set in one order, and those chunks of it that are on the device."""

    def __init__(self, loader: DataLoader[Any], indices: Tensor, chunk: int, copier: DeviceCopier) -> None:
        self.dataset, self.indices, self.chunk = loader.dataset, indices, chunk
        self.examples = len(indices)
        self.number = next(_numbers)  # unique in this process
        self.reads = 0  # chunks that were read
        self.after: dict[tuple[object, ...], list[Tensor]] = {}  # generator states before a draw: those after
        self.last: dict[int, Any] = {}  # by size: the batch that was asked for last
        self._collate: Collate = loader.collate_fn
        self._workers = loader.num_workers
        self._copier = copier
        self._there: OrderedDict[int, Any] = OrderedDict()  # by number, the last used last
        self._there_bytes = 0
        self._kept_bytes = kept_bytes(copier.device)
        self._ahead: tuple[int, Iterator[Any]] | None = None  # what worker processes read: next number, chunks
        self._on_device: DeviceDataset | None = None
        self._places: Tensor | None = None  # the indices on the device, where the data set is there
        if is_plain(self.dataset, self._collate):
            self._workers = 0  # Slicing tensors is faster than asking another process.
            self._on_device = device_dataset_of(self.dataset, copier.device)
            if self._on_device is not None:
                self._places = indices if copier.device.type == "cpu" else copier(indices)

    def batch(self, start: int, stop: int) -> Any:
        """The examples from `start` to `stop` of this order, on the device."""
        first, last = start // self.chunk, (stop - 1) // self.chunk
        if first == last and self._on_device is not None:  # The usual case, and many models ask in every step.
            begins = first * self.chunk
            return [tensor[start - begins : stop - begins] for tensor in self._at(first)]
        parts = []
        for number in range(first, last + 1):
            begins = number * self.chunk
            value = self._at(number)
            low, high = max(start - begins, 0), min(stop - begins, self.chunk, self.examples - begins)
            whole = low == 0 and high == min(self.chunk, self.examples - begins)
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
        begins, ends = number * self.chunk, (number + 1) * self.chunk
        if self._on_device is not None and self._places is not None:
            there, places = self._on_device, self._places[begins:ends]
            return self._copier.beside(lambda: there.gathered(places))
        if self._workers:
            return self._copier(self._read_ahead(number))
        with DrawDetector() as watched:
            value = read(self.dataset, self.indices[begins:ends], self._collate, self._copier.pins)
        if watched.drew:
            watched.undo()
            raise ReadingDraws
        return self._copier(value)

    def _read_ahead(self, number: int) -> Any:
        if self._ahead is None or self._ahead[0] != number:
            begins = range(number * self.chunk, self.examples, self.chunk)
            chunks = [self.indices[first : first + self.chunk].tolist() for first in begins]
            reader: DataLoader[Any] = DataLoader(
                DrawDetectingDataset(self.dataset, self._collate), batch_sampler=chunks, num_workers=self._workers,
                collate_fn=_as_it_is, generator=torch.Generator(), pin_memory=self._copier.pins,
            )  # fmt: skip
            self._ahead = number, iter(reader)
        self._ahead = number + 1, self._ahead[1]
        value, drew = next(self._ahead[1])
        if drew:
            raise ReadingDraws
        return value


class DrawDetectingDataset(Dataset[Any]):
    """A data set read in a worker process, which reports whether reading draws."""

    def __init__(self, dataset: Any, collate: Collate) -> None:
        self._dataset, self._collate = dataset, collate

    def __getitems__(self, indices: list[int]) -> tuple[Any, bool]:
        with DrawDetector() as watched:
            value = read(self._dataset, torch.tensor(indices), self._collate)
        return value, watched.drew


def _as_it_is(value: Any) -> Any:
    return value


class SharedReader:
    """The orders that models on one device are reading now."""

    def __init__(self, device: torch.device) -> None:
        self.copier = DeviceCopier(device)
        self.chunks: dict[int, int] = {}  # by data set: the largest batch that was asked for
        self._orders: WeakValueDictionary[tuple[object, ...], EpochOrder] = WeakValueDictionary()
        self._drawn: WeakValueDictionary[tuple[object, ...], EpochOrder] = WeakValueDictionary()
        self._drawing: set[int] = set()  # data sets whose reading draws random numbers

    def order(self, loader: DataLoader[Any], indices: Tensor, batch_size: int) -> EpochOrder:
        """The order of these indices: the one that other models use, or a new one."""
        sliceable = loader.collate_fn is default_collate
        key = (id(loader.dataset), id(loader.collate_fn), 0 if sliceable else batch_size, indices.numpy().tobytes())
        order = self._orders.get(key)
        if order is None:
            chunk = self._chunk(loader, batch_size) if sliceable else batch_size
            order = self._orders[key] = EpochOrder(loader, indices, chunk, self.copier)
        return order

    def _chunk(self, loader: DataLoader[Any], batch_size: int) -> int:
        dataset = loader.dataset
        largest = max(self.chunks.get(id(dataset), 0), batch_size)
        if not is_plain(dataset, loader.collate_fn):
            return largest
        return largest * max(1, CHUNK_BYTES[self.copier.device.type] // (_row_bytes(dataset) * largest))

    def footprint(self, loader: Any) -> int:
        """Bytes of this data on the device beside the batches in use; they count once for all models that share it."""
        dataset, size = getattr(loader, "dataset", None), getattr(loader, "batch_size", None)
        if self.copier.device.type == "cpu" or not is_plain(dataset, getattr(loader, "collate_fn", None)) or not size:
            return 0
        kept = max(kept_bytes(self.copier.device), KEPT_AT_LEAST * self._chunk(loader, size) * _row_bytes(dataset))
        whole = n_bytes(dataset.tensors)
        return min(kept, whole) + (whole if fits(dataset, self.copier.device) else 0)

    def remembered(self, key: tuple[object, ...]) -> EpochOrder | None:
        """The order that another loader gave from the same generators, if it is still in use."""
        return self._drawn.get(key)

    def remember(self, key: tuple[object, ...], order: EpochOrder, after: list[Tensor]) -> None:
        """Record the order that these generators give, and their states afterwards."""
        self._drawn[key] = order
        order.after[key] = after

    def asked_for(self, dataset: object, batch_size: int) -> None:
        """Announce that this data set will be read in batches of this size."""
        self.chunks[id(dataset)] = max(self.chunks.get(id(dataset), 0), batch_size)

    def draws(self, dataset: object) -> bool:
        """Whether reading this data set has drawn random numbers."""
        return id(dataset) in self._drawing

    def seen_drawing(self, dataset: object) -> None:
        """From now on, each model reads it separately."""
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
    """How much of an order stays on the device for slower models; on a large GPU, most data sets as a whole."""
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
