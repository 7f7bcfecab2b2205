"""The groups of a recorded run: from when to when each stayed as it was, and how its jobs iterated meanwhile.

Everything is read from the journal: plans say which jobs share which hosts, events when that was carried out, when each
iteration ended, and what the phases took as the jobs measured them.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, sqrt

from msgspec import Struct

from hocket.control.ports import Cycle
from hocket.estimators.phases import observe
from hocket.model.curve import NO_BELIEFS, Beliefs
from hocket.model.event import (
    EpochEnded,
    Event,
    JobEnded,
    JobFailed,
    JobMoved,
    JobPaused,
    JobResized,
    JobStarted,
    PhasesObserved,
)
from hocket.model.partition import Partition, Sharing
from hocket.model.phases import Profile, profile_of

LEAST_ITERATIONS = 8  # of each job, for a group to count
_REPORTED_LATER_S = 6.0  # An agent reports phases every 5 s.


class PlayedTenant(Struct, frozen=True):
    """One job of a group, while the group was as it was."""

    job: str
    nodes: tuple[str, ...]
    iterations: int
    iteration_s: float  # from one iteration's end to the next
    comp_s: float  # phases on these hosts, as measured meanwhile …
    comm_s: float
    slowest: float
    link: float
    meeting_s: float
    comp_sd: float  # of what each report said
    comm_sd: float
    before: Profile | None  # … and what was believed of them when the group was formed


class RecordedGroup(Struct, frozen=True):
    """A group, or a job alone."""

    since_s: float  # all its jobs iterate …
    until_s: float  # … until the first of them is over, or goes elsewhere
    sharing: Sharing
    tenants: tuple[PlayedTenant, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """All hosts of it."""
        return tuple(sorted({node for tenant in self.tenants for node in tenant.nodes}))

    @property
    def round_s(self) -> float:
        """The time in which every job iterates at least once."""
        return max(tenant.iteration_s for tenant in self.tenants)


class _Place(Struct, frozen=True):
    """Where a job runs, and since when; another run of it is another place."""

    partition: str
    nodes: tuple[str, ...]
    sharing: Sharing
    since_s: float


def recorded_groups(cycles: Iterable[Cycle]) -> list[RecordedGroup]:
    """Those in which each job iterated often enough to be measured, by when they began."""
    journal = _Journal()
    for cycle in cycles:
        for event in cycle.events:
            journal.take(event)
        for partition in cycle.plan.put if cycle.plan is not None else ():
            for tenant in partition.tenants:
                nodes = tuple(s.node for s, n in zip(partition.slices, tenant.replicas, strict=True) if n)
                journal.planned[tenant.job] = partition, nodes
    journal.change(inf, {})
    found = [journal.measured(*stay) for stay in journal.stays]
    return sorted((group for group in found if group is not None), key=lambda group: group.since_s)


class _Journal:
    """What the events of a journal say."""

    def __init__(self) -> None:
        self.planned: dict[str, tuple[Partition, tuple[str, ...]]] = {}
        self.stays: list[tuple[float, float, dict[str, _Place]]] = []  # from when to when which jobs were a group
        self._places: dict[str, _Place] = {}
        self._present: dict[frozenset[tuple[str, _Place]], float] = {}  # groups, since when
        self._ends_s: dict[str, list[float]] = {}  # of a job's iterations
        self._phases: dict[str, list[PhasesObserved]] = {}

    def take(self, event: Event) -> None:
        """One more."""
        match event:
            case JobStarted() | JobMoved() | JobResized() if event.job in self.planned:
                partition, nodes = self.planned[event.job]
                place = _Place(partition.id, nodes, partition.sharing, event.at_s)
                self.change(event.at_s, {**self._places, event.job: place})
            case JobPaused() | JobEnded() | JobFailed():
                self.change(event.at_s, {job: at for job, at in self._places.items() if job != event.job})
            case EpochEnded():
                self._ends_s.setdefault(event.job, []).append(event.at_s)
            case PhasesObserved():
                self._phases.setdefault(event.job, []).append(event)
            case _:
                pass

    def change(self, at_s: float, places: dict[str, _Place]) -> None:
        """From now on jobs run there; groups in which nothing changed go on."""
        groups = {
            frozenset((job, at) for job, at in places.items() if at.partition == partition)
            for partition in {at.partition for at in places.values()}
        }
        for group in [group for group in self._present if group not in groups]:
            self.stays.append((self._present.pop(group), at_s, dict(group)))
        self._present |= {group: at_s for group in groups if group not in self._present}
        self._places = places

    def measured(self, since_s: float, until_s: float, places: dict[str, _Place]) -> RecordedGroup | None:
        """What its jobs did while all of them iterated; None if one did too little."""
        ends = {job: [at for at in self._ends_s.get(job, ()) if since_s <= at < until_s] for job in places}
        if any(len(at) < LEAST_ITERATIONS for at in ends.values()):
            return None
        since_s, until_s = max(at[0] for at in ends.values()), min(at[-1] for at in ends.values())
        tenants = [
            self._tenant(job, place, [at for at in ends[job] if since_s <= at <= until_s])
            for job, place in sorted(places.items())
        ]
        known = [tenant for tenant in tenants if tenant is not None]
        if len(known) < len(tenants):
            return None
        return RecordedGroup(since_s, until_s, next(iter(places.values())).sharing, tuple(known))

    def _tenant(self, job: str, place: _Place, ends_s: list[float]) -> PlayedTenant | None:
        seen = self._phases.get(job, [])
        # A report is about the iterations before it.
        meanwhile = [s for s in seen if ends_s and ends_s[0] < s.at_s <= ends_s[-1] + _REPORTED_LATER_S]
        count = sum(s.iterations for s in meanwhile)
        if len(ends_s) <= LEAST_ITERATIONS or not count:
            return None

        def mean(field: str) -> float:
            return sum(float(getattr(s, field)) * s.iterations for s in meanwhile) / count

        def deviation(field: str) -> float:
            off = (float(getattr(s, field)) - mean(field) for s in meanwhile)
            return sqrt(sum(each * each for each in off) / len(meanwhile))

        beliefs: Beliefs = NO_BELIEFS
        for each in seen:
            if each.at_s <= ends_s[0]:
                beliefs = observe(beliefs, each)
        return PlayedTenant(
            job, place.nodes, len(ends_s) - 1, (ends_s[-1] - ends_s[0]) / (len(ends_s) - 1),
            mean("comp_s"), mean("comm_s"), mean("slowest"), mean("link"), mean("meeting_s"),
            deviation("comp_s"), deviation("comm_s"), profile_of(beliefs),
        )  # fmt: skip
