"""The workloads of Rotary (ICDE'23): queries with goals and deadlines (Table 3.1), training with criteria (Table 3.2).

What the paper gives: queries by class, accuracies, deadlines, Poisson arrivals 160 s apart, 20 cores; models, batch
sizes, optimisers, learning rates, criteria with their numbers and shares, 4 GPUs of 8 GB. What it leaves open:

* Queries. Accuracy and CPU time after each batch are measured on our own runtime, by default at scale factor 1
  (`scale`; `tpch_batches.json`, by `python -m benchmarks.query batches`). Until its next batch is done a query says
  what it said after the last one; one that can promise nothing before has its goal met when all is read. Live, a goal
  is refused where that is known beforehand (rows that are final, q16); Table 3.1 has these queries all the same. Spark
  took minutes where ours takes tenths of seconds, so all times are stretched by one factor: a `load` of 1 means that
  all queries to their last row would just keep the 20 cores busy. Speed by cores: the project's usual law.
  A query reports what its intervals promise, or what Rotary's envelope says (`rule`).
* Memory. Light, medium and heavy queries use 2, 4 and 6 GiB: running epochs of 60, 120 and 180 s (Figure 3.1a), as they
  are proportional to memory. It never runs out, as the paper chose its scale factor. To pause a query takes a second,
  and so does its start; with `disk_mib_s` its state is written and read at that rate beside. It is then of its memory
  what joins, groups and sorts hold by EXPLAIN of the measured peak: from nothing (q6) to all of it (q9, q10, q18).
* Training. Learning curves are of parametric families: each model has its own, which optimiser, learning rate and batch
  size make better or worse; none was measured. Seconds of an epoch by model are ours. All jobs are there at the start.
  With `curves`, a file of Pollux's validation curves, accuracies are measured ones instead: image models take those of
  cifar10 or imagenet, LSTMs of deepspeech2, bert of bert; the pairing is ours. Every other batch size is of past jobs
  only, so that no job's own curve is known; hyperparameters but the batch size were not varied, and are not told.
* Past jobs. Each query ran once before, in another order of its data; 60 other training jobs of Table 3.2 ran before,
  30 epochs each.
* `mixed` is both on one machine with 20 cores and 4 GPUs: training jobs arrive as queries do, and need 2.5 cores each.
  `half-aqp` and `half-dlt` are the same jobs, each kind on its own half of that machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from math import log10, sqrt
from random import Random
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hocket.model.criterion import Criterion, parse
from hocket.model.curve import Curve, Point
from hocket.model.event import PastJobsGiven
from hocket.model.job import ONE_GPU, Job, Kind
from hocket.model.past_job import PastJob
from hocket.model.resources import Demand, Node
from hocket.model.view import Costs
from hocket.workloads.errors import WorkloadError
from hocket.workloads.learning_curves import FAMILIES, by_epoch, read_accuracies
from hocket.workloads.speed import USUAL_LAW
from hocket.workloads.truth import Submission, Truth, Workload

CORES, GAP_S, QUERIES = 20, 160.0, 30
GPUS, GPU_MEM_MIB, TRAININGS = 4, 8192.0, 30
TRAINING_CORES = 2.5  # beside each GPU, where training and queries share a machine: half of its cores in all
_GIB = 1024.0
CLASSES = {
    "light": (1, 2, 4, 6, 10, 11, 12, 13, 14, 15, 16, 19, 22),
    "medium": (3, 5, 8, 17, 20),
    "heavy": (7, 9, 18, 21),
}
SHARES = {"light": 0.4, "medium": 0.3, "heavy": 0.3}
ACCURACIES = tuple(range(55, 100, 5))  # per cent
DEADLINES_S = {"light": range(360, 901, 60), "medium": range(1080, 2161, 120), "heavy": range(1440, 3061, 180)}
MEM_MIB = {"light": 2 * _GIB, "medium": 4 * _GIB, "heavy": 6 * _GIB}
RULES = ("intervals", "envelope")
WORKLOADS = ("aqp", "dlt", "mixed", "half-aqp", "half-dlt")
_STEPS = 20  # epochs of a query under policies that set no running epochs
_JUMP = 1e-4  # of these epochs, in which a curve goes from what was said before a batch to what is said after it
_QUERY_COSTS = Costs(start_s=1.0, checkpoint_s=1.0)
_TRAINING_COSTS = Costs(prepare_s=10.0, start_s=5.0, checkpoint_s=3.0, stop_s=2.0)
# Model → family of its curve, accuracy at best, seconds of an epoch at batch 32 or 256, millions of parameters.
MODELS: dict[str, tuple[str, float, float, float]] = {
    "inception": ("power", 0.93, 150.0, 24.0),
    "mobilenet": ("exponential", 0.90, 60.0, 4.2),
    "mobilenet-v2": ("exponential", 0.91, 70.0, 3.5),
    "squeezenet": ("exponential", 0.86, 40.0, 1.2),
    "shufflenet": ("exponential", 0.87, 60.0, 1.9),
    "shufflenet-v2": ("exponential", 0.89, 60.0, 2.3),
    "resnet": ("hill", 0.93, 100.0, 11.7),
    "resnext": ("hill", 0.94, 160.0, 25.0),
    "efficientnet": ("power", 0.94, 130.0, 5.3),
    "lenet": ("hill", 0.72, 15.0, 0.06),
    "vgg": ("power", 0.91, 90.0, 15.0),
    "alexnet": ("power", 0.80, 30.0, 61.0),
    "zfnet": ("power", 0.81, 35.0, 62.0),
    "densenet": ("hill", 0.94, 200.0, 8.0),
    "lstm": ("exponential", 0.84, 40.0, 6.0),
    "bi-lstm": ("exponential", 0.87, 70.0, 9.0),
    "bert": ("hill", 0.92, 400.0, 110.0),
}
_MEASURED_AS = {"lstm": ("deepspeech2",), "bi-lstm": ("deepspeech2",), "bert": ("bert",)}  # others are of images
LANGUAGE = ("lstm", "bi-lstm", "bert")
PRETRAINED = ("bert", "vgg", "resnet")
OPTIMIZERS = {"sgd": 0.01, "momentum": 0.01, "adam": 0.001, "adagrad": 0.01}  # and the learning rate that suits each
LEARNING_RATES = (0.1, 0.01, 0.001, 0.0001, 0.00001)
CHANGES = (5, 3, 1, 0.5, 0.3, 0.1, 0.05, 0.03, 0.01, 0.005, 0.003, 0.001)  # per cent
TARGETS = tuple(range(70, 93, 2))  # per cent
RUN_EPOCHS, FINE_TUNE_EPOCHS = (5, 10, 30, 50, 100), (1, 2, 3, 4, 5)
MOST_EPOCHS = (1, 5, 10, 15, 20, 25, 30)
CRITERIA = {"convergence": 0.6, "accuracy": 0.2, "runtime": 0.2}
_PAST = 60


class MeasuredBatch(Struct, frozen=True, array_like=True):
    """What was measured after a batch."""

    fraction: float
    cpu_s: float
    promised: float | None
    envelope: float | None
    true: float


class MeasuredQuery(Struct, frozen=True):
    """One query of the table; `orders` are orders of its data, of which the first has the times that count."""

    query: int
    mode: str
    peak_mib: float
    held_mib: float
    orders: tuple[tuple[MeasuredBatch, ...], ...]


class _Scale(Struct, frozen=True):
    scale: float
    queries: dict[str, MeasuredQuery]


@lru_cache(maxsize=1)
def _table() -> dict[float, dict[str, MeasuredQuery]]:
    data = resources.files("hocket.workloads").joinpath("tpch_batches.json").read_bytes()
    found = msgspec.json.decode(data, type=list[_Scale])
    every = sum(map(len, CLASSES.values()))
    return {each.scale: each.queries for each in found if len(each.queries) == every}  # Another is being measured.


def measured_scales() -> tuple[float, ...]:
    """The scale factors of TPC-H that the table has, the smallest first."""
    return tuple(sorted(_table()))


def measured_queries(scale: float = 1.0) -> dict[str, MeasuredQuery]:
    """The table of measured batches at a scale factor, by query. Raises WorkloadError."""
    if (found := _table().get(scale)) is None:
        known = ", ".join(f"{s:g}" for s in measured_scales())
        raise WorkloadError(
            f"scale must be one that was measured ({known}), not {scale:g}; "
            f"`python -m benchmarks.query batches --scale {scale:g}` measures it"
        )
    return found


def class_of(query: str) -> str:
    """light, medium or heavy."""
    number = int(query.removeprefix("q"))
    return next(name for name, numbers in CLASSES.items() if number in numbers)


def machine(which: str) -> tuple[Node, ...]:
    """The server of a workload."""
    gpus, cores = (0 if which.endswith("aqp") else GPUS), (0.0 if which == "dlt" else float(CORES))
    if which.startswith("half"):
        cores /= 2
    return (Node("server", gpus, "rtx2080" if gpus else "", GPU_MEM_MIB if gpus else 0.0, cores, 180 * _GIB),)


def rotary_workload(
    which: str = "aqp",
    seed: int = 0,
    load: float = 1.0,
    only: str = "",
    rule: str = "intervals",
    past: bool = True,
    trainings: int = TRAININGS,
    disk_mib_s: float = 0.0,
    curves: str = "",
    scale: float = 1.0,
) -> Workload:
    """Queries (`aqp`), training (`dlt`), or both on one machine (`mixed`).

    `only` takes one class of queries, or one kind of criterion; without `past`, nothing is known of past jobs. With
    `disk_mib_s`, a query that is paused writes its state at that rate, and reads it again. Queries behave as they were
    measured at that `scale` factor of TPC-H.
    """
    queries = _queries(seed, load, only if only in CLASSES else "", rule, scale) if not which.endswith("dlt") else []
    if disk_mib_s:
        queries = [_with_state(query, disk_mib_s, scale) for query in queries]
    learners = (
        _trainings(seed, only if only in CRITERIA else "", trainings, curves) if not which.endswith("aqp") else []
    )
    if which in ("mixed", "half-dlt"):  # Training comes as queries do.
        rng, at_s, spread = Random(f"{seed}/rotary/mixed"), 0.0, []
        for submission in learners:
            job = replace(submission.job, demand=Demand(1, TRAINING_CORES))
            spread.append(replace(submission, at_s=round(at_s, 1), job=job))
            at_s += rng.expovariate(1 / GAP_S)
        learners = spread
    given: list[PastJob] = []
    if past:
        given += _past_queries(load, rule, scale) if queries else []
        given += _past_trainings(curves) if learners else []
    changes = (PastJobsGiven(0.0, tuple(given)),) if given else ()
    submissions = sorted([*queries, *learners], key=lambda s: s.at_s)
    return Workload(f"rotary-{which}", tuple(submissions), machine(which), changes=changes)


# -- Table 3.1: queries -------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def stretch(load: float, scale: float = 1.0) -> float:
    """The factor on measured CPU times: a query of the mean work comes every GAP_S, for all cores."""
    mean_s = 0.0
    for name, numbers in CLASSES.items():
        times = [measured_queries(scale)[f"q{n}"].orders[0][-1].cpu_s for n in numbers]
        mean_s += SHARES[name] * sum(times) / len(times)
    return load * GAP_S * CORES / mean_s


def _queries(seed: int, load: float, only: str, rule: str, scale: float) -> list[Submission]:
    rng = Random(f"{seed}/rotary/aqp")
    classes = [only] * QUERIES if only else [c for c, share in SHARES.items() for _ in range(round(share * QUERIES))]
    rng.shuffle(classes)
    at_s, found = 0.0, []
    for n, name in enumerate(classes):
        query = f"q{rng.choice(CLASSES[name])}"
        accuracy, deadline_s = rng.choice(ACCURACIES), rng.choice(DEADLINES_S[name])
        orders = measured_queries(scale)[query].orders
        order = 0 if len(orders) < 3 else rng.choice((0, 2))  # Past queries have the other one.
        truth = query_truth(query, order, load, rule, scale)
        job = Job(
            f"{name}-{n + 1}-{query}.{order}", kind=Kind.QUERY, demand=Demand(cores=1.0),
            sizes=tuple(range(1, CORES + 1)), criterion=parse(f"acc >= {accuracy}% within {deadline_s}s"), model=query,
        )  # fmt: skip
        found.append(Submission(round(at_s, 1), job, truth))
        at_s += rng.expovariate(1 / GAP_S)
    return found


def _with_state(submission: Submission, disk_mib_s: float, scale: float) -> Submission:
    """The query with a state that takes time: it says so with each epoch, as queries do live."""
    truth, mem_mib = submission.truth, MEM_MIB[submission.job.id.partition("-")[0]]
    query = measured_queries(scale)[submission.job.model]
    state_mib = mem_mib * min(1.0, query.held_mib / query.peak_mib)
    takes_s = state_mib / disk_mib_s
    said = {"state_mib": state_mib, "process_mib": mem_mib, "write_s": takes_s, "read_s": takes_s}
    also = {name: Curve((Point(0.0, value), Point(float(_STEPS), value))) for name, value in said.items()}
    also["redo_s"] = Curve((Point(0.0, 0.0), Point(float(_STEPS), truth.run_s)))
    costs = replace(truth.costs, checkpoint_s=truth.costs.checkpoint_s + takes_s)
    return replace(submission, truth=replace(truth, costs=costs, load_s=takes_s, also=truth.also | also))


def query_truth(query: str, order: int, load: float, rule: str, scale: float = 1.0) -> Truth:
    """How a query behaves: what it reports by the work that it has done."""
    measured = measured_queries(scale)[query]
    batches, times = measured.orders[order], measured.orders[0]
    whole_s = times[-1].cpu_s
    done = [_STEPS * t.cpu_s / whole_s for t in times]
    said = [b.promised if rule == "intervals" else b.envelope for b in batches]
    accuracy = curve_of_batches(done, [0.0 if value is None else value for value in said])
    speed = USUAL_LAW.curve(tuple(range(1, CORES + 1)), 1)
    also = {"fraction": curve_of_batches(done, [b.fraction for b in batches])}
    return Truth(
        whole_s * stretch(load, scale), 1, speed, epochs=_STEPS, metric="acc", quality=accuracy, costs=_QUERY_COSTS,
        also=also,
    )  # fmt: skip


def curve_of_batches(done: Sequence[float], values: Sequence[float]) -> Curve:
    """What a query says by the work that it has done: nothing new before the next batch has ended; at first 0.

    Of batches that end together it says the last: the end of all work is not put off, or that would say less.
    """
    points, said = [Point(0.0, 0.0)], 0.0
    for end, value in zip(done, values, strict=True):
        x = round(max(end, _JUMP / 2), 6)
        if x - _JUMP > points[-1].x:
            points.append(Point(round(x - _JUMP, 6), said))
        if x - points[-1].x < _JUMP / 2:
            points.pop()
        points.append(Point(x, value))
        said = value
    return Curve(tuple(points))


def true_accuracy(query: str, order: int, fraction: float, scale: float = 1.0) -> float:
    """How accurate the answer of a query really is when it has read this share of its data."""
    points = [Point(0.0, 0.0), *(Point(b.fraction, b.true) for b in measured_queries(scale)[query].orders[order])]
    return Curve(tuple(points)).at(min(fraction, 1.0)).mean


def _past_queries(load: float, rule: str, scale: float) -> list[PastJob]:
    found = []
    for name, query in measured_queries(scale).items():
        order = query.orders[min(1, len(query.orders) - 1)]
        said = [(b.fraction, b.promised if rule == "intervals" else b.envelope) for b in order]
        points = tuple((fraction, value or 0.0) for fraction, value in said)
        unit_s = query.orders[0][-1].cpu_s * stretch(load, scale)
        found.append(PastJob(Kind.QUERY, name, {}, "acc", points, unit_s, MEM_MIB[class_of(name)]))
    return found


# -- Table 3.2: training ------------------------------------------------------------------------------------------


def _trainings(seed: int, only: str, count: int, curves: str) -> list[Submission]:
    rng = Random(f"{seed}/rotary/dlt")
    kinds = [only] * count if only else [k for k, share in CRITERIA.items() for _ in range(round(share * count))]
    rng.shuffle(kinds)
    found = []
    for n, kind in enumerate(kinds):
        model, traits = _drawn(rng)
        criterion, epochs = _criterion(kind, model, rng)
        epochs += 1  # Its process would go on: its criterion ends it.
        epoch_s = _epoch_s(model, traits)
        values = _learned(model, traits, epochs, rng)
        if curves:
            traits, values = _as_measured(model, traits, epochs, curves, rng, of_past=False)
        truth = Truth(
            round(epochs * epoch_s, 3), epochs=epochs, metric="acc", quality=by_epoch(values),
            costs=_TRAINING_COSTS,
        )  # fmt: skip
        job = Job(f"{kind}-{n + 1}-{model}", demand=ONE_GPU, criterion=criterion, model=model, traits=traits)
        found.append(Submission(0.0, job, truth))
    return found


def _drawn(rng: Random) -> tuple[str, dict[str, float | str]]:
    """A model with its hyperparameters."""
    model = rng.choice(sorted(MODELS))
    is_language = model in LANGUAGE
    data = rng.choice(("ud-treebank", "movie-reviews")) if is_language else "cifar10"
    batch = rng.choice((32, 64, 128, 256) if is_language else (2, 4, 8, 16, 32))
    traits: dict[str, float | str] = {
        "dataset": data, "optimizer": rng.choice(sorted(OPTIMIZERS)), "batch_size": float(batch),
        "learning_rate": rng.choice(LEARNING_RATES), "parameters": MODELS[model][3] * 1e6,
    }  # fmt: skip
    return model, traits


def _criterion(kind: str, model: str, rng: Random) -> tuple[Criterion, int]:
    """With the epochs that it takes at most."""
    most = rng.choice(MOST_EPOCHS)
    within = f"within {most} epoch{'' if most == 1 else 's'}"
    if kind == "convergence":
        return parse(f"acc changes < {rng.choice(CHANGES):g}% {within}"), most
    if kind == "accuracy":
        return parse(f"acc >= {rng.choice(TARGETS)}% {within}"), most
    fine_tuned = model in PRETRAINED and rng.random() < 0.5
    most = rng.choice(FINE_TUNE_EPOCHS if fine_tuned else RUN_EPOCHS)
    return parse(f"for {most} epoch{'' if most == 1 else 's'}"), most


def _learned(model: str, traits: dict[str, Any], epochs: int, rng: Random) -> list[float]:
    """Accuracy after each epoch: worse and slower, the farther the learning rate is from what suits the optimiser."""
    family, best = MODELS[model][:2]
    off = abs(log10(traits["learning_rate"] / OPTIMIZERS[traits["optimizer"]]))
    final = best - 0.06 * off**1.5 + rng.uniform(-0.02, 0.02)
    start = 0.5 if traits["dataset"] == "movie-reviews" else 0.1
    final = max(final, start + 0.05)
    horizon = 30.0 * (1.0 + 0.5 * off)
    missing = [FAMILIES[family](k / horizon) for k in range(1, epochs + 1)]
    noise = 0.004
    return [round(min(1.0, final - (final - start) * (m + rng.gauss(0.0, noise))), 5) for m in missing]


def _as_measured(
    model: str, traits: dict[str, Any], epochs: int, curves: str, rng: Random, *, of_past: bool
) -> tuple[dict[str, float | str], list[float]]:
    """Traits and accuracies of one of the measured runs for such a model; after its end it stays as it is."""
    app = rng.choice(_MEASURED_AS.get(model, ("cifar10", "imagenet")))
    runs = read_accuracies(curves).get(app, ())
    if len(runs) < 2:
        raise WorkloadError(f"{curves}: must have curves of '{app}' at two batch sizes at least, and has {len(runs)}")
    size, values = rng.choice(runs[of_past::2])
    told: dict[str, float | str] = {
        "dataset": app, "batch_size": float(size), "parameters": traits["parameters"]
    }  # fmt: skip
    return told, [values[min(k, len(values) - 1)] for k in range(epochs)]


def _epoch_s(model: str, traits: dict[str, Any]) -> float:
    """Small batches keep a GPU half busy: an epoch takes longer by the root of how much smaller they are."""
    usual = 256.0 if model in LANGUAGE else 32.0
    return MODELS[model][2] * sqrt(usual / float(traits["batch_size"]))


@lru_cache(maxsize=2)
def _past_trainings(curves: str = "") -> tuple[PastJob, ...]:
    rng = Random("rotary/past")
    found = []
    for _ in range(_PAST):
        model, traits = _drawn(rng)
        epoch_s, batch_size = _epoch_s(model, traits), float(traits["batch_size"])
        values = _learned(model, traits, 30, rng)
        if curves:
            traits, values = _as_measured(model, traits, 30, curves, rng, of_past=True)
        points = tuple((float(k), v) for k, v in enumerate(values, 1))
        mem_mib = 600.0 + 16.0 * MODELS[model][3] + 20.0 * batch_size
        found.append(PastJob(Kind.TRAINING, model, traits, "acc", points, epoch_s, mem_mib))
    return tuple(found)
