"""Task graphs of partitioned models: one after another or layer by layer, data-parallel, by server or all-reduce.

Tasks are named by replica and part: `r0p3` computes part 3 of the model for the mini-batch of replica 0. The last
parts of every replica send their gradients to `ps`, the parameter server; or to `reduce`, a light task that represents
the exchange among all reducers and gets what a ring sends for each of them, 2(d-1)/d of the volume. A model with
one replica that is all-reduced sends nothing.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import isfinite

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.job import Edge, Task, TaskGraph
from hocket.model.resources import Demand
from hocket.workloads.errors import WorkloadError

STRUCTURES = ("sequential", "layered")
SYNCHRONISATIONS = ("ps", "all-reduce")
ADDING_UP = ("ps", "reduce")  # the task that adds up gradients, by kind of synchronisation
SYNC_SHARE = 0.05  # share of a model's work that adding up takes


class Partitioning(Struct, frozen=True):
    """How a model is cut into tasks."""

    parts: int = 1
    structure: str = "sequential"
    replicas: int = 1
    sync: str = "ps"
    width: int = 2  # parts of one layer, where it is layered

    def __post_init__(self) -> None:
        for name in ("parts", "replicas", "width"):
            if getattr(self, name) < 1:
                raise WorkloadError(f"partitioning: {name} must be from 1 up, not {getattr(self, name)}")
        if self.structure not in STRUCTURES:
            raise WorkloadError(f"partitioning: structure must be {' or '.join(STRUCTURES)}, not '{self.structure}'")
        if self.sync not in SYNCHRONISATIONS:
            raise WorkloadError(f"partitioning: sync must be {' or '.join(SYNCHRONISATIONS)}, not '{self.sync}'")

    @property
    def layers(self) -> tuple[tuple[int, ...], ...]:
        """The parts by layer, each fed by all of the layer before."""
        width = self.width if self.structure == "layered" else 1
        return tuple(tuple(range(p, min(p + width, self.parts))) for p in range(0, self.parts, width))

    @property
    def syncs(self) -> bool:
        """Does it have a task that adds up the replicas' gradients?"""
        return self.replicas > 1 or (self.sync == "ps" and self.parts > 1)


def task_graph(
    cut: Partitioning,
    worker: Demand,
    server: Demand,
    between_mib: float,
    sync_mib: float,
) -> TaskGraph:
    """One iteration: `between_mib` goes from part to part, `sync_mib` from each last part to be added up."""
    for name, mib in (("between_mib", between_mib), ("sync_mib", sync_mib)):
        if not (isfinite(mib) and mib >= 0):
            raise WorkloadError(f"task graph: {name} must be a finite number from 0 up, not {mib}")
    plain = _plain(cut, worker, server)
    if cut.sync == "all-reduce":
        sync_mib *= 2 * (cut.replicas - 1) / cut.replicas
    edges = tuple(replace(e, mib=sync_mib if e.target in ADDING_UP else between_mib) for e in plain.edges)
    return TaskGraph(plain.tasks, edges)


@lru_cache(maxsize=1024)
def _plain(cut: Partitioning, worker: Demand, server: Demand) -> TaskGraph:
    """The graph without volumes; jobs with equal partitioning share its tasks."""
    tasks: list[Task] = []
    edges: list[Edge] = []
    adds_up = "ps" if cut.sync == "ps" else "reduce"
    for r in range(cut.replicas):
        tasks += [Task(f"r{r}p{p}", worker, 1 / cut.parts) for p in range(cut.parts)]
        for before, after in pairwise(cut.layers):
            edges += [Edge(f"r{r}p{a}", f"r{r}p{b}") for a in before for b in after]
        if cut.syncs:
            edges += [Edge(f"r{r}p{p}", adds_up) for p in cut.layers[-1]]
    if cut.syncs:
        tasks.append(Task(adds_up, server, SYNC_SHARE, is_parameter_server=adds_up == "ps"))
    return TaskGraph(tuple(tasks), tuple(edges))
