"""The paper's three primitives: load a model onto a device, pack those that are there, free one with its checkpoint."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

import torch

from hocket.runtimes.packing.checkpoint import ModelCheckpoint
from hocket.runtimes.packing.member import Member, ids_of, memory_of
from hocket.runtimes.packing.pack import Pack
from hocket.runtimes.packing.training import Refused, Training

_loaded: WeakSet[Member] = WeakSet()  # Weak: dropping a member and its pack frees the memory, too.


def load(training: Training, device: torch.device | str = "cpu", checkpoint: ModelCheckpoint | None = None) -> Member:
    """Bring the model of a `training` to a `device`, to begin or to go on from a `checkpoint`."""
    training.refuse()
    if _already_loaded(training) is not None:
        gc.collect()  # It may be unreachable, but not collected yet.
    if (other := _already_loaded(training)) is not None:
        if other.name == training.name:
            raise Refused(f"model '{training.name}' is loaded already")
        raise Refused(f"model '{training.name}' shares parameters with '{other.name}': each needs its own")
    pack = Pack(device)
    return _put_in(pack.load(training, checkpoint), pack)


def pack(members: Iterable[Member], **options: Any) -> Pack:
    """Put these `members`, which were loaded, into one pack; `options` are those of `Pack`."""
    chosen = list(members)
    if not chosen:
        raise Refused("a pack needs at least one model")
    together = Pack(chosen[0].device, **options)
    for member in chosen:
        if _is_loaded(member):
            member.pack.detach(member)
        _put_in(together.adopt(member), together)
    return together


def free(member: Member) -> ModelCheckpoint:
    """Take a `member` off its device; its weights, optimiser, schedule, generators and place in the data."""
    if not _is_loaded(member):
        raise Refused(f"model '{member.name}' is not loaded")
    pack, member.pack = member.pack, None
    checkpoint: ModelCheckpoint = pack.free(member)
    return checkpoint


def _put_in(member: Member, pack: Pack) -> Member:
    member.pack = pack
    _loaded.add(member)
    return member


def _is_loaded(member: Member) -> bool:
    return member.pack is not None and member.pack.members.get(member.name) is member


def _already_loaded(training: Training) -> Member | None:
    tensors, memory = ids_of(training.module), memory_of(training.module)
    return next((m for m in _loaded if _is_loaded(m) and m.shares(tensors, memory)), None)
