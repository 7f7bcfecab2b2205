"""The queue: waiting jobs and single tasks by priority, and which of them are worth a try.

A job's rank carries what the equations need of it, and is computed when something happens to the job. So a decision
reads columns and looks at no job that it does not try to place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush, heapreplace
from math import inf
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.snapshot import Snapshot
from hocket.model.versioned import Entry
from hocket.model.view import JobView
from hocket.policies.kit.incremental_columns import Needs, QueueColumns, measured_factor, queue_columns
from hocket.policies.kit.task_draft import TaskDraft
from hocket.policies.kit.task_shapes import (
    ONE_TASK,
    GraphStructure,
    TaskShape,
    graph_structure,
    is_light,
    lighter,
    shape_key,
    structure_key,
    task_shape,
)
from hocket.policies.mlfs.priority import (
    ALMOST,
    Features,
    PriorityInputs,
    PriorityWeights,
    features,
    highest_priorities,
    least_wait_s,
    priorities,
    priority_inputs,
    upper_bound,
    upper_bounds,
)

if TYPE_CHECKING:
    from hocket.policies.kit.task_shapes import Column

_NUMBERS = 5  # at the head of a rank; then comes the shape
_FEW, _SOME = 8, 64
_CROWD = 5000  # jobs: to rank so many costs more than to look closely at what they need


# -- priorities of one job ------------------------------------------------------------------------------------


def queue_rank(view: JobView, now_s: float, weights: PriorityWeights, metric: str) -> tuple[Any, ...]:
    """Of a waiting job: what its priority rests on, its least GPU load, and its shape."""
    if view.partitions:
        return ()  # Placed jobs are not ordered.
    job, inputs = view.job, priority_inputs(view, now_s, weights, metric)
    key = view.rank[_NUMBERS] if view.rank and view.use is None else shape_key(job.tasks)
    if job.tasks is None:
        needs = float(job.sizes[0] * job.demand.gpus)
    else:
        needs, factor = sum(t.demand.gpu_load for t in job.tasks.tasks), measured_factor(view)
        if factor < 1:
            needs, key = needs * factor, lighter(key)
    return inputs.ml, inputs.due_s, inputs.left_s, inputs.waits_from_s, needs, key


def task_priorities(
    view: JobView, structure: GraphStructure, now_s: float, weights: PriorityWeights, metric: str
) -> Column:
    """[task] of one job: equation 6. A task that its placed job lacks has waited since the job's memo says."""
    inputs = priority_inputs(view, now_s, weights, metric)
    return priorities(structure, inputs, _waited_s(view, inputs, structure.tasks, now_s), now_s, weights)


def priority_at_most(view: JobView, structure: GraphStructure, now_s: float, weights: PriorityWeights) -> float:
    """No task of the job has a higher priority; for less than half of the price of `task_priorities`."""
    inputs = priority_inputs(view, now_s, weights, None)
    waited_s = max(_waited_s(view, inputs, structure.tasks, now_s))
    return upper_bound(structure, inputs, waited_s, now_s, weights) / ALMOST


def _waited_s(view: JobView, inputs: PriorityInputs, tasks: int, now_s: float) -> list[float]:
    """[task]: how long it has waited."""
    if not view.partitions or view.job.tasks is None:
        return [max(0.0, now_s - inputs.waits_from_s)] * tasks
    since = (view.memo or {}).get("waits")
    return [max(0.0, now_s - since.get(t.id, now_s)) for t in view.job.tasks.tasks] if since else [0.0] * tasks


def in_order(structure: GraphStructure, priority: Column) -> list[int]:
    """The tasks of a job, highest priority first; its parameter server comes before all others."""
    servers = structure.servers
    return sorted(range(len(servers)), key=lambda k: (not servers[k], -priority[k], k))


# -- waiting jobs ---------------------------------------------------------------------------------------------


class WaitingQueue(Struct, frozen=True, eq=False):
    """The waiting jobs, in rows that have no order, and the order in which they are tried."""

    entries: Sequence[Entry]  # by row
    shapes: Sequence[str]  # those that there are, and more
    shape: Any  # [row]: which of them
    needs: Column  # [row]: GPU load, at least
    plain: int | None  # which of the shapes is that of jobs without tasks, if there is one
    longest: Iterator[int]  # rows that have waited for their patience, the longest first
    priority: Column  # [row]: of the job's first task; 0 where it was not computed
    rank: Callable[[Any], Any]  # rows → the same, highest priority first
    order: Any  # rows of the jobs that are tried first, ranked
    later: Callable[[], Any] | None = None  # all other rows, to be tried after these; None: not wanted


class WaitingJobs(Struct, frozen=True, eq=False):
    """The columns of waiting jobs, for a score that takes the place of the equations."""

    structures: Sequence[GraphStructure]
    which: Any  # [job]: which of them
    features: Features
    ml: Column  # [job]: as PriorityInputs has it
    waited_s: Column
    needs: Column  # GPU load, at least
    all_needs: Column  # of all jobs in the queue, also of those that are not among these


Score = Callable[[WaitingJobs], "Column | None"]  # [job]: its priority; None: the equations shall say


@contextmanager
def queue_of(
    snapshot: Snapshot,
    weights: PriorityWeights,
    may_fit: Callable[[WaitingQueue, Any], Any],
    reserved_row: Callable[[WaitingQueue], int] = lambda _queue: -1,
    patience_s: float = inf,
    score: Score | None = None,
) -> Iterator[WaitingQueue]:
    """The waiting jobs by priority. A job's priority is that of its first task, or what `score` says.

    `may_fit` gives the rows that are worth a try, of these or, for None, of all. Rows after the reserved one are ranked
    later, if at all: mostly the job of that row does not start, and no job may overtake it.
    """
    import numpy as np

    with queue_columns(_NUMBERS) as columns:
        columns.follow(snapshot.waiting)
        (ml, due_s, left_s, waits_from_s, needs, submission), text = columns.columns()
        shapes = columns.texts
        structures = sorted({structure_key(key) for key in columns.present()})
        waited_s = snapshot.now_s - waits_from_s
        longest = _longest(columns, waited_s, submission, patience_s, snapshot.now_s)
        priority = np.zeros(len(text))
        known = [graph_structure(key, weights.gamma) for key in structures]
        structure_of = _numbered([structure_key(key) for key in shapes], structures)  # [text]

        def of(rows: Any) -> Features:
            return features(ml[rows], due_s[rows], left_s[rows], waited_s[rows], snapshot.now_s, weights)

        def rank(rows: Any) -> Any:
            # Always in the order of submission, as sums of floats depend on the order.
            rows = rows[np.argsort(submission[rows])]
            which = structure_of[text[rows]]
            scores = None
            if score is not None:
                scores = score(WaitingJobs(known, which, of(rows), ml[rows], waited_s[rows], needs[rows], needs))
            if scores is None:
                blocks = rows[np.argsort(which, kind="stable")]
                counts = np.bincount(which, minlength=len(known)).tolist()
                present = [(s, n) for s, n in zip(known, counts, strict=True) if n]
                priority[blocks] = highest_priorities(present, of(blocks), weights)
            else:
                priority[rows] = scores
            order = rows[np.argsort(-priority[rows], kind="stable")]
            _break_ties(order, priority[order], columns.entries)
            return order

        none = np.empty(0, dtype=int)
        plain = columns.number_of(ONE_TASK)
        queue = WaitingQueue(columns.entries, shapes, text, needs, plain, longest, priority, rank, none)
        if (first := reserved_row(queue)) < 0:
            yield replace(queue, order=rank(may_fit(queue, None)))
            return
        if score is not None:  # Of its priorities no bounds are known.
            order = rank(may_fit(queue, None))
            order = order[: int(np.flatnonzero(order == first)[0]) + 1]
            yield replace(queue, order=order, later=lambda: np.delete(np.arange(len(text)), order))
            return
        bar = priority[rank(np.array([first]))][0] * ALMOST
        may_be_before = waited_s >= least_wait_s(known, float(ml.max()), bar, weights)[structure_of][text]
        may_be_before[first] = True
        tried = may_fit(queue, np.flatnonzero(may_be_before))
        order = rank(tried[upper_bounds(known, structure_of[text[tried]], of(tried), weights) >= bar])
        order = order[: int(np.flatnonzero(order == first)[0]) + 1]
        yield replace(queue, order=order, later=lambda: np.delete(np.arange(len(text)), order))


def _longest(
    columns: QueueColumns, waited_s: Column, submission: Column, patience_s: float, now_s: float
) -> Iterator[int]:
    """The rows that have waited for so long, the longest first, then by submission. Mostly one or a few are wanted."""
    import numpy as np

    def in_line(rows: Any) -> list[int]:
        found: list[int] = rows[np.lexsort((submission[rows], -waited_s[rows]))].tolist()
        return found

    rows = np.flatnonzero(waited_s >= max(patience_s, now_s - columns.since_s))
    if len(rows) < _FEW:
        rows = np.flatnonzero(waited_s >= patience_s)
    if len(rows) > _SOME:
        waited = waited_s[rows]
        long_s = np.partition(waited, -_SOME)[-_SOME]
        columns.since_s = now_s - long_s  # It takes a while until fewer than a few of these are left.
        rows = rows[waited >= long_s]
    yield from in_line(rows)[:_FEW]
    yield from in_line(np.flatnonzero(waited_s >= patience_s))[_FEW:]


def _break_ties(order: Any, priority: Column, entries: Sequence[Entry]) -> None:
    """Jobs of one priority by what it rests on, then by submission, as they stand in the snapshot's queue."""
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


class RoomFilter:
    """Which waiting jobs may fit, by counting GPUs and room. A job that it leaves out does not fit.

    Within a round room only shrinks, so a shape that did not fit once does not fit again.
    """

    def __init__(self, draft: TaskDraft, whole: bool, gamma: float, by_task: bool = False) -> None:
        self._draft, self._whole, self._gamma, self._by_task = draft, whole, gamma, by_task
        self._counts: tuple[Any, Column, Any] | None = None  # [shape]: largest tasks; GPU loads; [shape]: which load
        self._failed: set[tuple[object, ...]] = set()  # shapes that did not fit, with the GPUs they accept

    def rows(self, queue: WaitingQueue, reserved: int, among: Any) -> Any:
        """The rows that may fit, of these or of all; the reserved row in any case."""
        import numpy as np

        table = self._draft.table
        if self._counts is None:
            counts, loads = zip(*map(self._largest_tasks, queue.shapes), strict=True)
            self._counts = (np.array(counts), *np.unique(loads, return_inverse=True))
        wanted, distinct_loads, which = self._counts
        fits = wanted <= table.most_by_loads(distinct_loads)[which]  # [shape]
        if among is None:
            may = fits[queue.shape]
            if reserved >= 0:
                may[reserved] = True
            rows = np.flatnonzero(may)
        else:
            rows = among[fits[queue.shape[among]] | (among == reserved)]
        if len(rows) > _CROWD and self._whole and not self._draft.has_quotas:
            may = [
                bool(f) and (is_light(key) or self._each_fits(task_shape(key, self._gamma), 1.0))
                for f, key in zip(fits, queue.shapes, strict=True)
            ]
            rows = rows[np.array(may)[queue.shape[rows]] | (rows == reserved)]
        needs = queue.needs[rows]
        may = needs <= (table.headroom if self._whole else inf)
        if queue.plain is not None:  # The shape of jobs without tasks says nothing of what they need.
            may &= (queue.shape[rows] != queue.plain) | (needs <= self._draft.free_gpus)
        return rows[may | (rows == reserved)]

    def may_start(self, view: JobView, key: str) -> bool:
        """May the tasks of this job fit, as the draft stands?"""
        if view.use is None:  # What the job asks for is what it counts for.
            count, load = self._largest_tasks(key)
            if (key, view.job.gpu_kinds, view.job.gpu_mem_mib, view.job.excluded_nodes) in self._failed:
                return False
            if count > self._draft.table.most_by_load(load):
                return False
        if not self._failed or not self._whole or self._draft.has_quotas:
            return True  # There is room yet: placing the tasks tells as soon.
        if self._each_fits(task_shape(key, self._gamma), measured_factor(view)):
            return True
        self.note_failed(view, key)
        return False

    def note_failed(self, view: JobView, key: str) -> None:
        """The tasks of this job did not fit."""
        if view.use is None:
            self._failed.add((key, view.job.gpu_kinds, view.job.gpu_mem_mib, view.job.excluded_nodes))

    def _each_fits(self, shape: TaskShape, factor: float) -> bool:
        """Is there room for the tasks of each kind, if not for all?"""
        most = self._draft.table.most_that_fit
        return all(n <= most((load * factor, *rest)) for (load, *rest), n in shape.kinds)

    def _largest_tasks(self, key: str) -> tuple[int, float]:
        """How many tasks of the largest GPU load a job must place, and that load; (0, 0) if that is not known."""
        if key == ONE_TASK or is_light(key):
            return 0, 0.0
        shape = task_shape(key, self._gamma)
        if self._by_task:  # The smallest may start without the others.
            return 1, float(shape.amounts[:, 0].min())
        return shape.largest_tasks if self._whole else 1, shape.largest_load


# -- single tasks ---------------------------------------------------------------------------------------------


class SingleTask(Struct, frozen=True, eq=False):
    """A task in the queue by itself: it leaves an overloaded server, its job is placed without it, or has none yet."""

    priority: float  # or an upper bound
    view: JobView
    k: int
    needs: Needs
    gpu: int = -1  # that it leaves; -1 if it waits
    gpu_load: float = 0.0  # of that GPU before it left


class SingleTaskQueue:
    """Single tasks by priority, which is computed as late as possible: mostly it is enough to know an upper bound.

    `exact` computes a priority; None: the task fits nowhere any more, and leaves the queue.
    """

    __slots__ = ("_exact", "_heap")

    def __init__(self, exact: Callable[[SingleTask], float | None]) -> None:
        self._exact = exact
        self._heap: list[tuple[float, bool, int, int, SingleTask]] = []  # of equals, bounds go first

    def add(self, task: SingleTask, is_exact: bool) -> None:
        """Add a task with its priority or an upper bound of it."""
        heappush(self._heap, (-task.priority, is_exact, task.view.number, task.k, task))

    def next(self, least: float = -inf) -> SingleTask | None:
        """Remove the first task, if its priority is no lower than this."""
        heap = self._heap
        while heap and -heap[0][0] >= least:
            _value, is_exact, number, k, task = heap[0]
            if is_exact:
                heappop(heap)
                return task
            priority = self._exact(task)
            if priority is None:
                heappop(heap)
            else:
                heapreplace(heap, (-priority, True, number, k, replace(task, priority=priority)))
        return None
