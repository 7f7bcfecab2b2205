"""Waiting jobs in columns, in the order of their priorities.

A job's rank carries what the equations need of it, and is computed when something happens to the job. So a decision
reads columns off the queue and looks at no job that it does not try to place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.snapshot import Snapshot
from hocket.model.versioned import Entry
from hocket.model.view import JobView
from hocket.policies.mlfs.kept import Rows, measured_factor, rows
from hocket.policies.mlfs.priority import (
    ALMOST,
    Features,
    JobRow,
    Weights,
    at_most,
    at_most_of_one,
    features,
    highest,
    job_row,
    least_wait_s,
    priorities,
)
from hocket.policies.mlfs.shapes import ONE_TASK, Structure, lighter, shape_key, structure, structure_key

if TYPE_CHECKING:
    from hocket.policies.mlfs.shapes import Column

_NUMBERS = 5  # at the head of a rank; then comes the shape
_FEW, _SOME = 8, 64


def queue_rank(view: JobView, now_s: float, weights: Weights, metric: str) -> tuple[Any, ...]:
    """Of a waiting job: its ML part, deadline, rest, since when it waits, its least GPU load, and its shape."""
    if view.partitions:
        return ()  # Placed jobs are not ordered.
    job, row = view.job, job_row(view, now_s, weights, metric)
    key = view.rank[_NUMBERS] if view.rank and view.use is None else shape_key(job.tasks)
    if job.tasks is None:
        needs = float(job.sizes[0] * job.demand.gpus)
    else:
        needs, factor = sum(t.demand.gpus * t.demand.gpu_share for t in job.tasks.tasks), measured_factor(view)
        if factor < 1:
            needs, key = needs * factor, lighter(key)
    return row.ml, row.due_s, row.left_s, row.waits_from_s, needs, key


class Queue(Struct, frozen=True, eq=False):
    """The waiting jobs, in rows that have no order, and in which order those are tried for which there may be room."""

    entries: Sequence[Entry]  # by row
    shapes: Sequence[str]  # those that there are, and more
    shape: Any  # [row]: which of them
    needs: Column  # GPU load, at least
    plain: int | None  # which of them is that of jobs that are not partitioned, if there is one
    longest: Iterator[int]  # rows of those whose patience is over, who has waited longest first
    priority: Column  # of the job's first task; 0 of those that are not ranked
    rank: Callable[[Any], Any]  # rows → the same, highest priority first
    order: Any  # rows of the jobs that are tried first, ranked
    later: Callable[[], Any] | None = None  # rows of all others, for when these have had their turn; None: not wanted


@contextmanager
def queue_of(
    snapshot: Snapshot,
    weights: Weights,
    may_fit: Callable[[Queue, Any], Any],
    kept_for: Callable[[Queue], int] = lambda _queue: -1,
    patience_s: float = inf,
) -> Iterator[Queue]:
    """The waiting jobs, for as long as somebody works with them.

    `may_fit` tells the rows that are worth a try, of these or, for None, of all.

    A job stands where the first of its tasks does, which its parameter server goes with. Whoever comes after the row
    for which all that is free is kept is not ranked yet: mostly it does not start, and nobody overtakes it.
    """
    import numpy as np

    with rows(_NUMBERS) as kept:
        kept.follow(snapshot.waiting)
        (ml, due_s, left_s, waits_from_s, needs, submission), text = kept.columns()
        shapes = kept.texts
        structures = sorted({structure_key(key) for key in kept.present()})
        waited_s = snapshot.now_s - waits_from_s
        longest = _longest(kept, waited_s, submission, patience_s, snapshot.now_s)
        priority = np.zeros(len(text))
        known = [structure(key, weights.gamma) for key in structures]
        structure_of = _numbered([structure_key(key) for key in shapes], structures)  # [text]

        def of(rows: Any) -> Features:
            return features(ml[rows], due_s[rows], left_s[rows], waited_s[rows], snapshot.now_s, weights)

        def rank(rows: Any) -> Any:
            # Rows are as chance has it. In one order, whatever that is: what a sum of floats comes to may depend on it.
            rows = rows[np.argsort(submission[rows])]
            which = structure_of[text[rows]]
            blocks = rows[np.argsort(which, kind="stable")]
            counts = np.bincount(which, minlength=len(known)).tolist()
            priority[blocks] = highest([(s, n) for s, n in zip(known, counts, strict=True) if n], of(blocks), weights)
            order = rows[np.argsort(-priority[rows], kind="stable")]
            _untie(order, priority[order], kept.entries)
            return order

        nobody = np.empty(0, dtype=int)
        plain = kept.number_of(ONE_TASK)
        queue = Queue(kept.entries, shapes, text, needs, plain, longest, priority, rank, nobody)
        if (first := kept_for(queue)) < 0:
            yield replace(queue, order=rank(may_fit(queue, None)))
            return
        bar = priority[rank(np.array([first]))][0] * ALMOST
        may_be_before = waited_s >= least_wait_s(known, float(ml.max()), bar, weights)[structure_of][text]
        may_be_before[first] = True
        tried = may_fit(queue, np.flatnonzero(may_be_before))
        order = rank(tried[at_most(known, structure_of[text[tried]], of(tried), weights) >= bar])
        order = order[: int(np.flatnonzero(order == first)[0]) + 1]
        yield replace(queue, order=order, later=lambda: np.delete(np.arange(len(text)), order))


def _longest(kept: Rows, waited_s: Column, submission: Column, patience_s: float, now_s: float) -> Iterator[int]:
    """The rows that have waited for so long, the longest first, then by submission. Mostly one or a few are wanted."""
    import numpy as np

    def in_line(rows: Any) -> list[int]:
        found: list[int] = rows[np.lexsort((submission[rows], -waited_s[rows]))].tolist()
        return found

    rows = np.flatnonzero(waited_s >= max(patience_s, now_s - kept.since_s))
    if len(rows) < _FEW:
        rows = np.flatnonzero(waited_s >= patience_s)
    if len(rows) > _SOME:
        waited = waited_s[rows]
        long_s = np.partition(waited, -_SOME)[-_SOME]
        kept.since_s = now_s - long_s  # It takes a while until fewer than a few of these are left.
        rows = rows[waited >= long_s]
    yield from in_line(rows)[:_FEW]
    yield from in_line(np.flatnonzero(waited_s >= patience_s))[_FEW:]


def _untie(order: Any, priority: Column, entries: Sequence[Entry]) -> None:
    """Those of one priority by what it rests on, then by submission, as they stand in the queue."""
    import numpy as np

    ties = np.flatnonzero(priority[1:] == priority[:-1])
    for run in np.split(ties, np.flatnonzero(np.diff(ties) > 1) + 1) if len(ties) else ():
        tied = slice(run[0], run[-1] + 2)
        order[tied] = sorted(order[tied].tolist(), key=entries.__getitem__)


def _numbered(texts: Sequence[str], among: Sequence[str]) -> Any:
    """[text]: its place among these; 0 if it is none of them."""
    import numpy as np

    number = {text: n for n, text in enumerate(among)}
    # The fewer bytes a number has, the faster a stable sort is.
    return np.array([number.get(text, 0) for text in texts], dtype=np.min_scalar_type(len(among)))


def task_priorities(view: JobView, known: Structure, now_s: float, weights: Weights, metric: str) -> Column:
    """[task] of one job. A task that waits alone has waited for as long as the job's memo says."""
    row = job_row(view, now_s, weights, metric)
    return priorities(known, row, _waited_s(view, row, known.tasks, now_s), now_s, weights)


def priority_at_most(view: JobView, known: Structure, now_s: float, weights: Weights) -> float:
    """What none of `task_priorities` is above; for less than half of the price."""
    row = job_row(view, now_s, weights, None)
    return at_most_of_one(known, row, max(_waited_s(view, row, known.tasks, now_s)), now_s, weights) / ALMOST


def _waited_s(view: JobView, row: JobRow, tasks: int, now_s: float) -> list[float]:
    """[task]: how long it has waited."""
    if not view.partitions or view.job.tasks is None:
        return [max(0.0, now_s - row.waits_from_s)] * tasks
    since = (view.memo or {}).get("waits")
    return [max(0.0, now_s - since.get(t.id, now_s)) for t in view.job.tasks.tasks] if since else [0.0] * tasks


def in_order(known: Structure, priority: Column) -> list[int]:
    """The tasks of a job, highest priority first; its parameter server comes before all others."""
    servers = known.servers
    return sorted(range(len(servers)), key=lambda k: (not servers[k], -priority[k], k))
