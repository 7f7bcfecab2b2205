"""Each host's part of the model and of the blocks' states: what is here, and what another host is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hocket.runtimes.paramserver.algorithm import Array, TrainingError
from hocket.runtimes.paramserver.checkpoint import packed_states
from hocket.runtimes.paramserver.host_blocks import HostBlocks
from hocket.runtimes.paramserver.host_group import HostGroup
from hocket.runtimes.paramserver.model_memory import ModelMemory
from hocket.runtimes.paramserver.model_shard import ModelShard
from hocket.runtimes.paramserver.pull_plan import ArrayLayout
from hocket.runtimes.paramserver.sharding import blocks_of, rows_of
from hocket.runtimes.paramserver.wire import BlockStates, LinkClosed


class HostParts:
    """The parts of all hosts of one training. Raises TrainingError if a host that is asked is gone."""

    def __init__(
        self, group: HostGroup, shard: ModelShard, layouts: Mapping[str, ArrayLayout], memory: ModelMemory,
        blocks: HostBlocks, count: int,
    ) -> None:  # fmt: skip
        """`count` is the number of all hosts' blocks."""
        self._group, self._shard, self._layouts, self._memory = group, shard, layouts, memory
        self._blocks, self._count = blocks, count

    def rows(self, host: int, iteration: int) -> Iterator[tuple[str, int, Array]]:
        """A host's rows of each array after an iteration: name, number of the first row, rows."""
        for name, layout in self._layouts.items():
            yield name, rows_of(layout.rows, host, self._group.hosts)[0], self._rows_of(name, host, iteration)

    def shards(self, name: str, iteration: int) -> list[Array]:
        """The rows of an array on all hosts, in order."""
        return [self._rows_of(name, host, iteration) for host in range(self._group.hosts)]

    def _rows_of(self, name: str, host: int, iteration: int) -> Array:
        if host == self._group.host:
            return self._shard.values[name]
        first, behind = rows_of(self._layouts[name].rows, host, self._group.hosts)
        found, link = self._memory.empty(self._layouts[name], behind - first), self._group.links[host]
        try:
            link.pull(name, iteration, found)
        except LinkClosed as error:
            raise TrainingError(f"a host is gone: {error}") from error
        return found

    def states(self, host: int) -> Iterator[bytes]:
        """The states of its blocks, a part of them at a time."""
        for part in self._blocks.state_parts(blocks_of(self._count, host, self._group.hosts)):
            if host == self._group.host:
                yield packed_states({i: self._blocks.state(i) for i in part})
                continue
            link = self._group.links[host]
            try:
                link.send(BlockStates(part))
                yield link.receive_bytes(link.receive_answer().length)
            except LinkClosed as error:
                raise TrainingError(f"a host is gone: {error}") from error
