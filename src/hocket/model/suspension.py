"""Where the state of a job that can be suspended is kept: in its process, on disk, or not at all, to be redone.

A query is asked this after every batch. A policy may ask it too, and say otherwise (`Plan.tiers`).
"""

from __future__ import annotations

from math import exp, inf

from msgspec import Struct

from hocket.model.view import JobView, Tier


class Suspension(Struct, frozen=True):
    """What there is to lose, and what each way to keep it takes."""

    state_mib: float  # what would be written
    redo_s: float  # work since the state that is on disk, if there is one
    write_s: float  # to write the state
    read_s: float  # to read it again
    start_s: float = 0.0  # until a new process could go on, beside reading
    interruption: float = 0.0  # probability that the process is lost before the state is needed again
    leaves: bool = False  # it gives up its resources now; only in memory that is set aside for that may it stay
    memory_mib: float = inf  # that is left for states


def chance_of_interruption(interruptions_per_s: float, time_s: float) -> float:
    """That at least one comes within that time, if they come independently of each other."""
    return 1.0 - exp(-max(interruptions_per_s, 0.0) * max(time_s, 0.0))


def costs_of_keeping(suspension: Suspension) -> dict[Tier, float]:
    """Expected seconds that each place costs; infinite where there is no room."""
    again_s = suspension.start_s + suspension.redo_s
    # What leaves is begun again in any case; what runs on, only if it is interrupted.
    begins = 1.0 if suspension.leaves else suspension.interruption
    in_memory = suspension.interruption * again_s if suspension.state_mib <= suspension.memory_mib else inf
    on_disk = suspension.write_s + begins * (suspension.start_s + suspension.read_s)
    return {Tier.MEMORY: in_memory, Tier.NONE: begins * again_s, Tier.DISK: on_disk}


def where_to_keep(suspension: Suspension) -> Tier:
    """The cheapest place; of equal ones, that which writes nothing."""
    costs = costs_of_keeping(suspension)
    return min(costs, key=lambda tier: costs[tier])


def suspension_of(view: JobView, interruption: float = 0.0, memory_mib: float = inf) -> Suspension | None:
    """What a policy that thinks of pausing a job would have to keep, as the job last said; None if it never did."""
    said = next((o.metrics for o in reversed(view.observations) if "state_mib" in o.metrics), None)
    if said is None:
        return None
    return Suspension(
        said["state_mib"], said.get("redo_s", inf), said.get("write_s", 0.0), said.get("read_s", 0.0),
        view.costs.start_s, interruption, leaves=True, memory_mib=memory_mib,
    )  # fmt: skip
