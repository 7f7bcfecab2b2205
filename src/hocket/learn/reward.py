"""What a policy is rewarded for: the goals of MLFS (equation 1), weighted by β (7) and discounted by η.

Our reading of what the paper leaves open. The goals carry no minus, as all are to be maximised. They are made free of
units, so that β means the same in every window: g1 is the mean time that jobs need alone over their mean completion
time; g3 is 1 / (1 + x), with x the data sent between servers over all that tasks exchange, as 1 / x has no bound; g2,
g4 and g5 are means over jobs. Of a job that never ends nothing counts.

The paper discounts what comes of a decision by how many steps later it comes. A job's decisions begin when it is
submitted, so in training what a job brings is discounted by η for every hour until it ends.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from math import inf

from msgspec import Struct

from hocket.control.ports import Header
from hocket.executors.simulated import simulate
from hocket.executors.simulated.beliefs import parse_beliefs
from hocket.learn.own_history import JOURNAL, history_workload
from hocket.learn.windows import Window, workload_of
from hocket.policies.registry import BoundPolicy
from hocket.reports.mlfs_run import LiveJob, RunStatistics
from hocket.reports.simulation import rare_garbage_collection

BETAS = (0.5, 0.55, 0.25, 0.15, 0.15)  # of the paper
JCT_ALONE = (1.0, 0.0, 0.0, 0.0, 0.0)  # RL's
ETA = 0.95
STEP_S = 3600.0


class Goals(Struct, frozen=True):
    """How far a run reached the goals of equation 1, from 0 to 1, and what stands behind them."""

    jct: float  # g1
    deadlines: float  # g2
    bandwidth: float  # g3
    accuracies: float  # g4
    accuracy: float  # g5
    later: tuple[float, float, float]  # g2, g4 and g5, discounted
    jct_mean_s: float
    sent_share: float
    unfinished: int
    decision_ms: float = 0.0

    def reward(self, betas: tuple[float, ...] = BETAS) -> float:
        """Equation 7 over the whole window, as reports have it."""
        values = (self.jct, self.deadlines, self.bandwidth, self.accuracies, self.accuracy)
        return sum(b * g for b, g in zip(betas, values, strict=True))

    def discounted(self, betas: tuple[float, ...] = BETAS) -> float:
        """The same with what jobs bring discounted, as training has it."""
        deadlines, accuracies, accuracy = self.later
        values = (self.jct, deadlines, self.bandwidth, accuracies, accuracy)
        return sum(b * g for b, g in zip(betas, values, strict=True))


class _DiscountedStatistics(RunStatistics):
    """The statistics of a run, and what its jobs bring, discounted."""

    later: tuple[float, float, float] = (0.0, 0.0, 0.0)
    eta: float = ETA

    def _close(self, live: LiveJob, jct_s: float) -> None:
        super()._close(live, jct_s)
        if jct_s < inf:
            part = self.eta ** (jct_s / STEP_S)
            in_time = live.job.deadline_s is None or jct_s <= live.job.deadline_s
            brought = (in_time, live.had_goal, live.by_deadline)
            deadlines, accuracies, accuracy = (sum_ + part * x for sum_, x in zip(self.later, brought, strict=True))
            self.later = (deadlines, accuracies, accuracy)


def run_window(
    window: Window,
    policy: BoundPolicy,
    whole: bool = False,
    eta: float = ETA,
    around: Callable[[BoundPolicy], BoundPolicy] = lambda p: p,
) -> Goals:
    """Simulate a window to its end."""
    tasks = history_workload(window) if window.kind == JOURNAL else workload_of(window)
    graphs = {s.job.id: s.job.tasks for s in tasks.submissions if s.job.tasks is not None}
    uses = {s.job.id: s.truth.gpu_use for s in tasks.submissions}
    workload = workload_of(window, whole) if whole else tasks
    nodes = tasks.nodes
    watch = _DiscountedStatistics(
        Header(policy.policy.name, policy.settings, nodes, window.seed, window.name), graphs, uses
    )
    watch.eta = eta
    with rare_garbage_collection():
        beliefs = parse_beliefs(window.beliefs)
        ran = simulate(workload, nodes, around(policy), seed=window.seed, beliefs=beliefs, journal=watch)
    gc.collect()  # A process of a training runs thousands of windows: none may leave its reference cycles behind.
    found = watch.played(ran.decision_s)
    jobs = len(tasks.submissions)
    epochs = {s.job.id: s.truth.epochs for s in tasks.submissions}
    exchanged_tib = sum(epochs[name] * e.mib for name, g in graphs.items() for e in g.edges) / 1024.0**2
    alone_s = sum(s.truth.run_s for s in tasks.submissions) / jobs
    share = found.sent_tib / exchanged_tib if exchanged_tib else 0.0
    deadlines, accuracies, accuracy = watch.later
    return Goals(
        jct=alone_s / found.jct_mean_s if found.jct_mean_s and not found.unfinished else 0.0,
        deadlines=found.deadlines,
        bandwidth=1.0 / (1.0 + share),
        accuracies=found.accuracies,
        accuracy=found.accuracy,
        later=(deadlines / jobs, accuracies / jobs, accuracy / jobs),
        jct_mean_s=found.jct_mean_s,
        sent_share=share,
        unfinished=found.unfinished,
        decision_ms=found.decision_ms,
    )
