"""A plan being written: what is free as the plan stands, which jobs may have it, and why.

Owners' quotas are enforced here, once for all policies: a job whose owner has no quota left is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from typing import Any

from msgspec.structs import replace

from hocket.model.capacity import Capacity, Places, Shape, shape_of
from hocket.model.job import Job
from hocket.model.partition import NOW, Boundary, Partition, Tenant
from hocket.model.plan import ALWAYS, Plan, Wake
from hocket.model.resources import Demand, Slice
from hocket.model.snapshot import NO_USE, Snapshot, Usage
from hocket.model.view import JobView, Tier

Saved = tuple[Any, ...]

# Never edited: a journal keeps every plan, and most say nothing here.
_NONE: dict[str, Any] = {}
_NO_TIERS: dict[str, Tier] = {}


class Draft:
    """Starts from the present plan; `start`, `pause`, `resize` and `displace` change it; `plan()` is the result.

    Policies whose partitions have several tenants change them by `set_partition` and `drop_partition`, and count what
    the tenants use against quotas by `charge`.
    """

    __slots__ = (
        "_capacity", "_displaced", "_drop", "_named", "_no_room", "_over_quota", "_put", "_requeued", "_taken",
        "_to_requeue", "_usage", "free_gpus", "has_elastic", "has_quotas", "memos", "over_quota", "reasons", "reviews",
        "snapshot",
    )  # fmt: skip

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._capacity: Capacity = snapshot.capacity.draft()
        self._taken: tuple[Slice, ...] = ()
        self.free_gpus = snapshot.capacity.gpus  # that the plan leaves free as it stands
        self.reasons: dict[str, str] = {}
        self.reviews: dict[str, float] = {}
        self.memos: dict[str, Any] = {}
        self.has_elastic = True in snapshot.placed.buckets()  # a job that can have another size is or was placed
        self._put: dict[str, Partition] = {}
        self._drop: dict[str, None] = {}
        self._named = 0  # partitions that the draft named
        self._no_room: set[Shape] = set()
        self.has_quotas = bool(snapshot.owners.data())
        self._usage: dict[str, Usage] = {}  # of owners whose usage the draft changed
        self._to_requeue: list[JobView] = []  # displaced or put back, and not yet in the heap below
        self._requeued: list[tuple[tuple[Any, ...], int, JobView]] = []  # a heap by rank
        self._displaced: set[str] = set()  # A job is displaced once in a plan.
        self.over_quota = 0  # how many jobs were passed over for their owner's quota
        self._over_quota: dict[str, JobView] = {}  # those of them that wait

    @property
    def capacity(self) -> Capacity:
        """What is free as the plan stands."""
        if self._taken:
            self._capacity = self._capacity.take(self._taken)
            self._taken = ()
        return self._capacity

    @capacity.setter
    def capacity(self, capacity: Capacity) -> None:
        self._capacity, self._taken, self.free_gpus = capacity, (), capacity.gpus

    @property
    def started(self) -> int:
        """How many partitions the draft adds; those that only change are not counted."""
        if not self._put:
            return 0
        return len(self._put) - len(self._put.keys() & self.snapshot.partitions.data().keys())

    def started_jobs(self) -> list[JobView]:
        """Jobs to which the draft gives a new partition of their own."""
        if not self._put:
            return []
        jobs, present = self.snapshot.jobs.data(), self.snapshot.partitions.data()
        return [jobs[pid] for pid in self._put if pid not in present and pid in jobs]

    @property
    def changed_partitions(self) -> Iterable[str]:
        """The partitions that the draft adds, changes or drops."""
        return (*self._put, *self._drop)

    @property
    def is_empty(self) -> bool:
        """Is no job placed as the draft stands?"""
        return not self._put and len(self._drop) == len(self.snapshot.partitions)

    @property
    def paused(self) -> int:
        """How many partitions the draft drops: their jobs wait from now on."""
        return len(self._drop)

    @property
    def room_mark(self) -> list[Any]:
        """A mark for the plan's memo: while it is the same, no waiting job that did not fit fits now.

        Free GPUs, placed jobs and nodes that are up, as some jobs and some nodes have no GPUs; and which owners
        have reserved which nodes.
        """
        snapshot = self.snapshot
        placed = snapshot.placed.count + self.started - len(self._drop)
        mark = [self.free_gpus, placed, snapshot.capacity.up.bit_count()]
        return [*mark, *snapshot.reserved] if snapshot.reservations else mark

    @property
    def is_full(self) -> bool:
        """True only if no waiting job can fit: no GPU is free, and each waits for GPUs and nothing else."""
        return not self.free_gpus and set(map(type, self.snapshot.waiting.buckets())) == {int}

    def candidates(
        self, largest: float = inf, unless_before: tuple[Any, ...] = (), *, over_quota: bool = False
    ) -> Iterator[JobView]:
        """Waiting jobs in the policy's order. Once a job did not fit, others of its shape are passed over.

        So are shapes of more GPUs than `largest`, unless the first job of one has a rank before `unless_before`.
        With `over_quota`, jobs whose owner's quota is used up come in their places too: they may displace jobs of the
        same owner. When one is not started before the next is asked for, others of its owner and shape do not come.
        """
        jobs = self.snapshot.jobs.data()
        views = (jobs[entry[-1]] for entry in self.snapshot.waiting.skipping(self._no_room, largest, unless_before))
        if self.has_quotas:
            return self._admitted(views, over_quota)
        return (view for view in views if not view.verdict and view.job.tasks is None)

    def _admitted(self, views: Iterable[JobView], over_quota: bool) -> Iterator[JobView]:
        """Lazily: the jobs before a view count against quotas."""
        closed: set[tuple[str, Shape]] = set()
        for view in views:
            if self.admits(view):
                yield view
            elif over_quota and self.is_over_quota(view):
                yield from self._unless_closed(view, closed)

    def _unless_closed(self, view: JobView, closed: set[tuple[str, Shape]]) -> Iterator[JobView]:
        """The job, unless one of its owner and shape came before and was not started."""
        key = view.job.owner, shape_of(view.job)
        if key not in closed:
            yield view
            if not self.size_of(view):
                closed.add(key)

    def admits(self, view: JobView) -> bool:
        """May this waiting job be placed at all, as the draft stands?"""
        if view.verdict or view.job.tasks is not None:
            return False  # It is being ended, or its tasks need a policy that places tasks.
        if self.has_quotas and not self.within_quota(view.job, view.job.sizes[0]):
            self.over_quota += 1
            if not view.partitions:
                self._over_quota[view.job.id] = view
            return False
        return True

    def is_over_quota(self, view: JobView) -> bool:
        """Was this waiting job passed over for its owner's quota?"""
        return view.job.id in self._over_quota

    def waiting_over_quota(self) -> Iterator[JobView]:
        """Waiting jobs that were passed over for their owner's quota: they may displace jobs of the same owner.

        When one is not started before the next is asked for, others of its owner and shape are passed over.
        """
        closed: set[tuple[str, Shape]] = set()
        for view in list(self._over_quota.values()):
            yield from self._unless_closed(view, closed)

    def waiting_among(self, jobs: Iterable[str], *, over_quota: bool = False) -> Iterator[JobView]:
        """Of these jobs, those that wait and may be placed, in the policy's order; `over_quota` as for `candidates`."""
        known = self.snapshot.jobs.data()
        views = [v for j in jobs if (v := known.get(j)) is not None and not v.partitions]
        if len(views) > 1:
            views.sort(key=lambda v: (v.rank, v.number))
        return self._admitted(views, over_quota)

    def with_displaced(
        self, waiting: Iterator[JobView], rank: Callable[[JobView], tuple[Any, ...]]
    ) -> Iterator[JobView]:
        """Waiting jobs in the policy's order and, as waiting jobs of this rank, those displaced or requeued meanwhile.

        So what a displaced job leaves over, or can still have elsewhere, is given away in the same plan.
        """
        view = next(waiting, None)
        while view is not None or self._to_requeue or self._requeued:
            for late in self._to_requeue:
                heappush(self._requeued, (rank(late), late.number, late))
            self._to_requeue.clear()
            if self._requeued and (view is None or self._requeued[0][:2] < (view.rank, view.number)):
                late = heappop(self._requeued)[2]
                if self.admits(late):
                    yield late
            elif view is not None:
                yield view
                view = next(waiting, None)

    def placed_behind(self, rank: tuple[Any, ...]) -> Iterator[JobView]:
        """Placed jobs that rank behind this, the last in the policy's order first."""
        jobs = self.snapshot.jobs.data()
        for entry in self.snapshot.placed.backwards():
            if entry[0] <= rank:
                return
            yield jobs[entry[-1]]

    def requeue(self, view: JobView) -> None:
        """Let `with_displaced` yield the job once more, at the rank that it has by then."""
        self._to_requeue.append(view)

    def pass_over(self, view: JobView) -> None:
        """Leave the job waiting: `candidates` yields no more of its shape until a job is paused or resized.

        One that is over its owner's quota says nothing about others of its shape.
        """
        if not self.is_over_quota(view):
            self._no_room.add(shape_of(view.job))

    def is_passed_over(self, view: JobView) -> bool:
        """Did another job of its shape not fit?"""
        return shape_of(view.job) in self._no_room

    def start(
        self, view: JobView, reason: str, size: int = 0, boundary: Boundary = NOW, spare_gpus: bool = False
    ) -> bool:
        """Give the job a partition of its own, at the largest of its sizes that fits unless one is given."""
        job, capacity = view.job, self.capacity if self._taken else self._capacity
        smallest = False
        for wanted in (size,) if size else reversed(job.sizes):
            if self.has_quotas and not self.within_quota(job, wanted):
                continue
            smallest = wanted == job.sizes[0]
            places = None
            if view.suspended is not None:  # There it goes on in its process.
                places = capacity.place_on(view.suspended.node, job, wanted)
            places = places or capacity.place(job, wanted, spare_gpus)
            if places is not None:
                break
        else:
            if smallest:  # A larger size, or a quota, says nothing about others of its shape.
                self._no_room.add(shape_of(job))
            return False
        if len(job.sizes) > 1:
            self.has_elastic = True
        job_id = job.id
        self._taken = slices = capacity.slices(
            job, places
        )  # Subtracted when `capacity` is read: for the last start it need not be.
        self.free_gpus -= wanted * job.demand.gpus
        replicas = (wanted,) if len(places) == 1 else tuple([n for _node, n in places])
        self._put[job_id] = Partition(job_id, slices, (Tenant(job_id, replicas, "", boundary),))
        if self._drop:
            self._drop.pop(job_id, None)
        self.reasons[job_id] = reason
        if self.has_quotas:
            self.charge(job.owner, job.demand, wanted, 1)
        return True

    def start_beyond(self, head: JobView, line: Iterator[JobView], start: Callable[[JobView], bool]) -> bool:
        """Start jobs behind `head`, which waits, on nodes that are reserved for their owners and not for its own.

        So no job overtakes another on a node that both may have. `start` starts a job in what is free, if it fits, and
        changes no other. False if no job is started.
        """
        whole, before = self.capacity, set(self._put)
        capacity, first = whole, head
        while first.job.excluded_nodes:
            for node in [node.id for node in capacity.layout.nodes if node.id not in first.job.excluded_nodes]:
                capacity = capacity.lose(node)
            self.capacity = capacity
            blocked = next((view for view in line if not start(view)), None)
            if blocked is None or not self.capacity.up:
                break
            capacity, first = self.capacity, blocked
        started = [partition for pid, partition in self._put.items() if pid not in before]
        self.capacity = whole.take([part for partition in started for part in partition.slices])
        return bool(started)

    def put(self, view: JobView, places: Places, reason: str, boundary: Boundary = NOW) -> None:
        """Give the job exactly these places, which must be free; one that has others is paused first."""
        pid = view.partitions[0] if view.partitions else view.job.id
        replicas = tuple(n for _node, n in places)
        tenant = Tenant(view.job.id, replicas, "", boundary)
        self.set_partition(Partition(pid, self.capacity.slices(view.job, places), (tenant,)))
        self.reasons[view.job.id] = reason
        if self.has_quotas:
            self.charge(view.job.owner, view.job.demand, sum(replicas), 1)

    def reserve(self, view: JobView) -> bool:
        """Count the smallest size of a waiting job against its owner's quota; False if it may not be placed."""
        if not self.admits(view):
            return False
        if self.has_quotas:
            self.charge(view.job.owner, view.job.demand, view.job.sizes[0], 1)
        return True

    def is_protected(self, view: JobView) -> bool:
        """Must the running job keep the resources that it has? (`JobView.protected_at`)"""
        return view.job.is_protectable and bool(view.protected_at(self.snapshot.now_s))

    def pause(self, view: JobView, reason: str) -> None:
        """Take the job out of its partitions; what it held alone is free in this draft."""
        job_id = view.job.id
        self.reasons[job_id] = reason
        for pid in view.partitions:
            partition = self._put.get(pid) or self.snapshot.partitions[pid]
            if self.has_quotas:
                jobs = -1 if pid == view.partitions[0] else 0
                self.charge(view.job.owner, view.job.demand, -partition.size_of(job_id), jobs)
            if len(partition.tenants) > 1 and (others := tuple(t for t in partition.tenants if t.job != job_id)):
                self._put[pid] = Partition(pid, partition.slices, others, partition.sharing)
                continue
            self._put.pop(pid, None)
            self._drop[pid] = None
            capacity = self.capacity if self._taken else self._capacity
            self._capacity = capacity = capacity.give(partition.slices)
            self.free_gpus = capacity.gpus
        self._no_room.clear()

    def displace(
        self, view: JobView, victims: Iterable[JobView], paused: str, started: str, boundary: Boundary = NOW
    ) -> list[JobView]:
        """Start the job at its smallest size in the place of others; empty, and nothing changed, if all do not suffice.

        Victims go in the order in which they come, as many as it takes; of those, jobs that turn out not to be in
        the way stay.
        """
        job, size = view.job, view.job.sizes[0]
        if self.has_quotas and not self.within_quota(job, size):
            return self._displace_own(view, list(victims), paused, started, boundary)
        if type(shape_of(job)) is int:  # Any GPUs will do, so counting them is enough.
            going = self._enough(victims, size - self.free_gpus)
        else:
            going = self._in_the_way(victims, job, size)
        self._make_way(going, paused)
        if going:
            self.start(view, started, size, boundary)
        return going

    def _make_way(self, going: Iterable[JobView], paused: str) -> None:
        for victim in going:
            self.pause(victim, paused)
            self._to_requeue.append(victim)
            self._displaced.add(victim.job.id)

    def _displace_own(
        self, view: JobView, victims: list[JobView], paused: str, started: str, boundary: Boundary
    ) -> list[JobView]:
        """The same for a job whose owner's quota is used up: first as many of the owner's own make way as it takes."""
        before = self.saved()
        own = self._enough_of_quota(victims, view.job)
        if not own:
            return []
        self._make_way(own, paused)
        if self.start(view, started, view.job.sizes[0], boundary):
            return own
        if others := self.displace(view, victims, paused, started, boundary):
            return own + others
        self.restore(before)
        return []

    def _enough_of_quota(self, victims: Iterable[JobView], job: Job) -> list[JobView]:
        """As many of the owner's own victims as use the missing quota; of those the last to come stay if others do."""
        used, present = self._usage, self.snapshot.partitions.data()
        self._usage = dict(used)  # to try it out on
        going: list[tuple[JobView, int]] = []
        enough = False
        for victim in victims:
            if victim.job.owner != job.owner or victim.job.id in self._displaced or self.is_protected(victim):
                continue
            places = [self._put.get(pid) or present[pid] for pid in victim.partitions if pid not in self._drop]
            if has := sum(partition.size_of(victim.job.id) for partition in places):
                going.append((victim, has))
                self.charge(job.owner, victim.job.demand, -has, -1)
                if enough := self.within_quota(job, job.sizes[0]):
                    break
        for i in range(len(going) - 2, -1, -1) if enough else ():
            victim, has = going[i]
            self.charge(job.owner, victim.job.demand, has, 1)
            if self.within_quota(job, job.sizes[0]):
                del going[i]
            else:
                self.charge(job.owner, victim.job.demand, -has, -1)
        self._usage = used
        return [victim for victim, _has in going] if enough else []

    def _enough(self, victims: Iterable[JobView], missing: int) -> list[JobView]:
        """As many of the victims as have the missing GPUs; of those the last to come stay if the others suffice."""
        going: list[tuple[JobView, int]] = []
        for victim in victims:
            if missing <= 0:
                break
            if victim.job.id in self._displaced or self.is_protected(victim):
                continue  # No job makes way twice in one plan.
            if gpus := self._freed_gpus(victim):
                going.append((victim, gpus))
                missing -= gpus
        if missing > 0:
            return []
        for i in range(len(going) - 2, -1, -1):
            if missing + going[i][1] <= 0:
                missing += going.pop(i)[1]
        return [victim for victim, _gpus in going]

    def _in_the_way(self, victims: Iterable[JobView], job: Job, size: int) -> list[JobView]:
        """As many of the victims as it takes for the job to fit; of those, jobs that are not in the way stay."""
        needs, capacity = size * job.demand.gpus, self.capacity
        going: list[tuple[JobView, tuple[Slice, ...]]] = []
        gpus = capacity.gpus
        given = 0  # how many of those going are given back in `capacity`
        for victim in victims:
            slices = self._freed_slices(victim)
            if not slices or victim.job.id in self._displaced or self.is_protected(victim):
                continue
            going.append((victim, slices))
            gpus += sum(len(part.gpus) for part in slices)
            if gpus < needs:
                continue  # Counting is cheap; only then it is worth to look where.
            for _victim, freed in going[given:]:
                capacity = capacity.give(freed)
            given = len(going)
            if capacity.place(job, size) is not None:
                break
        else:
            return []
        for i in range(len(going) - 2, -1, -1):
            kept = capacity.take(going[i][1])
            if kept.gpus >= needs and kept.place(job, size) is not None:
                capacity = kept
                del going[i]
        return [victim for victim, _slices in going]

    def _freed_gpus(self, view: JobView) -> int:
        """How many GPUs others could have in place of the job."""
        if self._capacity.up == self._capacity.layout.all:
            return self.gpus_of(view)
        return sum(len(part.gpus) for part in self._freed_slices(view))

    def _freed_slices(self, view: JobView) -> tuple[Slice, ...]:
        """What others could have in place of the job: nothing that it has on drained nodes."""
        slices, up, layout = self.slices_of(view), self._capacity.up, self._capacity.layout
        if up == layout.all:
            return slices
        return tuple(part for part in slices if layout.bits[part.node][-1] & up)

    def slices_of(self, view: JobView) -> tuple[Slice, ...]:
        """What would be free without the job as the draft stands: the slices of partitions that it has for itself."""
        slices: tuple[Slice, ...] = ()
        for pid in view.partitions or (view.job.id,):
            partition = self.partition(pid)
            if partition is not None and len(partition.tenants) == 1 and partition.tenants[0].job == view.job.id:
                slices += partition.slices
        return slices

    def size_of(self, view: JobView) -> int:
        """How many replicas the job has as the draft stands."""
        partition = self.partition(view.partitions[0] if view.partitions else view.job.id)
        return partition.size_of(view.job.id) if partition is not None else 0

    def saved(self) -> Saved:
        """The draft as it stands, to come back to once."""
        return (
            self.capacity, dict(self.reasons), dict(self.reviews), dict(self.memos), dict(self._put),
            dict(self._drop), dict(self._usage), list(self._to_requeue), set(self._displaced),
        )  # fmt: skip

    def restore(self, saved: Saved) -> None:
        """Forget all changes since then."""
        (
            self.capacity, self.reasons, self.reviews, self.memos, self._put, self._drop, self._usage,
            self._to_requeue, self._displaced,
        ) = saved  # fmt: skip

    def gpus_of(self, view: JobView) -> int:
        """The GPUs that the job has for itself as the draft stands; 0 where it shares."""
        job_id, put, drop = view.job.id, self._put, self._drop
        if put and job_id in put:
            return put[job_id].gpus
        gpus, present = 0, self.snapshot.partitions.data()
        for pid in view.partitions:
            if pid not in drop:
                partition = put.get(pid) or present[pid]
                tenants = partition.tenants
                if len(tenants) == 1 and tenants[0].job == job_id:
                    for part in partition.slices:
                        gpus += len(part.gpus)
        return gpus

    def resize(self, view: JobView, size: int, reason: str, boundary: Boundary = NOW) -> bool:
        """Give a placed job another size, on the nodes it has as far as it can; False when that does not fit.

        Nor does it where it shares, since others have the same slices, or where the job may not be preempted.
        """
        pid = view.partitions[0] if view.partitions else view.job.id  # the latter if this draft started it
        old = self._put.get(pid) or self.snapshot.partitions[pid]
        if len(old.tenants) > 1 or self.is_protected(view):
            return False
        before = self.capacity
        self.capacity = self.capacity.give(old.slices)
        places = self._near(view.job, old, size)
        if places is None or (self.has_quotas and not self.within_quota(view.job, size - old.size_of(view.job.id), 0)):
            self.capacity = before
            return False
        slices = self.capacity.slices(view.job, places)
        self.capacity = self.capacity.take(slices)
        if self.has_quotas:
            self.charge(view.job.owner, view.job.demand, size - old.size_of(view.job.id), 0)
        tenant = Tenant(view.job.id, tuple(n for _node, n in places), "", boundary)
        self._put[pid] = Partition(pid, slices, (tenant,))
        self.reasons[view.job.id] = reason
        self._no_room.clear()
        return True

    def _near(self, job: Job, old: Partition, size: int) -> tuple[tuple[int, int], ...] | None:
        """As many replicas as fit on the old nodes, fullest first, else wherever they fit."""
        index_of = self.capacity.layout.index_of
        stays = [s for s in old.slices if s.node not in job.excluded_nodes]
        rooms = [(index_of(s.node), self.capacity[s.node].room(job.demand)) for s in stays]
        held = dict(zip((s.node for s in old.slices), old.tenants[0].replicas, strict=True))
        rooms.sort(key=lambda r: -held[self.capacity.layout.nodes[r[0]].id])
        places, missing = [], size
        for i, room in rooms:
            if missing and (take := min(room, missing)):
                places.append((i, take))
                missing -= take
        if not missing and not (job.max_nodes and len(places) > job.max_nodes):
            return tuple(places)
        return self.capacity.place(job, size)

    def within_quota(self, job: Job, more: int, jobs: int = 1) -> bool:
        """Would the job's owner stay within its quota with so many replicas, and jobs, more?"""
        owner = self.snapshot.owners.get(job.owner)
        if owner is None or more <= 0:
            return True
        used = self.usage(job.owner).plus(job.demand, more, jobs)
        return not owner.beyond(used.gpus, used.cores, used.mem_mib, used.jobs if jobs else 0)

    def usage(self, owner: str) -> Usage:
        """What the owner's jobs have as the draft stands."""
        return self._usage.get(owner) or self.snapshot.usage.get(owner) or NO_USE

    def charge(self, owner: str, demand: Demand, replicas: int, jobs: int) -> None:
        """Count so many replicas, and jobs, more against the owner's quota; fewer if negative."""
        self._usage[owner] = self.usage(owner).plus(demand, replicas, jobs)

    # -- partitions with several tenants ---------------------------------------------------------------------

    def partition(self, pid: str) -> Partition | None:
        """The partition as the draft stands; None if there is none of that name."""
        if pid in self._drop:
            return None
        return self._put.get(pid) or self.snapshot.partitions.get(pid)

    def set_partition(self, partition: Partition) -> None:
        """Add a partition, or change the one of that name. Its new slices must be free; quotas are not charged."""
        pid, old = partition.id, self.partition(partition.id)
        if old is None or old.slices is not partition.slices:
            capacity = self.capacity if old is None else self.capacity.give(old.slices)
            self.capacity = capacity.take(partition.slices)
        self._put[pid] = partition
        self._drop.pop(pid, None)

    def drop_partition(self, pid: str) -> Partition:
        """Remove a partition, which it returns: its slices are free in this draft. Quotas are not charged."""
        partition = self.partition(pid)
        assert partition is not None
        self.capacity = self.capacity.give(partition.slices)
        self._put.pop(pid, None)
        if pid in self.snapshot.partitions:
            self._drop[pid] = None
        return partition

    def keep_partition(self, pid: str) -> None:
        """Undo all changes to a partition of the snapshot."""
        self.set_partition(self.snapshot.partitions[pid])
        del self._put[pid]

    def new_partition_id(self, prefix: str) -> str:
        """A name that no partition and no job has; another one with each call."""
        snapshot = self.snapshot
        while True:
            self._named += 1
            name = f"{prefix}{snapshot.decision}.{self._named}"
            if name not in snapshot.partitions and name not in self._put and name not in snapshot.jobs:
                return name

    def plan(self, wake: Wake = ALWAYS, memo: Any = None, ends: dict[str, str] | None = None) -> Plan:
        """The plan as it stands."""
        if self.over_quota and self._drop:
            # Jobs that leave give their owners' quota back: ask again in the next cycle, whatever it brings.
            wake = replace(wake, at_s=self.snapshot.now_s)
        return Plan(
            tuple(self._put.values()), tuple(self._drop), ends or _NONE, _NO_TIERS, _NO_TIERS, self.reasons,
            self.memos or _NONE, memo, self.reviews or _NONE, wake,
        )  # fmt: skip
