"""Task graphs as gangs: a job starts with all its tasks or not at all, each on the GPU that a policy chooses for it.

For the baselines of MLFS that place tasks. GPUs are shared by tasks up to a load, as under MLF-H.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hocket.model.view import JobView
from hocket.policies.kit.task_draft import STARTS_ALONE, Choose, JobTasks, TaskDraft, tasks_of
from hocket.policies.kit.task_shapes import TaskShape, shape_key, task_shape

_ANY_DISCOUNT = 0.5  # a shape is looked up with MLF-H's γ, which nothing here reads


class TaskGangs(TaskDraft):
    """A draft that starts whole jobs, with tasks or without."""

    __slots__ = ()

    def known(self, view: JobView) -> JobTasks:
        """The tasks of a job."""
        return tasks_of(view, self._shape(view))

    def _shape(self, view: JobView) -> TaskShape:
        return task_shape(shape_key(view.job.tasks), _ANY_DISCOUNT)

    def start_all(self, view: JobView, order: Sequence[int], choose: Choose, reason: str) -> bool:
        """Give every task that has no GPU one, in this order; nothing changes if one of them fits nowhere."""
        if not self.place_all(self.known(view), order, choose):
            return False
        self.reasons[view.job.id] = reason
        return True

    def alone(self, view: JobView) -> bool:
        """Start a job that no limit leaves room for, if it is the only one: else it would wait for ever."""
        if view.job.tasks is None or not self.is_empty or not self.start_alone(view, self._shape(view)):
            return False
        self.reasons[view.job.id] = STARTS_ALONE
        return True

    def waiting(self) -> Iterator[JobView]:
        """Waiting jobs in the policy's order, with tasks or without."""
        jobs = self.snapshot.jobs
        views = (jobs[entry[-1]] for entry in self.snapshot.waiting)
        return (view for view in views if not view.verdict)

    def with_lost_tasks(self) -> list[JobView]:
        """Jobs of which a task has lost its place, by submission."""
        jobs = self.snapshot.jobs.data()
        views = (jobs[job_id] for job_id in self.incomplete)
        return sorted((v for v in views if not v.verdict), key=lambda v: v.number)

    def release(self, view: JobView, reason: str) -> None:
        """Take all tasks of a job off their GPUs: alone they would only hold them."""
        tasks = self.known(view)
        for task in sorted(self.places.get(view.job.id, {})):
            self.take_off(tasks, task)
        self.reasons[view.job.id] = reason

    def replace_lost_tasks(self, order: Callable[[JobView], Sequence[int]], choose: Choose) -> bool:
        """Give jobs that lost a task another place for it, or let them wait; True if one waits."""
        waits = False
        for view in self.with_lost_tasks():
            if not self.start_all(view, order(view), choose, "goes on: the tasks that it lost have a place again"):
                self.release(view, "waits: tasks that it lost fit nowhere, and without them it stands still")
                waits = True
        return waits
