"""Weighted max-min fairness in GPUs."""

from heapq import heapify, heappop, heappush
from typing import Annotated

from msgspec import Meta

from hocket.model.capacity import Shape, shape_of
from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.common_params import PriorityParams
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.owner_shares import Lanes, Shares, displace_richer, grow, placed_s, serve
from hocket.policies.registry import policy

_GPUS = (1.0, 0.0, 0.0, 0.0)  # a level is GPUs over weight


class Fair(PriorityParams, frozen=True):
    preempt: Annotated[
        bool, Meta(description="whether running jobs of an owner with more make way for one with less")
    ] = True
    quantum_s: Annotated[float, Meta(ge=0, description="how long a job runs before it may be paused, or grow")] = 600.0


def rank(view: JobView, _now_s: float, params: Fair) -> tuple[str, float, float, float]:
    """Owner by owner: waiting jobs by priority, weight and submission; placed ones elastic first, then by start."""
    job = view.job
    if view.partitions:
        return job.owner, len(job.sizes) == 1, placed_s(view), 0.0
    return job.owner, -job.priority if params.priority else 0, -job.weight, view.submitted_s


@policy(
    "fair",
    params=Fair,
    order=rank,
    paper="max-min fairness, Bertsekas and Gallager",
    reads_beliefs=False,
    reads=("priority", "weight"),
)
def decide(snapshot: Snapshot, params: Fair) -> Plan:
    """The owner with the fewest GPUs for its weight gets its next job, at its smallest size; again and again.

    Where there is no room, elastic jobs shrink: those of the same owner, and those of owners that have more GPUs for
    their weight, as long as they still have more. Then, if allowed, jobs of such owners that have had their quantum
    pause. What is left over goes to elastic jobs: of the owner with least first, inside it by the jobs' weights.
    Among the jobs of one owner a higher priority starts first; it takes nothing from other owners.
    """
    draft = Draft(snapshot)
    filling = _Filling(draft, params)
    left = serve(filling.lanes, filling.shares.level, filling.give) or draft.paused > 0
    filling.grow()
    if left:
        draft.reasons["*"] = "waits: owners with fewer GPUs for their weight come first, or it does not fit"
    draft.memos = {p: snapshot.now_s for p in draft.reasons if p != "*"}
    # An owner that has just got something may now have enough to make way for those left: ask again at once.
    again = filling.exchanged or (left and draft.memos)
    at_s = snapshot.now_s if again else min(filling.retry_s, default=None)
    wake = Wake(freed_gpus=1 if left or filling.wanted or draft.over_quota else None, epoch=False, at_s=at_s)
    return draft.plan(wake)


class _Filling:
    """Progressive filling, in one decision."""

    def __init__(self, draft: Draft, params: Fair) -> None:
        self.draft, self.params, self.snapshot = draft, params, draft.snapshot
        self.shares = Shares(self.snapshot, _GPUS)
        self.lanes = Lanes(draft)
        jobs = self.snapshot.jobs
        self.elastic = [jobs[entry[-1]] for entry in self.snapshot.placed.buckets().get(True, ())]
        self.started: list[JobView] = []
        self.exchanged = False
        # Owners with more do not have enough for these; owners that come later have more themselves.
        self.no_place: set[Shape] = set()
        self.retry_s: list[float] = []  # when a quantum ends that stood in the way
        self.wanted = False  # an elastic job could use more

    def give(self, view: JobView) -> bool:
        """Start the job where there is room, or where room can be made."""
        why = f"starts: '{view.job.owner}' has the fewest GPUs for its weight"
        if (
            self.draft.start(view, why, view.job.sizes[0])
            or self._shrink(view, why)
            or (self.params.preempt and self._displace(view, why))
        ):
            self.started.append(view)
            self.shares.add(view.job, view.job.sizes[0])
            return True
        self.lanes.close(view.job.owner)
        return False

    def _shrink(self, view: JobView, why: str) -> bool:
        """Shrink elastic jobs a size at a time, from the owner with most, until the job fits."""
        draft, shares, owner = self.draft, self.shares, view.job.owner
        mine, needs = shares.level(owner), view.job.sizes[0] * view.job.demand.gpus - draft.free_gpus
        line = []
        for donor in self.elastic:
            size, least = draft.size_of(donor), donor.job.sizes[0]
            if size > least and (donor.job.owner == owner or shares.level(donor.job.owner) > mine):
                line.append((self._most_first(donor, size), donor.number, donor, size))
                needs -= (size - least) * donor.job.demand.gpus
        if not line or needs > 0:
            return False
        heapify(line)
        saved, shrunk = draft.saved(), []
        while line:
            key, number, donor, size = heappop(line)
            if (now := self._most_first(donor, size)) != key:
                heappush(line, (now, number, donor, size))  # Its owner has less than when it was put there.
                continue
            less = donor.job.sizes[donor.job.sizes.index(size) - 1]
            if donor.job.owner != owner and shares.level_with(donor.job, less - size) <= mine:
                continue
            if not draft.resize(donor, less, f"shrinks: '{view.job.id}' has less"):
                continue
            shares.add(donor.job, less - size)
            shrunk.append((donor.job, size - less))
            if less > donor.job.sizes[0]:
                heappush(line, (self._most_first(donor, less), number, donor, less))
            if draft.start(view, why, view.job.sizes[0]):
                self.exchanged = True
                self.no_place.clear()
                return True
        draft.restore(saved)
        for job, back in shrunk:
            shares.add(job, back)
        return False

    def _displace(self, view: JobView, why: str) -> bool:
        """Pause jobs of owners that have more, and will have more without them."""
        if (shape := shape_of(view.job)) in self.no_place:
            return False
        paused = displace_richer(self.draft, self.shares, view, self.params.quantum_s, why, self.retry_s)
        if not paused:
            self.no_place.add(shape)
            return False
        self.exchanged = True
        self.no_place.clear()
        return True

    def grow(self) -> None:
        """Give what is left to elastic jobs: those that start now, and those that have had their quantum."""
        started = {view.job.id for view in self.started}

        def why(view: JobView) -> str:
            if view.job.id in started:
                return self.draft.reasons[view.job.id]
            return "grows: no other job needs it" if self._settled(view) else ""

        self.wanted = grow(self.draft, self.shares, [*self.elastic, *self.started], self._least_first, why)

    def _settled(self, view: JobView) -> bool:
        """Has the job had its quantum since the plan placed or resized it? If not, ask again when it has."""
        at_s = placed_s(view) + self.params.quantum_s
        if at_s > self.snapshot.now_s:
            self.retry_s.append(at_s)
        return at_s <= self.snapshot.now_s

    def _least_first(self, view: JobView, size: int) -> tuple[float, float]:
        return self.shares.level(view.job.owner), size * view.job.demand.gpus / view.job.weight

    def _most_first(self, view: JobView, size: int) -> tuple[float, float]:
        level, gpus = self._least_first(view, size)
        return -level, -gpus
