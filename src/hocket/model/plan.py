"""The whole desired state, said as what differs from the present one."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct

from hocket.model.partition import Partition
from hocket.model.view import Tier


class Verdict(StrEnum):
    """Why a job is over."""

    FINISHED = "finished"  # its process ended by itself
    ATTAINED = "attained"  # its criterion holds
    MISSED = "missed"  # its criterion's deadline passed, or its process ended before the criterion held
    EARLY_STOPPED = "early-stopped"  # going on would gain too little
    HOPELESS = "hopeless"  # its goal is out of reach
    STOPPED = "stopped"  # its user stopped it
    OVERRAN = "overran"  # it ran for longer than its limit
    FAILED = "failed"  # it broke and is not started again: no retries are left, or it cannot succeed


class Wake(Struct, frozen=True, gc=False):
    """When to ask the policy next: as soon as one of these happens.

    It is also asked, whatever these say, for its first plan, when a review is due, a job fails, a node joins or is
    lost, a job's phases are measured for the first time or found to be shorter, an owner's weight or quota is set, or
    a policy is set.
    """

    arrival: bool = True  # ask when a job is submitted
    freed_gpus: int | None = 1  # ask once so many GPUs are free; 1 also for any freed resource; None: never
    epoch: bool = True  # ask when a job reached an epoch's end, or reported progress
    at_s: float | None = None  # ask at this moment, on the clock of `snapshot.now_s`; None: no moment
    overtaken: bool = True  # ask when time alone has moved a placed job behind one that waits


ALWAYS = Wake()  # ask at every arrival, freed resource, epoch end and overtaking


class Plan(Struct, frozen=True, gc=False):
    """All that a policy wants. What it does not mention stays as it is.

    `snapshot.partitions_of(plan)` gives the whole desired state.
    """

    put: tuple[Partition, ...] = ()  # new partitions, and present ones as they shall be
    drop: tuple[str, ...] = ()  # partitions that shall be no more; their tenants pause unless placed elsewhere
    ends: dict[str, str] = {}  # jobs to end, each with its verdict
    checkpoints: dict[str, Tier] = {}  # running jobs to save, and where
    tiers: dict[str, Tier] = {}  # paused jobs → where their state shall be
    reasons: dict[str, str] = {}  # why, by job, for every one whose state changes; "*" is for all that wait
    memos: dict[str, Any] = {}  # what to remember, by job, as JSON can hold it; comes back as `view.memo`
    memo: Any = None  # what to remember beside that, as JSON can hold it; comes back as `snapshot.memo`
    reviews: dict[str, float] = {}  # when to ask about a job again, by job, on the clock of `now_s`
    wake: Wake = ALWAYS  # when to ask the policy next; by default as `ALWAYS` says
