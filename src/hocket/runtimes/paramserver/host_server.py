"""Answers what other hosts ask of this one: rows, updates, and states for a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hocket.runtimes.paramserver.algorithm import TrainingError
from hocket.runtimes.paramserver.model_shard import ModelShard, Update
from hocket.runtimes.paramserver.wire import (
    BlockStates,
    Content,
    HostFailed,
    HostLink,
    LinkClosed,
    Pull,
    Push,
    PushEnded,
    SavedRows,
    SavedStates,
)  # fmt: skip

if TYPE_CHECKING:
    from hocket.runtimes.paramserver.checkpoint import SavedModel


class ShardServer:
    """One thread for each of the other hosts; what it serves is set when it is known."""

    def __init__(self) -> None:
        self.shard: ModelShard | None = None
        self.saved: SavedModel | None = None  # of host 0: what training goes on from
        self.states: Callable[[Sequence[int]], bytes] = bytes  # of some of this host's blocks

    def serve(self, link: HostLink, host: int) -> None:
        """Serve one host until it closes the connection."""
        while True:
            request = link.receive()
            try:
                match request:
                    case Pull():
                        self._pull(link, request)
                    case Push():
                        self._push(link, host, request)
                    case PushEnded():
                        self._shard().push_ended(host)
                        link.send(Content())
                    case BlockStates():
                        _send_bytes(link, self.states(request.blocks))
                    case SavedRows():
                        rows = self._saved().rows(request.name, request.first, request.behind)
                        link.send(Content(rows.nbytes))
                        link.send_array(rows)
                    case SavedStates():
                        _send_bytes(link, self._saved().states_of(request.blocks))
                    case _:
                        raise LinkClosed(f"{link.name}: asked for {type(request).__name__}")
            except TrainingError as error:
                link.send(HostFailed(str(error)))

    def wake(self) -> None:
        """A host is gone: what waits for its updates looks again."""
        if self.shard is not None:
            self.shard.wake()

    def _pull(self, link: HostLink, request: Pull) -> None:
        keys = link.receive_keys(request.keys) if request.keys is not None else None
        rows = self._shard().rows_for_pull(request.name, request.version, keys)
        link.send(Content(rows.nbytes))
        link.send_as_asked(rows, max(1, request.chunk_bytes))

    def _push(self, link: HostLink, host: int, request: Push) -> None:
        shard = self._shard()
        count = request.keys.count if request.keys is not None else None
        rows = shard.buffer_for_push(host, request.name, request.version, count)
        keys = link.receive_keys(request.keys) if request.keys is not None else None
        link.receive_and_ask(rows, max(1, request.chunk_bytes))
        shard.stage(host, request.name, Update(keys, rows))

    def _shard(self) -> ModelShard:
        if self.shard is None:
            raise TrainingError("the model is not there yet")
        return self.shard

    def _saved(self) -> SavedModel:
        if self.saved is None:
            raise TrainingError("there is no checkpoint to go on from")
        return self.saved


def _send_bytes(link: HostLink, content: bytes | Sequence[int]) -> None:
    link.send(Content(len(content)))
    link.send_array(np.frombuffer(bytes(content), np.uint8))
