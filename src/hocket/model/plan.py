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
    MISSED = "missed"  # its criterion's deadline passed
    EARLY_STOPPED = "early-stopped"
    HOPELESS = "hopeless"
    STOPPED = "stopped"  # by its user
    OVERRAN = "overran"  # it ran for longer than its limit
    FAILED = "failed"


class Wake(Struct, frozen=True, gc=False):
    """What wakes the policy next. A policy is not asked before one of these happens; failures and losses,
    and jobs whose review is due, always wake it."""

    arrival: bool = True
    freed_gpus: int | None = 1  # once so many GPUs are free; 1 also for any freed resource; None: never
    epoch: bool = True  # a job reached an epoch's end, or reported progress
    at_s: float | None = None
    overtaken: bool = True  # time alone has moved a placed job behind one that waits


ALWAYS = Wake()


class Plan(Struct, frozen=True, gc=False):
    """All that a policy wants. What it does not mention stays as it is.

    Whole in meaning, cheap in fact: `partitions_of(snapshot)` tells the whole.
    """

    put: tuple[Partition, ...] = ()  # new partitions, and present ones as they shall be
    drop: tuple[str, ...] = ()  # partitions that shall be no more; their tenants pause unless placed elsewhere
    ends: dict[str, str] = {}  # job → verdict
    checkpoints: dict[str, Tier] = {}  # running jobs to save, and where
    tiers: dict[str, Tier] = {}  # paused jobs → where their state shall be
    reasons: dict[str, str] = {}  # for every job whose standing changes; "*" speaks for the whole queue
    memos: dict[str, Any] = {}  # job → memo; comes back as view.memo
    memo: Any = None  # comes back as snapshot.memo
    reviews: dict[str, float] = {}  # job → when to look at it again
    wake: Wake = ALWAYS
