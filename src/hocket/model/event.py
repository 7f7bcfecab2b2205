"""Facts, in the past tense. Executors report them; the journal keeps them; the state is folded from them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct

from hocket.model.curve import NO_BELIEFS, Beliefs
from hocket.model.job import Job, Owner
from hocket.model.resources import Node
from hocket.model.view import NO_COSTS, Costs, Tier, Use


class _Event(Struct, frozen=True, gc=False, tag_field="event"):
    """Every event says when it happened. The journal's order is the order of events, whatever their times."""

    at_s: float


class Wish(StrEnum):
    """What a user may ask of a job."""

    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"


class NodeJoined(_Event, frozen=True, gc=False, tag=True):
    """A node is there, for the first time or again."""

    node: Node


class NodeLost(_Event, frozen=True, gc=False, tag=True):
    """A node is gone, and with it every tenancy that reached it."""

    node: str
    reason: str = ""


class OwnerSet(_Event, frozen=True, gc=False, tag=True):
    """An owner's weight or quota was set."""

    owner: Owner


class PolicySet(_Event, frozen=True, gc=False, tag=True):
    """From now on this policy decides, with these parameters."""

    policy: str
    params: dict[str, Any] = {}  # never edited


class JobSubmitted(_Event, frozen=True, gc=False, tag=True):
    """A user submitted a job; beliefs and costs are those known beforehand, from a profile or the user."""

    job: Job
    beliefs: Beliefs = NO_BELIEFS
    costs: Costs = NO_COSTS


class JobRefused(_Event, frozen=True, gc=False, tag=True):
    """A submission broke a rule and never became a job."""

    job: str
    reason: str


class JobAsked(_Event, frozen=True, gc=False, tag=True):
    """Its user asked something of a job."""

    job: str
    wish: Wish
    by: str = ""


class JobPrepared(_Event, frozen=True, gc=False, tag=True):
    """A job stands ready for its resources."""

    job: str


class JobStarted(_Event, frozen=True, gc=False, tag=True):
    """A tenant runs, for the first time or again."""

    job: str
    task: str = ""
    attempt: int = 0  # its number, where there are processes


class JobResized(_Event, frozen=True, gc=False, tag=True):
    """A tenant goes on with other resources or another boundary."""

    job: str
    task: str = ""
    attempt: int = 0  # its number, if it left and started again


class JobMoved(_Event, frozen=True, gc=False, tag=True):
    """A tenant goes on elsewhere."""

    job: str
    task: str = ""
    attempt: int = 0


class JobCheckpointed(_Event, frozen=True, gc=False, tag=True):
    """A job's state is saved; it goes on."""

    job: str
    tier: Tier = Tier.DISK


class JobPaused(_Event, frozen=True, gc=False, tag=True):
    """A tenant has left its resources; its state is kept."""

    job: str
    task: str = ""
    tier: Tier = Tier.DISK


class StateStored(_Event, frozen=True, gc=False, tag=True):
    """A paused job's state was brought to another tier."""

    job: str
    tier: Tier


class ProgressReported(_Event, frozen=True, gc=False, tag=True):
    """A job said how far it is."""

    job: str
    epoch: int
    metrics: dict[str, float]
    use: Use | None = None


class EpochEnded(_Event, frozen=True, gc=False, tag=True):
    """A job reached the boundary of its epoch."""

    job: str
    epoch: int
    metrics: dict[str, float]


class JobWarned(_Event, frozen=True, gc=False, tag=True):
    """Something about a job that its user should look at; it changes nothing."""

    job: str
    about: str


class PhasesObserved(_Event, frozen=True, gc=False, tag=True):
    """The phases of a job that takes turns with others were measured, on average over some iterations and machines."""

    job: str
    machines: int
    comp_s: float
    comm_s: float
    iterations: int
    slowest: float = 1.0  # time of a phase on its slowest machine, over the mean
    link: float = 1.0  # share of COMM time in which it kept the link busy


class JobEnded(_Event, frozen=True, gc=False, tag=True):
    """A job is over: finished by itself, or ended by a verdict."""

    job: str
    verdict: str = "finished"


class JobFailed(_Event, frozen=True, gc=False, tag=True):
    """A job's run broke; it waits again from its last checkpoint, or is over when `final`."""

    job: str
    reason: str
    final: bool = False
    own: bool = True  # it broke by itself; what was done to it counts against no limit


class TimePassed(_Event, frozen=True, gc=False, tag=True):
    """Nothing happened but that a moment came which the policy, or a criterion, had asked for."""

    jobs: tuple[str, ...] = ()  # whose review or criterion is due


Event = (
    NodeJoined
    | NodeLost
    | OwnerSet
    | PolicySet
    | JobSubmitted
    | JobRefused
    | JobAsked
    | JobPrepared
    | JobStarted
    | JobResized
    | JobMoved
    | JobCheckpointed
    | JobPaused
    | StateStored
    | ProgressReported
    | EpochEnded
    | PhasesObserved
    | JobWarned
    | JobEnded
    | JobFailed
    | TimePassed
)
