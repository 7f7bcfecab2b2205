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
"""

from __future__ import annotations

from hocket.agent.progress.reader import Report

MAX_EPOCH = 10**12


class EpochCounter:
    """What is known of a job's current epoch."""

    def __init__(self, first_epoch: int | None = None, epoch_length: float = 1) -> None:
        self.first_epoch = first_epoch
        self.current: float | None = None  # as the job counts: what a line without a number belongs to
        self._length = epoch_length
        self._is_amount = epoch_length != 1
        self._epoch = -1  # that is described by what follows; none yet
        self._known: dict[str, float] = {}  # never edited once reported
        self._reported: dict[str, float] | None = None  # what was last said of it; None while it is not over

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
