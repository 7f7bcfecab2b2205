"""Waiting jobs in columns, in the order of their priorities.

A job's rank carries what the equations need of it, and is computed when something happens to the job. So a decision
reads columns off the queue and looks at no job that it does not try to place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.snapshot import Snapshot
from hocket.model.versioned import Entry
from hocket.model.view import JobView
from hocket.policies.mlfs.kept import measured_factor, rows
from hocket.policies.mlfs.priority import Weights, features, highest, job_row, priorities
from hocket.policies.mlfs.shapes import Structure, shape_key, structure, structure_key

if TYPE_CHECKING:
    from hocket.policies.mlfs.shapes import Column

_NUMBERS = 5  # at the head of a rank; then comes the shape


def queue_rank(view: JobView, now_s: float, weights: Weights, metric: str) -> tuple[Any, ...]:
    """Of a waiting job: its ML part, deadline, rest, since when it waits, its least GPU load, and its shape."""
    if view.partitions:
        return ()  # Placed jobs are not ordered.
    job, row = view.job, job_row(view, now_s, weights, metric)
    key = view.rank[_NUMBERS] if view.rank else shape_key(job.tasks)
    if job.tasks is None:
        needs = float(job.sizes[0] * job.demand.gpus)
    else:
        needs = sum(t.demand.gpus * t.demand.gpu_share for t in job.tasks.tasks) * min(1.0, measured_factor(view))
    return row.ml, row.due_s, row.left_s, row.waits_from_s, needs, key


class Queue(Struct, frozen=True, eq=False):
    """The waiting jobs by rank and submission, and in which order those are to be tried for which there may be room."""

    entries: Sequence[Entry]  # neither to keep nor to change
    shapes: list[str]  # those that there are
    shape: Any  # [job]: which of them
    priority: Column  # of the job's first task; 0 of those that are not tried
    needs: Column  # GPU load, at least
    waited_s: Column
    order: Any  # numbers of the jobs that are tried, highest priority first


def queue_of(snapshot: Snapshot, weights: Weights, may_fit: Callable[[Queue], Any]) -> Queue:
    """The waiting jobs. `may_fit` marks those that are worth a try: [job].

    A job stands where the first of its tasks does, which its parameter server goes with.
    """
    import numpy as np

    first, *others = snapshot.waiting.buckets().values()
    entries = first
    if others:  # One order whatever that of the buckets: sums of floats depend on it, and who goes first of equals.
        entries = sorted(chain(first, *others))
    with rows(_NUMBERS) as kept:
        *columns, text = kept.columns(entries)
        texts = kept.texts
    ml, due_s, left_s, waits_from_s, needs = columns
    text = text.astype(int)
    # By the texts themselves, whatever numbers they have: what a sum of floats comes to may depend on its place.
    shapes = sorted(texts[n] for n in np.flatnonzero(np.bincount(text)).tolist())
    structures = sorted({structure_key(key) for key in shapes})
    shape = _numbered(texts, shapes)[text]
    priority, waited_s = np.zeros(len(entries)), snapshot.now_s - waits_from_s
    queue = Queue(entries, shapes, shape, priority, needs, waited_s, None)
    tried = np.flatnonzero(may_fit(queue))
    which = _numbered([structure_key(key) for key in shapes], structures)[shape[tried]]
    in_blocks = tried[np.argsort(which, kind="stable")]
    of = features(ml[in_blocks], due_s[in_blocks], left_s[in_blocks], waited_s[in_blocks], snapshot.now_s, weights)
    counts = np.bincount(which, minlength=len(structures)).tolist()
    blocks = [(structure(key, weights.gamma), n) for key, n in zip(structures, counts, strict=True) if n]
    priority[in_blocks] = highest(blocks, of, weights)
    return replace(queue, order=tried[np.argsort(-priority[tried], kind="stable")])


def _numbered(texts: Sequence[str], among: Sequence[str]) -> Any:
    """[text]: its place among these; 0 if it is none of them."""
    import numpy as np

    number = {text: n for n, text in enumerate(among)}
    # The fewer bytes a number has, the faster a stable sort is.
    return np.array([number.get(text, 0) for text in texts], dtype=np.min_scalar_type(len(among)))


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
