"""The true behaviour of simulated jobs (work, speed, quality), which no policy sees."""

from __future__ import annotations

from msgspec import Struct

from hocket.model.curve import Beliefs, Curve
from hocket.model.event import (
    NodeDrained,
    NodeReserved,
    NodeUndrained,
    NodeUnreserved,
    OwnerSet,
    PastJobsGiven,
    PolicySet,
)
from hocket.model.job import Job, Owner
from hocket.model.phases import sent_share
from hocket.model.resources import Node
from hocket.model.view import NO_COSTS, Costs

# Shared and never edited: making a dict for each of 100,000 jobs would take most of the time.
NO_KINDS: dict[str, float] = {}


class Truth(Struct, frozen=True, gc=False):
    """How a job really behaves."""

    run_s: float  # seconds from first step to last, alone at the reference size, without interruption
    reference_size: int = 1  # replicas to which `run_s` and `speed` refer
    speed: Curve | None = None  # size → speed, 1 at the reference size; None: in proportion to size
    kinds: dict[str, float] = {}  # GPU kind → speed relative to the reference; a kind not named counts 1
    spread: float = 1.0  # speed when its replicas span nodes, relative to one node
    comp_s: float = 1.0  # seconds of one iteration alone: computing …
    comm_s: float = 0.0  # … and communicating
    own_part: float = 0.0  # of m machines each keeps the mth part of the model, 1: and need not send it; 0: sends all
    epochs: int = 0  # how many there are in `run_s`; 0: it reports none
    metric: str = ""  # name of the metric that it reports; empty: none
    quality: Curve | None = None  # epoch → metric
    costs: Costs = NO_COSTS  # how long its starts, stops and checkpoints take
    load_s: float = 0.0  # to read its state where it goes on from one on disk, beside `costs.start_s`
    crashes_s: tuple[float, ...] = ()  # its process breaks when it has done so much work
    saves_epochs: int = 0  # it saves its state by itself after so many epochs; 0: only when it is told to
    input_mib: float = 0.0  # data that it keeps in memory, on all its machines together; part of it may be on disk …
    model_mib: float = 0.0  # … and its model
    spills: bool = True  # whether that data is spilled at all where jobs take turns
    short_comm: float = 0.0  # Where jobs take turns, its COMM gives way to none of which it takes at most this share.
    read: float = 1.0  # what an iteration has to read of that data if all of it is on disk, as a share
    loss: Curve | None = None  # epoch → loss, reported beside the metric
    gpu_use: float = 1.0  # used share of the GPU time that it requests; reported after its first epoch
    also: dict[str, Curve] = {}  # epoch → further metrics that it reports, by name

    def comm_on(self, machines: int) -> float:
        """Seconds of COMM of an iteration alone, on so many machines."""
        if not self.own_part:
            return self.comm_s
        return self.comm_s * sent_share(self.own_part, machines) / sent_share(self.own_part, self.reference_size)

    def metrics_at(self, epoch: float) -> dict[str, float]:
        """The metrics that it reports at the end of an epoch."""
        metrics = {} if self.quality is None else {self.metric: self.quality.at(epoch).mean}
        if self.loss is not None:
            metrics["loss"] = self.loss.at(epoch).mean
        for name, curve in self.also.items():
            metrics[name] = curve.at(epoch).mean
        return metrics


class Submission(Struct, frozen=True, gc=False):
    """A job, its arrival time, and its true behaviour."""

    at_s: float  # when it is submitted, in seconds since the run began
    job: Job  # what is submitted
    truth: Truth  # how it will behave
    beliefs: Beliefs | None = None  # known beforehand, as a journal recorded them; None: as the run's mode says


class Fault(Struct, frozen=True, gc=False):
    """A node is lost, and may come back later."""

    at_s: float  # when it is lost, in seconds since the run began
    node: str  # id of the node
    back_s: float | None = None  # when it comes back; None: never


Change = OwnerSet | PolicySet | PastJobsGiven | NodeDrained | NodeUndrained | NodeReserved | NodeUnreserved


class Workload(Struct, frozen=True):
    """Submissions in the order of their time, and what goes with them."""

    name: str  # what reports call it
    submissions: tuple[Submission, ...]  # jobs by ascending time
    nodes: tuple[Node, ...] = ()  # its cluster; empty: it names none
    owners: tuple[Owner, ...] = ()  # those with a weight or quota, as they are at first
    faults: tuple[Fault, ...] = ()  # losses of nodes; empty: none
    changes: tuple[Change, ...] = ()  # what is set during the run: of owners, of the policy, of nodes
