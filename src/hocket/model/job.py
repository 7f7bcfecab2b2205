"""What a user submits: immutable, and the same in every world."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from hocket.model.criterion import Criterion
from hocket.model.resources import Demand


class Kind(StrEnum):
    """What sort of work a job is."""

    TRAINING = "training"
    QUERY = "query"
    PARAMETER_SERVER = "parameter-server"
    MODEL = "model"  # one model of a pack


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


class TaskGraph(Struct, frozen=True):
    """The tasks of a partitioned model; acyclic."""

    tasks: tuple[Task, ...]
    edges: tuple[Edge, ...] = ()

    def task(self, name: str) -> Task | None:
        """The task of that name; a replica ("layer1#2") is a copy of its task."""
        plain = name.partition("#")[0]
        return next((t for t in self.tasks if t.id == plain), None)


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


class Owner(Struct, frozen=True, gc=False):
    """A user or team, its weight in shares and its quota; 0 stands for no limit."""

    id: str
    weight: float = 1.0
    max_gpus: int = 0
    max_cores: float = 0.0
    max_mem_mib: float = 0.0
    max_jobs: int = 0  # placed at once
