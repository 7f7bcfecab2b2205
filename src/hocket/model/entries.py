"""The entries of a snapshot document, field by field: what may stand in it, and what each means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from msgspec import Meta, Struct, defstruct

from hocket.model.curve import NO_BELIEFS, Beliefs
from hocket.model.job import Job, Size
from hocket.model.job_spec import SpecField, described, described_fields, ruled
from hocket.model.partition import Partition
from hocket.model.plan import ALWAYS, Wake
from hocket.model.reservation import NodeReservation
from hocket.model.resources import MAX_GPUS, Slice
from hocket.model.view import NO_COSTS, Costs, Hold, JobState, SuspendedProcess, Tenancy, Tier, Use

FORMAT = 1

Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
Amount: TypeAlias = Annotated[float, Meta(ge=0)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200, pattern="^[^/]*$")]


class NodeEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One machine and its capacity."""

    id: Name
    gpus: Annotated[int, Meta(ge=0, le=MAX_GPUS, description="numbered from 0")] = 0
    gpu_kind: str = ""
    gpu_mem_mib: Annotated[float, Meta(ge=0, description="of each GPU")] = 0.0
    cores: Amount = 0.0
    mem_mib: Amount = 0.0
    net_mbps: Amount = 0.0
    up: Annotated[bool, Meta(description="false while it is lost")] = True
    use: Annotated[Use | None, Meta(description="what was measured")] = None
    drained: Annotated[bool, Meta(description="it gets no new jobs; those on it go on")] = False
    cleared: Annotated[bool, Meta(description="drained, and its jobs leave as soon as they may be preempted")] = False


class OwnerEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A user or team with a weight or quota of its own; 0 stands for no limit."""

    id: Annotated[str, Meta(max_length=200)]
    weight: Annotated[float, Meta(gt=0)] = 1.0
    max_gpus: Count = 0
    max_cores: Amount = 0.0
    max_mem_mib: Amount = 0.0
    max_jobs: Annotated[int, Meta(ge=0, description="placed at once")] = 0


def _job_entry() -> type[Struct]:
    """The fields of `Job` with their rules; criteria are texts."""
    found: list[tuple[str, Any, Any]] = []
    for name, kind, default, about in described_fields(Job):
        if SpecField("job", name, kind, default, about).reads == "criterion":
            kind = str | None
        elif name == "sizes":
            kind = tuple[Size, ...]
        found.append((name, described(ruled(kind, about.rule), about.help), default))
    doc = {"__doc__": "What the user submitted."}
    return defstruct("JobSpec", found, namespace=doc, frozen=True, forbid_unknown_fields=True)


if TYPE_CHECKING:
    SubmittedEntry: TypeAlias = Any
else:
    SubmittedEntry = _job_entry()


class ObservationEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """What a job reported at one moment; null is a number that was none, as of a job that diverged."""

    at_s: float
    epoch: int
    metrics: dict[str, float | None]
    step: int = 0


class JobEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A job as the policy may know it."""

    job: SubmittedEntry
    about: Annotated[str, Meta(description="for the reader; no policy sees it")] = ""
    submitted_s: Seconds = 0.0
    number: Annotated[int | None, Meta(description="of its submission, breaks ties; its place in the list if null")] = (
        None
    )
    state: Annotated[
        JobState | None, Meta(description="running where a partition names it, else waiting or paused, if null")
    ] = None
    tenancies: Annotated[
        tuple[Tenancy, ...] | None, Meta(description="what it holds in fact; what the partitions say, if null")
    ] = None
    partitions: Annotated[
        tuple[str, ...] | None, Meta(description="in the order in which it got them; by their ids, if null")
    ] = None
    since_s: Annotated[
        Seconds | None,
        Meta(description="up to when the next three are summed; now for a job that runs, else its submission, if null"),
    ] = None
    waited_s: Seconds = 0.0
    ran_s: Seconds = 0.0
    attained_gpu_s: Seconds = 0.0
    done_s: Annotated[float, Meta(ge=0, description="work done, in seconds at the reference size")] = 0.0
    pace: Annotated[float, Meta(gt=0, description="what its GPUs' kind and nodes make of its believed speed")] = 1.0
    started_s: Annotated[float | None, Meta(description="first start")] = None
    starts: Count = 0
    failures: Count = 0
    crashes: Annotated[int, Meta(ge=0, description="failures of its own making, not of a node's")] = 0
    held: Annotated[Hold | None, Meta(description="why it may not run for now")] = None
    held_until_s: Annotated[float | None, Meta(description="when time alone lets it go")] = None
    prepared: bool = False
    preparing: bool = False
    tier: Annotated[Tier, Meta(description="where its saved state is")] = Tier.NONE
    keep: Annotated[
        Tier | None, Meta(description="where the plan wants it while the job is paused; where it costs least, if null")
    ] = None
    suspended: Annotated[
        SuspendedProcess | None, Meta(description="its process, while the job is paused in memory")
    ] = None
    storing: Annotated[Tier | None, Meta(description="where its state is being brought")] = None
    epoch: Count = 0
    observations: Annotated[tuple[ObservationEntry, ...], Meta(description="the most recent, oldest first")] = ()
    use: Use | None = None
    beliefs: Annotated[Beliefs, Meta(description="run_s: seconds from start to end at the reference size")] = NO_BELIEFS
    costs: Annotated[Costs, Meta(description="how long each step of a switch takes")] = NO_COSTS
    memo: Annotated[Any, Meta(description="the policy's own")] = None
    review_s: float | None = None
    verdict: Annotated[str, Meta(description="it is being ended for this")] = ""
    reason: Annotated[str, Meta(description="of its present standing")] = ""
    run_began_s: Annotated[
        float | None, Meta(description="when its present process started; `since_s`, if null and it runs")
    ] = None
    saved_s: Annotated[float | None, Meta(description="when its state was last seen to be saved")] = None
    saved_epoch: Annotated[int, Meta(ge=0, description="epochs done in that state")] = 0
    step: Annotated[int, Meta(ge=0, description="steps done, as it counts them; 0: it has named none")] = 0
    saved_step: Annotated[int, Meta(ge=0, description="steps done in the state that it saved last")] = 0
    rank: Annotated[
        tuple[Any, ...] | None,
        Meta(description="in the order of `policy`, '∞' for infinity; reckoned anew for any other"),
    ] = None


class HistoryEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """Run times of ended jobs of one size, and one owner if it is named."""

    size: Size
    count: Count
    log_sum: float
    log_squares: float
    owner: str | None = None


class Document(Struct, frozen=True, forbid_unknown_fields=True):
    """All that a policy may know at one moment."""

    format: Annotated[int, Meta(description="of this document", ge=FORMAT, le=FORMAT)]
    now_s: Annotated[float, Meta(ge=0, description="the moment; every time is in seconds on the same clock")]
    nodes: Annotated[tuple[NodeEntry, ...], Meta(max_length=1_000_000)]
    jobs: tuple[JobEntry, ...] = ()
    partitions: Annotated[
        tuple[Partition, ...], Meta(description="the present plan: which jobs shall have what; disjoint")
    ] = ()
    owners: tuple[OwnerEntry, ...] = ()
    about: Annotated[str, Meta(description="for the reader; no policy sees it")] = ""
    policy: Annotated[str, Meta(description="in whose order the ranks are")] = ""
    leaving: Annotated[
        dict[str, tuple[Slice, ...]], Meta(description="'job/task' → what it still holds beyond its plan")
    ] = {}
    unsettled: Annotated[
        tuple[tuple[str, str], ...], Meta(description="[job, task] whose plan is not yet carried out")
    ] = ()
    memo: Annotated[Any, Meta(description="the policy's own, from its last plan")] = None
    wake: Annotated[Wake, Meta(description="what the policy waits for")] = ALWAYS
    seed: int = 0
    decision: Annotated[int, Meta(ge=0, description="how many went before")] = 0
    submissions: Annotated[int | None, Meta(description="how many there were in all; as many as jobs if null")] = None
    arrived: Annotated[
        tuple[str, ...] | None,
        Meta(description="submitted since the last decision; all that wait, if null and there was none"),
    ] = None
    due: Annotated[tuple[str, ...], Meta(description="jobs whose review came since the last decision")] = ()
    history: tuple[HistoryEntry, ...] = ()
    reservations: Annotated[
        tuple[NodeReservation, ...],
        Meta(description="nodes that only jobs of some owners get; by those that hold, jobs have `excluded_nodes`"),
    ] = ()
