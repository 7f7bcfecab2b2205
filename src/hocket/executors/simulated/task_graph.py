"""How an iteration over a task graph really goes: it ends when every task of the graph has run.

A task begins when all that it depends on has run and has been sent to it; what is sent within a node takes no time.
A task that waits holds up only those that depend on it: the others still run their part of the present iteration,
and when it comes back only the rest of that iteration is left to do. Of several replicas of a task, the first to be
done counts, and once it is, any of them can send what it computed.

What was sent to a task that moves or waits stays sent; what was not is sent from where the sender is then to where the
receiver is then, and not while one of the two is away. Transfers at the same time do not slow each other down: each
has its sender's and its receiver's bandwidth for itself, so that many that go to one task take no longer than one.
Where speeds change while all run, or a move takes no time at all, a job keeps the part of the iteration it has done.
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


class GraphParts(Struct, frozen=True, gc=False):
    """An iteration over a task graph in numbers, or what is left of one: each task comes after all it depends on."""

    tasks: tuple[str, ...]
    work_s: tuple[float, ...]  # alone on its GPU
    needs: tuple[tuple[tuple[int, float], ...], ...]  # on which tasks each depends, and what they send it (MiB)
    alone_s: float  # a whole iteration with every task alone on its GPU, and nothing to send between nodes
    has_run: tuple[bool, ...]  # not the same as to be without work: such a task still comes after what it depends on


def parts_of(graph: TaskGraph, iteration_s: float) -> GraphParts:
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
    return GraphParts(tuple(index), tuple(shares[t] * scale for t in index), needs, iteration_s, (False,) * len(index))


def link_mbps(demand: Demand, part: Slice, node: Node, asked_mbps: float) -> float:
    """What a tenant can send: what it asks for, or its part of that where the tenants ask for more than there is.

    One that asks for nothing has the node's network, which is unlimited where none is stated.
    """
    if not demand.net_mbps:
        return node.net_mbps or inf
    if part.net_mbps and asked_mbps > part.net_mbps:
        return demand.net_mbps * part.net_mbps / asked_mbps
    return demand.net_mbps


def transfer_s(mib: float, sources: Sequence[Seat], target: Seat) -> float:
    """How long it takes to send so much from the nearest of these seats to another; for ever, if there is none."""
    if not mib:
        return 0.0
    shortest_s = inf
    for source in sources:
        if source.node == target.node:
            return 0.0
        shortest_s = min(shortest_s, mib * MEGABITS_PER_MIB / min(source.mbps, target.mbps))
    return shortest_s


def spans(parts: GraphParts, seats: Seats) -> list[tuple[float, float, Sequence[Seat]]]:
    """When each task begins and ends, and where: in the one seat that is done first, or any if it had run before.

    One that waits, or depends on one that does, never begins.
    """
    found: list[tuple[float, float, Sequence[Seat]]] = []
    for task, work_s, needs, has_run in zip(parts.tasks, parts.work_s, parts.needs, parts.has_run, strict=True):
        at = seats.get(task, ())
        if has_run:
            found.append((0.0, 0.0, at))
            continue
        span = (inf, inf, at[:1])  # Also one that cannot begin yet is sent what is ready.
        for seat in at:
            begins = max([found[i][1] + transfer_s(mib, found[i][2], seat) for i, mib in needs], default=0.0)
            ends = begins + work_s / seat.speed
            if ends < span[1]:
                span = (begins, ends, (seat,))
        found.append(span)
    return found


def length_s(parts: GraphParts, seats: Seats) -> float:
    """How long it takes until every task has run; infinite while one waits."""
    return max((ends for _begins, ends, _at in spans(parts, seats)), default=0.0)


def by_task(seats: Mapping[str, Seat]) -> Seats:
    """The replicas of each task; "layer1#2" is one of "layer1"."""
    found: dict[str, list[Seat]] = {}
    for name, seat in seats.items():
        found.setdefault(name.partition("#")[0], []).append(seat)
    return found


def left_after(parts: GraphParts, seats: Seats, time_s: float) -> GraphParts:
    """What is left to compute and to send after a while."""
    found = spans(parts, seats)
    work_left_s: list[float] = []
    needs_left: list[tuple[tuple[int, float], ...]] = []
    for work_s, needs, (begins, ends, at) in zip(parts.work_s, parts.needs, found, strict=True):
        if ends <= time_s:
            work_s = 0.0
        elif begins < time_s:
            work_s *= (ends - time_s) / (ends - begins)
        if begins <= time_s:
            needs = ()  # It has got all of it.
        elif at:
            needs = tuple([(i, _unsent_mib(mib, found[i], at[0], time_s)) for i, mib in needs])
        work_left_s.append(work_s)
        needs_left.append(needs)
    has_run = tuple([ends <= time_s for _begins, ends, _at in found])
    return GraphParts(parts.tasks, tuple(work_left_s), tuple(needs_left), parts.alone_s, has_run)


def _unsent_mib(mib: float, source: tuple[float, float, Sequence[Seat]], target: Seat, time_s: float) -> float:
    """What a task has not sent yet after a while, of so much that it begins to send when it ends."""
    _begins, sends_s, at = source
    takes_s = transfer_s(mib, at, target)
    if sends_s + takes_s <= time_s:
        return 0.0
    if sends_s >= time_s or takes_s == inf:
        return mib
    return mib * (sends_s + takes_s - time_s) / takes_s


class Iteration(Struct, eq=False):
    """Where a job stands in its present iteration, and how long one takes as things are."""

    parts: GraphParts
    left: GraphParts  # of this iteration, while a task waits; else of the last one that went on after such a wait
    whole_s: float  # the job's work when that iteration is over …
    resumed_s: float  # … and when it went on
    since_s: float  # when anything changed
    seats: Mapping[str, Seat] = {}  # by tenant: a task, or a replica of it
    takes_s: float = inf  # an iteration; infinite while a task waits

    @staticmethod
    def of(graph: TaskGraph, truth: Truth, now_s: float, done_s: float = 0.0) -> Iteration:
        """A job that has done so much work, each task as far in its iteration as if all had been alone on one node."""
        parts = parts_of(graph, min(truth.comp_s, truth.run_s) or truth.comp_s or _INSTANT_S)
        whole, into_s = divmod(done_s, parts.alone_s)
        one_node = dict.fromkeys(parts.tasks, (Seat(""),))
        left = left_after(parts, one_node, into_s) if into_s else parts
        return Iteration(parts, left, (whole + 1) * parts.alone_s, done_s, now_s)

    def known(self, tenant: str, holding: Holding) -> Seat | None:
        """The seat that was worked out for a tenant, if it still has the same place."""
        seat = self.seats.get(tenant)
        return seat if seat is not None and seat.holding is holding else None

    def change(self, now_s: float, done_s: float, seats: Mapping[str, Seat]) -> tuple[float, float]:
        """Its tasks run elsewhere, or at other speeds, from now on: the job's rate, and the work that it has done.

        That is less than before if what is left of the iteration is a larger part of one now, as after a move to a
        slower link.
        """
        parts, alone_s = self.parts, self.parts.alone_s
        ran = self.takes_s < inf
        takes_s = inf
        now: Seats = {}
        if len(seats) >= len(parts.tasks):  # else one waits
            now = by_task(seats)
            takes_s = length_s(parts, now)
        if ran and takes_s == inf:
            self._interrupt(done_s)
        elif not ran and now_s > self.since_s:
            self.left = left_after(self.left, by_task(self.seats), now_s - self.since_s)
        self.seats, self.since_s, self.takes_s = seats, now_s, takes_s
        if takes_s == inf:
            return 0.0, done_s
        if not ran:
            # What ran and was sent while others waited need not be done again.
            rest = min(1.0, length_s(self.left, now) / takes_s)
            self.resumed_s = done_s = self.whole_s - rest * alone_s
        return alone_s / takes_s, done_s

    def _interrupt(self, done_s: float) -> None:
        """A task of a job that has done so much leaves: note what is left of the present iteration."""
        seats = by_task(self.seats)
        if done_s < self.whole_s:  # It is still the one that was interrupted before.
            into = (done_s - self.resumed_s) / (self.whole_s - self.resumed_s)
            self.left = left_after(self.left, seats, into * length_s(self.left, seats))
        else:
            whole, into_s = divmod(done_s, self.parts.alone_s)
            self.left = left_after(self.parts, seats, into_s / self.parts.alone_s * self.takes_s)
            self.whole_s = (whole + 1) * self.parts.alone_s
