"""How fast a tenant really runs, by its partition and by the tenants it shares it with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf

from msgspec import Struct

from hocket.executors.simulated.memory import InputInMemory, pressed, settled
from hocket.executors.simulated.phases import Phases, Played, interleave, stack
from hocket.model.partition import Holding, Sharing
from hocket.model.resources import Demand
from hocket.workloads.truth import Truth

PACKING_GAIN = 0.4  # of the time of all but the longest model in a pack, what one common step saves (Pack, Fig. 2.4)
STACKING_LOSS = 0.1  # of the speed, for every further tenant that is not coordinated
_CLIMBED = 8  # iterations between two steps of an α
_INSTANT = 1e-9  # an iteration that takes no time at all
_ALONE = Sharing.ALONE  # A member of an enum costs a look-up each time.


class Companion(Struct, frozen=True, gc=False):
    """A tenant of a shared partition: its demand, its truth, where it runs, and on GPUs of what kind."""

    demand: Demand
    truth: Truth
    holding: Holding
    kind: str


def phases_of(truth: Truth, holding: Holding, kind: str) -> tuple[float, float]:
    """COMP and COMM of one iteration alone. Without a curve of its own, COMP is shared by all replicas."""
    size = holding.size
    if truth.speed is not None or not truth.comm_s:
        if size == truth.reference_size:
            speed = 1.0
        elif truth.speed is not None:
            speed = truth.speed.at(size).mean
        else:
            speed = size / truth.reference_size
        comp_s, comm_s = truth.comp_s / speed, truth.comm_s / speed
    else:
        comp_s, comm_s = truth.comp_s * truth.reference_size / size, truth.comm_on(size)
    factor = truth.kinds.get(kind, 1.0) if truth.kinds else 1.0
    if len(holding.slices) > 1:
        factor *= truth.spread
    return comp_s / factor, comm_s / factor


def own_speed(truth: Truth, holding: Holding, kind: str) -> float:
    """Speed without companions: 1 at the reference size on a reference GPU."""
    size = holding.size
    if size == truth.reference_size:
        speed = 1.0
    elif truth.speed is not None:
        speed = truth.speed.at(size).mean
    elif truth.comm_s:
        comp_s = truth.comp_s * truth.reference_size / size
        speed = (truth.comp_s + truth.comm_s) / (comp_s + truth.comm_on(size))
    else:
        speed = size / truth.reference_size
    if truth.kinds:
        speed *= truth.kinds.get(kind, 1.0)
    if len(holding.slices) > 1:
        speed *= truth.spread
    return speed


def takes_turns(sharing: Sharing, truth: Truth) -> bool:
    """Are this tenant's phases played? Those of GPU jobs that are merely stacked are not.

    A job alone is played if it keeps data: barriers and full memory cost it what they cost jobs that share.
    """
    if sharing is _ALONE:
        return truth.input_mib > 0 and truth.comm_s > 0
    return sharing is Sharing.INTERLEAVED or (sharing is Sharing.STACKED and truth.comm_s > 0)


def play(tenants: Sequence[Companion], sharing: Sharing, noise: float, seed: int) -> Played:
    """Play the phases of all tenants of a partition, each on the machines that it holds."""
    phases, residents, capacity_mib = _memory_of(tenants)
    if _keeps_all(tenants, sharing):
        now = pressed(phases, residents, [0.0] * len(phases), capacity_mib) if capacity_mib else phases
        phases = now or phases  # The last to come to what is full breaks at once.
        return stack(phases, noise, seed) if sharing is Sharing.STACKED else interleave(phases, noise, seed)
    if capacity_mib:
        phases = spilled(phases, residents, capacity_mib)[0]
    return interleave(phases, noise, seed)


def overflows(tenants: Sequence[Companion], sharing: Sharing) -> bool:
    """Do tenants that spill nothing need more memory than there is?"""
    if len(tenants) < 2 or not _keeps_all(tenants, sharing) or not any(t.truth.input_mib for t in tenants):
        return False
    phases, residents, capacity_mib = _memory_of(tenants)
    return pressed(phases, residents, [0.0] * len(phases), capacity_mib) is None


def _keeps_all(tenants: Sequence[Companion], sharing: Sharing) -> bool:
    """Is nothing spilled to disk? So it is where nothing coordinates, and where jobs cannot."""
    return sharing is not Sharing.INTERLEAVED or not all(t.truth.spills for t in tenants)


def _memory_of(tenants: Sequence[Companion]) -> tuple[tuple[Phases, ...], tuple[InputInMemory, ...], float]:
    """Phases, what each keeps on a machine, and the memory of the smallest machine; 0 if none keeps anything."""
    machines: dict[str, int] = {}
    phases, residents, capacity_mib = [], [], inf
    for t in tenants:
        nodes = [s.node for s, n in zip(t.holding.slices, t.holding.replicas, strict=True) if n]
        comp_s, comm_s = phases_of(t.truth, t.holding, t.kind)
        where = tuple(machines.setdefault(node, len(machines)) for node in nodes)
        phases.append(Phases(max(comp_s, _INSTANT), comm_s, where, short=t.truth.short_comm))
        residents.append(InputInMemory(t.truth.input_mib / len(nodes), t.truth.model_mib / len(nodes), t.truth.read))
        capacity_mib = min(capacity_mib, *(s.mem_mib for s in t.holding.slices), inf)
    keeps = any(r.input_mib or r.model_mib for r in residents)
    return tuple(phases), tuple(residents), capacity_mib if keeps else 0.0


@lru_cache(maxsize=4096)
def spilled(
    phases: tuple[Phases, ...], residents: tuple[InputInMemory, ...], capacity_mib: float
) -> tuple[tuple[Phases, ...], tuple[float, ...]]:
    """The phases of tenants that spill, each at the α it climbs to, and those αs."""
    return settled(phases, residents, capacity_mib, lambda now: interleave(now, iterations=_CLIMBED))


def rate_of(truth: Truth, iteration_s: float) -> float:
    """Speed of a tenant whose iterations take so long."""
    return (max(truth.comp_s, _INSTANT) + truth.comm_s) / iteration_s


def shared_speed(me: int, tenants: Sequence[tuple[Companion, float]], sharing: Sharing, gpus: int) -> float:
    """The share of its own speed that tenant `me` keeps among all tenants of the partition.

    A tenant is a companion and its own speed.
    """
    if len(tenants) == 1 or sharing is Sharing.ALONE:
        return 1.0
    if sharing is Sharing.PACKED:
        steps = [(c.truth.comp_s + c.truth.comm_s) / speed for c, speed in tenants]
        pack_s = max(steps) + (1 - PACKING_GAIN) * (sum(steps) - max(steps))
        return steps[me] / pack_s
    load = sum(c.demand.gpu_load * c.truth.gpu_use for c, _speed in tenants) / max(gpus, 1)
    return 1.0 / max(1.0, load) * (1 - STACKING_LOSS) ** (len(tenants) - 1)
