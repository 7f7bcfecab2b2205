"""Random packs: whichever models there are."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.packs.packer import PackParams, packed
from hocket.policies.registry import policy


@policy("pack_random", params=PackParams, paper="Pack: random pack Hyperband", reads_beliefs=False, reads=())
def decide(snapshot: Snapshot, params: PackParams) -> Plan:
    """Models are packed by lot until a device's memory is full."""

    def by_lot(line: Sequence[JobView], _there: Sequence[JobView]) -> Sequence[JobView]:
        return sorted(line, key=lambda v: (snapshot.rng(v).random(), v.number))

    return packed(snapshot, params, by_lot, "packed by lot")
