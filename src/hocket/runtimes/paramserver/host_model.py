"""The model as one host sees it: what it has pulled, and the updates that its workers have summed up."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hocket.runtimes.paramserver.algorithm import Array, TrainingError, is_not_finite
from hocket.runtimes.paramserver.host_group import HostGroup
from hocket.runtimes.paramserver.model_shard import ModelShard, Update
from hocket.runtimes.paramserver.phase_turns import CommTurn
from hocket.runtimes.paramserver.pull_plan import Plan, PulledRows
from hocket.runtimes.paramserver.sharding import others, rows_of
from hocket.runtimes.paramserver.wire import KeyList, LinkClosed, PushEnded


class HostModel:
    """PULL, what blocks see of it, their updates, and PUSH."""

    def __init__(self, shard: ModelShard, group: HostGroup) -> None:
        self.shard, self._group = shard, group
        self._pulled: dict[str, Array] = {}  # read-only
        self._tables: dict[str, Array] = {}  # rows that were pulled by number
        self._buffers: dict[str, Array] = {}  # that updates are summed up in
        self._sums: dict[str, Array] = {}  # of this iteration
        self._plan: Plan = {}
        self.moved_bytes = 0  # from or to other hosts, by the last PULL or PUSH

    # -- PULL ----------------------------------------------------------------------------------------------------

    def pull(self, plan: Plan, turn: CommTurn) -> None:
        """Get the rows of a plan, at the shard's version. Of arrays that are kept whole, own rows are there already."""
        self._plan, self._sums = plan, {}
        self._pulled = {}
        self.moved_bytes = 0
        for name, wanted in plan.items():
            target = self.shard.whole[name] if wanted.keys is None else self._table(name, wanted.keys)
            if wanted.keys is not None:
                first, behind = _places(wanted.keys, self.shard.spans[name])
                own = wanted.keys[first:behind] - self.shard.spans[name][0]
                self.shard.memory.take(target[first:behind], self.shard.values[name], own)
            view = target.view()
            view.flags.writeable = False
            self._pulled[name] = view
        try:
            for host in others(self._group.host, self._group.hosts):
                for name, wanted in plan.items():
                    self._pull_from(host, name, wanted, turn)
        except LinkClosed as error:
            raise TrainingError(f"a host is gone: {error}") from error

    def _pull_from(self, host: int, name: str, wanted: PulledRows, turn: CommTurn) -> None:
        layout, link = self.shard.layouts[name], self._group.links[host]
        span = rows_of(layout.rows, host, self._group.hosts)
        if wanted.keys is None:
            keys, target = None, self.shard.whole[name][span[0] : span[1]]
        else:
            first, behind = _places(wanted.keys, span)
            keys = KeyList(wanted, wanted.keys[first:behind] - span[0])
            target = self._tables[name][first:behind]
        link.pull(name, self.shard.version, target, keys, turn)
        self.moved_bytes += target.nbytes

    def _table(self, name: str, keys: Array) -> Array:
        if name not in self._tables or len(self._tables[name]) != len(keys):
            self._tables[name] = self.shard.memory.empty(self.shard.layouts[name], len(keys))
        return self._tables[name]

    # -- what a block sees and gives -----------------------------------------------------------------------------

    def params(self, block: int, names: Mapping[str, Array | None]) -> dict[str, Array]:
        """The arrays that a block needs, read-only."""
        found = {}
        for name in names:
            rows, places = self._pulled[name], self._plan[name].places
            if block in places:
                rows = rows[places[block]]
                rows.flags.writeable = False
            found[name] = rows
        return found

    def check_updates(self, what: str, given: Mapping[str, Array], params: Mapping[str, Array]) -> dict[str, Array]:
        """The updates of a block, or TrainingError: what is wrong with them."""
        if not isinstance(given, Mapping):
            raise TrainingError(f"{what}: compute() gave {type(given).__name__}; it must give updates by array")
        found = {}
        for name, update in given.items():
            if name not in params:
                raise TrainingError(f"{what}: update of '{name}'; the block needs {', '.join(params)}")
            rows = np.asarray(update)
            if rows.shape != params[name].shape:
                raise TrainingError(
                    f"{what}: update of '{name}' has shape {rows.shape}; it must be {params[name].shape}"
                )
            if not np.can_cast(rows.dtype, params[name].dtype, "same_kind"):
                raise TrainingError(f"{what}: update of '{name}' is {rows.dtype}; the array is {params[name].dtype}")
            with np.errstate(over="ignore"):
                rows = rows.astype(params[name].dtype, copy=False)  # in which it may be infinite
            if is_not_finite(rows):
                raise TrainingError(f"{what}: update of '{name}' has a NaN or an infinite value")
            found[name] = rows
        return found

    def take_only(self, _block: int, updates: Mapping[str, Array]) -> None:
        """The updates of the only block of an iteration are the sums: nothing is copied, unless it is the model."""
        for name, update in updates.items():
            found = np.ascontiguousarray(update, self._pulled[name].dtype)
            self._sums[name] = found.copy() if np.may_share_memory(found, self._pulled[name]) else found

    def add(self, block: int, updates: Mapping[str, Array]) -> None:
        """Add the updates of a block to the sums. Only one at a time."""
        for name, update in updates.items():
            total, places = self._buffer(name), self._plan[name].places
            if block not in places:
                if name in self._sums:
                    np.add(total, update, out=total, casting="same_kind")
                else:
                    np.copyto(total, update, casting="same_kind")
            else:
                if name not in self._sums:
                    total[...] = 0
                total[places[block]] += update.astype(total.dtype, copy=False)
            self._sums[name] = total
        self.shard.memory.keep_within_budget()

    def _buffer(self, name: str) -> Array:
        shape = self._pulled[name].shape
        if name not in self._buffers or self._buffers[name].shape != shape:
            self._buffers[name] = self.shard.memory.like(self._pulled[name])
        return self._buffers[name]

    # -- PUSH ----------------------------------------------------------------------------------------------------

    def push(self, turn: CommTurn) -> dict[str, Update]:
        """Send the sums to the other hosts' servers; what is left for this one's."""
        self.moved_bytes = 0
        try:
            for host in others(self._group.host, self._group.hosts):
                link = self._group.links[host]
                for name in self._plan:
                    if name in self._sums:
                        span = rows_of(self.shard.layouts[name].rows, host, self._group.hosts)
                        keys, rows = self._part_of(name, span)
                        sent = KeyList(self._plan[name], keys) if keys is not None else None
                        link.push(name, self.shard.version, rows, sent, turn)
                        self.moved_bytes += rows.nbytes
                link.send(PushEnded(self.shard.version))
                link.receive_answer()
        except LinkClosed as error:
            raise TrainingError(f"a host is gone: {error}") from error
        return {name: self._part_of(name, self.shard.spans[name]) for name in self._sums}

    def _part_of(self, name: str, span: tuple[int, int]) -> Update:
        """What the sums have for the rows of a shard."""
        keys = self._plan[name].keys
        if keys is None:
            return Update(None, self._sums[name][span[0] : span[1]])
        first, behind = _places(keys, span)
        return Update(keys[first:behind] - span[0], self._sums[name][first:behind])


def _places(keys: Array, span: tuple[int, int]) -> tuple[int, int]:
    """Where the keys of a shard begin and end among sorted ones."""
    first, behind = np.searchsorted(keys, span)
    return int(first), int(behind)
