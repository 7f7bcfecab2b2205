"""Generated workloads: Poisson arrivals, arrivals spread over a window, or all at once.

Jobs are drawn from a mixture that resembles Philly's in shape: 1, 2, 4 or 8 GPUs with weights 87, 2, 5 and 6
(Philly has 87, 2, 5, 5 and 1 % larger), run times lognormal. Philly's own have a median of 1,321 s and a
sigma of about 2.5, with which a few jobs have nearly all the work; the default is a milder 1.5. The same
seed gives the same jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import log
from random import Random

from msgspec import Struct

from hocket.model.criterion import Goal
from hocket.model.job import Job
from hocket.workloads.errors import shown
from hocket.workloads.fields import TEXT, BrokenRuleError, Fields, Number, Seconds, Whole
from hocket.workloads.learning_curves import saturating
from hocket.workloads.selection import elastic_sizes
from hocket.workloads.speed import USUAL_LAW
from hocket.workloads.submission import only
from hocket.workloads.truth import Submission, Truth, Workload

PHILLY_GPUS = ((1, 87.0), (2, 2.0), (4, 5.0), (8, 6.0))
LONGEST_S = 30 * 86400.0  # upper limit on run times, since a lognormal distribution has none
SHARE = Number(high=1.0)
MAX_JOBS = 2_000_000


class GeneratorOptions(Struct, frozen=True):
    """What generated jobs are like."""

    jobs: int = 200
    gpus: tuple[tuple[int, float], ...] = PHILLY_GPUS  # GPUs and the weight of jobs that have them
    median_s: float = 1200.0
    sigma: float = 1.5
    owners: int = 0  # how many, named team1, team2, …; 0 for none
    elastic: bool = False  # powers of two up to twice its size are allowed, at speeds of law:0.05
    deadlines: float = 0.0  # share of jobs that have one: 1.5 to 4 times the run time
    epochs: int = 0  # of every job, with an accuracy that grows along them
    goals: float = 0.0  # share of jobs that end at an accuracy; about one in six of these never gets there


def poisson(wanted: GeneratorOptions, gap_s: float, seed: int = 0) -> Workload:
    """Independent arrivals, `gap_s` apart on average."""
    rng = Random(f"{seed}/arrivals")
    gaps = (rng.expovariate(1.0) * gap_s for _ in range(wanted.jobs))
    return _workload("poisson", wanted, list(accumulate(gaps)), seed)


def window(wanted: GeneratorOptions, over_s: float, seed: int = 0) -> Workload:
    """Exponential gaps, stretched so that the first job comes at 0 and the last at `over_s`."""
    rng = Random(f"{seed}/arrivals")
    times = list(accumulate([0.0, *(rng.expovariate(1.0) for _ in range(wanted.jobs - 1))]))
    scale = over_s / times[-1] if times[-1] else 0.0
    return _workload("window", wanted, [t * scale for t in times], seed)


def burst(wanted: GeneratorOptions, seed: int = 0) -> Workload:
    """All at once."""
    return _workload("burst", wanted, [0.0] * wanted.jobs, seed)


def read_generator_options(options: Fields) -> GeneratorOptions:
    """The settings in these options. Does not call `finish`: arrivals have options of their own."""
    wanted = GeneratorOptions(
        jobs=options.read("jobs", Whole(low=1, high=MAX_JOBS), GeneratorOptions().jobs),
        gpus=_mixture(options),
        median_s=options.read("run", Seconds(above=True), GeneratorOptions().median_s),
        sigma=options.read("sigma", Number(high=5.0), GeneratorOptions().sigma),
        owners=options.read("owners", Whole(high=1000), 0),
        elastic=options.flag("elastic"),
        deadlines=options.read("deadlines", SHARE, 0.0),
        epochs=options.read("epochs", Whole(high=1000), 0),
        goals=options.read("goals", SHARE, 0.0),
    )
    if wanted.goals and not wanted.epochs:
        options.fail("goals", f"must come with epochs from 1 up, not {wanted.goals:g}")
    return wanted


def _mixture(options: Fields) -> tuple[tuple[int, float], ...]:
    """`1:70;2:20;4:10`: GPUs and weights; a weight may be left out."""
    parts = options.many("gpus", TEXT, limit=100)
    mixture = []
    for part in parts:
        gpus, colon, weight = part.partition(":")
        try:
            mixture.append((Whole(low=1).of_text(gpus), Number().of_text(weight) if colon else 1.0))
        except BrokenRuleError:
            options.fail("gpus", f"must be as 1:70;2:20;4:10, GPUs and weights, not {shown(';'.join(parts))}")
    if parts and not sum(weight for _gpus, weight in mixture):
        options.fail("gpus", f"must have a weight above 0, not {shown(';'.join(parts))}")
    return tuple(mixture) or PHILLY_GPUS


def _workload(name: str, wanted: GeneratorOptions, times: Sequence[float], seed: int) -> Workload:
    rng = Random(f"{seed}/jobs")
    digits = len(str(wanted.jobs - 1))
    jobs = (_job(f"j{n:0{digits}d}", wanted, rng) for n in range(wanted.jobs))
    submissions = (Submission(round(at_s, 3), *job) for at_s, job in zip(times, jobs, strict=True))
    return Workload(name, tuple(submissions))


def _job(job_id: str, wanted: GeneratorOptions, rng: Random) -> tuple[Job, Truth]:
    """One job. Every job draws all its random numbers, so that an option changes nothing else."""
    gpus = rng.choices([g for g, _w in wanted.gpus], [w for _g, w in wanted.gpus])[0]
    run_s = round(min(max(rng.lognormvariate(log(wanted.median_s), wanted.sigma), 1.0), LONGEST_S), 3)
    owner, late, goal, final, ease = (rng.random() for _ in range(5))
    final = 0.70 + 0.25 * final
    sizes = elastic_sizes(gpus) if wanted.elastic else only(gpus)
    job = Job(
        job_id,
        f"team{1 + int(owner * wanted.owners)}" if wanted.owners else "",
        sizes=sizes,
        deadline_s=round(run_s * (1.5 + 2.5 * ease), 3) if late < wanted.deadlines else None,
        # From 80 % of the final accuracy up to 2 % beyond it; the curve ends 1.5 % short of it.
        criterion=Goal("acc", ">=", round(final * (0.8 + 0.22 * ease), 2), percent=True)
        if goal < wanted.goals
        else None,
    )
    truth = Truth(
        run_s,
        gpus,
        USUAL_LAW.curve(sizes, gpus) if wanted.elastic else None,
        epochs=wanted.epochs,
        metric="acc" if wanted.epochs else "",
        quality=saturating(wanted.epochs, 0.1, final, wanted.epochs / 6) if wanted.epochs else None,
    )
    return job, truth
