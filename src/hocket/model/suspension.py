"""Where the state of a job that can be suspended is kept: in its process, on disk, or not at all, to be redone.

A query is asked this after every batch, and the controller when a job is paused. A policy may ask it too, and say
otherwise (`Plan.tiers`).
"""

from __future__ import annotations

from math import exp, inf

from msgspec import Struct

from hocket.model.job import Job, Kind
from hocket.model.partition import Holding
from hocket.model.view import JobView, Tier

INTERRUPTED_EVERY_S = 3600.0  # mean time between losses of a process, until it is known better


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
    process_mib: float = 0.0  # what the process holds while it is suspended, the state included; 0: not measured


def chance_of_interruption(interruptions_per_s: float, time_s: float) -> float:
    """That at least one comes within that time, if they come independently of each other."""
    return 1.0 - exp(-max(interruptions_per_s, 0.0) * max(time_s, 0.0))


def costs_of_keeping(suspension: Suspension) -> dict[Tier, float]:
    """Expected seconds that each place costs; infinite where there is no room."""
    again_s = suspension.start_s + suspension.redo_s
    # What leaves is begun again in any case; what runs on, only if it is interrupted.
    begins = 1.0 if suspension.leaves else suspension.interruption
    in_memory = suspension.interruption * again_s
    if suspension.leaves and is_written_too(suspension):
        in_memory = suspension.write_s + suspension.interruption * (suspension.start_s + suspension.read_s)
    if not 0 < suspension.memory_mib >= max(suspension.state_mib, suspension.process_mib):
        in_memory = inf
    on_disk = suspension.write_s + begins * (suspension.start_s + suspension.read_s)
    return {Tier.MEMORY: in_memory, Tier.NONE: begins * again_s, Tier.DISK: on_disk}


def is_written_too(suspension: Suspension) -> bool:
    """Does a process that is to be suspended write its state first, for it may be lost meanwhile?"""
    return suspension.interruption * (suspension.redo_s - suspension.read_s) > suspension.write_s


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
        view.costs.start_s, interruption, leaves=True, memory_mib=memory_mib, process_mib=said.get("process_mib", 0.0),
    )  # fmt: skip


def can_be_suspended(job: Job, held: Holding) -> bool:
    """Whether its process can be stopped and keep its memory: not one with GPUs, or with parts on several nodes."""
    return job.tasks is None and len(held.slices) == 1 and not held.slices[0].gpus


def memory_if_suspended(view: JobView, held: Holding) -> float:
    """MiB that the job's process is expected to keep: what it last said, or what it was given."""
    said = next((o.metrics["process_mib"] for o in reversed(view.observations) if "process_mib" in o.metrics), 0.0)
    return said or held.slices[0].mem_mib


def tier_of_pause(view: JobView, held: Holding, room_mib: float, now_s: float) -> Tier:
    """Where the state of a job is kept that leaves what it holds now: as the plan says, or at the least expected time.

    `room_mib` is the memory of its node that no plan and no other suspended process has. By itself only a job is
    suspended that says what its state takes; whether one that is not is written or redone, it chooses itself.
    """
    wanted = view.keep
    if wanted is Tier.DISK or wanted is Tier.NONE:
        return wanted
    if not can_be_suspended(view.job, held):
        return wanted or Tier.DISK
    mem_mib = memory_if_suspended(view, held)
    if room_mib <= 0 or mem_mib > room_mib:
        return Tier.DISK
    if wanted is Tier.MEMORY:
        return wanted
    # It is believed to be paused for as long as it has waited on average so far.
    pause_s = view.waited_at(now_s) / max(view.starts, 1)
    chance = chance_of_interruption(1.0 / INTERRUPTED_EVERY_S, pause_s)
    at_risk = suspension_of(view, chance, room_mib)
    return Tier.MEMORY if at_risk is not None and where_to_keep(at_risk) is Tier.MEMORY else Tier.DISK


def goes_on_in_place(view: JobView, to: Holding) -> bool:
    """Whether a job that is suspended can go on with these resources in its process; only a query changes its size."""
    process = view.suspended
    if process is None or [part.node for part in to.slices] != [process.node]:
        return False
    return view.job.kind is Kind.QUERY or to.size == process.size
