"""How an iteration over a task graph really goes: it ends when every task of the graph has run.

A task begins when all that it depends on has run and has been sent to it; what is sent within a node takes no time.
A task that waits holds up only those that depend on it: the others still run their part of the present iteration,
and when it comes back only the rest of that iteration is left to do. Of several replicas of a task, the first to be
done counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from msgspec import Struct

from hocket.model.job import TaskGraph
from hocket.model.partition import Holding
from hocket.model.resources import Demand, Node, Slice
from hocket.workloads.truth import Truth

MEGABITS_PER_MIB = 8.388608
_INSTANT_S = 1e-9  # an iteration of a job that takes no time at all


class Seat(Struct, frozen=True, gc=False):
    """Where one replica of a task runs."""

    node: str
    speed: float = 1.0  # of the speed that it has alone
    mbps: float = inf  # what it can send to and get from other nodes
    holding: Holding | None = None  # that this was worked out for


Seats = Mapping[str, Sequence[Seat]]  # task → its replicas; a task that is not there waits


class Parts(Struct, frozen=True, gc=False):
    """A task graph in numbers: each task comes after all that it depends on."""

    tasks: tuple[str, ...]
    work_s: tuple[float, ...]  # in one iteration, alone on its GPU
    needs: tuple[tuple[tuple[int, float], ...], ...]  # on which tasks each depends, and what they send it (MiB)
    alone_s: float  # one iteration with every task alone on its GPU, and nothing to send between nodes


def parts_of(graph: TaskGraph, iteration_s: float) -> Parts:
    """The graph of a job whose iterations take so long alone. Tasks compute in proportion to their share."""
    shares = {t.id: t.share for t in graph.tasks}
    if not any(shares.values()):
        shares = dict.fromkeys(shares, 1.0)
    sources: dict[str, list[tuple[str, float]]] = {t.id: [] for t in graph.tasks}
    for edge in graph.edges:
        sources[edge.target].append((edge.source, edge.mib))
    index: dict[str, int] = {}
    while len(index) < len(sources):
        ready = [t for t in sources if t not in index and all(s in index for s, _mib in sources[t])]
        if not ready:
            raise ValueError(f"tasks: the graph must have no cycle, and {sorted(sources.keys() - index)} are in one")
        for task in ready:
            index[task] = len(index)
    needs = tuple(tuple((index[s], mib) for s, mib in sources[t]) for t in index)
    ends: list[float] = []
    for task, before in zip(index, needs, strict=True):
        ends.append(max((ends[i] for i, _mib in before), default=0.0) + shares[task])
    scale = iteration_s / max(ends)
    return Parts(tuple(index), tuple(shares[t] * scale for t in index), needs, iteration_s)


def link_mbps(demand: Demand, part: Slice, node: Node, asked_mbps: float) -> float:
    """What a tenant can send: what it asks for, or its part of that where the tenants ask for more than there is.

    One that asks for nothing has the node's network, which is unlimited where none is stated.
    """
    if not demand.net_mbps:
        return node.net_mbps or inf
    if part.net_mbps and asked_mbps > part.net_mbps:
        return demand.net_mbps * part.net_mbps / asked_mbps
    return demand.net_mbps


def transfer_s(mib: float, source: Seat | None, target: Seat) -> float:
    """How long it takes to send so much from one seat to another."""
    if not mib or source is None or source.node == target.node:
        return 0.0
    return mib * MEGABITS_PER_MIB / min(source.mbps, target.mbps)


def spans(parts: Parts, left_s: Sequence[float], seats: Seats) -> list[tuple[float, float]]:
    """When each task begins and ends what is left of its work; never, if it waits or depends on one that does."""
    found: list[tuple[float, float]] = []
    chosen: list[Seat | None] = []  # where each ran that is first to be done
    for task, work_s, needs in zip(parts.tasks, left_s, parts.needs, strict=True):
        span, at = (inf, inf), None
        if work_s <= 0:
            span = (0.0, 0.0)  # It has run, wherever that was.
        else:
            for seat in seats.get(task, ()):
                begins = max([found[i][1] + transfer_s(mib, chosen[i], seat) for i, mib in needs], default=0.0)
                if begins + work_s / seat.speed < span[1]:
                    span, at = (begins, begins + work_s / seat.speed), seat
        found.append(span)
        chosen.append(at)
    return found


def length_s(parts: Parts, left_s: Sequence[float], seats: Seats) -> float:
    """How long it takes until every task has run; infinite while one waits."""
    return max((end for _start, end in spans(parts, left_s, seats)), default=0.0)


def by_task(seats: Mapping[str, Seat]) -> Seats:
    """The replicas of each task; "layer1#2" is one of "layer1"."""
    found: dict[str, list[Seat]] = {}
    for name, seat in seats.items():
        found.setdefault(name.partition("#")[0], []).append(seat)
    return found


def left_after(parts: Parts, left_s: Sequence[float], seats: Seats, time_s: float) -> tuple[float, ...]:
    """What is left of each task's work after a while."""
    return tuple(
        work_s if begins >= time_s else 0.0 if ends <= time_s else work_s * (ends - time_s) / (ends - begins)
        for work_s, (begins, ends) in zip(left_s, spans(parts, left_s, seats), strict=True)
    )


class Iteration(Struct, eq=False):
    """Where a job stands in its present iteration, and how long one takes as things are."""

    parts: Parts
    left_s: tuple[float, ...]  # of each task's work in this iteration; kept while a task waits
    since_s: float  # … and as of when
    seats: Mapping[str, Seat] = {}  # by tenant: a task, or a replica of it
    takes_s: float = inf  # an iteration; infinite while a task waits

    @staticmethod
    def of(graph: TaskGraph, truth: Truth, now_s: float) -> Iteration:
        """A job that stands at the beginning of an iteration."""
        parts = parts_of(graph, min(truth.comp_s, truth.run_s) or truth.comp_s or _INSTANT_S)
        return Iteration(parts, parts.work_s, now_s)

    def known(self, tenant: str, holding: Holding) -> Seat | None:
        """The seat that was worked out for a tenant, if it still has the same place."""
        seat = self.seats.get(tenant)
        return seat if seat is not None and seat.holding is holding else None

    def change(self, now_s: float, done_s: float, seats: Mapping[str, Seat]) -> tuple[float, float]:
        """Its tasks run elsewhere, or at other speeds, from now on: the job's rate, and the work that it has done."""
        parts, alone_s = self.parts, self.parts.alone_s
        ran = self.takes_s < inf
        whole, into_s = divmod(done_s, alone_s)
        takes_s = inf
        now: Seats = {}
        if len(seats) >= len(parts.tasks):  # else one waits
            now = by_task(seats)
            takes_s = length_s(parts, parts.work_s, now)
        if ran and takes_s == inf:
            self.left_s = left_after(parts, parts.work_s, by_task(self.seats), into_s / alone_s * self.takes_s)
        elif not ran and now_s > self.since_s:
            self.left_s = left_after(parts, self.left_s, by_task(self.seats), now_s - self.since_s)
        self.seats, self.since_s, self.takes_s = seats, now_s, takes_s
        if takes_s == inf:
            return 0.0, done_s
        if not ran:
            # What ran while others waited need not run again.
            rest = length_s(parts, self.left_s, now) / takes_s
            done_s = max(done_s, (whole + 1 - rest) * alone_s)
        return alone_s / takes_s, done_s
