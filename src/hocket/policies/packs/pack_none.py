"""No packs: what the others are compared with."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.packs.packer import PackParams, packed
from hocket.policies.registry import Params, policy


@policy("pack_none", paper="the baseline of Pack", reads_beliefs=False, reads=())
def decide(snapshot: Snapshot, params: Params) -> Plan:
    """Every model has its device to itself, in the order of submission."""
    del params

    def first(line: Sequence[JobView], _there: Sequence[JobView]) -> Sequence[JobView]:
        return line[:1]

    return packed(snapshot, PackParams(most=1), first, "it has a device to itself")
