"""The sizes that jobs are to have now, so that most attain: what is free until their deadlines is reserved in order.

One job after the other, those first that attain most for what they take. Each has as few replicas reserved as are
enough, since fewer use them better; where others have reserved much, fewer now and more later. A job for which too
little is left gets nothing: it would only take from others what they need, and be late all the same.
"""

from __future__ import annotations

from math import inf

from msgspec import Struct

from hocket.model.criterion import Duration
from hocket.model.resources import Demand
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.job_outlooks import JobOutlook, machine_totals

_REFUSED = 16  # jobs for which too little is left, after which no further ones are tried
_ROUNDING = 1e-6


class _Piece(Struct):
    """A piece of time, and what is free in it."""

    begin_s: float
    end_s: float
    gpus: float
    cores: float

    def has(self, demand: Demand, replicas: int) -> bool:
        """Whether so many replicas are free."""
        return (
            replicas * demand.gpus <= self.gpus + _ROUNDING and replicas * demand.cores <= self.cores + _ROUNDING
        )  # fmt: skip

    def take(self, demand: Demand, replicas: int) -> None:
        """Reserve them."""
        self.gpus -= replicas * demand.gpus
        self.cores -= replicas * demand.cores


def jobs_with_a_share(snapshot: Snapshot, outlooks: dict[int, JobOutlook], least_share: float) -> frozenset[int]:
    """Numbers of the jobs without a deadline in time that run whatever others need, those worth most first.

    Together they have no more than this share of GPUs and of cores, but one job always. None where all jobs are so.
    """
    views = [view for view in snapshot.jobs.data().values() if not _has_deadline(view)]
    if not least_share or not views or len(views) == len(snapshot.jobs):
        return frozenset()
    gpus, cores, _mem_mib = machine_totals(snapshot)
    left = _Piece(snapshot.now_s, inf, least_share * gpus, least_share * cores)
    found: list[int] = []
    for view in sorted(views, key=lambda view: (-outlooks[view.number].worth, view.number)):
        demand, size = view.job.demand, view.job.sizes[0]
        if not _is_to_run(view) or size * demand.gpus > gpus or size * demand.cores > cores:
            continue
        if found and not left.has(demand, size):
            break
        left.take(demand, size)
        found.append(view.number)
    return frozenset(found)


def _has_deadline(view: JobView) -> bool:
    return isinstance(getattr(view.job.criterion, "deadline", None), Duration)


def _is_to_run(view: JobView) -> bool:
    """Has it a place, or may it get one?"""
    return bool(view.size) or (not view.held and not view.verdict)


def wanted_sizes(
    snapshot: Snapshot, outlooks: dict[int, JobOutlook], first: frozenset[int] = frozenset()
) -> dict[int, int]:
    """By number of the job, the size that it is to have now; 0 for those that are to wait, or have no hope.

    Jobs without a deadline lose nothing by waiting, and get what is left now; but those in `first` have their smallest
    size before all others. Then each gets further sizes, where these bring most. All nodes count as one.
    """
    demands = {view.number: view.job.demand for view in snapshot.jobs.data().values()}
    smallest = {view.number: view.job.sizes[0] for view in snapshot.jobs.data().values()} if first else {}
    wanted = dict.fromkeys(demands, 0)
    gpus, cores, _mem_mib = machine_totals(snapshot)
    for number in first:
        wanted[number] = least = smallest[number]
        gpus -= least * demands[number].gpus
        cores -= least * demands[number].cores
    line = sorted(
        (o.until_s == inf, -o.worth, number) for number, o in outlooks.items() if o.worth >= 0 and number not in first
    )
    last_s = max((o.until_s for o in outlooks.values() if o.until_s < inf), default=snapshot.now_s)
    free = [_Piece(snapshot.now_s, max(snapshot.now_s, last_s), gpus, cores)]
    now = _Piece(snapshot.now_s, inf, gpus, cores)
    further, refused = [], 0
    for is_timeless, _worth, number in line:
        outlook, demand = outlooks[number], demands[number]
        if is_timeless:
            size = outlook.size if now.has(demand, outlook.size) else 0
        else:
            reserved = _reserved(free, outlook, demand) if refused < _REFUSED else None
            refused += reserved is None
            size = reserved or 0
        if size:
            now.take(demand, size)
            wanted[number] = size
            further += [(-step.worth, number, step.size) for step in outlook.steps[1:]]
    for _worth, number, size in sorted(further):
        more = size - wanted[number]
        if more > 0 and now.has(demands[number], more):
            now.take(demands[number], more)
            wanted[number] = size
    return wanted


def _reserved(free: list[_Piece], outlook: JobOutlook, demand: Demand) -> int | None:
    """Reserve the fewest replicas with which the job is in time; how many that is now. None if too little is left."""
    low, high = 0, len(outlook.speeds) - 1
    uses = _uses(free, outlook, demand, high)
    if uses is None:
        return None
    while low < high:
        middle = (low + high) // 2
        fewer = _uses(free, outlook, demand, middle)
        if fewer is None:
            low = middle + 1
        else:
            uses, high = fewer, middle
    for at, replicas, to_s in reversed(uses):
        piece = free[at]
        if to_s < piece.end_s - _ROUNDING:
            free.insert(at + 1, _Piece(to_s, piece.end_s, piece.gpus, piece.cores))
            piece.end_s = to_s
        piece.take(demand, replicas)
    return uses[0][1] if uses[0][0] == 0 else 0


def _uses(free: list[_Piece], outlook: JobOutlook, demand: Demand, most: int) -> list[tuple[int, int, float]] | None:
    """Which pieces it uses with how many replicas, and until when, if it has this one of its sizes at most."""
    speeds, left_s, until_s, gpus, cores = outlook.speeds, outlook.work_s, outlook.until_s, demand.gpus, demand.cores
    enough_s, found = _ROUNDING * left_s, []
    for at, piece in enumerate(free):
        if piece.begin_s >= until_s:
            break
        room = min(piece.gpus / gpus if gpus else inf, piece.cores / cores if cores else inf) + _ROUNDING
        can = most
        while can >= 0 and speeds[can][0] > room:
            can -= 1
        if can < 0:
            continue
        replicas, speed = speeds[can]
        to_s = min(piece.end_s, until_s, piece.begin_s + left_s / speed)
        found.append((at, replicas, to_s))
        left_s -= (to_s - piece.begin_s) * speed
        if left_s <= enough_s:
            return found
    return None
