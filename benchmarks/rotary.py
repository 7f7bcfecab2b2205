"""How well Rotary's estimators hold on data that they were not fitted to: `python -m benchmarks.rotary [CURVES.csv …]`.

TEE: each model is held out whole, with all its batch sizes. After 0, 1, 2, 3, 5, 8 and 12 epochs it is asked when the
metric will reach 50, 80, 95 and 110 % of the way that it goes, from the curves of the other models alone, and so is
the correction of its probabilities. An 80 % interval is from 10 to 90 % probability; since epochs are whole numbers,
the truth lies between two probabilities, and counts as inside by the share of these that is. Models are those of the
files, and drawn ones of the parametric families. Query error: each order of each query in the table of measured
batches, asked after each batch how much it must read. TME: networks whose memory is computed from their layers, each
model held out whole. Query memory: each query held out, by the law fitted to the others. `--json` prints one object,
`--decisions` measures one decision of each policy with 1,000 live jobs instead, `--overhead JOURNAL` what estimators
took in a recorded run, live or simulated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from math import exp, log
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from benchmarks.convergence import read, wilson
from benchmarks.machine import Machine, machine, table
from benchmarks.query.batches import Batch, MeasuredBatches, scales_of
from hocket.control.journal import open_to_read
from hocket.estimators import completion, query_error, query_progress, training_epochs, unit_time
from hocket.estimators import training_memory as training_memory_estimator
from hocket.estimators.completion import between, corrected, with_past
from hocket.estimators.query_memory import fitted
from hocket.estimators.training_memory import memory_mib, sufficient
from hocket.model.criterion import Goal
from hocket.model.event import EpochEnded, JobSubmitted, PastJobsGiven
from hocket.model.job import Job
from hocket.model.past_job import PastJob, PastJobs, most_similar
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.policies import find
from hocket.policies.kit import decision_cache
from hocket.policies.registry import BoundPolicy
from hocket.reports.account import account
from hocket.service.history_fold import HistoryFold
from hocket.testing.harness import Harness
from hocket.workloads.learning_curves import FAMILIES, Learner, learning
from hocket.workloads.rotary import machine as machine_of
from hocket.workloads.rotary import rotary_workload

SEEN = (0, 1, 2, 3, 5, 8, 12)
GOALS = (0.5, 0.8, 0.95, 1.1)
LOW, HIGH = 0.1, 0.9
DRAWN = 30  # models of parametric families
_EPOCHS = 60  # of a measured curve that are taken


class Coverage(Struct, frozen=True):
    """How often an interval held the truth."""

    what: str
    held: float  # the share of questions whose 80 % interval held the truth
    questions: int
    models: int  # or queries
    by_model: dict[str, float]
    uncorrected: float | None = None


class Sufficient(Struct, frozen=True):
    """How an estimate of memory did."""

    what: str
    below: float  # share of cases in which it was less than was used
    median_ratio: float  # of estimated over used memory
    cases: int
    models: int


class Measured(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    coverage: list[Coverage]
    memory: list[Sufficient]


def inside(low: float, high: float) -> float:
    """The share of what lies between two probabilities that is within the interval."""
    if high <= low:
        return float(LOW <= low <= HIGH)
    return max(0.0, min(high, HIGH) - max(low, LOW)) / (high - low)


# -- TEE --------------------------------------------------------------------------------------------------------


def held_out(jobs: Sequence[PastJob], name: str) -> Coverage:
    """Every model by all the others."""
    models = sorted({job.model for job in jobs})
    by_model: dict[str, float] = {}
    raw: list[float] = []
    count = 0
    for model in models:
        past = with_past(PastJobs(), [msgspec.structs.replace(j, foretold=()) for j in jobs if j.model != model])
        found = [pair for job in jobs if job.model == model for pair in _asked(job, past)]
        by_model[model] = sum(c for c, _r in found) / len(found)
        raw += [r for _c, r in found]
        count += len(found)
    return Coverage(name, sum(by_model.values()) / len(models), count, len(models), by_model, sum(raw) / len(raw))


def _asked(job: PastJob, past: PastJobs) -> list[tuple[float, float]]:
    """Of each question about a job, how far its interval holds the truth: corrected, and as estimated."""
    like = Job("held-out", kind=job.kind, model=job.model, traits=job.traits)
    similar = most_similar(like, past.jobs, 4 * training_epochs.MOST_ALIKE)
    curves = tuple((alike, p.points) for alike, p in similar if p.metric == job.metric)[: training_epochs.MOST_ALIKE]
    rises = job.points[-1][1] > job.points[0][1]
    best = max(v for _k, v in job.points) if rises else min(v for _k, v in job.points)
    last = int(job.points[-1][0])
    found = []
    for share in GOALS:
        goal = Goal(job.metric, ">=" if rises else "<=", job.points[0][1] + share * (best - job.points[0][1]))
        met = next((k for k, v in job.points if goal.met_by(v)), None)
        for seen in SEEN:
            if seen >= last - 1 or (met is not None and seen >= met):
                continue
            chances = training_epochs.chances(job.points[:seen], curves, goal, last)
            if chances is not None:
                sure = corrected(chances, past.correction)
                found.append((inside(*between(sure, met)), inside(*between(chances, met))))
    return found


def measured_curves(paths: Sequence[str]) -> list[PastJob]:
    """The curves of the files; their metrics as shares."""
    found = []
    for curve in read(*paths):
        values = [v / 100 if max(curve.values) > 1 else v for v in curve.values[:_EPOCHS]]
        traits: dict[str, float | str] = {"dataset": curve.model, "batch_size": float(curve.batch_size)}
        metric = "acc" if curve.rises else "error"
        found.append(PastJob(model=curve.model, traits=traits, metric=metric, points=_points(values)))
    return found


def drawn_curves(seed: int = 0, models: int = DRAWN) -> list[PastJob]:
    """Two curves each of models of the parametric families."""
    rng, found = Random(f"{seed}/rotary"), []
    for n in range(models):
        learner = Learner(rng.choice(sorted(FAMILIES)), rng.uniform(0.05, 0.4), rng.uniform(0.6, 0.95))
        epochs = rng.choice((10, 20, 30, 50))
        for variant in range(2):
            values = [p.mean for p in learning(learner, epochs, seed + n, variant).accuracy.points]
            traits: dict[str, float | str] = {"batch_size": float(32 << variant)}
            found.append(PastJob(model=f"model-{n}", traits=traits, metric="acc", points=_points(values)))
    return found


def _points(values: Sequence[float]) -> tuple[tuple[float, float], ...]:
    return tuple((float(k), round(v, 6)) for k, v in enumerate(values, 1))


# -- queries ----------------------------------------------------------------------------------------------------


def query_coverage(measured: MeasuredBatches) -> Coverage:
    """How much of its data each query must read, asked after each batch; the other queries are its past."""
    queries = measured.queries
    constants = {}
    for name, query in queries.items():
        answers = _answers(query.orders[0])
        if answers:
            constants[name] = query_error.constant(answers).mean
    by_query: dict[str, float] = {}
    count = 0
    for name in constants:
        past = query_error.from_past([(0.3, c) for other, c in constants.items() if other != name])
        found = []
        for order in queries[name].orders:
            answers = _answers(order)
            for error in (0.05, 0.1, 0.2, 0.3):
                shares = [b.fraction for b in order]
                met = next(i for i, b in enumerate(order) if 1.0 - (b.promised or 0.0) <= error)
                for i in range(-1, met):
                    known = [a for a in answers if i >= 0 and a[0] <= shares[i]]
                    chances = query_error.chances(
                        query_error.constant(known, past), error, shares[i] if i >= 0 else 0.0
                    )
                    if chances is not None:
                        # It is met somewhere between the batch before and the one at which it is noticed.
                        before = shares[met - 1] if met else 0.0
                        found.append(
                            inside(chances.at(max(before, chances.points[0].x)).mean, chances.at(shares[met]).mean)
                        )
        by_query[name] = sum(found) / len(found)
        count += len(found)
    return Coverage(
        f"query error (SF {measured.scale:g})", sum(by_query.values()) / len(by_query), count, len(by_query), by_query
    )


def _answers(order: Sequence[Batch]) -> list[tuple[float, float]]:
    return [
        (b.fraction, 1.0 - p) for b in order if (p := b.promised) is not None and 0 <= p < 1
    ]  # fmt: skip


def query_memory(measured: MeasuredBatches) -> list[Sufficient]:
    """Each query by the law fitted to the others."""
    queries = list(measured.queries.values())
    ratios, surely = [], []
    for query in queries:
        law = fitted([(q.held_mib, q.peak_mib) for q in queries if q is not query])
        estimate = law.of(query.held_mib)
        ratios.append(estimate.mean / query.peak_mib)
        surely.append(sufficient(estimate) / query.peak_mib)
    return [
        _sufficient(f"query memory (SF {measured.scale:g})", ratios, len(queries)),
        _sufficient(f"query memory (SF {measured.scale:g}), with its uncertainty", surely, len(queries)),
    ]


# -- TME --------------------------------------------------------------------------------------------------------


def training_memory(seed: int = 0, models: int = 20) -> list[Sufficient]:
    """Multi-layer perceptrons of random layers, trained with Adam: parameters, gradients, moments and activations.

    What they use is computed, not measured: a base of 400 MiB, and 4 bytes a number.
    """
    rng = Random(f"{seed}/memory")
    known: list[PastJob] = []
    for n in range(models):
        widths = [rng.choice((256, 512, 1024, 2048, 4096)) for _ in range(rng.randint(3, 12))]
        parameters = float(sum(a * b + b for a, b in zip([784, *widths], [*widths, 10], strict=True)))
        for batch in (32.0, 64.0, 128.0, 256.0):
            activations = batch * 2.0 * sum(widths)
            mem_mib = 400.0 + 4.0 * (4.0 * parameters + activations * rng.uniform(1.0, 1.3)) / (1 << 20)
            traits: dict[str, float | str] = {"dataset": "mnist", "batch_size": batch, "parameters": parameters}
            known.append(PastJob(model=f"mlp-{n}", traits=traits, mem_mib=mem_mib))
    ratios, surely = [], []
    for job in known:
        past = [p for p in known if p.model != job.model]
        estimate = memory_mib(Job("held-out", model=job.model, traits=job.traits), past)
        assert estimate is not None
        ratios.append(estimate.mean / job.mem_mib)
        surely.append(sufficient(estimate) / job.mem_mib)
    return [
        _sufficient("training memory (TME), padded by 5 %", ratios, models),
        _sufficient("training memory, with its uncertainty", surely, models),
    ]


def _sufficient(what: str, ratios: Sequence[float], models: int) -> Sufficient:
    below = sum(r < 1 for r in ratios) / len(ratios)
    return Sufficient(what, below, exp(sorted(map(log, ratios))[len(ratios) // 2]), len(ratios), models)


# -- decisions ----------------------------------------------------------------------------------------------------


class Decision(Struct, frozen=True):
    """How long one decision takes, in milliseconds of CPU time."""

    policy: str
    median_ms: float
    cold_ms: float  # without anything kept from decisions before


def decisions(jobs: int = 1000, times: int = 20) -> list[Decision]:
    """One machine of Rotary's, and half training, half queries on it and waiting: job after job ends an epoch.

    Each decision is made once, as it comes: what a policy keeps is from the decisions before it.
    """
    found = []
    for name in ("rotary", "rotary_dlt", "rotary_aqp", "relaqs", "laf", "srf", "bcf"):
        took: list[float] = []
        bound = _timed(find(name).bound(), took)
        harness = Harness.of(bound, machine_of("mixed"))
        workload = rotary_workload("mixed")
        harness.tell(*(replace(change, at_s=0.0) for change in workload.changes if isinstance(change, PastJobsGiven)))
        submissions = workload.submissions
        made = [submissions[n % len(submissions)].job for n in range(jobs)]
        harness.tell(*(JobSubmitted(0.0, replace(job, id=f"{job.id}-{n}")) for n, job in enumerate(made)))
        harness.settle()
        took.clear()
        for n in range(times):
            placed = [entry[-1] for entry in harness.snapshot.placed]
            job_id = placed[n % len(placed)]
            epoch = harness.snapshot.jobs[job_id].epoch + 1
            acc = (0.1, 0.25, 0.4)[epoch % 3]  # neither good enough for a goal nor the same again
            harness.tell(EpochEnded(60.0 + n, job_id, epoch, {"acc": acc, "fraction": 0.1 + 0.001 * n}))
            harness.settle()
        assert len(harness.snapshot.jobs) == jobs
        median_ms = sorted(took)[len(took) // 2]
        took.clear()
        decision_cache.clear()
        bound.decide(harness.asked[-1][0])
        found.append(Decision(name, median_ms, took[0]))
    return found


def _timed(bound: BoundPolicy, took: list[float]) -> BoundPolicy:
    """The policy, which notes how long each decision takes, in milliseconds of CPU time."""

    def decide(snapshot: Snapshot) -> Plan:
        began_s = process_time()
        plan = bound.decide(snapshot)
        took.append(1000.0 * (process_time() - began_s))
        return plan

    return replace(bound, decide=decide)


# -- overhead -----------------------------------------------------------------------------------------------------


class Overhead(Struct, frozen=True):
    """What an estimator took in all of a run."""

    what: str
    calls: int
    cpu_s: float
    of_run: float  # share of the time that all jobs ran


_ESTIMATORS: dict[str, tuple[tuple[Any, str], ...]] = {
    "epochs to a goal (TEE)": ((training_epochs, "chances"), (training_epochs, "as_printed")),
    "training memory (TME)": ((training_memory_estimator, "memory_mib"),),
    "time of a unit (TTR)": ((unit_time, "noted"), (unit_time, "unit_s"), (unit_time, "from_past")),
    "error of a query": ((query_error, "constant"), (query_error, "chances"), (query_error, "from_past")),
    "progress of a query": ((query_progress, "progress"),),
    "all beliefs, by reports": ((completion, "at_submission"), (completion, "after_report")),
    "past jobs, as they end or are given": ((completion, "with_past"),),
}


def overhead(path: str) -> tuple[list[Overhead], float, int]:
    """A journal folded again, with the CPU time of each estimator; how long its jobs ran, and how many there were."""
    spent: dict[str, list[float]] = {what: [] for what in _ESTIMATORS}
    for what, functions in _ESTIMATORS.items():
        for module, name in functions:
            setattr(module, name, _spending(getattr(module, name), spent[what]))
    with closing(open_to_read(path)) as journal:
        run = account(journal.header, journal)
        fold = HistoryFold(journal.header, journal.name)
        for number, cycle in enumerate(journal, 1):
            fold.fold(number, cycle)
    ran_s = sum(job.ran_s for job in run.jobs)
    found = [Overhead(what, len(took), sum(took), sum(took) / ran_s) for what, took in spent.items()]
    return found, ran_s, len(run.jobs)


def _spending(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    def timed(*args: Any) -> Any:
        began_s = process_time()
        found = function(*args)
        spent.append(process_time() - began_s)
        return found

    return timed


# -- all of it --------------------------------------------------------------------------------------------------


def measured(paths: Sequence[str], batches: Path | None, command: str) -> Measured:
    """All that can be measured with these files."""
    coverage = [held_out(drawn_curves(), "TEE, parametric families")]
    if paths:
        coverage.insert(0, held_out(measured_curves(paths), "TEE, measured curves"))
    memory = training_memory()
    for scale in scales_of(batches) if batches is not None else ():
        coverage.append(query_coverage(scale))
        memory += query_memory(scale)
    return Measured(command, machine(), coverage, memory)


def text(found: Measured) -> str:
    """One page."""
    here = found.machine
    lines = [found.command, f"{here.cores} cores, Python {here.python}, {here.date}", ""]
    rows = []
    for c in found.coverage:
        low, high = wilson(round(c.held * c.models), c.models)
        spread = sorted(c.by_model.values())
        rows.append(
            (
                c.what, f"{c.held:.1%}", "-" if c.uncorrected is None else f"{c.uncorrected:.1%}", str(c.questions),
                str(c.models), f"{low:.0%} to {high:.0%}", f"{spread[0]:.0%} to {spread[-1]:.0%}",
            )
        )  # fmt: skip
    titles = ("80 % intervals", "hold", "uncorrected", "questions", "models", "so few: 95 %", "by model")
    lines += [*table(titles, rows), ""]
    rows = [(m.what, f"{m.below:.1%}", f"{m.median_ratio:.2f}", str(m.cases), str(m.models)) for m in found.memory]
    lines += table(("memory", "less than used", "estimated/used", "cases", "models"), rows)
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Measure, and print one page or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rotary", description=(__doc__ or "").split(":")[0])
    parser.add_argument("curves", nargs="*", help="a CSV with the columns app, batch_size and metric, a row an epoch")
    parser.add_argument("--batches", type=Path, help="the table of `python -m benchmarks.query batches`")
    parser.add_argument("--decisions", action="store_true", help="how long a decision takes with 1,000 jobs, instead")
    parser.add_argument("--overhead", metavar="JOURNAL", help="what the estimators took in a recorded run, instead")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    if chosen.decisions:
        rows = [(d.policy, f"{d.median_ms:.1f}", f"{d.cold_ms:.1f}") for d in decisions()]
        print("\n".join(table(("policy", "median, CPU ms", "nothing kept"), rows)))
        return
    if chosen.overhead:
        rows, ran_s, jobs = overhead(chosen.overhead)
        shown = [(o.what, f"{o.calls:,}", f"{1000 * o.cpu_s:.1f}", f"{o.of_run:.4%}") for o in rows]
        print("\n".join(table(("estimator", "calls", "CPU ms", "of run time"), shown)))
        print(f"\n{jobs} jobs, which ran for {ran_s:.0f} s joined_records")
        return
    named = [*(Path(c).name for c in chosen.curves), *(["--batches", chosen.batches.name] if chosen.batches else [])]
    found = measured(chosen.curves, chosen.batches, " ".join(["python -m benchmarks.rotary", *named]))
    print(msgspec.json.encode(found).decode() if chosen.json else text(found))


if __name__ == "__main__":
    main(sys.argv[1:])
