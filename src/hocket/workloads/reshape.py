"""The workloads of the Reshape paper (SC'20): Tables VI and VII, four workloads on two servers of eight GPUs.

What the paper gives: the job types, how many jobs, exponential arrivals over 11,000 s, 1 epoch of ImageNet or 10 of
CIFAR-10 and MNIST, jobs that stay on one server (TensorFlow's MirroredStrategy). What it leaves open is fixed here:

* In two readings (`READINGS`), for what the paper says contradicts itself:
  `introduction`: 1.7 and 2.4 times as fast on two and four GPUs, as the introduction says of ResNet; at eight as the
  law through the latter goes on. An epoch of ImageNet takes one V100 as long as Gavel measured for ResNet-50 at batch
  size 64.
  `table-iv`: job type 0, ResNet-18 at batch size 64, takes a V100 0.18 s an iteration, so an epoch of ImageNet 3,603 s;
  and 0.14 s on two, so they are 1.29 times as fast, and more GPUs as the law through that goes on. (Were 64 images the
  share of each GPU, two were 2.6 times as fast as one.)
* Other models take in proportion to the operations of a forward pass that their papers state. The two small ones go at
  the speed that Gavel measured for ResNet-18 on CIFAR-10. P100 as in Table IV; K80 as Gavel measured it for ResNet-50.
* Costs of switching. Of the case study: a cold start takes 174 s, a resize by sidecar 32 s (27 down, 37 up), one by
  termination 204 s down and 242 s up. With `table-iv` termination costs what it costs to add GPUs, for it never removes
  any: 242 s. With `introduction` all approaches have the same terms, which is kinder to termination (184 s). Both are
  hard on newcomers that are prepared early (184 s, where the paper has 110).
"""

from __future__ import annotations

from itertools import accumulate
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.criterion import Goal
from hocket.model.curve import Curve, Point
from hocket.model.job import Job
from hocket.model.resources import Node
from hocket.model.view import Costs
from hocket.workloads.gavel import GavelSpeeds
from hocket.workloads.learning_curves import saturating
from hocket.workloads.truth import Submission, Truth, Workload

OVER_S = 11_000.0
SIZES = (1, 2, 4, 8)  # the optional numbers of GPUs of Table III's larger jobs
COSTS = Costs(prepare_s=152.0, start_s=22.0, checkpoint_s=5.0, stop_s=5.0)
TERMINATION = Costs(prepare_s=152.0, start_s=22.0, checkpoint_s=5.0, stop_s=63.0)  # 242 s from one step to the next
KINDS = {"v100": 1.0, "p100": 0.18 / 0.25, "k80": 0.619 / 4.395}
IMAGENET = 1_281_167  # images
SMALL_IMAGES_PER_S = 10.3 * 256  # ResNet-18 on CIFAR-10, one V100
REPORTS = 20  # how often a job of the fourth workload says its accuracy
TOP5 = 0.5  # final accuracy; the distance to it halves in every quarter of the run


class ReshapeReading(Struct, frozen=True):
    """What is taken for what the paper says in two ways."""

    epoch_s: float  # of ImageNet on one V100, for the model that was measured …
    gflops: float  # … with so many multiply-adds in a forward pass
    speed: Curve  # by GPUs
    termination: Costs  # of jobs that cannot be prepared before they have GPUs


def _by_law(size: int, speed: float) -> tuple[Point, ...]:
    """Sizes beyond one that was measured: each GPU more costs as much as those up to it did."""
    each = (size / speed - 1) / (size - 1)
    return tuple(Point(float(n), n / (1 + each * (n - 1))) for n in SIZES if n > size)


READINGS = {
    "introduction": ReshapeReading(
        IMAGENET / (4.395 * 64),
        3.8,
        Curve((Point(1.0, 1.0), Point(2.0, 1.7), Point(4.0, 2.4), *_by_law(4, 2.4))),
        COSTS,
    ),
    "table-iv": ReshapeReading(
        IMAGENET / 64 * 0.18,
        1.8,
        Curve((Point(1.0, 1.0), Point(2.0, 0.18 / 0.14), *_by_law(2, 0.18 / 0.14))),
        TERMINATION,
    ),
}


class JobType(Struct, frozen=True):
    """A row of Table VI or VII."""

    model: str
    batch: int
    dataset: str
    gflops: float  # of a forward pass for one image, in multiply-adds, as its paper states; 0 for the small ones
    paired: str  # with which of Gavel's measured types; ours, for only ResNet-18 and -50 are there

    @property
    def name(self) -> str:
        """As a job's model."""
        return f"{self.model} (batch size {self.batch}, {self.dataset})"

    def run_s(self, reading: ReshapeReading) -> float:
        """On one V100."""
        if self.gflops:
            return reading.epoch_s * self.gflops / reading.gflops
        return (600_000 if self.dataset == "MNIST" else 500_000) / SMALL_IMAGES_PER_S


def _type(model: str, batch: int, gflops: float, paired: str, dataset: str = "ImageNet") -> JobType:
    return JobType(model, batch, dataset, gflops, paired)


_SMALL = "ResNet-18 (batch size 256)"
JOB_SETS = (
    (
        _type("ResNet-18", 64, 1.8, "ResNet-18 (batch size 64)"),
        _type("ResNet-18", 128, 1.8, "ResNet-18 (batch size 128)"),
        _type("ResNet-18", 256, 1.8, "ResNet-18 (batch size 256)"),
        _type("ResNet-34", 64, 3.6, "ResNet-50 (batch size 64)"),
        _type("ResNet-34", 128, 3.6, "ResNet-50 (batch size 128)"),
        _type("ResNet-50", 64, 3.8, "ResNet-50 (batch size 64)"),
        _type("ResNet-8", 1024, 0.0, _SMALL, "CIFAR-10"),
    ),
    (
        _type("ResNet-18", 256, 1.8, "ResNet-18 (batch size 256)"),
        _type("ResNet-34", 128, 3.6, "ResNet-50 (batch size 128)"),
        _type("InceptionV3", 128, 5.0, "ResNet-50 (batch size 128)"),
        _type("VGG16", 64, 15.3, "ResNet-50 (batch size 64)"),
        _type("GoogLeNet", 512, 1.5, "ResNet-18 (batch size 256)"),
        _type("AlexNet", 256, 0.7, "ResNet-18 (batch size 256)"),
        _type("LeNet", 1024, 0.0, _SMALL, "MNIST"),
    ),
)


class ReshapeWorkload(Struct, frozen=True):
    """One of the four workloads."""

    jobs: int
    types: tuple[JobType, ...]
    other_kind: str  # of the second server
    goals: bool = False  # jobs end at an accuracy, not after a number of epochs


WORKLOADS = {
    1: ReshapeWorkload(40, JOB_SETS[0], "p100"),
    2: ReshapeWorkload(20, JOB_SETS[0], "p100"),
    3: ReshapeWorkload(40, JOB_SETS[1], "k80"),
    4: ReshapeWorkload(40, JOB_SETS[1], "k80", goals=True),
}


def reshape_workload(
    number: int, seed: int = 0, *, early: bool = True, profiles: GavelSpeeds | None = None,
    reading: str = "introduction",
) -> Workload:  # fmt: skip
    """One of the four. `early`: jobs can be prepared before they have GPUs; else every change terminates them.

    `reading` is one of the `READINGS`. With profiles, speeds by size and kind are those measured for the paired type.
    Raises WorkloadError if the file does not have it.
    """
    chosen = WORKLOADS[number]
    rng = Random(f"{seed}/reshape/{'3' if number == 4 else number}")  # The fourth has the third's jobs.
    gaps = [0.0, *(rng.expovariate(1.0) for _ in range(chosen.jobs - 1))]
    scale = OVER_S / sum(gaps)
    submissions = []
    for n, at in enumerate(accumulate(gaps)):
        kind = rng.choice(chosen.types)
        submissions.append(Submission(round(at * scale, 3), *_job(f"j{n:02d}", kind, chosen, early, READINGS[reading])))
    nodes = (Node("v100", 8, "v100"), Node(chosen.other_kind, 8, chosen.other_kind))
    workload = Workload(f"reshape {number}", tuple(submissions), nodes)
    return workload if profiles is None else _measured(workload, chosen, profiles)


def _job(
    job_id: str, kind: JobType, chosen: ReshapeWorkload, early: bool, reading: ReshapeReading
) -> tuple[Job, Truth]:
    quality = saturating(REPORTS, 0.0, TOP5, REPORTS / 4) if chosen.goals else None
    goal = Goal("top5", ">=", quality.points[-1].mean) if quality is not None else None
    job = Job(job_id, sizes=SIZES, max_nodes=1, criterion=goal, warm=early, model=kind.name)
    truth = Truth(
        round(kind.run_s(reading), 3),
        speed=reading.speed,
        kinds=KINDS,
        epochs=REPORTS if chosen.goals else 0,
        metric="top5" if chosen.goals else "",
        quality=quality,
        costs=COSTS if early else reading.termination,
    )
    return job, truth


def _measured(workload: Workload, chosen: ReshapeWorkload, profiles: GavelSpeeds) -> Workload:
    """The same jobs with the measured speeds of the paired types."""
    paired = {t.name: profiles.profile(t.paired).name for t in chosen.types}
    submissions = tuple(replace(s, job=replace(s.job, model=paired[s.job.model])) for s in workload.submissions)
    measured = profiles.apply(replace(workload, submissions=submissions)).submissions
    return replace(
        workload,
        submissions=tuple(
            replace(s, job=was.job, truth=replace(s.truth, spread=1.0))
            for s, was in zip(measured, workload.submissions, strict=True)
        ),
    )
