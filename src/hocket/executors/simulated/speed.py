"""How fast a tenant really runs, by its partition and by whom it shares it with."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.model.partition import Holding, Sharing
from hocket.model.resources import Demand
from hocket.workloads.truth import Truth

PACKING_GAIN = 0.4  # of the time of all but the longest model in a pack, what one common step saves (Pack, Fig. 2.4)
STACKING_LOSS = 0.1  # of the speed, for every further tenant that nobody coordinates


def own_speed(truth: Truth, holding: Holding, kind: str) -> float:
    """Speed without companions: 1 at the reference size on a reference GPU."""
    size = holding.size
    if size == truth.reference_size:
        speed = 1.0
    elif truth.speed is not None:
        speed = truth.speed.at(size).mean
    else:
        speed = size / truth.reference_size
    if truth.kinds:
        speed *= truth.kinds.get(kind, 1.0)
    if len(holding.slices) > 1:
        speed *= truth.spread
    return speed


def shared_speed(me: int, tenants: Sequence[tuple[Demand, Truth, float]], sharing: Sharing, gpus: int) -> float:
    """The share of its own speed that tenant `me` keeps among all tenants of the partition.

    A tenant is (demand, truth, own speed).
    """
    if len(tenants) == 1 or sharing is Sharing.ALONE:
        return 1.0
    phases = [(t.comp_s / s, t.comm_s / s) for _demand, t, s in tenants]
    alone_s = sum(phases[me])
    if sharing is Sharing.INTERLEAVED:
        # One COMP and one COMM at a time: whichever resource is busiest, or the longest iteration, sets the pace.
        group_s = max(sum(c for c, _ in phases), sum(n for _, n in phases), max(c + n for c, n in phases))
        return alone_s / group_s
    if sharing is Sharing.PACKED:
        steps = [c + n for c, n in phases]
        pack_s = max(steps) + (1 - PACKING_GAIN) * (sum(steps) - max(steps))
        return alone_s / pack_s
    load = sum(demand.gpus * demand.gpu_share for demand, _truth, _speed in tenants) / max(gpus, 1)
    return 1.0 / max(1.0, load) * (1 - STACKING_LOSS) ** (len(tenants) - 1)
