"""Facts, in the past tense. Executors report them; the journal keeps them; the state is folded from them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from hocket.model.curve import NO_BELIEFS, Beliefs
from hocket.model.job import Job, Owner
from hocket.model.past_job import PastJob
from hocket.model.reservation import NodeReservation
from hocket.model.resources import Node
from hocket.model.view import NO_COSTS, Costs, Tier, Use


class _Event(Struct, frozen=True, gc=False, tag_field="event"):
    """Every event says when it happened. The journal's order is the order of events, whatever their times."""

    at_s: float  # in seconds: simulated from 0 on, live since 1970


class JobRequest(StrEnum):
    """What a user may request of a job."""

    PAUSE = "pause"  # leave its resources and wait until told otherwise
    RESUME = "resume"  # may run again
    STOP = "stop"  # end for good


class NodeJoined(_Event, frozen=True, gc=False, tag=True):
    """A node is there, for the first time or again."""

    node: Node  # the machine and its capacity


class NodeLost(_Event, frozen=True, gc=False, tag=True):
    """A node is gone, and with it every tenancy that reached it."""

    node: str  # id of the node
    reason: str = ""  # why, in words; empty if not known


class NodeDrained(_Event, frozen=True, gc=False, tag=True):
    """A node gets no new jobs from now on."""

    node: str  # id of the node
    clear: bool = False  # jobs on it are paused and placed elsewhere, as soon as they may be preempted
    by: str = ""  # name of the user that asked; empty if not known


class NodeUndrained(_Event, frozen=True, gc=False, tag=True):
    """A drained node gets jobs again."""

    node: str  # id of the node
    by: str = ""  # name of the user that asked; empty if not known


class NodeReserved(_Event, frozen=True, gc=False, tag=True):
    """A node was reserved for some owners, from now on or from later on."""

    reservation: NodeReservation  # without effect if its name is taken, or another holds on the node meanwhile


class NodeUnreserved(_Event, frozen=True, gc=False, tag=True):
    """A reservation was removed, whether it had begun or not."""

    name: str  # of the reservation
    by: str = ""  # name of the user that asked; empty if not known


class OwnerSet(_Event, frozen=True, gc=False, tag=True):
    """An owner's weight or quota was set."""

    owner: Owner  # with its weight and quota from now on


class PastJobsGiven(_Event, frozen=True, gc=False, tag=True):
    """What other jobs have shown before, elsewhere: estimates rest on it as on jobs that ended here."""

    jobs: tuple[PastJob, ...]  # the oldest first


class PolicySet(_Event, frozen=True, gc=False, tag=True):
    """From now on this policy decides, with these parameters."""

    policy: str  # name of the policy
    params: dict[str, Any] = {}  # parameters by name; those not named have their defaults; never edited
    reason: str = ""  # why, in words; empty if a user set it, and in older journals


class JobSubmitted(_Event, frozen=True, gc=False, tag=True):
    """A user submitted a job; beliefs and costs are those known beforehand, from a profile or the user."""

    job: Job  # as it was submitted
    beliefs: Beliefs = NO_BELIEFS  # what is estimated about it
    costs: Costs = NO_COSTS  # how long its starts, stops and checkpoints take


class JobRefused(_Event, frozen=True, gc=False, tag=True):
    """A submission broke a rule and never became a job."""

    job: str  # the name that it would have had
    reason: str  # the rule that it broke, in words


class JobAsked(_Event, frozen=True, gc=False, tag=True):
    """A user requested something of a job."""

    job: str  # id of the job
    request: JobRequest = field(name="wish")  # journals call it "wish", its first name
    by: str = ""  # name of the user that asked; empty if not known


class JobPrepared(_Event, frozen=True, gc=False, tag=True):
    """A job stands ready for its resources."""

    job: str  # id of the job


class JobStarted(_Event, frozen=True, gc=False, tag=True):
    """A tenant runs, for the first time or again."""

    job: str  # id of the job
    task: str = ""  # which task of it; empty for a job without tasks
    attempt: int = 0  # number of this attempt to run it; 0 where there are no processes, or it goes on in the same one
    in_place: bool = False  # it goes on in its suspended process: it is no new run


class JobResized(_Event, frozen=True, gc=False, tag=True):
    """A tenant goes on with other resources or another boundary."""

    job: str  # id of the job
    task: str = ""  # which task of it; empty for a job without tasks
    attempt: int = 0  # number of its new attempt; 0 if it goes on in the same process, or there are none
    in_place: bool = False  # its process went on, and took the resources by itself: it is no new run


class JobMoved(_Event, frozen=True, gc=False, tag=True):
    """A tenant goes on elsewhere."""

    job: str  # id of the job
    task: str = ""  # which task of it; empty for a job without tasks
    attempt: int = 0  # number of its new attempt; 0 if it goes on in the same process, or there are none


class JobCheckpointed(_Event, frozen=True, gc=False, tag=True):
    """A job's state is saved; it goes on."""

    job: str  # id of the job
    tier: Tier = Tier.DISK  # where its state is saved


class JobSaved(_Event, frozen=True, gc=False, tag=True):
    """A job was seen to have saved its state, by itself or because it was asked to; it can continue from there."""

    job: str  # id of the job


class WorkLost(_Event, frozen=True, gc=False, tag=True):
    """A run ended, or was replaced, before the job saved its last work; it will be done again."""

    job: str  # id of the job
    lost_s: float  # seconds since the last saved state, or since the run began
    epochs: int  # epochs reported in that time
    why: str  # how the run ended, in words
    steps: int = 0  # steps reported in that time, of a job that names no epochs

    @property
    def in_words(self) -> str:
        """As `12 min of work (3 epochs) were not saved`; of a job without epochs `(250 steps)`."""
        lost_s = self.lost_s
        amount = (
            f"{lost_s:.0f} s" if lost_s < 120
            else f"{lost_s / 60:.0f} min" if lost_s < 7200
            else f"{lost_s / 3600:.1f} h"
        )  # fmt: skip
        count, unit = (self.epochs, "epoch") if self.epochs else (self.steps, "step")
        counted = f" ({count} {unit}{'s' * (count != 1)})" if count else ""
        return f"{amount} of work{counted} were not saved"


class JobPaused(_Event, frozen=True, gc=False, tag=True):
    """A tenant has left its resources; its state is kept."""

    job: str  # id of the job
    task: str = ""  # which task of it; empty for a job without tasks
    tier: Tier = Tier.DISK  # where its state is kept
    node: str = ""  # where its process is suspended; empty: it has ended
    mem_mib: float = 0.0  # memory that the suspended process keeps


class StateStored(_Event, frozen=True, gc=False, tag=True):
    """A paused job's state was brought to another tier."""

    job: str  # id of the job
    tier: Tier  # where its state is now


class ProgressReported(_Event, frozen=True, gc=False, tag=True):
    """A job said how far it is."""

    job: str  # id of the job
    epoch: int  # epochs done
    metrics: dict[str, float]  # values by name, as the job reports them
    use: Use | None = None  # what it uses; None if it was not measured
    step: int = 0  # steps done, as the job counts them; 0 if it named none


class EpochEnded(_Event, frozen=True, gc=False, tag=True):
    """A job reached the boundary of its epoch."""

    job: str  # id of the job
    epoch: int  # epochs done, this one included
    metrics: dict[str, float]  # values by name, as the job reports them


class JobWarned(_Event, frozen=True, gc=False, tag=True):
    """Something about a job that its user should look at; it changes nothing."""

    job: str  # id of the job
    about: str  # what to look at, in words


class MetricUnseen(_Event, frozen=True, gc=False, tag=True):
    """What a job's criterion is about was not seen in an attempt so far; it changes nothing."""

    job: str  # id of the job
    metric: str  # of its criterion; "epochs" or "steps" if that counts them
    read: tuple[str, ...] = ()  # metrics that were seen instead
    after_s: float = 0.0  # seconds that its process had run; 0: it was at the end of an epoch
    lines: tuple[str, ...] = ()  # that it printed last, shortened

    @property
    def in_words(self) -> str:
        """What to look at, with the lines and the option that says how to read them."""
        about = f"its criterion is about '{self.metric}', and"
        reported = ", ".join(self.read) or "nothing"
        if not self.after_s:
            return f"{about} it has reported {reported} so far"
        if not self.lines:
            printed = "it has printed nothing"
        else:
            quoted = " | ".join(f"'{line}'" for line in self.lines)
            printed = f"it printed last: {quoted}"
        read = f"what was read is {reported}" if self.read else "nothing like it was read"
        how = "--progress says how to read it, or call hocket.report() in the program"
        return f"{about} that was not seen in its first {self.after_s:g} s: {read}; {printed}; {how}"


class PhasesObserved(_Event, frozen=True, gc=False, tag=True):
    """The phases of a job that takes turns with others were measured, on average over some iterations and machines."""

    job: str  # id of the job
    machines: int  # number of nodes that it ran on
    comp_s: float  # COMP time of an iteration, in seconds
    comm_s: float  # COMM time of an iteration, in seconds
    iterations: int  # over how many the times are averaged
    slowest: float = 1.0  # time of a phase on its slowest machine, over the mean
    link: float = 1.0  # share of COMM time in which it kept the link busy
    meeting_s: float = 0.0  # of an iteration, in seconds: after its phases, until all machines knew and went on
    # 1: each of m machines keeps the mth part of the model, and need not send it, so that COMM takes 1 − 1/m of what it
    # would on very many; 0: it takes as long on any number.
    own_part: float = 0.0


class JobEnded(_Event, frozen=True, gc=False, tag=True):
    """A job is over: finished by itself, or ended by a verdict."""

    job: str  # id of the job
    verdict: str = "finished"  # why, as in `Verdict`
    reason: str = ""  # the same in words; empty if it finished, and in older journals
    at_exit: bool = False  # its process ended by itself, and then this was the verdict on its criterion
    peak_mib: float = 0.0  # the most memory of its node that its last run used, in MiB; 0: not known
    peak_gpu_mib: float = 0.0  # the most memory that was taken on one of its GPUs; 0: not known, or not by it alone


class JobFailed(_Event, frozen=True, gc=False, tag=True):
    """A job's run broke; it waits again from its last checkpoint, or is over when `final`."""

    job: str  # id of the job
    reason: str  # what broke, in words
    final: bool = False  # it is over and will not be started again
    own: bool = True  # it broke by itself; what was done to it counts against no limit
    code: int | None = None  # exit code of its process, 128 and the signal if one killed it; None if not known


class RunsPassed(_Event, frozen=True, gc=False, tag=True):
    """Runs of a job are known that the journal does not know: it is older, or another controller started them."""

    job: str  # id of the job
    number: int  # of the last of them; the job's next run has a larger number


class TimePassed(_Event, frozen=True, gc=False, tag=True):
    """Nothing happened but that a moment came which the policy, or a criterion, had asked for."""

    jobs: tuple[str, ...] = ()  # whose review or criterion is due


# Any of the facts in `hocket.model.event`, which executors report and the journal keeps.
Event = (
    NodeJoined
    | NodeLost
    | NodeDrained
    | NodeUndrained
    | NodeReserved
    | NodeUnreserved
    | OwnerSet
    | PastJobsGiven
    | PolicySet
    | JobSubmitted
    | JobRefused
    | JobAsked
    | JobPrepared
    | JobStarted
    | JobResized
    | JobMoved
    | JobCheckpointed
    | JobSaved
    | WorkLost
    | JobPaused
    | StateStored
    | ProgressReported
    | EpochEnded
    | PhasesObserved
    | JobWarned
    | MetricUnseen
    | JobEnded
    | JobFailed
    | RunsPassed
    | TimePassed
)
