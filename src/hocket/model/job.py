"""What a user submits: immutable, and the same in every world."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Any

from msgspec import Struct

from hocket.model.criterion import Criterion, Epochs, Goal, limit_of
from hocket.model.resources import Demand


class Kind(StrEnum):
    """What sort of work a job is."""

    TRAINING = "training"
    QUERY = "query"
    PARAMETER_SERVER = "parameter-server"
    MODEL = "model"  # one model of a pack


class Stop(StrEnum):
    """What may end a job beside its process, its criterion and its user; each includes what stands before it."""

    FIXED = "fixed"  # nothing
    OPTSTOP = "optstop"  # that its goal is out of reach, or that it is reached and nothing more is to be gained
    REQUIRED = "required"  # that its goal is reached


class Task(Struct, frozen=True, gc=False):
    """One part of a partitioned model."""

    id: str
    demand: Demand
    share: float = 1.0  # of the model's parameters
    is_parameter_server: bool = False


class Edge(Struct, frozen=True, gc=False):
    """What one task sends to another in each iteration."""

    source: str
    target: str
    mib: float = 0.0


class TaskGraph(Struct, frozen=True, dict=True):
    """The tasks of a partitioned model; acyclic."""

    tasks: tuple[Task, ...]
    edges: tuple[Edge, ...] = ()

    def task(self, name: str) -> Task | None:
        """The task of that name; a replica ("layer1#2") is a copy of its task."""
        return self._by_id.get(name.partition("#")[0])

    @cached_property
    def _by_id(self) -> dict[str, Task]:
        return {t.id: t for t in self.tasks}


class Launch(Struct, frozen=True):
    """How a job's command is run where it really runs; a simulation needs none of it."""

    cwd: str = ""
    env: dict[str, str] = {}  # beside what the node has; may hold secrets, so it is shown to nobody
    resume: tuple[str, ...] = ()  # the command that goes on from a checkpoint; empty: the same one
    stop_signal: str = "SIGTERM"  # asks it to save its state and leave
    checkpoint_signal: str = ""  # asks it to save its state and go on; empty: it cannot be asked
    grace_s: float = 30.0  # how long it may take to leave
    hang_s: float = 0.0  # without progress for so long it counts as hung; 0: never
    progress: dict[str, Any] = {}  # how its progress is read (agent/progress)
    log_mib: float = 64.0  # what is kept of its output, for each attempt


ONE_GPU = Demand(gpus=1)


class Job(Struct, frozen=True, gc=False):
    """An immutable submission. Its size is the number of replicas; `sizes` are those it can run at."""

    id: str
    owner: str = ""  # user or team; shares and quotas count against it
    kind: Kind = Kind.TRAINING
    command: tuple[str, ...] = ()  # empty in simulations
    demand: Demand = ONE_GPU  # of one replica
    sizes: tuple[int, ...] = (1,)  # ascending, distinct, positive
    max_nodes: int = 0  # how many nodes one partition of it may span; 0 for any number
    gpu_kinds: tuple[str, ...] = ()  # those it accepts; empty for any
    gpu_mem_mib: float = 0.0  # the least that each GPU must have
    weight: float = 1.0
    priority: int = 0  # larger goes first where a policy honours it
    urgency: int = 0  # 1 to 10, 0 when not stated
    deadline_s: float | None = None  # counted from submission
    criterion: Criterion | None = None  # None: done when its process ends
    tasks: TaskGraph | None = None
    warm: bool = False  # can be prepared before it has its resources
    model: str = ""  # the name under which profiles and history know it
    traits: dict[str, float | str] = {}  # of one model of many: by hyperparameter a category, or the place of a number
    after: tuple[str, ...] = ()  # jobs that must be over before it may run
    retries: int | None = None  # how often it may break and start again; None: as often as it does
    backoff_s: float = 0.0  # how long it rests after breaking; twice as long each time
    limit_s: float | None = None  # how long it may run, in all
    launch: Launch | None = None
    target: Goal | None = None  # what its user hopes for: it is measured, and ends nothing
    stop: Stop = Stop.FIXED  # what may end it where load is controlled; its user's choice
    may_lower: Stop = Stop.FIXED  # … and what may once the cluster is overloaded, if that is more

    @property
    def goal(self) -> Goal | None:
        """The value of a metric that it shall reach, whether it ends there or not."""
        return self.criterion if isinstance(self.criterion, Goal) else self.target

    @property
    def may_stop(self) -> bool:
        """Has its user allowed that it ends before, ever?"""
        return self.stop is not Stop.FIXED or self.may_lower is not Stop.FIXED

    @property
    def least(self) -> tuple[int, float, float]:
        """The GPUs, cores and memory without which it does not run: of its smallest size, or of all its tasks."""
        if self.tasks is None:
            demand, size = self.demand, self.sizes[0]
            return demand.gpus * size, demand.cores * size, demand.mem_mib * size
        demands = [task.demand for task in self.tasks.tasks]
        return sum(d.gpus for d in demands), sum(d.cores for d in demands), sum(d.mem_mib for d in demands)

    @property
    def last_epoch(self) -> int | None:
        """The epoch by which it is over, where its criterion says so, or its target."""
        for wanted in (self.criterion, self.target):
            if wanted is not None and isinstance(limit := limit_of(wanted), Epochs):
                return limit.count
        return None


class Owner(Struct, frozen=True, gc=False):
    """A user or team, its weight in shares and its quota; 0 stands for no limit."""

    id: str
    weight: float = 1.0
    max_gpus: int = 0
    max_cores: float = 0.0
    max_mem_mib: float = 0.0
    max_jobs: int = 0  # placed at once

    def beyond(self, gpus: float, cores: float, mem_mib: float, jobs: int = 0) -> str:
        """The first of its limits that is less than so much, as `2 GPUs`; empty if none is."""
        if 0 < self.max_gpus < gpus:
            return f"{self.max_gpus} GPUs"
        if 0 < self.max_cores < cores:
            return f"{self.max_cores:g} cores"
        if 0 < self.max_mem_mib < mem_mib:
            return f"{self.max_mem_mib:g} MiB of memory"
        return f"{self.max_jobs} jobs at once" if 0 < self.max_jobs < jobs else ""
