"""The workload of MLFS (CoNEXT'20): partitioned models with deadlines, urgency and required accuracies.

What the paper gives: five models, of which AlexNet and MLP are cut one part after another, ResNet and LSTM layer by
layer, and SVM is data-parallel only; 1 to 32 GPUs, as many parts; 50 to 100 MB between workers, and to the parameter
server; a deadline of max(1.1 run time, 0.5 to 24 h); 20 servers of 4 V100s with 32 cores and 244 GB, or 2,474 GPUs in
550 servers; a week of 620x jobs, x from 1/4 to 3, or the Philly trace. What it leaves open is fixed here:

* **Run times** without a trace: lognormal, with a median of an hour, since the paper's come from a week of the trace.
* **Requests of tasks.** A part of a model computes only in its turn, so it keeps a GPU busy for its part of an
  iteration, at least a quarter of the time; the real use differs by job, from 0.8 to 1.25 times the request.
* **Communication** is by parameter server or all-reduce, each for half of the jobs.
* **Accuracy:** a share of the job's own final accuracy (`accuracy`, 0.95), since the available trace has none.
* **Iterations** are epochs, of which a job has 20, as the paper uses the two words alike; it sends its volumes once in
  each. A job of the trace has no model: one is drawn.
* **Load control:** as in the paper, all jobs choose OptStop, and may be stopped at the required accuracy.
* **Whole** jobs, for policies that do not place tasks: a model in n parts has n GPUs to itself, its parameter server
  beside one of them, and loses no time by sending data between servers. The rest of the job is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import log
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.criterion import Epochs, Goal
from hocket.model.job import Job, Stop, TaskGraph
from hocket.model.resources import Demand, Node
from hocket.model.view import Costs
from hocket.workloads.errors import WorkloadError
from hocket.workloads.fields import TEXT, Fields, Number, Whole
from hocket.workloads.learning_curves import VARIANTS, Learner, Learning, learning, read_learning
from hocket.workloads.philly import read_philly
from hocket.workloads.selection import Selection
from hocket.workloads.task_graphs import ADDING_UP, Partitioning, task_graph
from hocket.workloads.truth import Submission, Truth, Workload

GPUS = (1, 2, 4, 8, 16, 32)
MIB = (50.0 * 1e6 / 2**20, 100.0 * 1e6 / 2**20)  # between two tasks, in one iteration
DEADLINE_H = (0.5, 24.0)
EPOCHS = 20
LEAST_SHARE = 0.25  # of a GPU's time, for a part of a model
USE = (0.8, 1.25)  # of what is asked for, what is taken
JITTER_S = 3600.0  # of the arrivals of repeated jobs
COSTS = Costs(prepare_s=5.0, start_s=5.0, checkpoint_s=5.0, stop_s=1.0)
ADDS_UP = Demand(1, 1.0, 4096.0, 600.0, 0.05)  # a parameter server, or the task that represents an all-reduce
LONGEST_S = 14 * 86400.0


class Model(Struct, frozen=True):
    """One of the paper's models."""

    name: str
    structure: str  # sequential, layered, or "" for data-parallel only
    busy: float  # of its GPU's time, while it is its turn
    worker: Demand
    learner: Learner
    measured: str  # the application of Pollux whose curves are taken for it


MODELS = (
    Model("alexnet", "sequential", 0.8, Demand(1, 2.0, 12288.0, 600.0),
          Learner("exponential", 0.1, 0.86), "cifar10"),
    Model("resnet", "layered", 0.85, Demand(1, 2.0, 16384.0, 600.0),
          Learner("power", 0.02, 0.78, first_loss=6.0, last_loss=0.9), "imagenet"),
    Model("mlp", "sequential", 0.6, Demand(1, 1.0, 4096.0, 600.0), Learner("hill", 0.1, 0.92), "cifar10"),
    Model("lstm", "layered", 0.7, Demand(1, 2.0, 8192.0, 600.0),
          Learner("power", 0.05, 0.82, first_loss=4.0, last_loss=0.8), "deepspeech2"),
    Model("svm", "", 0.55, Demand(1, 1.0, 4096.0, 600.0),
          Learner("hill", 0.5, 0.88, first_loss=1.0, last_loss=0.25), "ncf"),
)  # fmt: skip


class MlfsOptions(Struct, frozen=True):
    """What the options of both forms of the workload say."""

    accuracy: float = 0.95  # of the final one, what users ask for
    replicas: int = 1  # data-parallel, of models that are partitioned
    curves: str = ""  # a file of measured ones
    whole: bool = False  # every job is one piece, with GPUs to itself


def read_mlfs_options(options: Fields) -> MlfsOptions:
    """The settings in these options. Does not call `finish`."""
    return MlfsOptions(
        options.read("accuracy", Number(above=True, high=1.0), 0.95),
        options.read("replicas", Whole(low=1, high=64), 1),
        options.read("curves", TEXT, ""),
        options.flag("whole"),
    )


def mlfs_workload(
    jobs: int, over_s: float, median_s: float, sigma: float, wanted: MlfsOptions = MlfsOptions(), seed: int = 0
) -> Workload:
    """A number of jobs within a window, on 20 servers of 4 GPUs."""
    rng = Random(f"{seed}/mlfs/arrivals")
    times = list(accumulate(rng.expovariate(1.0) for _ in range(jobs)))
    digits = len(str(jobs - 1))
    drawn = Random(f"{seed}/mlfs/jobs")
    rows = []
    for n, time in enumerate(times):
        run_s = round(min(max(drawn.lognormvariate(log(median_s), sigma), 60.0), LONGEST_S), 3)
        rows.append((f"j{n:0{digits}d}", "", round(time / times[-1] * over_s, 3), drawn.choice(GPUS), run_s))
    return Workload("mlfs", tuple(mlfs_submissions(rows, wanted, seed)), servers((20, 4)))


def mlfs_philly(
    path: str, selection: Selection, times: float, wanted: MlfsOptions = MlfsOptions(), seed: int = 0
) -> Workload:
    """The jobs of the Philly table, each `times` times, on 550 servers with 2,474 GPUs."""
    rows: list[tuple[str, str, float, int, float]] = []
    rng = Random(f"{seed}/mlfs/repeated")
    for s in read_philly(path, selection).submissions:
        row = (s.job.owner, s.at_s, s.truth.reference_size, s.truth.run_s)
        if times < 1 and rng.random() >= times:
            continue
        rows.append((s.job.id, *row))
        for n in range(1, int(times)):
            at_s = round(s.at_s + rng.uniform(0.0, JITTER_S), 3)
            rows.append((f"{s.job.id}x{n + 1}", s.job.owner, at_s, s.truth.reference_size, s.truth.run_s))
    if not rows:
        raise WorkloadError(f"{path}: k must keep at least one job, and {times:g} keeps none")
    rows.sort(key=lambda r: r[2])
    return Workload("mlfs-philly", tuple(mlfs_submissions(rows, wanted, seed)), servers((229, 8), (321, 2)))


def servers(*groups: tuple[int, int]) -> tuple[Node, ...]:
    """Groups of (servers, GPUs), with the paper's cores and memory for each GPU."""
    found: list[Node] = []
    for count, gpus in groups:
        for _ in range(count):
            name = f"n{len(found):03d}"
            found.append(Node(name, gpus, "v100", 16384.0, 8.0 * gpus, 62464.0 * gpus, 2500.0 * gpus))
    return tuple(found)


def mlfs_submissions(
    rows: Sequence[tuple[str, str, float, int, float]], wanted: MlfsOptions, seed: int
) -> Iterator[Submission]:
    """These jobs (id, owner, when, GPUs, run time), each with a model and all else drawn at random."""
    measured = read_learning(wanted.curves, EPOCHS) if wanted.curves else {}
    for model in MODELS:
        if measured and model.measured not in measured:
            raise WorkloadError(f"{wanted.curves}: must have curves of '{model.measured}', and has none")
    rng = Random(f"{seed}/mlfs/models")
    for job_id, owner, at_s, gpus, run_s in rows:
        model = rng.choice(MODELS)
        sync = rng.choice(("ps", "all-reduce"))
        variant = rng.randrange(VARIANTS)
        if measured:
            curves = measured[model.measured]
            learned = curves[variant % len(curves)]
        else:
            learned = learning(model.learner, EPOCHS, seed, variant)
        graph = _graph(model, gpus, sync, wanted.replicas, rng.uniform(*MIB), rng.uniform(*MIB))
        yield _submission(job_id, owner, at_s, run_s, model, graph, learned, wanted, rng)


def _submission(
    job_id: str,
    owner: str,
    at_s: float,
    run_s: float,
    model: Model,
    graph: TaskGraph,
    learned: Learning,
    wanted: MlfsOptions,
    rng: Random,
) -> Submission:
    job = Job(
        job_id,
        owner,
        urgency=rng.randint(1, 10),
        deadline_s=round(max(1.1 * run_s, rng.uniform(*DEADLINE_H) * 3600.0), 3),
        tasks=graph,
        model=model.name,
        target=Goal("acc", ">=", min(round(wanted.accuracy * learned.final, 4), learned.final), Epochs(EPOCHS)),
        stop=Stop.OPTSTOP,
        may_lower=Stop.REQUIRED,
    )
    truth = Truth(
        run_s,
        len(graph.tasks),
        comp_s=run_s / EPOCHS,
        epochs=EPOCHS,
        metric="acc",
        quality=learned.accuracy,
        loss=learned.loss,
        gpu_use=round(rng.uniform(*USE), 2),
        costs=COSTS,
    )
    found = Submission(at_s, job, truth)
    return as_whole(found) if wanted.whole else found


def as_whole(submission: Submission) -> Submission:
    """The same job without tasks, with a whole GPU for each part of its model."""
    graph = submission.job.tasks
    assert graph is not None
    workers = [t for t in graph.tasks if t.id not in ADDING_UP]
    job = replace(submission.job, tasks=None, demand=replace(workers[0].demand, gpu_share=1.0), sizes=(len(workers),))
    return replace(submission, job=job, truth=replace(submission.truth, reference_size=len(workers), gpu_use=1.0))


def _graph(model: Model, gpus: int, sync: str, replicas: int, between_mib: float, sync_mib: float) -> TaskGraph:
    if model.structure:
        cut = Partitioning(gpus, model.structure, replicas, sync)
        share = max(LEAST_SHARE, round(model.busy / len(cut.layers), 2))
    else:
        cut, share = Partitioning(1, "sequential", gpus, sync), model.busy
    return task_graph(cut, replace(model.worker, gpu_share=share), ADDS_UP, round(between_mib, 1), round(sync_mib, 1))
