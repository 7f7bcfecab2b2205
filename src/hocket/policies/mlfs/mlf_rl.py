"""MLF-RL, the learned scheduler of MLFS (CoNEXT'20, section 3.4).

It goes through MLF-H's round. A network takes the place of three of its rules: the order of waiting jobs, which server
a task goes to, and whether a task that must leave its server and fits nowhere waits. `hocket learn mlf_rl` trains it.
Jobs that are unlike all that it was trained on are left to MLF-H, and so is everything if its weights are unsound.
"""

from __future__ import annotations

from math import exp, log1p
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.policies.mlfs.ideal import HostCandidates
from hocket.policies.mlfs.mlf_h import MlfH, SchedulingRound, decide_round, rank
from hocket.policies.mlfs.network import PolicyNetwork, job_columns, pressure_of, priorities_of
from hocket.policies.mlfs.queue import SingleTask, SingleTaskQueue, WaitingJobs
from hocket.policies.mlfs.weights_file import WeightsError, learned_weights
from hocket.policies.registry import policy

if TYPE_CHECKING:
    from hocket.policies.kit.load_table import LoadTable
    from hocket.policies.kit.task_shapes import Column

FAR = "by MLF-H: the jobs that wait are unlike those that the network was trained on"


class MlfRl(MlfH, frozen=True):
    """The knobs of MLF-H, and which weights."""

    weights_file: Annotated[str, Meta(description="weights from `hocket learn mlf_rl`; empty: those shipped")] = ""
    guard: Annotated[bool, Meta(description="whether MLF-H decides where jobs are unlike those of the training")] = True


@policy("mlf_rl", params=MlfRl, order=rank, paper="MLFS, CoNEXT'20", reads=("urgency", "deadline_s"))
def decide(snapshot: Snapshot, params: MlfRl) -> Plan:
    """Tasks as a network ranks them, which learned from MLF-H and then from what came of its decisions.

    What it reads of a job are the features of MLF-H and how much there is to do. Where the jobs are unlike those of its
    training, MLF-H decides.
    """
    learned = learned_weights(params.weights_file, "mlf_rl")
    if isinstance(learned, WeightsError):
        return with_note(decide_round(snapshot, params, SchedulingRound), f"by MLF-H: {learned}")
    return decide_with(snapshot, params, learned.network)


def decide_with(snapshot: Snapshot, params: MlfRl, network: PolicyNetwork) -> Plan:
    """The same with this network."""
    rounds: list[LearnedRound] = []

    def begin(snapshot: Snapshot, params: MlfRl) -> LearnedRound:
        rounds.append(LearnedRound(snapshot, params, network))
        return rounds[-1]

    plan = decide_round(snapshot, params, begin)
    return with_note(plan, FAR) if rounds and rounds[0].is_far else plan


def with_note(plan: Plan, note: str) -> Plan:
    """The plan with this behind each of its reasons."""
    return replace(plan, reasons={job_id: f"{reason} ({note})" for job_id, reason in plan.reasons.items()})


class LearnedRound(SchedulingRound):
    """A round in which a network scores jobs, servers, and tasks that must leave one."""

    def __init__(self, snapshot: Snapshot, params: MlfRl, network: PolicyNetwork) -> None:
        super().__init__(snapshot, params)
        self.network, self._guard = network, params.guard
        self.is_far = False  # the jobs that wait are unlike those of the training
        self.score = self._score

    def _score(self, jobs: WaitingJobs) -> Column | None:
        if self.is_far or not len(jobs.which):
            return None
        table = self.draft.table
        gpus = len(table.gpu_load)
        used = float(table.load[:, 0].sum()) / max(gpus, 1)
        if self._guard and self.network.is_far_for_all(used, pressure_of(jobs, gpus)):
            self.is_far = True  # as `is_far` below would find, before all other features are computed
            return None
        columns = job_columns(jobs, self.weights, used, gpus)
        if self._guard and self.network.is_far(columns):
            self.is_far = True
            return None
        return priorities_of(self.network, columns)

    def candidates(self, needs: Column, accepts: Any) -> HostCandidates:
        """The servers that could host such a task, with what the network makes of each."""
        if self.is_far:
            return super().candidates(needs, accepts)
        return LearnedHosts(self.draft.table, needs, accepts, self.network)

    def evicts(self, task: SingleTask) -> bool:
        """Shall a task that must leave its server, and fits on no other, go to the queue?"""
        if self.is_far:
            return super().evicts(task)
        of = leaving_features(task, self.snapshot.now_s, self.draft.table.limit)
        stays = sum(w * x for w, x in zip(self.network.leaving.tolist(), of, strict=True))
        return self.params.evict and stays <= 0

    def _place_singles(self, singles: SingleTaskQueue, least: float = float("-inf")) -> None:
        if not self.is_far and least > 0:
            least *= exp(-float(self.network.missing[0]))
        super()._place_singles(singles, least)


def leaving_features(task: SingleTask, now_s: float, limit: float) -> tuple[float, ...]:
    """What the network reads of a task that must leave a server: LEAVING_FEATURES."""
    left_s = task.view.remaining_s(now_s) or 0.0
    return 1.0, task.gpu_load - limit, log1p(left_s / 3600.0), task.needs[0]


class LearnedHosts(HostCandidates):
    """Servers by MLF-H's distance, and what the network adds to it."""

    __slots__ = ("_by_data", "_by_gpu", "_by_use", "_gpu_counts")

    def __init__(self, table: LoadTable, needs: Column, accepts: Any, network: PolicyNetwork) -> None:
        super().__init__(table, needs, accepts)
        self._by_use: Column = network.hosts[:4]
        self._by_data, self._by_gpu = network.hosts[4:].tolist()
        self._gpu_counts = 1.0 + float(network.gpu[0])

    def nearest(self, distance: Column, traffic_mib: dict[int, float], most_mib: float) -> int:
        """The server to take."""
        import numpy as np

        distance += self._table.use @ self._by_use
        if self._by_gpu:
            least = np.minimum.reduceat(self._loads, self._table.index.begins[:-1])
            distance += self._by_gpu * np.minimum(least, 1.0)
        if most_mib:
            for server, mib in traffic_mib.items():
                distance[server] += self._by_data * mib / most_mib
        return int(distance.argmin())

    def first_gpu(self, loads: Column) -> int:
        """The least loaded GPU, or the fullest on which the task can be."""
        import numpy as np

        return int((loads if self._gpu_counts > 0 else np.where(loads < np.inf, -loads, np.inf)).argmin())
