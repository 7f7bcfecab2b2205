"""RL, the learned scheduler that MLFS is compared with, as far as MLFS describes it (CoNEXT'20, sections 2 and 4.1).

It "aims to minimize the JCT", "scans all tasks and then maps the tasks to the appropriate GPUs", and considers no ML
features. Nothing more is said, so it goes through the rounds of MLF-RL with the same network, less what it does not
look at. `hocket learn rl` trains it by completion times alone, from first come, first served: it imitates nothing.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.mlfs.mlf_h import decide_round
from hocket.policies.mlfs.mlf_rl import LearnedRound, MlfRl, with_note
from hocket.policies.mlfs.network import HOST_FEATURES, JOB_FEATURES, LEAVING_FEATURES, PolicyNetwork
from hocket.policies.mlfs.queue import SingleTaskQueue, queue_rank
from hocket.policies.mlfs.weights_file import WeightsError, learned_weights
from hocket.policies.registry import Params, policy

if TYPE_CHECKING:
    from hocket.policies.kit.task_shapes import Column

JOB_READS = ("left", "unknown", "waited", "needs", "tasks", "used", "pressure")  # neither learning nor deadlines
HOST_READS = ("gpus", "cores", "memory", "network", "gpu")  # not where the data are
_OLDEST_FIRST = 1.0  # what one deviation of the waiting time adds to a score before any training


class Rl(Params, frozen=True):
    h_r: Annotated[float, Meta(gt=0, le=1, description="use of a resource above which a server is overloaded")] = 0.9
    round_s: Annotated[float, Meta(ge=0, description="it decides at multiples of this; 0: at once")] = 60.0
    patience_s: Annotated[float, Meta(gt=0, description="no lower score overtakes a job that waited this long")] = (
        604800.0
    )
    weights_file: Annotated[str, Meta(description="weights from `hocket learn rl`; empty: those shipped")] = ""


@lru_cache(maxsize=16)
def _rounds(params: Rl) -> MlfRl:
    """The rounds of MLF-RL without ML features, deadlines, urgency and data, in which no task moves."""
    return MlfRl(
        alpha=0.0, gamma_d=0.0, gamma_r=0.0, urgency=False, traffic=False, relieve=False, guard=False,
        h_r=params.h_r, round_s=params.round_s, patience_s=params.patience_s,
    )  # fmt: skip


def rank(view: JobView, now_s: float, params: Rl) -> tuple[Any, ...]:
    """What the queue's columns need of the job, with neither its learning nor its deadline: they break no ties."""
    rounds = _rounds(params)
    found = queue_rank(view, now_s, rounds.weights, rounds.metric)
    return (0.0, 0.0, *found[2:]) if found else found


@policy("rl", params=Rl, order=rank, paper="MLFS, CoNEXT'20", reads=())
def decide(snapshot: Snapshot, params: Rl) -> Plan:
    """Tasks as a network ranks them that learned to end jobs soon, and nothing else.

    What it reads of a job are its remaining and waiting time, its GPU load and its number of tasks; of a server what is
    in use. It is what MLFS is compared with.
    """
    learned = _network(params.weights_file)
    if isinstance(learned, WeightsError):
        return with_note(decide_with(snapshot, params, untrained()), f"first come, first served: {learned}")
    return decide_with(snapshot, params, learned)


def decide_with(snapshot: Snapshot, params: Rl, network: PolicyNetwork) -> Plan:
    """The same with this network."""
    return decide_round(snapshot, _rounds(params), lambda snapshot, rounds: RlRound(snapshot, rounds, network))


@lru_cache(maxsize=16)
def _network(path: str) -> PolicyNetwork | WeightsError:
    learned = learned_weights(path, "rl")
    return learned if isinstance(learned, WeightsError) else limited(learned.network)


def limited(network: PolicyNetwork) -> PolicyNetwork:
    """The network less all that it would make of what RL does not look at."""
    import numpy as np

    jobs = np.array([float(name in JOB_READS) for name in JOB_FEATURES])
    hosts = np.array([float(name in HOST_READS) for name in HOST_FEATURES])
    return replace(
        network, linear=network.linear * jobs, hidden=network.hidden * jobs[:, None], hosts=network.hosts * hosts
    )


def untrained(columns: Column | None = None) -> PolicyNetwork:
    """First come, first served, each task to the emptiest server; its features are scaled as these columns are."""
    import numpy as np

    n = len(JOB_FEATURES)
    if columns is None:
        columns = np.array([[-1.0] * n, [1.0] * n])
    linear = np.array([_OLDEST_FIRST * (name == "waited") for name in JOB_FEATURES])
    return PolicyNetwork(
        columns.mean(axis=0), np.maximum(columns.std(axis=0), 0.05), columns.min(axis=0), columns.max(axis=0),
        linear, np.zeros((n, 1)), np.zeros(1), np.zeros(1), np.zeros(1),
        np.zeros(len(HOST_FEATURES)), np.zeros(1), np.zeros(len(LEAVING_FEATURES)), np.zeros(1),
    )  # fmt: skip


class RlRound(LearnedRound):
    """A round in which tasks go in the order of the graph, and those that a placed job lacks before all others."""

    def task_order(self, view: JobView) -> list[int]:
        """The job's tasks as the graph has them."""
        return list(range(self.shape(view).structure.tasks))

    def _place_singles(self, singles: SingleTaskQueue, _least: float = -inf) -> None:
        super()._place_singles(singles)
