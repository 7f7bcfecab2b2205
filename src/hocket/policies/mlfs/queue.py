"""Waiting jobs in columns, in the order of their priorities.

A job's rank carries what the equations need of it, and is computed when something happens to the job. So a decision
reads columns off the queue and looks at no job that it does not try to place.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.mlfs.priority import Weights, features, job_row, priorities
from hocket.policies.mlfs.shapes import ONE_TASK, Structure, shape_key, structure, structure_key

if TYPE_CHECKING:
    from hocket.policies.mlfs.shapes import Column

_NUMBERS = 5  # at the head of a rank, of which these are two
_WAITS_FROM, _NEEDS = 3, 4


def queue_rank(view: JobView, now_s: float, weights: Weights, metric: str) -> tuple[Any, ...]:
    """Of a waiting job: its ML part, deadline, rest, since when it waits, the GPU load it needs, and its shape."""
    if view.partitions:
        return ()  # Placed jobs are not ordered.
    job, row = view.job, job_row(view, now_s, weights, metric)
    key = view.rank[_NUMBERS] if view.rank else shape_key(job.tasks)
    if job.tasks is None:
        needs = float(job.sizes[0] * job.demand.gpus)
    else:
        needs = sum(t.demand.gpus * t.demand.gpu_share for t in job.tasks.tasks)
    return row.ml, row.due_s, row.left_s, row.waits_from_s, needs, key


class Queue(Struct, frozen=True, eq=False):
    """The waiting jobs by rank and submission, and how they are to be tried."""

    jobs: list[str]
    shapes: list[str]
    priority: Column  # of the job's first task
    needs: Column  # GPU load
    waited_s: Column
    order: Any  # numbers of the jobs, highest priority first
    left_out: int  # waiting jobs for which there is no room


def queue_of(
    snapshot: Snapshot, weights: Weights, may_fit: Callable[[str], bool], free_gpus: int, patience_s: float
) -> Queue:
    """The waiting jobs for which there may be room, by their shape, and those that have waited for long.

    A job stands where the first of its tasks does, which its parameter server goes with.
    """
    import numpy as np

    first, *others = snapshot.waiting.buckets().values()
    entries = first
    if others:  # One order whatever that of the buckets: sums of floats depend on it, and who goes first of equals.
        entries = sorted(chain(first, *others))
    shapes = [e[0][_NUMBERS] for e in entries]
    fits = {key: may_fit(key) for key in dict.fromkeys(shapes)}
    since_s, tried = snapshot.now_s - patience_s, entries
    if ONE_TASK in fits:  # Of those that are not partitioned, a shape says nothing.
        tried = [e for e in tried if e[0][_NUMBERS] or e[0][_NEEDS] <= free_gpus or e[0][_WAITS_FROM] <= since_s]
    if not all(fits.values()):
        tried = [e for e in tried if fits[e[0][_NUMBERS]] or e[0][_WAITS_FROM] <= since_s]
    count, left_out = len(tried), len(entries) - len(tried)
    ranks = [e[0] for e in tried]
    shapes = [rank[_NUMBERS] for rank in ranks]
    ml, due_s, left_s, waits_from_s, needs = (
        np.fromiter(map(itemgetter(i), ranks), float, count) for i in range(_NUMBERS)
    )
    waited_s = snapshot.now_s - waits_from_s
    of_structure: dict[str, list[int]] = {}
    rows_of = {key: of_structure.setdefault(structure_key(key), []) for key in dict.fromkeys(shapes)}
    for n, key in enumerate(shapes):
        rows_of[key].append(n)
    in_blocks = np.fromiter(chain.from_iterable(of_structure.values()), int, count)
    of = features(ml, due_s, left_s, waited_s, snapshot.now_s, weights).rows(in_blocks)
    highest, at = np.empty(count), 0
    for key, rows in of_structure.items():
        block = slice(at, at + len(rows))
        highest[block] = priorities(structure(key, weights.gamma), of.rows(block), weights).max(axis=1)
        at = block.stop
    priority = np.empty(count)
    priority[in_blocks] = highest
    order = np.argsort(-priority, kind="stable")
    return Queue([e[2] for e in tried], shapes, priority, needs, waited_s, order, left_out)


def task_priorities(view: JobView, known: Structure, now_s: float, weights: Weights, metric: str) -> Column:
    """[task] of one job. A task that waits alone has waited as long as the job's memo says."""
    import numpy as np

    row = job_row(view, now_s, weights, metric)
    waited_s = np.full((1, known.tasks), max(0.0, now_s - row.waits_from_s))
    if view.partitions and view.job.tasks is not None:
        since = (view.memo or {}).get("waits", {})
        waited_s[0] = [max(0.0, now_s - since.get(t.id, now_s)) for t in view.job.tasks.tasks]
    ml, due_s, left_s = (np.array([x]) for x in (row.ml, row.due_s, row.left_s))
    found: Column = priorities(known, features(ml, due_s, left_s, waited_s, now_s, weights), weights)[0]
    return found


def in_order(known: Structure, priority: Column) -> list[int]:
    """The tasks of a job, highest priority first; its parameter server comes before all others."""
    servers = known.servers
    return sorted(range(len(servers)), key=lambda k: (not servers[k], -priority[k], k))
