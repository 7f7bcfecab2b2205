"""The network of MLF-RL: it scores waiting jobs, servers for a task, and tasks that must leave a server.

Every score is of one job, one (task, server) pair or one task by itself, so the network is the same however many of
them there are. What it reads of a job are logarithms and shares, so it is much the same at any size of a cluster.
"""

from __future__ import annotations

from math import log1p
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hocket.policies.mlfs.priority import PriorityWeights, upper_bounds
from hocket.policies.mlfs.queue import WaitingJobs

if TYPE_CHECKING:
    from hocket.policies.kit.task_shapes import Column

JOB_FEATURES = (
    "priority",  # log of what equation 6 gives, at most
    "learning",  # log of urgency / iteration × loss ratio (2)
    "left",  # log of the time it still needs, in hours; 0 if unknown
    "unknown",  # 1 if that is not known
    "slack",  # time to its deadline less what it needs, in hours, as an inverse hyperbolic sine
    "late",  # 1 if it cannot make its deadline any more
    "waited",  # log of 1 + hours
    "needs",  # log of its GPU load
    "tasks",  # log of their number
    "reach",  # log of the most discounted dependants of a task
    "used",  # share of the cluster's GPU time that is taken
    "pressure",  # log of 1 + what all waiting jobs need, by the cluster's GPUs
)
HOST_FEATURES = ("gpus", "cores", "memory", "network", "data", "gpu")  # uses; share of the data; least loaded GPU
LEAVING_FEATURES = ("constant", "overload", "left", "load")  # of a task that must leave a server and fits nowhere
_MOST_SCORE = 50.0
_FAR_SHARE = 0.25  # of the jobs: with more outside the range of training, the network is not asked
_LEAST = 1e-3
_DIGITS = 9


class PolicyNetwork(Struct, frozen=True, eq=False):
    """All weights. A job's score is `linear` and one hidden layer over its features, which are scaled first."""

    mean: Column  # [feature]
    scale: Column
    low: Column  # [feature]: the range that training saw, with a margin
    high: Column
    linear: Column  # [feature]
    hidden: Column  # [feature, unit]
    bias: Column  # [unit]
    out: Column  # [unit]
    offset: Column  # [1]: of a job's score
    hosts: Column  # [host feature]: added to MLF-H's squared distance
    gpu: Column  # [1]: added to 1, what a GPU's load counts in the choice among those of a server
    leaving: Column  # [leaving feature]: a task stays where this is above 0
    missing: Column  # [1]: log of how much more a task counts that a placed job lacks

    def scores(self, columns: Column) -> Column:
        """[job]: its score; that of MLF-H would be the logarithm of its priority."""
        import numpy as np

        scaled = (columns - self.mean) / self.scale
        hidden = (self.hidden.T @ scaled.T) + self.bias[:, None]
        found: Column = self.linear @ scaled.T + self.out @ np.tanh(hidden, out=hidden) + self.offset[0]
        return found

    def pulls(self) -> Column:
        """[feature]: what one deviation of it adds to the score of a usual job."""
        import numpy as np

        found: Column = self.linear + self.hidden @ (self.out * (1.0 - np.tanh(self.bias) ** 2))
        return found

    def rounded(self) -> PolicyNetwork:
        """Without the last bits, which depend on the processor that a training runs on."""
        return PolicyNetwork(*(getattr(self, name).round(_DIGITS) for name in self.__struct_fields__))

    def share_far(self, columns: Column) -> float:
        """The share of jobs with a feature outside the range that training saw."""
        # Mostly a few features are, if any: only these are looked at job by job.
        off = (columns.min(axis=0) < self.low) | (columns.max(axis=0) > self.high)
        if not off.any():
            return 0.0
        some = columns[:, off]
        return float(((some < self.low[off]) | (some > self.high[off])).any(axis=1).mean())

    def is_far_for_all(self, used: float, pressure: float) -> bool:
        """Is a feature that all jobs of a decision share outside that range? Then all of them are far."""
        (low_used, low_pressure), (high_used, high_pressure) = self.low[-2:].tolist(), self.high[-2:].tolist()
        return not (low_used <= used <= high_used and low_pressure <= pressure <= high_pressure)

    def is_far(self, columns: Column) -> bool:
        """Are these jobs too unlike those of the training?"""
        return self.share_far(columns) > _FAR_SHARE


def shapes(units: int) -> dict[str, tuple[int, ...]]:
    """The shape of each array of a network with so many hidden units."""
    jobs, hosts, leaving = len(JOB_FEATURES), len(HOST_FEATURES), len(LEAVING_FEATURES)
    return {
        "mean": (jobs,), "scale": (jobs,), "low": (jobs,), "high": (jobs,), "linear": (jobs,),
        "hidden": (jobs, units), "bias": (units,), "out": (units,), "offset": (1,),
        "hosts": (hosts,), "gpu": (1,), "leaving": (leaving,), "missing": (1,),
    }  # fmt: skip


def job_columns(jobs: WaitingJobs, weights: PriorityWeights, used: float, gpus: float) -> Column:
    """[job, feature]; `used` is the share of GPU time in use, `gpus` how many there are.

    A feature's numbers stand one after another in memory, which makes all that follows faster.
    """
    import numpy as np

    of = jobs.features
    to_deadline_s, to_run_s = of.to_deadline_s[:, 0], of.to_run_s[:, 0]
    by_structure = np.log(np.array([(s.tasks, max(s.extremes[2], _LEAST)) for s in jobs.structures])).T
    unknown = of.remaining[:, 0] == 0.0 if weights.remaining and weights.alpha < 1 else to_run_s == 0.0
    slack_s = to_deadline_s - to_run_s
    found: Column = np.empty((len(JOB_FEATURES), len(jobs.which)))
    found[0] = np.log(np.maximum(upper_bounds(jobs.structures, jobs.which, of, weights), _LEAST))
    found[1] = np.log(np.maximum(jobs.ml, _LEAST))
    found[2] = np.where(unknown, 0.0, np.log(np.maximum(to_run_s, weights.floor_s) / 3600.0))
    found[3] = unknown
    found[4] = np.arcsinh(slack_s / 3600.0)
    found[5] = slack_s < 0
    found[6] = np.log1p(np.maximum(jobs.waited_s, 0.0) / 3600.0)
    found[7] = np.log(np.maximum(jobs.needs, _LEAST))
    found[8:10] = by_structure[:, jobs.which]
    found[10] = used
    found[11] = pressure_of(jobs, gpus)
    return found.T


def pressure_of(jobs: WaitingJobs, gpus: float) -> float:
    """The last feature, the same for all jobs of a decision."""
    return log1p(float(jobs.all_needs.sum()) / max(gpus, 1.0))


def priorities_of(network: PolicyNetwork, columns: Column) -> Column:
    """[job]: the score on the scale of MLF-H's priorities, with which those of single tasks are compared."""
    import numpy as np

    found: Any = np.exp(np.clip(network.scores(columns), -_MOST_SCORE, _MOST_SCORE))
    return found  # type: ignore[no-any-return]
