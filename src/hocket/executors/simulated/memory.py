"""What memory does to jobs that share machines: it slows them down when it fills, and breaks them when it is full.

Collecting garbage costs in proportion to what is live over what is free. Blocks on disk (a share α of a job's input)
take no memory, but have to be read again in each iteration, in the background, and unpacked, in the foreground.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from hocket.executors.simulated.phases import Phases, Played
from hocket.model.spill import Climb, climb, first_alpha

COLLECTING = 0.03  # COMP time for each unit of live over free memory
DISK_MIB_S = 119.0  # 1,000 Mbps: what an m4.2xlarge has for its disks
UNPACKING_MIB_S = 800.0  # 100 MiB/s on each of eight cores
_FULL = 0.98  # of the memory, from which on nothing can be collected
_SWEEPS = 6  # over the tenants, each α climbing a step


class InputInMemory(Struct, frozen=True, gc=False):
    """What a tenant keeps on each of its machines."""

    input_mib: float
    model_mib: float
    read: float = 1.0  # share of the input that an iteration reads


def pressure(residents: Sequence[InputInMemory], alphas: Sequence[float], capacity_mib: float) -> float:
    """Live memory over all there is, on one machine."""
    live = sum((1 - a) * r.input_mib + r.model_mib for r, a in zip(residents, alphas, strict=True))
    return live / capacity_mib if capacity_mib > 0 else inf


def pressed(
    phases: Sequence[Phases], residents: Sequence[InputInMemory], alphas: Sequence[float], capacity_mib: float
) -> tuple[Phases, ...] | None:
    """The phases as memory makes them; None if it is full. When all input is on disk, models follow as they must."""
    full = pressure(residents, alphas, capacity_mib)
    spilled_mib = 0.0
    if full >= _FULL and all(a >= 1 for a in alphas):
        spilled_mib = (full - 0.9) * capacity_mib / len(residents)
        full = 0.9
    if full >= _FULL:
        return None
    slow = 1 + COLLECTING * full / (1 - full)
    return tuple(
        replace(
            p,
            comp_s=p.comp_s * slow + (a * r.read * r.input_mib + spilled_mib) / UNPACKING_MIB_S,
            reload_s=(a * r.read * r.input_mib + spilled_mib) / DISK_MIB_S,
        )
        for p, r, a in zip(phases, residents, alphas, strict=True)
    )


def settled(
    phases: Sequence[Phases],
    residents: Sequence[InputInMemory],
    capacity_mib: float,
    play: Callable[[tuple[Phases, ...]], Played],
) -> tuple[tuple[Phases, ...], tuple[float, ...]]:
    """Let each tenant's α climb until none helps; the phases and the αs it comes to."""
    total_in, total_model = sum(r.input_mib for r in residents), sum(r.model_mib for r in residents)
    alpha = first_alpha(total_in, total_model, capacity_mib)
    if not alpha and pressure(residents, [0.0] * len(residents), capacity_mib) < 0.5:
        now = pressed(phases, residents, [0.0] * len(residents), capacity_mib)
        assert now is not None
        return now, (0.0,) * len(residents)  # There is plenty.

    def round_s(alphas: Sequence[float]) -> float:
        now = pressed(phases, residents, alphas, capacity_mib)
        return play(now).round_s if now is not None else inf

    climbs = [Climb(alpha, best_alpha=alpha) for _ in residents]
    alphas = [alpha] * len(residents)
    if pressed(phases, residents, alphas, capacity_mib) is None:
        alphas, climbs = [1.0] * len(residents), [Climb(1.0, -0.1, 1.0) for _ in residents]
    for _ in range(_SWEEPS):
        for i, at in enumerate(climbs):
            if at.done or not residents[i].input_mib:
                continue
            tried = climb(at, round_s([*alphas[:i], at.alpha, *alphas[i + 1 :]]))
            climbs[i], alphas[i] = tried, tried.best_alpha
    now = pressed(phases, residents, alphas, capacity_mib)
    assert now is not None
    return now, tuple(alphas)
