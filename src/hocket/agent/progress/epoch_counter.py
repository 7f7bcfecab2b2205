"""From the numbers that a job prints to epochs that are over.

What is reported is `(epoch, metrics)`: so many epochs are done, and this is known of the last of them. Jobs print other
things, and this is how they are understood:

- **Counts from 0 or from 1.** A job that ever names epoch 0 counts from 0, so its epoch 3 is the fourth; all others
  count from 1. A job that resumes beyond 0 does not show it, so what is learnt belongs into the next attempt's
  `first_epoch`. A job that evaluates once as "epoch 0" before it trains needs `first_epoch = 1`.
- **Values within an epoch** (a step, a batch, a bar that is not full) are kept and reported with the epoch's result, or
  by themselves once the next epoch begins. They are never reported early: the epoch would count as done, or values
  of one epoch would be compared with each other as if they were of two.
- **Fractions.** A count that ever has a fraction is an amount: 1.5 stands within the second epoch, 2.0 ends it.
- **Other counters.** With `epoch_length` 1000, an epoch is a thousand of what the job counts (steps, as a rule); with
  0.1, a job that needs weeks for an epoch reports ten times in each.
- **Several reports of one epoch** are merged; of one metric, the last value counts. What changes nothing is not said
  again.
- **A count that goes back** is a job that went back to a checkpoint: it is followed, and what was known of the epoch
  that was not finished is dropped.
- **Steps.** A job that names steps and no epoch is reported step by step (`StepReport`), each with its values. Once it
  names an epoch, what it says at a step is a value within that epoch; the steps themselves are counted only if a
  criterion asks for it (`counts_steps`), over all epochs, whether the job begins anew in each or not.
"""

from __future__ import annotations

from hocket.agent.progress.reader import Report, StepReport

MAX_EPOCH = 10**12
_MOST_NAMES = 1000  # of metrics, remembered


class EpochCounter:
    """What is known of a job's current epoch."""

    def __init__(self, first_epoch: int | None = None, epoch_length: float = 1, counts_steps: bool = False) -> None:
        self.first_epoch = first_epoch
        self.current: float | None = None  # as the job counts: what a line without a number belongs to
        self._length = epoch_length
        self._is_amount = epoch_length != 1
        self._epoch = -1  # that is described by what follows; none yet
        self._known: dict[str, float] = {}  # never edited once reported
        self._reported: dict[str, float] | None = None  # what was last said of it; None while it is not over
        self.names: set[str] = set()  # of metrics, seen so far
        self.step: int | None = None  # named last
        self._at_step: dict[str, float] = {}  # known of it; never edited once reported
        self.counts_steps = counts_steps
        self._steps_before = 0  # in the epochs before this one, of a job that counts anew in each
        self._step_epoch = -1  # in which `step` was named

    def said(self, count: float, metrics: dict[str, float], within: bool = False) -> list[Report]:
        """The job named its epoch `count`, and these metrics of it; `within` it, or at its end."""
        if not 0 <= count <= MAX_EPOCH:  # NaN too
            return []
        self.current = count
        self._is_amount = self._is_amount or count % 1 != 0
        if self._is_amount:
            amount = count / self._length
            done = int(amount)
            return self._learn(done, metrics, True) if amount == done else self._learn(done + 1, metrics, False)
        if count == 0 and self.first_epoch is None:
            self.first_epoch = 0
        first = 1 if self.first_epoch is None else self.first_epoch
        return self._learn(int(count) + 1 - first, metrics, not within)

    def done(self, count: int, metrics: dict[str, float]) -> list[Report]:
        """The job said that so many epochs are done."""
        return self._learn(count, metrics, True) if count <= MAX_EPOCH else []

    def at_step(self, step: float, metrics: dict[str, float], *, alone: bool = False) -> list[Report]:
        """The job named a step, and these metrics of it, in words that name no epoch; or its epoch was told already.

        `alone`: the job itself reported a step and no epoch, so that the metrics are the step's, whatever came before.
        """
        if not 0 <= step <= MAX_EPOCH:
            return []
        step = int(step)
        if self.current is not None:
            return self._step_within(step, metrics if alone else {}) if self.counts_steps else []
        if step == self.step and all(_same(self._at_step.get(name), value) for name, value in metrics.items()):
            return []
        self._at_step = {**self._at_step, **metrics} if step == self.step else metrics
        self.step = step
        self._note(metrics)
        return [StepReport(step, self._at_step)]

    def _step_within(self, step: int, metrics: dict[str, float]) -> list[Report]:
        if step == self.step and self._epoch == self._step_epoch:
            return []
        if self.step is not None and step <= self.step and self._epoch > self._step_epoch:
            self._steps_before += self.step
        self.step, self._step_epoch = step, self._epoch
        self._note(metrics)
        return [StepReport(self._steps_before + step, metrics)]

    def _note(self, metrics: dict[str, float]) -> None:
        if len(self.names) < _MOST_NAMES:
            self.names.update(metrics)

    def finish(self) -> list[Report]:
        """The job ended by itself, so the epoch it was in is over."""
        return [] if self._epoch < 1 or self._reported is not None else self._learn(self._epoch, {}, True)

    def _learn(self, epoch: int, metrics: dict[str, float], is_over: bool) -> list[Report]:
        reports: list[Report] = []
        if epoch != self._epoch:
            if 0 < self._epoch < epoch and self._reported is None:
                reports.append((self._epoch, self._known))
            self._epoch, self._known, self._reported = epoch, {}, None
        if any(not _same(self._known.get(name), value) for name, value in metrics.items()):
            self._known = {**self._known, **metrics}
            self._note(metrics)
        if is_over and (epoch > 0 or self._known) and not self._is_said():
            self._reported = self._known
            reports.append((epoch, self._known))
        return reports

    def _is_said(self) -> bool:
        """Was all that is known of the epoch reported already? Metrics are never forgotten within one."""
        said = self._reported
        if said is None or said is self._known:
            return said is not None
        return len(said) == len(self._known) and all(_same(said[name], value) for name, value in self._known.items())


def _same(known: float | None, value: float) -> bool:
    return known == value or (known is not None and known != known and value != value)
