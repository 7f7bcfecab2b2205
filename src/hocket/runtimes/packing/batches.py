"""A model's batches, exactly those of its solo run, shared with other models if they are the same.

`SharedBatches` asks the loader for its order of examples at the start of each epoch, with the
random draws that the loader would make, and takes its batches from a common `EpochOrder`. `OwnBatches` iterates any
other iterable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from copy import copy
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    default_collate,
)

from hocket.runtimes.packing.device_datasets import is_plain
from hocket.runtimes.packing.rng_state import DrawDetector
from hocket.runtimes.packing.shared_reading import EpochOrder, ReadingDraws, SharedReader, read
from hocket.runtimes.packing.tensors import leaves, mapped, shape

ALIGNED = 64  # bytes, as fresh tensors are

_DRAW_AT_THE_START = (SequentialSampler, RandomSampler, SubsetRandomSampler)  # and at no other time


Began = tuple[Tensor, list[Tensor]]  # the host's and the loader's own generators when the epoch began


class Batch(NamedTuple):
    """One batch on the device. Batches with the same token are the same."""

    value: Any
    token: object  # None: not shared
    shape: tuple[object, ...]  # of all its tensors

    def aligned(self) -> Any:
        """The value at an address aligned as a fresh tensor's: libraries choose kernels by alignment."""
        return self.value if self.token is None else mapped(self.value, _aligned)


class BatchSource(Protocol):
    """A model's batches, epoch after epoch. All but `shared` need the model's generators installed."""

    epoch: int  # epochs begun
    ended: int  # epochs known to be over

    def next(self) -> Batch: ...

    def shared(self) -> Batch | None: ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...


def batch_source_of(name: str, data: Iterable[Any], reader: SharedReader) -> BatchSource:
    """Shared batches where the loader's order is known at the start of an epoch, else the model's own."""
    if (
        type(data) is DataLoader
        and not isinstance(data.dataset, IterableDataset)
        and type(data.batch_sampler) is BatchSampler
        and isinstance(data.batch_sampler.sampler, _DRAW_AT_THE_START)
        and data.worker_init_fn is None
    ):
        return SharedBatches(name, data, reader)
    return OwnBatches(name, data, reader)


class Generators:
    """A context with a loader's generators: inside, as if only this model had used them; afterwards, as before."""

    def __init__(self, *holders: object) -> None:
        found = [getattr(holder, "generator", None) for holder in holders]
        self._generators = list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())
        self.states = [g.get_state() for g in self._generators]

    def __enter__(self) -> None:
        self._outside = [g.get_state() for g in self._generators]
        for generator, state in zip(self._generators, self.states, strict=True):
            generator.set_state(state)

    def __exit__(self, *_: object) -> None:
        self.states = [g.get_state() for g in self._generators]
        for generator, state in zip(self._generators, self._outside, strict=True):
            generator.set_state(state)


class SharedBatches:
    """An ordinary loader over a data set that other models may read, too."""

    def __init__(self, name: str, loader: DataLoader[Any], reader: SharedReader) -> None:
        self.epoch = self.ended = 0
        self._name, self._loader, self._reader = name, loader, reader
        sampler: Any = loader.batch_sampler
        self._batch_size: int = sampler.batch_size
        self._drop_last: bool = sampler.drop_last
        self._sampler: Any = sampler.sampler
        self._own = Generators(loader, self._sampler)
        has_own = isinstance(self._sampler, SequentialSampler) or self._sampler.generator is not None
        self._draws_outside = loader.generator is None or not has_own  # from the global generator
        self._order: EpochOrder | None = None
        self._at = 0  # examples of the present order that were used
        self._began: Began | None = None
        self._alone: OwnBatches | None = (
            None  # set once workers draw random numbers: these depend on what the workers read
        )
        # Reading plain tensors draws nothing; draws in workers are detected there.
        self._watched = loader.num_workers > 0 or is_plain(loader.dataset, loader.collate_fn)
        reader.asked_for(loader.dataset, self._batch_size)

    def shared(self) -> Batch | None:
        """The next batch, if nothing has to be drawn for it."""
        order = self._order
        if self._alone is not None or order is None or self._at >= self._end():
            return None
        if not self._watched or self._reader.draws(order.dataset):
            return None
        start, stop = self._at, min(self._at + self._batch_size, order.examples)
        try:
            batch = self._common(order, start, stop)
        except ReadingDraws:
            self._reader.seen_drawing(order.dataset)
            return None
        self._used(stop)
        return batch

    def _common(self, order: EpochOrder, start: int, stop: int) -> Batch:
        """Most models of a pack ask for the same batch, one after the other."""
        last: Batch | None = order.last.get(stop - start)
        if last is None or last.token != (order.number, start, stop):
            value = order.batch(start, stop)
            last = order.last[stop - start] = Batch(value, (order.number, start, stop), shape(value))
        return last

    def _used(self, stop: int) -> None:
        self._at = stop
        self.ended = self.epoch - (stop < self._end())

    def next(self) -> Batch:
        """The next batch, of the next epoch if this one is over."""
        if self._loader.num_workers and self._reader.draws(self._loader.dataset):
            return self._by_itself()
        if self._order is None or self._at >= self._end():
            self._begin_epoch()
        assert self._order is not None
        start, stop = self._at, min(self._at + self._batch_size, self._order.examples)
        batch = self._taken(self._order, start, stop)
        if batch is None:
            return self._by_itself()
        self._used(stop)
        return batch

    def _by_itself(self) -> Batch:
        """From the model's own workers, as in a solo run, starting at the current batch."""
        if self._alone is None:
            goes_on = self._order is not None and self._at < self._end()
            taken = -(-self._at // self._batch_size) if goes_on else 0
            state = {**self.state(), "taken": taken, "began": self._began if goes_on else None}
            if goes_on:  # A sampler that is read as far as workers are ahead may not have drawn its last number yet.
                del state["generators"]
            self._alone = OwnBatches(self._name, self._loader, self._reader)
            self._alone.restore(state)
        batch = self._alone.next()
        self.epoch, self.ended = self._alone.epoch, self._alone.ended
        return batch

    def _taken(self, order: EpochOrder, start: int, stop: int) -> Batch | None:
        """None if workers draw."""
        shares = self._watched and not self._reader.draws(order.dataset)
        if shares:
            try:
                return self._common(order, start, stop)
            except ReadingDraws:
                self._reader.seen_drawing(order.dataset)
                if self._loader.num_workers:
                    return None
        # As the loader alone reads: this batch only, with the model's own generators.
        copier = self._reader.copier
        with DrawDetector() as watched:
            value = read(order.dataset, order.indices[start:stop], self._loader.collate_fn, copier.pins)
        if watched.drew or (self._loader.collate_fn is default_collate and not _slices(value, stop - start)):
            self._reader.seen_drawing(order.dataset)
        self._watched = True
        return Batch(copier(value), None, shape(value))

    def _begin_epoch(self) -> None:
        # Equal generators give the same order, so it is not drawn again.
        sampler = self._sampler
        size = 0 if self._loader.collate_fn is default_collate else self._batch_size
        draws = (type(sampler), getattr(sampler, "replacement", None), getattr(sampler, "num_samples", None), size)
        named = (*draws, *map(id, (getattr(sampler, "indices", None), self._loader.dataset, self._loader.collate_fn)))
        starts = not self._loader.persistent_workers or not self.epoch  # Workers that stay are seeded once.
        self._began = torch.default_generator.get_state(), self._own.states
        before = [*([torch.default_generator.get_state()] if self._draws_outside else []), *self._own.states]
        key = (*named, starts, self._draws_outside, *(state.numpy().tobytes() for state in before))
        self._order = self._reader.remembered(key)
        if self._order is None:
            with self._own:
                if starts:  # as an iterator does
                    torch.empty((), dtype=torch.int64).random_(generator=self._loader.generator)
                indices = torch.tensor(list(sampler), dtype=torch.int64)
            self._follow(indices)
            assert self._order is not None
            self._reader.remember(key, self._order, [torch.default_generator.get_state(), *self._own.states])
        else:
            now, *self._own.states = self._order.after[key]
            if self._draws_outside:
                torch.default_generator.set_state(now)
        self.epoch += 1
        self._at = 0
        if not self._end():
            raise ValueError(f"the data of model '{self._name}' has no batch of {self._batch_size} examples")

    def _follow(self, indices: Tensor) -> None:
        self._order = self._reader.order(self._loader, indices, self._batch_size)

    def _end(self) -> int:
        assert self._order is not None
        examples = self._order.examples
        return examples - examples % self._batch_size if self._drop_last else examples

    def state(self) -> dict[str, Any]:
        """The order, the position in it and the loader's generators."""
        if self._alone is not None:
            return self._alone.state()
        return {
            "epoch": self.epoch,
            "ended": self.ended,
            "at": self._at,
            "began": self._began,
            "indices": None if self._order is None else self._order.indices,  # never written to
            "generators": self._own.states,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue as if there had been no break."""
        self.epoch, self.ended = state["epoch"], state["ended"]
        if "taken" in state:  # It had workers of its own.
            self._reader.seen_drawing(self._loader.dataset)
            self._alone = OwnBatches(self._name, self._loader, self._reader)
            self._alone.restore(state)
            return
        self._alone, self._at, self._began = None, state["at"], state.get("began")
        self._own.states = state["generators"]
        if state["indices"] is not None:
            self._follow(state["indices"])


class OwnBatches:
    """Any other iterable."""

    def __init__(self, name: str, data: Iterable[Any], reader: SharedReader) -> None:
        self.epoch = self.ended = 0
        self._name, self._data, self._copier = name, data, reader.copier
        if isinstance(data, DataLoader) and data.persistent_workers:  # Its workers serve one iterator at a time.
            own: DataLoader[Any] = copy(data)
            self._data, own._iterator = own, None
        batches = getattr(data, "batch_sampler", None)
        self._own = Generators(data, getattr(data, "sampler", None), batches, getattr(batches, "sampler", None))
        self._iterator: Iterator[Any] | None = None
        self._taken = 0  # batches of this epoch
        self._length = len(data) if isinstance(data, Sized) and not isinstance(data, DataLoader) else None
        self._began: Began | None = None

    def next(self) -> Batch:
        """The next batch, of the next epoch if this one is over."""
        with self._own:
            value = self._following()
        if value is _NOTHING:
            self.ended = self.epoch
            self._begin_epoch()
            with self._own:
                value = self._following()
            if value is _NOTHING:
                raise ValueError(f"the data of model '{self._name}' has no batch")
        self._taken += 1
        if self._taken == self._length:
            self.ended = self.epoch
        return Batch(self._copier(value), None, shape(value))

    def shared(self) -> Batch | None:
        """Always None: an iterable may draw at any time."""
        return None

    def _following(self) -> Any:
        return _NOTHING if self._iterator is None else next(self._iterator, _NOTHING)

    def _begin_epoch(self) -> None:
        self._began = torch.default_generator.get_state(), self._own.states
        with self._own:
            self._iterator = iter(self._data)
        self._taken = 0
        self.epoch += 1

    def state(self) -> dict[str, Any]:
        """How many batches of which epoch, and the generator it began with."""
        return {
            "epoch": self.epoch,
            "ended": self.ended,
            "taken": self._taken,
            "began": self._began,
            "generators": self._own.states,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Begin the epoch again with the same generator, and pass over the batches that were used."""
        self.epoch, self.ended = state["epoch"], state["ended"]
        if state["began"] is not None:
            now = torch.default_generator.get_state()
            began, self._own.states = state["began"]
            torch.default_generator.set_state(began)
            self._begin_epoch()
            for _ in range(state["taken"]):
                with self._own:
                    self._following()
            torch.default_generator.set_state(now)
        self.epoch, self._taken = state["epoch"], state["taken"]
        self._own.states = state.get("generators", self._own.states)


_NOTHING = object()


def _aligned(tensor: Tensor) -> Tensor:
    return tensor.clone() if tensor.data_ptr() % ALIGNED else tensor


def _slices(value: Any, examples: int) -> bool:
    """Whether a slice of a larger batch would be this batch: all leaves are tensors with a row an example."""
    return all(isinstance(leaf, Tensor) and leaf.dim() > 0 and len(leaf) == examples for leaf in leaves(value))
