"""What priorities and placement need of a task graph, as columns that all jobs of one shape share.

A shape's key is a text, which is compared and looked up fast: a job's rank carries it. It has the tasks in their
order and the edges by number, but no names and no volumes. Its first half is the structure, on which priorities rest.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING

from msgspec import Struct

from hocket.model.job import TaskGraph

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Column = NDArray[float64]

ONE_TASK = ""  # the shape of a job that is not partitioned
_LIGHT = "~"  # ends the shape of a job that takes less than it asked for


class GraphStructure(Struct, frozen=True, eq=False):
    """Which task depends on which, and how large they are; row k is the k-th task of the graph."""

    learning: Column  # of the model's parameters, S_k / S_J, with γ times that of the dependants, as (3) has it
    cost: Column  # of the longest path through an iteration, what the task computes
    after: Column  # of the longest path, what still comes after the task
    reach: Column  # [i, k]: γ to the length of each path from k to i, summed over the paths; 1 for k itself
    servers: tuple[bool, ...]  # is it a parameter server?
    extremes: tuple[float, float, float, float]  # the most of `after`, least of `cost`, most that reach one, `learning`

    @property
    def tasks(self) -> int:
        """How many there are."""
        return len(self.servers)


class TaskShape(Struct, frozen=True, eq=False):
    """What the tasks of such a graph ask for."""

    structure: GraphStructure
    amounts: Column  # [k]: GPU load, cores, memory, network
    kinds: tuple[tuple[tuple[float, ...], int], ...]  # the different rows of `amounts`, and how many tasks have each
    largest_load: float  # GPU load of the largest task
    largest_tasks: int  # tasks that have as much


def shape_key(graph: TaskGraph | None) -> str:
    """The shape of a graph; graphs that differ in names and volumes alone have the same."""
    if graph is None:
        return ONE_TASK
    index = {t.id: k for k, t in enumerate(graph.tasks)}
    tasks = ";".join([f"{t.share!r} {t.is_parameter_server:d}" for t in graph.tasks])
    edges = ";".join([f"{index[e.source]} {index[e.target]}" for e in graph.edges])
    amounts = ";".join([" ".join(map(repr, t.demand.load)) for t in graph.tasks])
    return intern(f"{tasks}/{edges}|{amounts}")


def lighter(key: str) -> str:
    """The shape of a job that takes less than it asked for: what it asks for does not say where it fits."""
    return intern(key + _LIGHT)


def is_light(key: str) -> bool:
    """Is it the shape of a job that takes less than it asked for?"""
    return key.endswith(_LIGHT)


@lru_cache(maxsize=4096)  # The same object every time, as its hash is cached.
def structure_key(key: str) -> str:
    """The structure of a shape."""
    return key.partition("|")[0]


@lru_cache(maxsize=4096)
def task_shape(key: str, gamma: float) -> TaskShape:
    """The columns of a shape."""
    import numpy as np

    known = graph_structure(structure_key(key), gamma)
    if key == ONE_TASK:
        return TaskShape(known, np.zeros((1, 4)), (), 0.0, 1)
    rows = [tuple([float(x) for x in row.split()]) for row in key.partition("|")[2].rstrip(_LIGHT).split(";")]
    amounts = np.array(rows)
    loads = amounts[:, 0]
    kinds = tuple(Counter(rows).items())
    return TaskShape(known, amounts, kinds, float(loads.max()), int((loads == loads.max()).sum()))


@lru_cache(maxsize=4096)
def graph_structure(key: str, gamma: float) -> GraphStructure:
    """The columns of a structure. γ discounts a dependant's priority by how far away it is."""
    import numpy as np

    if key == ONE_TASK:
        one, none = np.ones(1), np.zeros(1)
        return GraphStructure(one, one, none, np.ones((1, 1)), (False,), (0.0, 1.0, 1.0, 1.0))
    tasks, _, edges = key.partition("/")
    rows = np.array([[float(x) for x in row.split()] for row in tasks.split(";")])
    children: list[list[int]] = [[] for _ in rows]
    parents = [0] * len(rows)
    for edge in filter(None, edges.split(";")):
        source, target = map(int, edge.split())
        children[source].append(target)
        parents[target] += 1
    order = [k for k, n in enumerate(parents) if n == 0]
    for k in order:  # It grows meanwhile.
        for child in children[k]:
            parents[child] -= 1
            if not parents[child]:
                order.append(child)
    share = rows[:, 0]
    work = share if share.any() else np.ones(len(rows))
    after, reach = np.zeros(len(rows)), np.eye(len(rows))
    for k in reversed(order):
        for child in children[k]:
            reach[k] += gamma * reach[child]
            after[k] = max(after[k], work[child] + after[child])
    longest = float((work + after).max())
    learning, cost, after, servers = reach @ share, work / longest, after / longest, tuple(map(bool, rows[:, 1]))
    extremes = (float(after.max()), float(cost.min()), float(reach.sum(axis=1).max()), float(learning.max()))
    return GraphStructure(learning, cost, after, np.ascontiguousarray(reach.T), servers, extremes)
