"""Imitation: from records of MLF-H's decisions (docs/record.md), a network that ranks waiting jobs as it does.

Each decision of a record has the jobs that it started and those that went on waiting, with all that equations 2 to 6
rest on. The priorities themselves are not recorded; they follow from the columns and the graphs. The network's hidden
layer is drawn at random, and the rest is fitted to the logarithm of the priorities by ridge regression, which has one
solution: the same records and seed give the same weights, which are rounded as sums of many numbers depend on how
threads divide them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hocket.policies.kit.task_shapes import graph_structure
from hocket.policies.mlfs.mlf_h import MlfH
from hocket.policies.mlfs.network import HOST_FEATURES, JOB_FEATURES, LEAVING_FEATURES, PolicyNetwork, job_columns
from hocket.policies.mlfs.priority import features, highest_priorities
from hocket.policies.mlfs.queue import WaitingJobs

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Column = NDArray[float64]

UNITS = 8
_RIDGE = 1e-3
_MARGIN = 1.0  # standard deviations beyond what was seen
_LEAST_SCALE = 0.05
_EVICTS = -0.5  # of the constant of `leaving`: MLF-H's tasks go to the queue


class Recorded(Struct, frozen=True, eq=False):
    """The waiting jobs of many decisions."""

    decision: Any  # [row]: its number
    columns: Column  # [row, feature]
    log_priority: Column  # [row]: MLF-H's
    started: Any  # [row]: did the decision start it?

    @property
    def decisions(self) -> int:
        """How many there are."""
        return len(set(self.decision.tolist()))


class Agreement(Struct, frozen=True):
    """How often a network ranks as MLF-H does."""

    decisions: int
    pairs: float  # of all pairs of jobs that wait in one decision, the share in the same order
    first: float  # of all decisions, the share with the same job first


def read_record(folder: Path, params: MlfH = MlfH()) -> Recorded:
    """The decisions in a folder that `hocket simulate --record` wrote."""
    import msgspec
    import numpy as np

    rows, jobs, decisions = (np.load(folder / f"{name}.npz") for name in ("rows", "jobs", "decisions"))
    about = msgspec.json.decode((folder / "about.json").read_bytes())
    by_node = [node["gpus"] for node in about["nodes"]]
    used = _shares_used(np.load(folder / "servers.npz"), by_node, len(decisions["at_s"]))
    keys, loads = _graphs(jobs)
    waiting = np.flatnonzero((rows["from_gpu"] < 0) & (rows["ends"] == 0))
    _pairs, firsts = np.unique(np.stack([rows["decision"][waiting], rows["job"][waiting]]), axis=1, return_index=True)
    at = waiting[np.sort(firsts)]  # one row a job and decision
    of = {name: np.asarray(rows[name][at], dtype=float) for name in rows.files}
    fell, fell_in_all = of["loss_fell"], of["loss_fell_in_all"]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where((fell > 0) & (fell_in_all > 0), np.minimum(1.0, fell / fell_in_all), 0.0)
    ratio[np.isnan(fell)] = 1.0
    ml = np.maximum(of["urgency"], 1.0) / (of["epoch"] + 1.0) * ratio
    structures = sorted(set(keys.values()))
    number = {key: n for n, key in enumerate(structures)}
    which = np.array([number[keys[int(j)]] for j in of["job"]], dtype=int)
    needs = np.array([loads[int(j)] for j in of["job"]])
    known = [graph_structure(key, params.gamma) for key in structures]
    left_s = np.where(np.isnan(of["left_s"]), np.inf, of["left_s"])
    due_s = np.where(np.isnan(of["to_deadline_s"]), params.longest_deadline_s - of["waited_s"], of["to_deadline_s"])

    columns, priority = np.empty((len(at), len(JOB_FEATURES))), np.empty(len(at))
    for decision in np.unique(of["decision"]).astype(int).tolist():
        own = np.flatnonzero(of["decision"] == decision)
        own = own[np.argsort(which[own], kind="stable")]
        here = features(ml[own], due_s[own], left_s[own], of["waited_s"][own], 0.0, params.weights)
        waits = WaitingJobs(known, which[own], here, ml[own], of["waited_s"][own], needs[own], needs[own])
        columns[own] = job_columns(waits, params.weights, used[decision], sum(by_node))
        counts = np.bincount(which[own], minlength=len(known)).tolist()
        blocks = [(s, n) for s, n in zip(known, counts, strict=True) if n]
        priority[own] = highest_priorities(blocks, here, params.weights)
    return Recorded(of["decision"].astype(int), columns, np.log(np.maximum(priority, 1e-9)), of["to_gpu"] >= 0)


def _graphs(jobs: Any) -> tuple[dict[int, str], dict[int, float]]:
    """Job → its structure, as `task_shapes` writes it, and its GPU load."""
    tasks: dict[int, list[str]] = {}
    edges: dict[int, list[str]] = {}
    loads: dict[int, float] = dict.fromkeys(jobs["number"].tolist(), 1.0)
    columns = (jobs[f"task_{name}"].tolist() for name in ("job", "share", "is_parameter_server", "gpu_load"))
    for job, share, is_server, load in zip(*columns, strict=True):
        loads[job] = load + (loads[job] if job in tasks else 0.0)
        tasks.setdefault(job, []).append(f"{share!r} {is_server:d}")
    for job, source, target in zip(*(jobs[f"edge_{n}"].tolist() for n in ("job", "source", "target")), strict=True):
        edges.setdefault(job, []).append(f"{source} {target}")
    return {j: f"{';'.join(tasks[j])}/{';'.join(edges.get(j, []))}" if j in tasks else "" for j in loads}, loads


def _shares_used(servers: Any, gpus: Sequence[int], decisions: int) -> Column:
    """[decision]: the share of all GPU time that is in use, as requested."""
    import numpy as np

    now, found, at = np.zeros(len(gpus)), np.zeros(decisions), 0
    number, node, share = servers["decision"].tolist(), servers["node"].tolist(), servers["gpus"].tolist()
    for decision in range(decisions):
        while at < len(number) and number[at] <= decision:
            now[node[at]] = share[at]
            at += 1
        found[decision] = float(now @ np.array(gpus)) / max(sum(gpus), 1)
    return found


def joined_records(records: Sequence[Recorded]) -> Recorded:
    """Several records as one."""
    import numpy as np

    decisions, offset = [], 0
    for r in records:
        decisions.append(r.decision + offset)
        offset += int(r.decision.max(initial=-1)) + 1
    return Recorded(
        np.concatenate(decisions),
        np.concatenate([r.columns for r in records]),
        np.concatenate([r.log_priority for r in records]),
        np.concatenate([r.started for r in records]),
    )


def imitate(records: Recorded, seed: int, units: int = UNITS) -> PolicyNetwork:
    """The network that comes nearest to MLF-H's priorities in these records."""
    import numpy as np

    rng = np.random.default_rng([seed, units])
    columns = records.columns
    mean, scale = columns.mean(axis=0), np.maximum(columns.std(axis=0), _LEAST_SCALE)
    scaled, n = (columns - mean) / scale, len(JOB_FEATURES)
    hidden, bias = rng.normal(0.0, 1.0 / np.sqrt(n), (n, units)), rng.normal(0.0, 0.5, units)
    inputs = np.concatenate([scaled, np.tanh(scaled @ hidden + bias), np.ones((len(scaled), 1))], axis=1)
    ridge = _RIDGE * len(inputs) * np.eye(inputs.shape[1])
    ridge[-1, -1] = 0.0
    fitted = np.linalg.solve(inputs.T @ inputs + ridge, inputs.T @ records.log_priority)
    leaving = np.zeros(len(LEAVING_FEATURES))
    leaving[0] = _EVICTS
    low, high = seen_range(columns, scale)
    return PolicyNetwork(
        mean, scale, low, high, fitted[:n], hidden, bias, fitted[n:-1], fitted[-1:],
        np.zeros(len(HOST_FEATURES)), np.zeros(1), leaving, np.zeros(1),
    ).rounded()  # fmt: skip


def seen_range(columns: Column, scale: Column) -> tuple[Column, Column]:
    """[feature]: from where to where these columns go, with a margin."""
    return columns.min(axis=0) - _MARGIN * scale, columns.max(axis=0) + _MARGIN * scale


def agreement(network: PolicyNetwork, records: Recorded) -> Agreement:
    """How often the network ranks the jobs of these decisions as MLF-H does."""
    import numpy as np

    scores = network.scores(records.columns)
    same = pairs = first = decisions = 0
    for decision in np.unique(records.decision).tolist():
        own = np.flatnonzero(records.decision == decision)
        if len(own) < 2:
            continue
        theirs, ours = records.log_priority[own], scores[own]
        a, b = np.triu_indices(len(own), 1)
        apart = theirs[a] != theirs[b]
        same += int(((theirs[a] > theirs[b]) == (ours[a] > ours[b]))[apart].sum())
        pairs += int(apart.sum())
        first += int(theirs.argmax() == ours.argmax())
        decisions += 1
    return Agreement(decisions, same / max(pairs, 1), first / max(decisions, 1))
