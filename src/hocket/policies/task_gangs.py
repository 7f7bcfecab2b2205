"""Task graphs as gangs: a job starts with all its tasks or not at all, each on the GPU that a policy chooses for it.

For the baselines of MLFS that place tasks. GPUs are shared by tasks up to a load, as on MLF-H's board.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.mlfs.board import Undo
from hocket.policies.mlfs.seating import Seating, Tasks, tasks_of
from hocket.policies.mlfs.shapes import shape, shape_key

if TYPE_CHECKING:
    from hocket.policies.mlfs.shapes import Column

Choose = Callable[[Tasks, int], int]  # the tasks of a job, one of them → a GPU, or -1 if it fits nowhere
_ANY_DISCOUNT = 0.5  # a shape is looked up with MLF-H's γ, which nothing here reads


class TaskGangs(Seating):
    """A draft that starts whole jobs, with tasks or without."""

    __slots__ = ()

    def known(self, view: JobView) -> Tasks:
        """The tasks of a job."""
        return tasks_of(view, shape(shape_key(view.job.tasks), _ANY_DISCOUNT))

    def start_all(self, view: JobView, order: Sequence[int], choose: Choose, reason: str) -> bool:
        """Give every task that has no GPU one, in this order; nothing changes if one of them fits nowhere."""
        tasks, board = self.known(view), self.board
        has = self.places.get(view.job.id, {})
        missing = [k for k in order if tasks.names[k] not in has]
        if self._limited and not self._quota_has_room(view.job, missing):
            self.over_quota += 1
            return False
        done: list[tuple[int, Undo]] = []
        for k in missing:
            gpu = choose(tasks, k)
            if gpu < 0:
                for _k, step in reversed(done):
                    board.undo(step)
                return False
            done.append((k, board.seat(gpu, tasks.needs[k])))
        for k, step in done:
            self._write(view.job, tasks.names[k], step.gpu, step.part)
        self.places[view.job.id] = {**has, **{tasks.names[k]: step.gpu for k, step in done}}
        self.reasons[view.job.id] = reason
        return True

    def open_to(self, tasks: Tasks, needs: Column) -> Any:
        """[GPU]: could a task that needs so much be there, with nothing overloaded?"""
        gpus, servers = self.board.fits(needs)
        accepts = self._accepting(tasks.view.job)
        if accepts is not None:
            servers = servers & accepts
        return gpus & servers[self.board.ground.server_of]

    @property
    def headroom(self) -> float:
        """The GPU load that can still come, at most. An empty GPU takes any one task."""
        board = self.board
        shared = (board.limit - board.gpu_load[board.open]).clip(min=0.0).sum()
        return float(shared) + max(1.0, board.limit) * int(board.free.sum())

    def torn(self) -> Iterator[JobView]:
        """Jobs of which a task has lost its place, by submission."""
        jobs = self.snapshot.jobs
        views = sorted((jobs[job_id] for job_id in self.places), key=lambda v: v.number)
        for view in views:
            graph = view.job.tasks
            if (
                graph is not None
                and not view.verdict
                and any(t.id not in self.places[view.job.id] for t in graph.tasks)
            ):
                yield view

    def release(self, view: JobView, reason: str) -> None:
        """Take all tasks of a job off their GPUs: alone they would only hold them."""
        tasks = self.known(view)
        for task in sorted(self.places.get(view.job.id, {})):
            self.take_off(tasks, task)
        self.reasons[view.job.id] = reason


def mended(draft: TaskGangs, order: Callable[[JobView], Sequence[int]], choose: Choose) -> bool:
    """Give jobs that lost a task another place for it, or let them wait; True if one waits."""
    waits = False
    for view in list(draft.torn()):
        if not draft.start_all(view, order(view), choose, "goes on: the tasks that it lost have a place again"):
            draft.release(view, "waits: tasks that it lost fit nowhere, and without them it stands still")
            waits = True
    return waits


def waiting(snapshot: Snapshot) -> Iterator[JobView]:
    """Waiting jobs in the policy's order, with tasks or without."""
    jobs = snapshot.jobs
    for entry in snapshot.waiting:
        view = jobs[entry[-1]]
        if not view.verdict:
            yield view
