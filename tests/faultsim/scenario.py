"""What a seed stands for: a cluster, jobs, what users ask, and faults. All of it is drawn before anything runs."""

from __future__ import annotations

import random
from typing import Any

from msgspec import Struct

from hocket.model.event import JobRequest
from hocket.model.job import Job, Launch, Preempt
from hocket.model.resources import Demand

FAULTY_S = 90.0  # for which things fail
# Policies that start jobs only, that preempt, that resize, and that share by owner.
POLICIES = (
    "fifo",
    "las",
    "fair",
    "srtf",
    "round_robin",
    "tiresias",
    "backfill",
    "optimus",
    "restless",
    "restless",
    "restless",
)


class JobPlan(Struct, frozen=True):
    """A job, and what its process does."""

    job: Job
    at_s: float  # when it is submitted
    units: int
    unit_s: float
    saves_every: int
    crashes_at: int  # the unit after which it fails, once; 0: never
    obeys: bool  # the signal that asks it to leave


class Fault(Struct, frozen=True):
    """Something that fails, from a moment on, for a time."""

    kind: str
    at_s: float
    for_s: float
    node: str = ""
    calls: int = 0  # of the system, after that moment, until it happens
    number: float = 0.0  # what it is about: a signal, seconds

    def __str__(self) -> str:
        where = f" of {self.node}" if self.node else ""
        more = f", at call {self.calls}" if self.calls else ""
        return f"{self.at_s:7.3f} s  {self.kind}{where} for {self.for_s:.1f} s{more}"


class Request(Struct, frozen=True):
    """What a user asks."""

    at_s: float
    what: str  # a request, "drain" or "undrain"
    name: str  # of the job or node


class Scenario(Struct, frozen=True):
    """All that is drawn from a seed."""

    seed: int
    policy: str
    lease_s: float
    nodes: dict[str, int]  # name → GPUs
    shared: bool  # whether checkpoints are on storage that all nodes share
    jobs: tuple[JobPlan, ...]
    requests: tuple[Request, ...]
    faults: tuple[Fault, ...]
    late: float
    late_s: float
    twice: float
    lossy: float
    preempt: float


# Kind → how often, relative to the others.
AGENT_FAULTS = {"agent killed": 4, "agent stopped": 3, "agent told to leave": 1, "agent told to stop its jobs": 1}
NODE_FAULTS = {"power lost": 2, "machine suspended": 1, "disk full": 1, "clock set": 1}
JOB_FAULTS = {"sidecar killed": 2, "job process killed": 1}
NETWORK_FAULTS = {"network cut": 3, "agent unheard": 3, "controller unheard": 3}
CONTROLLER_FAULTS = {"controller killed": 5, "controller stopped": 2, "journal full": 1, "commit in doubt": 1}
RARE_FAULTS = {"older journal": 0.6}
KINDS = {
    **AGENT_FAULTS, **NODE_FAULTS, **JOB_FAULTS, **NETWORK_FAULTS, **CONTROLLER_FAULTS, **RARE_FAULTS,
}  # fmt: skip


def scenario(seed: int) -> Scenario:
    """The scenario of a seed."""
    rng = random.Random(f"scenario {seed}")
    nodes = {f"n{i}": rng.choice((1, 2, 2, 4)) for i in range(rng.choice((1, 2, 2, 3)))}
    lease_s = rng.choice((6.0, 10.0, 15.0))
    jobs = tuple(_job(rng, i, sum(nodes.values())) for i in range(rng.randint(2, 6)))
    calm = rng.random() < 0.3  # a network that is only cut
    return Scenario(
        seed=seed,
        policy=rng.choice(POLICIES),
        lease_s=lease_s,
        nodes=nodes,
        shared=rng.random() < 0.7,
        jobs=jobs,
        requests=tuple(_requests(rng, jobs, list(nodes))),
        faults=tuple(sorted((_fault(rng, list(nodes), lease_s) for _ in range(rng.randint(1, 12))), key=_when)),
        late=0.0 if calm else rng.choice((0.0, 0.02, 0.1)),
        late_s=rng.choice((1.0, lease_s, 3 * lease_s)),
        twice=0.0 if calm else rng.choice((0.0, 0.02, 0.1)),
        lossy=rng.choice((0.1, 0.5, 0.9)),
        preempt=rng.choice((0.0, 0.0, 0.05)),
    )


def _when(what: Fault | Request) -> float:
    return what.at_s


def _job(rng: random.Random, index: int, most_gpus: int) -> JobPlan:
    sizes = rng.choice([(1,), (1,), (2,), (1, 2), (1, 2, 4), (3,)])
    sizes = tuple(size for size in sizes if size <= most_gpus) or (1,)
    units = rng.randint(2, 15)
    crashes = rng.random() < 0.3
    launch = Launch(
        grace_s=rng.choice((1.0, 5.0, 20.0)), checkpoint_signal=rng.choice(("", "SIGUSR2")), progress={"kind": "stdout"}
    )
    job = Job(
        f"j{index}",
        owner=rng.choice(("ana", "bo")),
        command=("python", "train.py"),
        demand=Demand(gpus=1),
        sizes=sizes,
        warm=rng.random() < 0.3,
        # One that never fails by itself must not lose the only attempt that it has.
        retries=rng.choice((2, 3)) if crashes else rng.choice((0, 0, 1)),
        backoff_s=rng.choice((0.0, 1.0)),
        preempt=rng.choice((Preempt.ALWAYS, Preempt.ALWAYS, Preempt.SAVED)),
        launch=launch,
        weight=rng.choice((1.0, 2.0)),
    )
    return JobPlan(
        job=job,
        at_s=rng.uniform(0.5, 60.0) if rng.random() < 0.5 else rng.uniform(0.5, 5.0),
        units=units,
        unit_s=rng.uniform(0.5, 4.0),
        saves_every=rng.choice((1, 3, 100)),
        crashes_at=rng.randint(1, units) if crashes else 0,
        obeys=rng.random() < 0.8,
    )


def _requests(rng: random.Random, jobs: tuple[JobPlan, ...], nodes: list[str]) -> list[Request]:
    found: list[Request] = []
    for plan in jobs:
        at_s = plan.at_s + rng.uniform(0.0, 40.0)
        drawn = rng.random()
        if drawn < 0.15:
            found += [Request(at_s, str(JobRequest.PAUSE), plan.job.id)]
            found += [Request(at_s + rng.uniform(0.0, 30.0), str(JobRequest.RESUME), plan.job.id)]
        elif drawn < 0.25:
            found += [Request(at_s, str(JobRequest.STOP), plan.job.id)]
    if rng.random() < 0.25:
        node, at_s = rng.choice(nodes), rng.uniform(5.0, 60.0)
        found += [Request(at_s, "drain", node), Request(at_s + rng.uniform(1.0, 30.0), "undrain", node)]
    return sorted(found, key=_when)


def _fault(rng: random.Random, nodes: list[str], lease_s: float) -> Fault:
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    at_s, node = rng.uniform(0.5, FAULTY_S), rng.choice(nodes)
    for_s = lease_s * rng.choice((0.05, 0.3, 0.9, 1.5, 3.0))
    fault: dict[str, Any] = {"kind": kind, "at_s": at_s, "for_s": for_s, "node": node}
    if kind in CONTROLLER_FAULTS or kind == "older journal":
        fault["node"] = ""
    if kind in ("agent killed", "agent stopped", "controller killed", "controller stopped", "older journal"):
        # At any call from now on: in the middle of what it does.
        fault["calls"] = rng.choice((1, rng.randint(1, 10), rng.randint(1, 60)))
    if kind == "clock set":
        fault["number"] = rng.choice((-3600.0, 3600.0, 30.0))
    if kind == "older journal":
        fault["number"] = float(rng.choice((1, 3, 10, 1000)))
    return Fault(**fault)
