"""The workload of the Dorm paper (SMARTCOMP'17): Table II, 50 applications of seven types on 20 servers.

What the paper gives: demands, weights, most and least containers, how many of each type, a mean gap of 20 minutes, the
cluster's totals, and how many containers Swarm, its baseline, gives each type. Blanks in Table II are ones (the
numbers then sum up to 50). What it leaves open is fixed here:

* Servers. 240 cores, 5 GPUs and 2.5 TB on 20 servers: 12 cores and 128 GB on each, one GPU on every fourth.
* Arrivals. In random order, with exponential gaps.
* Run times and speed by containers, in two readings (`READINGS`), since what the paper says contradicts itself:
  `figure-1`: at Swarm's sizes, lognormal with a tenth below 6 hours, as the text of Figure 1 says that about 90 % run
  for longer; speeds by the project's usual law, 8 / (1 + 0.05 · 7) = 5.9 at eight.
  `figure-8`: at most 2 kills in a decision with θ2 = 0.2 mean about 10 applications at a time, so by Little's law about
  3 hours in the system; and a speed-up of 2.79 needs nearly linear scaling, for n_max over Swarm's size is 3.6 on
  average, and 2.1 by the usual law. Median 3 hours at Swarm's sizes, and linear.
  Of the spread the paper says nothing; sigma is 0.5 in both. Parameter servers reach over servers anyway, so being
  spread costs nothing more.
* Costs of switching. 5 % of 3 hours for being killed and resumed twice (Figure 9(b) and its text) is 270 s each time;
  we split it into three equal parts, checkpoint, preparation and start.
"""

from __future__ import annotations

from math import exp, log
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.curve import Curve
from hocket.model.job import Job
from hocket.model.resources import Demand, Node
from hocket.model.view import Costs
from hocket.workloads.gavel import GavelSpeeds
from hocket.workloads.speed import USUAL_LAW, ScalingLaw
from hocket.workloads.truth import Submission, Truth, Workload

SERVERS = 20
GAP_S = 20 * 60.0
SIGMA = 0.5
MEDIAN_S = 6 * 3600.0 * exp(1.2816 * SIGMA)  # A tenth of a normal distribution lies below -1.2816.
COSTS = Costs(prepare_s=90.0, start_s=90.0, checkpoint_s=90.0)
_GIB = 1024.0


class Reading(Struct, frozen=True):
    """What is taken for what the paper does not say."""

    median_s: float  # of run times at Swarm's sizes
    speed: ScalingLaw  # by containers


READINGS = {
    "figure-1": Reading(MEDIAN_S, USUAL_LAW),
    "figure-8": Reading(3 * 3600.0, ScalingLaw("linear")),
}


class ApplicationType(Struct, frozen=True):
    """A row of Table II."""

    name: str
    system: str
    dataset: str
    cores: int
    gpus: int
    mem_gb: int
    weight: int
    most: int  # containers; the least is 1
    number: int
    swarm: int  # containers that the baseline gives it
    paired: str  # with a type that Gavel measured on several GPUs; ours, for of these models only ResNet-50 is there

    @property
    def demand(self) -> Demand:
        """Of one container."""
        return Demand(self.gpus, float(self.cores), self.mem_gb * _GIB)

    @property
    def sizes(self) -> tuple[int, ...]:
        """From n_min to n_max."""
        return tuple(range(1, self.most + 1))


TYPES = (
    ApplicationType("lr", "MxNet", "Criteo-Log", 2, 0, 8, 1, 32, 20, 8, "ResNet-18 (batch size 256)"),
    ApplicationType("mf", "TensorFlow", "MovieLens", 2, 0, 6, 2, 32, 20, 8, "ResNet-18 (batch size 256)"),
    ApplicationType("caffenet", "MPI-Caffe", "CIFAR-10", 4, 0, 6, 4, 8, 6, 4, "ResNet-18 (batch size 256)"),
    ApplicationType("vgg-16", "MxNet", "ImageNet", 4, 1, 32, 1, 5, 1, 2, "ResNet-50 (batch size 64)"),
    ApplicationType("googlenet", "TensorFlow", "ImageNet", 6, 1, 16, 1, 5, 1, 2, "ResNet-50 (batch size 64)"),
    ApplicationType("alexnet", "Petuum", "ImageNet", 6, 1, 16, 2, 5, 1, 2, "ResNet-50 (batch size 64)"),
    ApplicationType("resnet-50", "MPI-Caffe", "ImageNet", 4, 1, 32, 4, 5, 1, 3, "ResNet-50 (batch size 64)"),
)
SWARM = ",".join(f"{t.name}={t.swarm}" for t in TYPES)  # sizes by model, as the policy `static` takes them


def dorm_cluster(servers: int = SERVERS) -> tuple[Node, ...]:
    """The slaves: alike, but for one GPU on every fourth."""
    width = max(3, len(str(servers - 1)))
    return tuple(Node(f"n{j:0{width}d}", int(j % 4 == 0), cores=12.0, mem_mib=128 * _GIB) for j in range(servers))


def dorm_workload(seed: int = 0, profiles: GavelSpeeds | None = None, reading: str = "figure-1") -> Workload:
    """50 applications, mean gap 20 minutes, in one of the `READINGS`; measured `profiles` replace its speeds."""
    rng = Random(f"{seed}/dorm")
    order = [(kind, n) for kind in TYPES for n in range(kind.number)]
    rng.shuffle(order)
    at_s, submissions = 0.0, []
    for kind, n in order:
        submissions.append(_submission(kind, n, at_s, rng, profiles, READINGS[reading]))
        at_s = round(at_s + rng.expovariate(1 / GAP_S), 1)
    return Workload("dorm", tuple(submissions), dorm_cluster())


def _submission(
    kind: ApplicationType, n: int, at_s: float, rng: Random, profiles: GavelSpeeds | None, reading: Reading
) -> Submission:
    job = Job(f"{kind.name}-{n + 1}", kind.name, demand=kind.demand, sizes=kind.sizes, weight=float(kind.weight))
    run_s = round(rng.lognormvariate(log(reading.median_s), SIGMA), 1)
    speed = reading.speed.curve(kind.sizes, kind.swarm) if profiles is None else _measured(kind, job, profiles)
    return Submission(at_s, replace(job, model=kind.name), Truth(run_s, kind.swarm, speed, costs=COSTS))


def _measured(kind: ApplicationType, job: Job, profiles: GavelSpeeds) -> Curve:
    """Speed by containers, each taken for one GPU of the paired type."""
    per_gpu = replace(job, demand=Demand(1))
    return profiles.profile(kind.paired).curve(profiles.reference_kind, per_gpu, kind.swarm)
