"""A job whose model is on the device, and what its companions there cost it: measured, and told with its metrics."""

from __future__ import annotations

from hocket.executors.inprocess.model_factory import ALONE_S, OTHERS, STEP_S, Stretch
from hocket.runtimes.packing.member import Member


class Running:
    """One stretch of a model's training, while it lasts."""

    def __init__(self, job: str, stretch: Stretch, partition: str, member: Member) -> None:
        self.job, self.stretch, self.partition, self.member = job, stretch, partition, member
        self.saved_step = member.step  # that is saved
        self._steps = self._companions = 0
        self._seconds = 0.0
        self._alone_s: float | None = None

    @property
    def left(self) -> int:
        """Steps to the end of its stretch."""
        return self.stretch.until - self.member.step

    def stepped(self, steps: int, seconds: float, others: int, in_turn_s: float | None) -> None:
        """So many steps were made with so many others; `in_turn_s`: what one takes in turn, where it is known."""
        self._steps += steps
        self._seconds += seconds
        self._companions += steps * others
        if in_turn_s is not None:
            self._alone_s = in_turn_s / (others + 1)

    def told(self) -> dict[str, float]:
        """Seconds of a step, its companions on average, and what a step takes in turn where that was measured."""
        if not self._steps:
            return {}
        found = {STEP_S: self._seconds / self._steps, OTHERS: self._companions / self._steps}
        return found if self._alone_s is None else found | {ALONE_S: self._alone_s}
