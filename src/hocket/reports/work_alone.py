"""The work of recorded jobs as time alone: a second beside other jobs counts with the speed that the job had.

The slow-down by other tenants is the simulator's own model (`executors/simulated/speed.py` and `task_graph.py`), with
the journal's data. So a new run under the recorded policy gives the recorded result as far as the model is right, and
the results of jobs that shared resources depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf

from msgspec import Struct

from hocket.executors.simulated.speed import Companion, own_speed, play, rate_of, shared_speed, takes_turns
from hocket.executors.simulated.task_graph import Seat, Seats, by_task, length_s, link_mbps, parts_of
from hocket.model.job import Job, TaskGraph
from hocket.model.partition import Holding
from hocket.model.resources import Node
from hocket.model.snapshot import demand_of
from hocket.reports.account import Account, Span
from hocket.workloads.truth import Truth

_ROUNDS = 8  # for the length of an iteration: it depends on the work, and the work on it


class Place(Struct, frozen=True, order=True):
    """Where a tenant ran, as far as its speed depends on it."""

    size: int
    kind: str = ""  # of its GPUs
    several_nodes: bool = False


class Work(Struct, frozen=True):
    """What one job did."""

    run_s: float = 0.0  # alone at its reference size, without interruption
    iteration_s: float | None = None  # of a task graph, alone
    rests_on: str = ""  # the model, if any of it was done beside others


class RecordedSpans:
    """The spans of an account, by job and by the jobs that shared them."""

    def __init__(self, accounted: Account, nodes: Mapping[str, Node]) -> None:
        self.jobs: list[Job] = [r.job for r in accounted.jobs]
        self.nodes = nodes
        self.spans: dict[int, list[Span]] = {}  # job → those in which it trained
        for span in accounted.spans:
            if span.trains:
                self.spans.setdefault(span.job, []).append(span)
        self._beside = _sharers(accounted.spans)

    def kind(self, span: Span) -> str:
        """The kind of GPUs of a span."""
        node = self.nodes.get(span.partition.slices[0].node)
        return node.gpu_kind if node is not None else ""

    def place(self, span: Span) -> Place:
        """Where a span was."""
        return Place(self.holding(span).size, self.kind(span), len(span.partition.slices) > 1)

    def holding(self, span: Span) -> Holding:
        """What the tenant of a span had."""
        partition, job_id = span.partition, self.jobs[span.job].id
        replicas = next((t.replicas for t in partition.tenants if t.job == job_id and t.task == span.task), (0,))
        return Holding(partition.id, partition.slices, replicas)

    def beside(self, span: Span) -> Sequence[Span]:
        """All spans that shared the partition then, this one included."""
        return self._beside.get(id(span)) or (span,)

    def speed(self, span: Span, truths: Mapping[int, Truth]) -> float:
        """The tenant's speed by the simulator's model. A task alone has speed 1."""
        truth, sharing = truths[span.job], span.partition.sharing
        tenants = self.beside(span)
        me = next(i for i, t in enumerate(tenants) if (t.job, t.task) == (span.job, span.task))
        companions = [
            Companion(demand_of(self.jobs[t.job], t.task), truths[t.job], self.holding(t), self.kind(t))
            for t in tenants
        ]
        if not span.task and takes_turns(sharing, truth):
            return rate_of(truth, play(companions, sharing, 0.0, 0).iteration_s[me])
        speeds = [
            1.0 if t.task else own_speed(c.truth, c.holding, c.kind) for t, c in zip(tenants, companions, strict=True)
        ]
        gpus = len(span.partition.slices[0].gpus)
        return speeds[me] * shared_speed(me, list(zip(companions, speeds, strict=True)), sharing, gpus)

    def work(self, number: int, truths: Mapping[int, Truth], lost: Sequence[tuple[float, float]], epochs: int) -> Work:
        """The work of a job, without lost work."""
        spans = self.spans.get(number, [])
        shared_s = sum(_kept_s(s.since_s, s.until_s, lost) for s in spans if len(self.beside(s)) > 1)
        graph = self.jobs[number].tasks
        if graph is None:
            run_s = sum(_kept_s(s.since_s, s.until_s, lost) * self.speed(s, truths) for s in spans)
            return Work(run_s, rests_on=_said(shared_s, sum(_kept_s(s.since_s, s.until_s, lost) for s in spans)))
        stretches = self._stretches(spans, truths, lost)
        busy_s = run_s = sum(time_s for time_s, _seats in stretches)
        iteration_s = truths[number].comp_s
        for _ in range(_ROUNDS if epochs else 1):
            iteration_s = run_s / epochs if epochs and run_s else iteration_s
            run_s = sum(time_s * _graph_speed(graph, iteration_s, seats) for time_s, seats in stretches)
        sends = any(len({s.node for seats in now.values() for s in seats}) > 1 for _time_s, now in stretches)
        rests_on = _said(shared_s, sum(_kept_s(s.since_s, s.until_s, lost) for s in spans))
        if not rests_on and sends and any(edge.mib for edge in graph.edges) and run_s < busy_s:
            rests_on = "its tasks send data over the network: the time of that is the simulator's estimate"
        return Work(run_s, iteration_s, rests_on)

    def _stretches(
        self, spans: Sequence[Span], truths: Mapping[int, Truth], lost: Sequence[tuple[float, float]]
    ) -> list[tuple[float, Seats]]:
        """How long the tasks of a job ran at which places; overlapping spans count once."""
        seats = {id(span): self._seat(span, truths) for span in spans}
        edges = sorted({s.since_s for s in spans} | {s.until_s for s in spans})
        found = []
        for since_s, until_s in pairwise(edges):
            now = {s.task: seats[id(s)] for s in spans if s.since_s <= since_s and s.until_s >= until_s}
            found.append((_kept_s(since_s, until_s, lost), by_task(now)))
        return found

    def _seat(self, span: Span, truths: Mapping[int, Truth]) -> Seat:
        part = span.partition.slices[0]
        asked = sum(demand_of(self.jobs[t.job], t.task).net_mbps for t in self.beside(span))
        node = self.nodes.get(part.node)
        demand = demand_of(self.jobs[span.job], span.task)
        mbps = link_mbps(demand, part, node, asked) if node is not None else inf
        return Seat(part.node, self.speed(span, truths), mbps)


def _sharers(spans: Sequence[Span]) -> dict[int, list[Span]]:
    """For each span of a shared partition, one span of each tenant that had it at the same time."""
    found: dict[int, dict[tuple[int, str], Span]] = {}
    active: dict[str, list[Span]] = {}
    for span in sorted((s for s in spans if s.share < 1.0), key=lambda s: s.since_s):
        here = [s for s in active.get(span.partition.id, ()) if s.until_s > span.since_s]
        for other in (*here, span):
            found.setdefault(id(span), {}).setdefault((other.job, other.task), other)
            found.setdefault(id(other), {}).setdefault((span.job, span.task), span)
        active[span.partition.id] = [*here, span]
    return {span: [tenants[key] for key in sorted(tenants)] for span, tenants in found.items()}


def _kept_s(since_s: float, until_s: float, lost: Sequence[tuple[float, float]]) -> float:
    """The length of a span, without lost work."""
    return until_s - since_s - sum(max(0.0, min(until_s, to_s) - max(since_s, from_s)) for from_s, to_s in lost)


def _graph_speed(graph: TaskGraph, iteration_s: float, seats: Seats) -> float:
    """Relative to the speed of a task graph with every task alone; 0 while a task waits."""
    parts = parts_of(graph, iteration_s)
    return iteration_s / length_s(parts, seats) if len(seats) == len(parts.tasks) else 0.0


def _said(shared_s: float, ran_s: float) -> str:
    if shared_s <= 0:
        return ""
    return f"shared resources for {shared_s / ran_s:.0%} of its time: its work alone is the simulator's estimate"
