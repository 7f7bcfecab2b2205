"""The checkpoints of one training: its hosts write one version of everything together, and go on from one together."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
from msgspec.structs import replace

from hocket.runtimes.paramserver.algorithm import TrainingError
from hocket.runtimes.paramserver.checkpoint import CheckpointFolder, SavedModel, SavedProgress, unpacked_states
from hocket.runtimes.paramserver.host_blocks import HostBlocks
from hocket.runtimes.paramserver.host_group import HostGroup
from hocket.runtimes.paramserver.host_parts import HostParts
from hocket.runtimes.paramserver.model_shard import ModelShard
from hocket.runtimes.paramserver.pull_plan import ArrayLayout
from hocket.runtimes.paramserver.wire import LinkClosed, SavedRows, SavedStates


class TrainingCheckpoints:
    """On one of its hosts. What host 0 finds, and when it is time to save, counts for all."""

    def __init__(self, folder: Path | None, group: HostGroup, every_s: float) -> None:
        """With None for a folder, this host keeps nothing."""
        self._folder = CheckpointFolder(folder) if folder is not None else None
        self._group, self._every_s = group, every_s
        self._newest: SavedModel | None = None  # on host 0
        self._saved_iteration = -1  # the last that is in a checkpoint
        self._saved_s = time.monotonic()

    def newest(self) -> SavedModel | None:
        """The one to go on from; None on other hosts than the first."""
        if self._folder is not None and self._group.host == 0:
            self._newest = self._folder.newest()
        return self._newest

    def are_due(self) -> bool:
        """Is it time for the next one? No on other hosts than the first."""
        is_time = self._saved_iteration < 0 or time.monotonic() - self._saved_s >= self._every_s
        return self._group.host == 0 and is_time

    def restore(self, found: Mapping[str, Any], shard: ModelShard, blocks: HostBlocks) -> None:
        """Go on from what host 0 has found. A host that does not see it asks host 0, which does."""
        there = {
            name: ArrayLayout(of["rows"], tuple(of["row_shape"]), np.dtype(of["dtype"]))
            for name, of in found["arrays"].items()
        }
        for name in {**there, **shard.layouts}:
            if there.get(name) != shard.layouts.get(name):
                raise TrainingError(
                    f"array '{name}' is {_shown(shard.layouts.get(name))}, in the checkpoint {_shown(there.get(name))}"
                )
        saved = self._newest
        if saved is None and self._folder is not None:
            saved = self._folder.newest_with_id(found["id"])
        try:
            for name, (first, behind) in shard.spans.items():
                if saved is not None:
                    shard.values[name][...] = saved.rows(name, first, behind)
                else:
                    self._group.links[0].send(SavedRows(name, first, behind))
                    self._group.links[0].receive_answer()
                    self._group.links[0].receive_array(shard.values[name])
            for part in blocks.state_parts(blocks.numbers):
                if saved is not None:
                    content = saved.states_of(part)
                else:
                    self._group.links[0].send(SavedStates(part))
                    content = self._group.links[0].receive_bytes(self._group.links[0].receive_answer().length)
                for i, state in unpacked_states(content).items():
                    blocks.set_state(i, state)
        except LinkClosed as error:
            raise TrainingError(f"a host is gone: {error}") from error
        shard.version = self._saved_iteration = found["iteration"]

    def save_if_new(self, progress: SavedProgress, shard: ModelShard, parts: HostParts) -> None:
        """Each host writes its part where it sees host 0's folder; else host 0 does. All hosts call it together."""
        iteration = progress.iteration
        if self._saved_iteration == iteration:
            return
        part, is_first = None, self._group.host == 0
        if is_first and self._folder is not None:
            progress = replace(progress, id=token_hex(8))
            part = self._folder.begin(progress, shard.layouts)
        begun = self._group.exchange(f"saving {iteration}", progress.id or None)[0]
        if begun is not None and not is_first and self._folder is not None:
            part = self._folder.begun(iteration, begun, shard.layouts)
        if part is not None:
            own = [(name, span[0], shard.values[name]) for name, span in shard.spans.items()]
            part.write(self._group.host, own, parts.states(self._group.host))
        wrote = self._group.exchange(f"written {iteration}", part is not None)
        if is_first and part is not None:
            for host in [host for host, is_there in enumerate(wrote) if not is_there]:
                part.write(host, parts.rows(host, iteration), parts.states(host))
            part.finish(progress)
        self._saved_iteration, self._saved_s = iteration, time.monotonic()
        self._group.exchange(f"saved {iteration}", None)


def _shown(layout: ArrayLayout | None) -> str:
    return "missing" if layout is None else f"{layout.dtype} {(layout.rows, *layout.row_shape)}"
