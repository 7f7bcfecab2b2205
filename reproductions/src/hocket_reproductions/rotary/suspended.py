"""Ratchet's third question on Rotary's queries: where states of paused queries are kept, by fixed rules or arbitrated.

What counts is how many attain, and the seconds that pauses cost: writing and reading states, new processes, and work
that is done again. A state that is in memory costs nothing; one that makes way for another there later is counted as
written, though no core waits for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from hocket.model.event import JobPaused, JobStarted, StateStored, WorkLost
from hocket.model.view import Tier
from hocket.workloads.truth import Truth

DISK_MIB_S = 100.0  # a disk that all share would give less
MEMORY_SHARE = 0.04  # of 180 GiB: one heavy query, or three light ones
LOAD = 2.0
RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "arbitrated": ("rotary", {"suspend": "arbitrated", "memory_share": MEMORY_SHARE}),
    "in memory while there is room, else on disk": ("rotary", {"suspend": "memory", "memory_share": MEMORY_SHARE}),
    "all on disk": ("rotary", {"suspend": "disk"}),
    "all redone": ("rotary", {"suspend": "redo"}),
}
GROUP = f"Where states of paused queries are kept (load {LOAD:g}, {DISK_MIB_S:g} MiB/s, {MEMORY_SHARE:.0%} of memory)"


class PauseCosts(Struct, frozen=True):
    """What pauses took in a run."""

    pauses: int = 0
    in_memory: int = 0
    redone: int = 0  # pauses that kept nothing
    made_way: int = 0  # states in memory that were brought to disk
    lost_s: float = 0.0


def pause_costs(cycles: Iterable[Any], truths: Mapping[str, Truth]) -> PauseCosts:
    """From the events of a run, and what each job's starts and states really take."""
    pauses = in_memory = redone = made_way = 0
    lost_s = 0.0
    kept: dict[str, Tier] = {}  # job → where its state is, once it was paused
    for cycle in cycles:
        for event in cycle.events:
            match event:
                case JobPaused(job=job, tier=tier):
                    pauses += 1
                    in_memory += tier is Tier.MEMORY
                    kept[job] = tier
                    lost_s += truths[job].costs.checkpoint_s if tier is Tier.DISK else 0.0
                case StateStored(job=job, tier=tier):
                    is_written = tier is Tier.DISK and kept.get(job) is Tier.MEMORY
                    made_way += is_written
                    lost_s += truths[job].costs.checkpoint_s if is_written else 0.0
                    kept[job] = tier
                case WorkLost(lost_s=again_s):
                    redone += 1
                    lost_s += again_s
                case JobStarted(job=job, in_place=False) if job in kept:
                    truth = truths[job]
                    lost_s += truth.costs.start_s + (truth.load_s if kept[job] is Tier.DISK else 0.0)
    return PauseCosts(pauses, in_memory, redone, made_way, round(lost_s, 3))
