"""Packs of models with the same batch size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.packs.packer import PackParams, packed
from hocket.policies.registry import policy


class BatchSize(PackParams, frozen=True):
    """Its knobs."""

    trait: Annotated[str, Meta(description="the hyperparameter that must be the same")] = "batch_size"


@policy("pack_batch_size", params=BatchSize, paper="Pack: batch-size pack Hyperband", reads_beliefs=False, reads=())
def decide(snapshot: Snapshot, params: BatchSize) -> Plan:
    """Only models of the same batch size are packed, as many as a device's memory holds; the most frequent first."""

    def alike(line: Sequence[JobView], there: Sequence[JobView]) -> Sequence[JobView]:
        sizes = [v.job.traits.get(params.trait) for v in line]
        wanted = there[0].job.traits.get(params.trait) if there else Counter(sizes).most_common(1)[0][0]
        return [v for v, size in zip(line, sizes, strict=True) if size == wanted]

    return packed(snapshot, params, alike, f"packed by {params.trait}")
