"""The paper's three primitives: load a model onto a device, pack those that are there, free one with its checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import torch

from hocket.runtimes.packing.checkpoint import Checkpoint
from hocket.runtimes.packing.member import Member
from hocket.runtimes.packing.pack import Pack
from hocket.runtimes.packing.training import Refused, Training

_homes: WeakKeyDictionary[Member, Pack] = WeakKeyDictionary()


def load(training: Training, device: torch.device | str = "cpu", checkpoint: Checkpoint | None = None) -> Member:
    """Bring a model to a device, to begin or to go on from a checkpoint."""
    home = Pack(device)
    member = home.load(training, checkpoint)
    _homes[member] = home
    return member


def pack(members: Iterable[Member], **options: Any) -> Pack:
    """The pack of these models; options are those of `Pack`."""
    chosen = list(members)
    if not chosen:
        raise Refused("a pack needs at least one model")
    together = Pack(chosen[0].device, **options)
    for member in chosen:
        if member in _homes:
            _homes[member].let_go(member)
        together.adopt(member)
        _homes[member] = together
    return together


def free(member: Member) -> Checkpoint:
    """Take a model off its device; its weights, optimiser, schedule, generators and place in the data."""
    if member not in _homes or member.name not in _homes[member].members:
        raise Refused(f"model '{member.name}' is not loaded")
    return _homes.pop(member).free(member)
