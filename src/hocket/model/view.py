"""A job as a policy may know it at one moment."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct

from hocket.model.curve import NO_BELIEFS, Beliefs
from hocket.model.job import Job, Preempt
from hocket.model.partition import Holding
from hocket.model.resources import Node


class JobState(StrEnum):
    """Where a live job stands. Ended jobs are in no snapshot."""

    WAITING = "waiting"  # has never run, or lost its run to a failure
    STARTING = "starting"  # told to run, not yet running
    RUNNING = "running"  # its process runs
    PAUSING = "pausing"  # told to leave its resources, still holding them
    PAUSED = "paused"  # has run and holds nothing; `tier` says whether its state is saved


class Tier(StrEnum):
    """Where the state of a paused job is kept."""

    NONE = "none"  # there is no saved state
    MEMORY = "memory"  # main memory
    DISK = "disk"  # a file


class Hold(StrEnum):
    """Why a live job may not run for now, whatever is free."""

    FOLLOWS = "follows"  # another job must be over first
    PAUSED = "paused"  # its user asked for it
    RESTS = "rests"  # it broke, and starts again after a while


class Doing(StrEnum):
    """The change under way for one tenant; an executor was told, and has not answered yet."""

    NOTHING = "nothing"  # it runs as planned
    STARTING = "starting"  # it begins, or goes on from its saved state
    RESIZING = "resizing"  # it gets other resources in the same partition
    MOVING = "moving"  # it goes to another place
    PAUSING = "pausing"  # it saves its state and leaves its resources
    ENDING = "ending"  # it stops for good


class Tenancy(Struct, frozen=True, gc=False):
    """What one tenant of a job has in fact, beside what the plan wants for it."""

    task: str  # name of a task; empty for the whole job
    holding: Holding | None  # what it holds now; None until it has started
    doing: Doing = Doing.NOTHING  # the change under way
    coming: Holding | None = None  # what it will hold once the change is done; None if there is no change


class SuspendedProcess(Struct, frozen=True, gc=False):
    """The process of a paused job: it is stopped, keeps its memory, and uses no cores. The job can go on in it."""

    node: str  # where it is
    mem_mib: float  # memory that it keeps there, until its state is stored elsewhere
    size: int  # replicas that it ran with
    on_disk: Tier = Tier.NONE  # where there is a state to go on from if the process is lost
    unsaved_s: float | None = None  # seconds of work that would be lost with it; None: saving is not tracked


class Observation(Struct, frozen=True, gc=False):
    """What a job reported at one moment of its training or query."""

    at_s: float  # when, in seconds: simulated from 0 on, live since 1970
    epoch: int  # epochs done when it was reported
    metrics: dict[str, float]  # values by name, as the job reports them; never edited
    step: int = 0  # steps done by then, as the job counts them; 0: it has named none


class Use(Struct, frozen=True, gc=False):
    """Measured use, in the units of a demand."""

    gpus: float = 0.0  # GPUs kept busy: 0.5 for one that is busy half of the time
    cores: float = 0.0  # CPU cores kept busy
    mem_mib: float = 0.0  # memory in MiB
    net_mbps: float = 0.0  # network in megabit per second


class Costs(Struct, frozen=True, gc=False):
    """How long each step of a switch takes."""

    prepare_s: float = 0.0  # seconds up to its main, without resources; a cold start takes this and `start_s`
    start_s: float = 0.0  # seconds from there to its first step, new or resumed
    checkpoint_s: float = 0.0  # seconds to save its state; it stands still meanwhile, also where it goes on afterwards
    stop_s: float = 0.0  # seconds from then to the moment its resources are free

    def restart_s(self, warm: bool) -> float:
        """From the last step before a resize or move to the first after it; a `warm` job was prepared meanwhile."""
        takes_s = self.checkpoint_s + self.stop_s + self.start_s
        return takes_s if warm else takes_s + self.prepare_s


NO_COSTS = Costs()
RECENT_OBSERVATIONS = 64  # kept in a view; older ones are in the journal


class JobView(Struct, frozen=True, gc=False, omit_defaults=True):
    """A job in one snapshot. Times and service are summed up to `since_s`; methods that take `now_s`, the moment of the
    snapshot, bring them up to date."""

    job: Job  # what the user submitted
    number: int  # jobs submitted before it; breaks ties
    submitted_s: float  # when, in seconds: simulated from 0 on, live since 1970
    state: JobState = JobState.WAITING  # what it does now
    since_s: float = 0.0  # when `waited_s`, `ran_s` and `attained_gpu_s` were last summed up
    waited_s: float = 0.0  # seconds in which it did not run, in all
    ran_s: float = 0.0  # seconds of running, in all
    attained_gpu_s: float = 0.0  # GPU-seconds of service, in all
    gpus: int = 0  # GPUs that it runs on now
    size: int = 0  # replicas that it runs with now; 0: it does not run
    pace: float = 1.0  # by what factor the kind of its GPUs and the number of nodes change its believed speed
    started_s: float | None = None  # when it first started, as `submitted_s`; None: it has not
    starts: int = 0  # how often it started, also after a resize or a move
    failures: int = 0  # runs that broke, for whatever reason
    crashes: int = 0  # failures of its own making, not of a node's
    held: Hold | None = None  # why it may not run for now; it stands in no queue
    held_until_s: float | None = None  # when it may run again by itself; None: time alone does not end it
    partitions: tuple[str, ...] = ()  # ids of the partitions in which the plan has it; empty: it waits or is paused
    tenancies: tuple[Tenancy, ...] = ()  # what it holds in fact
    prepared: bool = False  # it is up to the point before its main, and needs only resources
    preparing: bool = False  # it is being brought there
    tier: Tier = Tier.NONE  # where its saved state is
    keep: Tier | None = None  # where the plan wants it while the job is paused; None: where it may cost least
    done_s: float = 0.0  # work done, in seconds at the believed reference size
    epoch: int = 0  # epochs done, as it reported last
    observations: tuple[Observation, ...] = ()  # the most recent, oldest first
    use: Use | None = None  # what it was measured to use last; None: never measured
    beliefs: Beliefs = NO_BELIEFS  # what is estimated about it
    costs: Costs = NO_COSTS  # how long its starts, stops and checkpoints take
    memo: Any = None  # what the policy stored about this job; None at first
    review_s: float | None = None  # when the policy asked to look at it again; None: it did not
    verdict: str = ""  # why it is being ended; empty: it is not
    reason: str = ""  # why it is in its present state, for users to read
    rank: tuple[Any, ...] = ()  # its place in the policy's order; the smallest goes first
    run_began_s: float | None = None  # when its present process started; None: it has none, or saving is not tracked
    saved_s: float | None = None  # when its state was last seen to be saved; None: never
    saved_epoch: int = 0  # epochs done in the state that it saved last
    step: int = 0  # steps done, as it reported last; 0: it has named none
    saved_step: int = 0  # steps done in the state that it saved last
    suspended: SuspendedProcess | None = None  # its process, while it is paused in memory
    storing: Tier | None = None  # where its state is being brought while it is paused; None: it stays where it is
    skipped: int = 0  # numbers of runs that are passed over: another controller, or a later journal, gave them before

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
        """Believed seconds to its end at a `size` (its reference size when that is 0); None when unknown.

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

    def protected_at(self, now_s: float) -> str:
        """Why the policy may not pause, resize or move the running job now, in words; empty if it may.

        Its user may pause or stop it at any time.
        """
        job, began_s = self.job, self.run_began_s
        if began_s is None or not self.size or not job.is_protectable or job.tasks is not None:
            return ""  # Jobs of several tasks are only simulated, and lose nothing.
        if job.protect_s and now_s >= began_s + job.protect_s:
            return ""
        if job.preempt is Preempt.NEVER:
            return "it was submitted with --preempt never"
        if job.preempt is Preempt.SAVED and self.saved_s is None:
            return "it has not saved its state yet"
        if now_s < began_s + job.min_run_s:
            return f"it was submitted with --min-run and has run for less than {job.min_run_s:g} s"
        return ""

    def unsaved_at(self, now_s: float) -> tuple[float, int, int]:
        """Seconds of work, epochs and steps that would be lost if the run ended now without saving.

        Steps are counted only of a job that names no epochs.
        """
        began_s = self.run_began_s
        if began_s is None:
            return 0.0, 0, 0
        since_s = began_s if self.saved_s is None else max(began_s, self.saved_s)
        last = self.observations[-1] if self.observations else None
        lost_s = max(0.0, now_s - since_s)
        if last is None or last.at_s < since_s:
            return lost_s, 0, 0
        if self.epoch:
            return lost_s, max(0, last.epoch - self.saved_epoch), 0
        return lost_s, 0, max(0, last.step - self.saved_step)


class NodeView(Struct, frozen=True, gc=False):
    """A node in one snapshot."""

    node: Node  # the machine and its capacity
    up: bool = True  # false while it is lost
    use: Use | None = None  # what was measured to be used last; None: never measured
    drained: bool = False  # it gets no new jobs; those on it go on
    cleared: bool = False  # drained, and the jobs on it are to leave as soon as they may be preempted

    @property
    def is_open(self) -> bool:
        """May jobs be placed on it?"""
        return self.up and not self.drained
