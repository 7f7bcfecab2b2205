"""The 80 jobs of Harmony's evaluation (Table I): four algorithms, two data sets each, ten settings each.

The paper gives sizes of inputs and models, machines and links. What it leaves open was fixed here before anything was
compared: COMP from measured passes over samples, COMM from the model's size and the link, and the rest as it says.

How long jobs run is told in two readings (`READINGS`), since the paper only says that each runs until it converges:

* `epochs`: all converge after as many epochs. Then a few jobs have most of the work, and are left at the end.
* `run-times`: all run about as long, alone on 16 machines. For 93 % of all processors are busy over the whole makespan
  (Figure 11), which leaves no room for a few long jobs at the end, and 27.2 of 80 jobs run at a time. Nor can they be
  short: with arrivals over 10.7 hours (section V-D, every 8 minutes) little changes, so all take much longer than that.
"""

from __future__ import annotations

from math import ceil, log
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.job import Job, Kind
from hocket.model.resources import Demand, Node
from hocket.model.view import Costs
from hocket.workloads.truth import Submission, Truth, Workload

MACHINES, CORES, MEM_MIB, NET_MBPS = 100, 8, 32_000.0, 1_100.0  # m4.2xlarge, section V-B
# One pass over 1 GB on one core, in seconds: `python -m benchmarks.training_pass`, two cores (aarch64), 2026-11-15.
CORE_S_PER_GB = {"nmf": 96.1, "lda": 2_943.4, "mlr": 799.3, "lasso": 1.1}
TABLE_I = (  # algorithm, data set, input and model in GB
    ("nmf", "netflix64x", 45.6, 1.0),
    ("nmf", "netflix128x", 91.2, 5.0),
    ("lda", "pubmed", 4.3, 2.1),
    ("lda", "nytimes", 0.6, 1.1),
    ("mlr", "synthetic1", 78.4, 12.0),
    ("mlr", "synthetic2", 155.0, 24.0),
    ("lasso", "synthetic1", 78.4, 12.0),
    ("lasso", "synthetic2", 155.0, 24.0),
)
# Eight jobs, one of each data set, share 32 machines in rounds of 44.3 s (section V-G): as long as their COMMs together
# if a worker exchanges this share of the model, the parameters that its mini-batch needs.
EXCHANGED = 0.0375
# Share of the input in one mini-batch, the ten hyper-parameters. Jobs use about half of processor and link (section I,
# Figures 2 and 4, on 16 machines): if the largest is this, COMP of all jobs takes as long as their COMM there.
LARGEST_BATCH = 0.078
SETTINGS = tuple(LARGEST_BATCH * n / 10 for n in range(1, 11))
IN_MEMORY = 2.0  # a GB of data takes so many: of NMF, MLR and Lasso two fit 16 machines and three do not (Figure 4)
SUBSETS = ("all", "compute", "communication")
READINGS = ("epochs", "run-times")
EPOCHS = 20  # up to convergence, for every job (`epochs`)
MEDIAN_S, SIGMA = 4 * 3600.0, 0.5  # alone on 16 machines, lognormal (`run-times`); 80 jobs: over 50 h on 100 machines
REFERENCE = 16  # machines, as in Figure 9
MOST_OF_MEMORY = 0.8  # what input and model may take of a machine that a job has for itself
DISK_MB_S = 125.0  # 1,000 Mbps
_MIB = 1e9 / 2**20


class Setting(Struct, frozen=True):
    """One job of the 80."""

    algorithm: str
    data: str
    input_gb: float
    model_gb: float
    share: float

    @property
    def comp_machine_s(self) -> float:
        """COMP of one iteration on one machine."""
        return CORE_S_PER_GB[self.algorithm] * self.input_gb * self.share / CORES

    @property
    def comm_s(self) -> float:
        """A worker pulls its part of the model, and pushes as much."""
        return 2 * EXCHANGED * self.model_gb * 8e3 / NET_MBPS

    @property
    def least_machines(self) -> int:
        """The smallest number of machines on which input and model fit."""
        return ceil(IN_MEMORY * (self.input_gb + self.model_gb) * _MIB / (MOST_OF_MEMORY * MEM_MIB))


def settings() -> list[Setting]:
    """All 80, by data set and setting."""
    return [Setting(a, d, i, m, share) for a, d, i, m in TABLE_I for share in SETTINGS]


def subset(which: str) -> list[Setting]:
    """`all`, or the 60 with the highest (`compute`) or lowest (`communication`) ratio of COMP to COMM."""
    line = sorted(settings(), key=lambda s: s.comp_machine_s / s.comm_s)
    return {"all": settings(), "compute": line[20:], "communication": line[:60]}[which]


def cluster() -> tuple[Node, ...]:
    """100 machines of 8 cores."""
    return tuple(
        Node(f"m{i:03}", cores=float(CORES), mem_mib=MEM_MIB, net_mbps=NET_MBPS) for i in range(MACHINES)
    )  # fmt: skip


def harmony_workload(
    which: str = "all", gap_s: float = 0.0, seed: int = 0, arrivals_s: tuple[float, ...] = (), rests_s: float = 0.0,
    spills: bool = True, reading: str = "epochs",
) -> Workload:  # fmt: skip
    """The jobs in random order, all at once, with exponential gaps, or at given times; in one of the `READINGS`."""
    rng, lengths = Random(f"{seed}/harmony"), Random(f"{seed}/harmony/run-times")
    lengths_s = {s: lengths.lognormvariate(log(MEDIAN_S), SIGMA) for s in settings()}  # those of a subset are the same
    jobs = subset(which)
    rng.shuffle(jobs)
    at_s, submissions = 0.0, []
    for n, setting in enumerate(jobs):
        if n < len(arrivals_s):
            at_s = arrivals_s[n]
        truth = truth_of(setting, spills)
        if reading == "run-times":
            truth = replace(truth, run_s=lengths_s[setting])
        submissions.append(Submission(at_s, _job(setting, rests_s), truth))
        at_s += rng.expovariate(1 / gap_s) if gap_s else 0.0
    return Workload("harmony", tuple(sorted(submissions, key=lambda s: s.at_s)), nodes=cluster())


def _job(s: Setting, rests_s: float) -> Job:
    return Job(
        f"{s.algorithm}-{s.data}-{round(10 * s.share / LARGEST_BATCH)}",
        s.algorithm,
        Kind.PARAMETER_SERVER,
        demand=Demand(cores=float(CORES), mem_mib=512.0, net_mbps=NET_MBPS),
        sizes=tuple(range(s.least_machines, MACHINES + 1)),
        model=f"{s.algorithm}-{s.data}",
        backoff_s=rests_s,
    )


def truth_of(s: Setting, spills: bool = True) -> Truth:
    """The true behaviour of such a job."""
    comp_s, comm_s = s.comp_machine_s / REFERENCE, s.comm_s
    # A migration writes the model and reads it and the input again, on the reference number of machines.
    model_s, input_s = (gb * 1e3 / DISK_MB_S / REFERENCE for gb in (s.model_gb, s.input_gb))
    return Truth(
        EPOCHS / s.share * (comp_s + comm_s),
        REFERENCE,
        comp_s=comp_s,
        comm_s=comm_s,
        costs=Costs(start_s=input_s + model_s, checkpoint_s=model_s),
        input_mib=IN_MEMORY * s.input_gb * _MIB,
        model_mib=IN_MEMORY * s.model_gb * _MIB,
        spills=spills,
        read=s.share / IN_MEMORY,
    )
