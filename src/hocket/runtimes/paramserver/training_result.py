"""What training reports: times of phases, the end of an epoch, and the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hocket.runtimes.paramserver.algorithm import Array
from hocket.runtimes.paramserver.host_blocks import Spilled


@dataclass(frozen=True)
class PhaseTimes:
    """Seconds that this host spent in each phase, without waiting for other hosts or for its turn."""

    pull_s: float = 0.0  # getting parameters
    comp_s: float = 0.0  # computing
    push_s: float = 0.0  # sending and applying updates

    def __add__(self, other: PhaseTimes) -> PhaseTimes:
        return PhaseTimes(self.pull_s + other.pull_s, self.comp_s + other.comp_s, self.push_s + other.push_s)


@dataclass(frozen=True)
class EpochEnd:
    """What is known at the end of an epoch."""

    epoch: int  # counted from 1
    epochs: int  # that are wanted
    iteration: int  # all that are done
    objective: float | None  # None: it was not computed
    times: PhaseTimes  # of all iterations of the epoch, on this host
    spilled: Spilled | None = None  # what of this host's input is on disk; None: there is no memory budget


@dataclass(frozen=True)
class Trained:
    """The result of training."""

    # The model on host 0, by array; empty on other hosts.
    model: Mapping[str, Array]
    # At the end of the last epoch.
    objective: float | None
    # Epochs that are done, those of earlier attempts too.
    epochs: int
    # Iterations likewise.
    iterations: int
    # Seconds in each phase since this process began to train, on this host.
    times: PhaseTimes
    # What of this host's input was on disk at the end; None without a memory budget.
    spilled: Spilled | None = None
