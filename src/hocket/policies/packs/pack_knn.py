"""Packs of models whose hyperparameters are near each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import dist
from typing import Annotated, Literal

from msgspec import Meta

from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.packs.packer import PackParams, packed
from hocket.policies.registry import policy


class Knn(PackParams, frozen=True):
    """Its knobs."""

    threshold: Annotated[float, Meta(ge=0, description="the distance to the first of a pack, at most")] = 10.0
    metric: Annotated[
        Literal["sum", "euclid"], Meta(description="differences by hyperparameter are added up, or as Euclid has it")
    ] = "sum"


@policy("pack_knn", params=Knn, paper="Pack: kNN pack Hyperband", reads_beliefs=False, reads=())
def decide(snapshot: Snapshot, params: Knn) -> Plan:
    """Around a model by lot, those are packed that are nearest to it, until a device's memory is full."""

    def nearest(line: Sequence[JobView], there: Sequence[JobView]) -> Sequence[JobView]:
        first = there[0] if there else min(line, key=lambda v: (snapshot.rng(v).random(), v.number))
        found = [(distance(first.job.traits, v.job.traits, params.metric), v.number, v) for v in line]
        return [v for far, _n, v in sorted(found, key=lambda x: (x[2] is not first, *x[:2])) if far <= params.threshold]

    return packed(snapshot, params, nearest, "packed with the nearest")


def distance(some: Mapping[str, float | str], others: Mapping[str, float | str], metric: str = "sum") -> float:
    """How far two models are apart: a category is the same (0) or not (1), a number so many places further.

    Batch 20 and SGD is five from batch 40 and Adagrad, if the batch sizes are 20, 25, 30, 35, 40: the paper's example.
    """
    apart = [_apart(some.get(name), others.get(name)) for name in sorted(some.keys() | others.keys())]
    return dist(apart, [0.0] * len(apart)) if metric == "euclid" else sum(apart)


def _apart(some: float | str | None, other: float | str | None) -> float:
    if isinstance(some, float | int) and isinstance(other, float | int):
        return abs(some - other)
    return 0.0 if some == other else 1.0
