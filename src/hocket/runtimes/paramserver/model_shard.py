"""The rows of the model that a host serves, and the updates that came for them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from hocket.runtimes.paramserver.algorithm import Algorithm, Array, TrainingError
from hocket.runtimes.paramserver.model_memory import ModelMemory
from hocket.runtimes.paramserver.pull_plan import ArrayLayout, union_of
from hocket.runtimes.paramserver.sharding import rows_of
from hocket.runtimes.paramserver.worker_pool import WorkerPool


class Update(NamedTuple):
    """What a host pushes of one array: rows by number within the shard, or all of them."""

    keys: Array | None
    rows: Array


class ModelShard:
    """The server of a host.

    Invariant: `values` change only in `apply`, when all hosts have pushed and none pulls; then `version` does, too.
    """

    def __init__(
        self, layouts: Mapping[str, ArrayLayout], host: int, hosts: int, whole: frozenset[str],
        memory: ModelMemory | None = None,
    ) -> None:  # fmt: skip
        """Arrays in `whole` are kept with room for all their rows, of which the own ones are part: pulling those copies
        nothing."""
        self.layouts, self.host, self.hosts = layouts, host, hosts
        self.memory = memory or ModelMemory()
        self.spans = {name: rows_of(layout.rows, host, hosts) for name, layout in layouts.items()}
        self.version = 0  # iterations whose updates are in it
        self.whole = {name: self.memory.empty(of, of.rows) for name, of in layouts.items() if name in whole}
        self.values = {name: self._own(name) for name in layouts}
        self._changed = threading.Condition()
        self._staged: dict[int, dict[str, Update]] = {}
        self._complete: set[int] = set()  # hosts that have pushed all their updates
        self._buffers: dict[tuple[int, str], Array] = {}

    def _own(self, name: str) -> Array:
        first, behind = self.spans[name]
        if name in self.whole:
            return self.whole[name][first:behind]
        return self.memory.empty(self.layouts[name], behind - first)

    # -- what other hosts ask for --------------------------------------------------------------------------------

    def rows_for_pull(self, name: str, version: int, keys: Array | None) -> Array:
        """Rows of this version, by number within the shard."""
        self._check(name, version, "pull")
        return self.values[name] if keys is None else self.values[name][keys]

    def buffer_for_push(self, host: int, name: str, version: int, keys: int | None) -> Array:
        """Where the rows that a host pushes are put: so many, or all of them."""
        self._check(name, version, "push")
        if keys is not None:
            return self.memory.empty(self.layouts[name], keys)
        if (host, name) not in self._buffers:
            self._buffers[host, name] = self.memory.like(self.values[name])
        return self._buffers[host, name]

    def stage(self, host: int, name: str, update: Update) -> None:
        """Keep an update until all are there."""
        with self._changed:
            self._staged.setdefault(host, {})[name] = update

    def push_ended(self, host: int) -> None:
        """A host has pushed all that it had for this shard."""
        with self._changed:
            self._complete.add(host)
            self._changed.notify_all()

    def _check(self, name: str, version: int, what: str) -> None:
        if name not in self.values:
            raise TrainingError(f"{what} of array '{name}', which the model does not have")
        if version != self.version:
            raise TrainingError(
                f"{what} of '{name}' at version {version}; the shard on host {self.host} has version {self.version}"
            )

    # -- what this host does -------------------------------------------------------------------------------------

    def wait_for_pushes(self, is_broken: threading.Event) -> None:
        """Wait until the updates of all other hosts are there, or one of them is gone."""
        with self._changed:
            while len(self._complete) < self.hosts - 1 and not is_broken.is_set():
                self._changed.wait(1.0)

    def wake(self) -> None:
        """A host is gone: whatever waits looks again."""
        with self._changed:
            self._changed.notify_all()

    def apply(self, own: Mapping[str, Update], algorithm: Algorithm, pool: WorkerPool) -> None:
        """Make the next version of all updates, this host's and the others', in the order of hosts."""
        by_host = [own if host == self.host else self._staged.get(host, {}) for host in range(self.hosts)]
        iteration = self.version + 1
        if type(algorithm).apply is Algorithm.apply:
            for updates in by_host:
                for name, update in updates.items():
                    _add(self.values[name], update, pool, self.memory)
        else:
            for rows in sorted({layout.rows for layout in self.layouts.values()}):
                names = [name for name, layout in self.layouts.items() if layout.rows == rows]
                self._apply_by_algorithm(names, by_host, iteration, algorithm, pool)
        self._staged.clear()
        with self._changed:
            self._complete.clear()
            self.version = iteration

    def _apply_by_algorithm(
        self, names: list[str], by_host: list[Mapping[str, Update]], iteration: int, algorithm: Algorithm,
        pool: WorkerPool,
    ) -> None:  # fmt: skip
        """The same for arrays of one length, by the algorithm's own rule, which needs the sums of all updates."""
        came = {name: [of[name] for of in by_host if name in of] for name in names}
        updated = [name for name, updates in came.items() if updates]
        if not updated or not len(self.values[names[0]]):
            return
        keys = _keys_of([update for updates in came.values() for update in updates])
        sums = {name: _sum(came[name], keys, self.values[name], pool, self.memory) for name in updated}
        values = {name: self.values[name] if keys is None else self.values[name][keys] for name in names}
        width = sum(self.layouts[name].row_bytes for name in names)

        def change(first: int, behind: int) -> None:
            algorithm.apply(
                {name: rows[first:behind] for name, rows in values.items()},
                {name: rows[first:behind] for name, rows in sums.items()},
                iteration,
            )
            self.memory.keep_within_budget()

        pool.over_rows(len(values[names[0]]), width, change)
        if keys is not None:
            for name in names:
                self.values[name][keys] = values[name]


def _keys_of(updates: list[Update]) -> Array | None:
    """The rows that they are about together; None: all."""
    keys = [update.keys for update in updates]
    if any(found is None for found in keys):
        return None
    return union_of([found for found in keys if found is not None])


def _sum(updates: list[Update], keys: Array | None, like: Array, pool: WorkerPool, memory: ModelMemory) -> Array:
    if keys is None and len(updates) == 1 and updates[0].keys is None:
        return updates[0].rows
    total = np.zeros_like(like) if keys is None else np.zeros((len(keys), *like.shape[1:]), like.dtype)
    for update in updates:
        if keys is None or update.keys is None:
            _add(total, update, pool, memory)
        else:
            total[np.searchsorted(keys, update.keys)] += update.rows
    return total


def _add(values: Array, update: Update, pool: WorkerPool, memory: ModelMemory) -> None:
    """Keys are each there once, so that no addition is lost."""

    def add(first: int, behind: int) -> None:
        if update.keys is not None:
            values[update.keys[first:behind]] += update.rows[first:behind]
        else:
            np.add(values[first:behind], update.rows[first:behind], out=values[first:behind])
        memory.keep_within_budget()

    if len(update.rows):
        pool.over_rows(len(update.rows), values[:1].nbytes, add)
