"""The built-in workload: a working day of three teams on four machines of four GPUs. It needs no file.

It has what makes policies differ: short jobs behind long ones, jobs that can grow and shrink, deadlines,
accuracy goals (one of them cannot be reached), quotas, and switching costs.
"""

from __future__ import annotations

from math import log
from random import Random

from msgspec import Struct

from hocket.model.criterion import parse
from hocket.model.job import Job, Owner
from hocket.model.view import Costs
from hocket.workloads.cluster import parse_cluster
from hocket.workloads.learning_curves import saturating
from hocket.workloads.speed import ScalingLaw
from hocket.workloads.truth import Submission, Truth, Workload

CLUSTER = "4x4"
OVER_S = 6 * 3600.0
OWNERS = (Owner("vision", weight=2.0), Owner("language", max_gpus=12), Owner("interns", max_gpus=8))
COSTS = Costs(prepare_s=15.0, start_s=5.0, checkpoint_s=4.0, stop_s=1.0)


class Family(Struct, frozen=True):
    """Jobs of one sort."""

    model: str
    owner: str
    jobs: int
    sizes: tuple[int, ...]
    reference_size: int
    median_s: float  # of the run time at the reference size
    serial: float = 0.05  # the law's parameter
    epochs: int = 0
    final: float = 0.0  # accuracy
    criterion: str = ""
    deadline: float = 0.0  # times the run time; 0 for none


FAMILIES = (
    Family("notebook", "interns", 20, (1,), 1, 400.0),
    Family("mlp", "interns", 8, (1, 2), 1, 900.0, epochs=10, final=0.88, criterion="acc >= 85%"),
    Family("resnet", "vision", 12, (1, 2, 4, 8), 2, 3000.0, 0.04, 30, 0.94, "acc >= 92% within 2h"),
    Family("detector", "vision", 6, (2, 4), 4, 3600.0, 0.08, deadline=2.5),
    Family("tagger", "language", 8, (1, 2, 4), 1, 2400.0, 0.06, 20, 0.91, "acc changes < 0.002"),
    Family("translator", "language", 5, (4, 8), 4, 5400.0, 0.03, 40, 0.80, "acc >= 85% within 40 epochs"),
    Family("pretrain", "language", 2, (8,), 8, 5400.0, deadline=3.0),
)


def demo(seed: int = 0) -> Workload:
    """61 jobs over six hours."""
    rng = Random(f"{seed}/demo")
    submissions = [
        _submission(f"{family.model}-{n + 1}", family, rng) for family in FAMILIES for n in range(family.jobs)
    ]
    return Workload("demo", tuple(sorted(submissions, key=lambda s: s.at_s)), parse_cluster(CLUSTER), OWNERS)


def _submission(job_id: str, family: Family, rng: Random) -> Submission:
    at_s = round(rng.random() * OVER_S, 1)
    run_s = round(rng.lognormvariate(log(family.median_s), 0.4), 1)
    final = family.final + rng.uniform(-0.01, 0.01)
    job = Job(
        job_id,
        family.owner,
        sizes=family.sizes,
        deadline_s=round(run_s * family.deadline, 1) or None,
        criterion=parse(family.criterion) if family.criterion else None,
        warm=True,
        model=family.model,
    )
    truth = Truth(
        run_s,
        family.reference_size,
        ScalingLaw("law", family.serial).curve(family.sizes, family.reference_size),
        spread=0.9,
        epochs=family.epochs,
        metric="acc" if family.epochs else "",
        quality=saturating(family.epochs, 0.1, final, family.epochs / 8) if family.epochs else None,
        costs=COSTS,
    )
    return Submission(at_s, job, truth)
