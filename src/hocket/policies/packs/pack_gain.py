"""Packs by the time that they are believed to save."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Annotated

from msgspec import Meta

from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.packs.pack_knn import distance
from hocket.policies.packs.packer import PackParams, packed
from hocket.policies.registry import policy


class Gain(PackParams, frozen=True):
    """Its knobs."""

    enter: Annotated[bool, Meta(description="whether models enter a pack that has begun and has room")] = True
    saves: Annotated[
        float, Meta(ge=0, le=1, description="of every further model's step a pack saves this share, until it is known")
    ] = 0.4


@policy("pack_gain", params=Gain, reads=())
def decide(snapshot: Snapshot, params: Gain) -> Plan:
    """Around the first to come, models whose steps take about as long, as many as are believed to save most together.

    What a pack is worth is the time that its models' steps would take alone, by the time of its step. How much a step
    slows down beside others was measured in earlier packs, and is among the models' beliefs.
    """

    def worthwhile(line: Sequence[JobView], there: Sequence[JobView]) -> Sequence[JobView]:
        first = there[0] if there else line[0]
        near = sorted(line, key=lambda v: (v is not first, *_unlike(v, first), v.number))
        pack = [step_s(v) for v in there]
        count, worth = 0, gain(pack, first, params.saves) if pack else 0.0
        for number, view in enumerate(near[: params.most - len(there)], 1):
            pack.append(step_s(view))
            if (more := gain(pack, first, params.saves)) > worth:
                count, worth = number, more
        return near[:count]

    return packed(snapshot, params, worthwhile, "packed with those whose steps take as long")


def step_s(view: JobView) -> float:
    """How long a step of it is believed to take alone; 1 where nothing is known, as for all others then."""
    alone = view.beliefs.comp_s
    found = alone.at(1).mean if alone is not None else 1.0
    return found if found > 0 else 1.0


def gain(steps_s: Sequence[float], whose: JobView, saves: float) -> float:
    """Steps one after another by the time of their common step, as slow as it is believed to be in such company."""
    longest, others = max(steps_s), len(steps_s) - 1
    slower = whose.beliefs.slowdown
    costs = 1 - saves
    if slower is not None and others:
        costs = max(0.0, slower.at(others).mean - 1) / others
    return sum(steps_s) / (longest + costs * (sum(steps_s) - longest))


def _unlike(view: JobView, first: JobView) -> tuple[float, float]:
    """By how many factors of two their steps differ, then how far they are apart: models alike can do more at once."""
    return round(abs(log2(step_s(view) / step_s(first)))), distance(view.job.traits, first.job.traits)
