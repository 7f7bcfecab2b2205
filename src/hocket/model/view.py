"""A job as a policy may know it at one moment."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct

from hocket.model.curve import NO_BELIEFS, Beliefs
from hocket.model.job import Job
from hocket.model.partition import Holding
from hocket.model.resources import Node


class JobState(StrEnum):
    """Where a live job stands. Ended jobs are in no snapshot."""

    WAITING = "waiting"  # has never run, or lost its run to a failure
    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"  # told to leave its resources, still holding them
    PAUSED = "paused"


class Tier(StrEnum):
    """Where the state of a paused job is kept."""

    NONE = "none"
    MEMORY = "memory"
    DISK = "disk"


class Hold(StrEnum):
    """Why a live job may not run for now, whatever is free."""

    FOLLOWS = "follows"  # another job must be over first
    PAUSED = "paused"  # its user asked for it
    RESTS = "rests"  # it broke, and starts again after a while


class Doing(StrEnum):
    """The change under way for one tenant; an executor was told, and has not answered yet."""

    NOTHING = "nothing"
    STARTING = "starting"
    RESIZING = "resizing"
    MOVING = "moving"
    PAUSING = "pausing"
    ENDING = "ending"


class Tenancy(Struct, frozen=True, gc=False):
    """What one tenant of a job has in fact, beside what the plan wants for it."""

    task: str
    holding: Holding | None  # None until it has started
    doing: Doing = Doing.NOTHING
    coming: Holding | None = None  # what it will hold once the change is done


class Observation(Struct, frozen=True, gc=False):
    """What a job reported at one moment of its training or query."""

    at_s: float
    epoch: int
    metrics: dict[str, float]  # never edited


class Use(Struct, frozen=True, gc=False):
    """Measured use, in the units of a demand; `gpus` in devices kept busy."""

    gpus: float = 0.0
    cores: float = 0.0
    mem_mib: float = 0.0
    net_mbps: float = 0.0


class Costs(Struct, frozen=True, gc=False):
    """How long each step of a switch takes."""

    prepare_s: float = 0.0  # up to its main, without resources; a cold start takes this and `start_s`
    start_s: float = 0.0  # from there to its first step, or to resume
    checkpoint_s: float = 0.0  # it stands still meanwhile, also where it goes on afterwards
    stop_s: float = 0.0

    def restart_s(self, warm: bool) -> float:
        """From the last step before a resize or move to the first after it; a warm one was prepared meanwhile."""
        takes_s = self.checkpoint_s + self.stop_s + self.start_s
        return takes_s if warm else takes_s + self.prepare_s


NO_COSTS = Costs()
RECENT_OBSERVATIONS = 64  # kept in a view; older ones are in the journal


class JobView(Struct, frozen=True, gc=False):
    """A job in one snapshot. Times and service run up to `since_s`; `..._at(now_s)` brings them up to date."""

    job: Job
    number: int  # of its submission; breaks ties
    submitted_s: float
    state: JobState = JobState.WAITING
    since_s: float = 0.0  # when `waited_s`, `ran_s` and `attained_gpu_s` were last summed up
    waited_s: float = 0.0  # without running, in all
    ran_s: float = 0.0
    attained_gpu_s: float = 0.0
    gpus: int = 0  # it runs on now
    size: int = 0  # it runs at now
    pace: float = 1.0  # what the kind of its GPUs and their nodes make of its believed speed
    started_s: float | None = None  # first start
    starts: int = 0  # also those after a resize or a move
    failures: int = 0
    crashes: int = 0  # failures of its own making, not of a node's
    held: Hold | None = None  # why it may not run for now; it stands in no queue
    held_until_s: float | None = None  # when time alone lets it go
    partitions: tuple[str, ...] = ()  # where the plan has it
    tenancies: tuple[Tenancy, ...] = ()  # where it is in fact
    prepared: bool = False
    preparing: bool = False
    tier: Tier = Tier.NONE  # where its saved state is
    keep: Tier = Tier.DISK  # where the plan wants it while the job is paused
    done_s: float = 0.0  # work done, in seconds at the believed reference size
    epoch: int = 0
    observations: tuple[Observation, ...] = ()  # the most recent, oldest first
    use: Use | None = None
    beliefs: Beliefs = NO_BELIEFS
    costs: Costs = NO_COSTS
    memo: Any = None  # the policy's own, about this job
    review_s: float | None = None  # when the policy asked to look at it again
    verdict: str = ""  # it is being ended for this
    reason: str = ""  # of its present standing
    rank: tuple[Any, ...] = ()  # by the policy's order

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    def attained_at(self, now_s: float) -> float:
        """GPU-seconds of service up to now."""
        if self.gpus:
            return self.attained_gpu_s + self.gpus * (now_s - self.since_s)
        return self.attained_gpu_s

    def ran_at(self, now_s: float) -> float:
        """Seconds it has run up to now."""
        return self.ran_s + (now_s - self.since_s) if self.size else self.ran_s

    def waited_at(self, now_s: float) -> float:
        """Seconds it has not run up to now."""
        return self.waited_s if self.size else self.waited_s + (now_s - self.since_s)

    def done_at(self, now_s: float) -> float:
        """Work done, in seconds at the reference size, as far as its believed speed is right."""
        if not self.size:
            return self.done_s
        return self.done_s + (now_s - self.since_s) * self.beliefs.speed_at(self.size) * self.pace

    def remaining_s(self, now_s: float, size: int = 0) -> float | None:
        """Believed seconds to its end at a size (its reference size when none is given); None when unknown.

        A job that outlives its belief is believed to need as long again as it has run.
        """
        run_s = self.beliefs.run_s
        if run_s is None:
            return None
        done = self.done_at(now_s)
        left = run_s.mean - done
        if left <= 0:
            left = done
        return left / self.beliefs.speed_at(size) if size else left


class NodeView(Struct, frozen=True, gc=False):
    """A node in one snapshot."""

    node: Node
    up: bool = True
    use: Use | None = None
