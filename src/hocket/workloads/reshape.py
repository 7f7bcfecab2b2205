"""The workloads of the Reshape paper (SC'20): Tables VI and VII, four workloads on two servers of eight GPUs.

What the paper gives: the job types, how many jobs, exponential arrivals over 11,000 s, 1 epoch of ImageNet or 10 of
CIFAR-10 and MNIST, jobs that stay on one server (TensorFlow's MirroredStrategy). What it leaves open is fixed here:

* Run times. One V100 takes as long for an epoch of ImageNet as Gavel measured for ResNet-50 at batch size 64; other
  models in proportion to the operations of a forward pass that their papers state. The two small ones go at the speed
  that Gavel measured for ResNet-18 on CIFAR-10.
* Speed by GPUs. 1.7 and 2.4 times at two and four, as the introduction says of ResNet; at eight as the law through the
  latter goes on. Speed by kind: P100 as in Table IV; K80 as Gavel measured it for ResNet-50.
* Costs of switching. Of the case study: a cold start takes 174 s, a resize by sidecar 32 s (27 down, 37 up). One set of
  terms cannot meet all of its figures; this one is kinder to termination (184 s, where the paper has 204 and 242) and
  harder on newcomers that are prepared early (184 s, where it has 110).
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
SPEED = Curve((Point(1.0, 1.0), Point(2.0, 1.7), Point(4.0, 2.4), Point(8.0, 8 / (1 + 7 * (4 / 2.4 - 1) / 3))))
COSTS = Costs(prepare_s=152.0, start_s=22.0, checkpoint_s=5.0, stop_s=5.0)
KINDS = {"v100": 1.0, "p100": 0.18 / 0.25, "k80": 0.619 / 4.395}
IMAGENET_S = 1_281_167 / (4.395 * 64)  # of an epoch of ResNet-50 on one V100
SMALL_IMAGES_PER_S = 10.3 * 256  # ResNet-18 on CIFAR-10, one V100
REPORTS = 20  # how often a job of the fourth workload says its accuracy
TOP5 = 0.5  # final accuracy; the distance to it halves in every quarter of the run


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

    @property
    def run_s(self) -> float:
        """On one V100."""
        if self.gflops:
            return IMAGENET_S * self.gflops / 3.8
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
    number: int, seed: int = 0, *, early: bool = True, profiles: GavelSpeeds | None = None
) -> Workload:
    """One of the four. `early`: jobs can be prepared before they have GPUs; else every change terminates them.

    With profiles, speeds by size and kind are those measured for the paired type. Raises WorkloadError if the file
    does not have it.
    """
    chosen = WORKLOADS[number]
    rng = Random(f"{seed}/reshape/{'3' if number == 4 else number}")  # The fourth has the third's jobs.
    gaps = [0.0, *(rng.expovariate(1.0) for _ in range(chosen.jobs - 1))]
    scale = OVER_S / sum(gaps)
    submissions = []
    for n, at in enumerate(accumulate(gaps)):
        kind = rng.choice(chosen.types)
        submissions.append(Submission(round(at * scale, 3), *_job(f"j{n:02d}", kind, chosen, early)))
    nodes = (Node("v100", 8, "v100"), Node(chosen.other_kind, 8, chosen.other_kind))
    workload = Workload(f"reshape {number}", tuple(submissions), nodes)
    return workload if profiles is None else _measured(workload, chosen, profiles)


def _job(job_id: str, kind: JobType, chosen: ReshapeWorkload, early: bool) -> tuple[Job, Truth]:
    quality = saturating(REPORTS, 0.0, TOP5, REPORTS / 4) if chosen.goals else None
    goal = Goal("top5", ">=", quality.points[-1].mean) if quality is not None else None
    job = Job(job_id, sizes=SIZES, max_nodes=1, criterion=goal, warm=early, model=kind.name)
    truth = Truth(
        round(kind.run_s, 3),
        speed=SPEED,
        kinds=KINDS,
        epochs=REPORTS if chosen.goals else 0,
        metric="top5" if chosen.goals else "",
        quality=quality,
        costs=COSTS,
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
