"""The next actions towards the plan: pure, in order, and only those that are possible now.

Prepare first, then actions that free resources, then actions that take them. A tenant that must wait for another stays
unsettled and is looked at again when that one has left; until then its resources are promised to it.
"""

from __future__ import annotations

from collections.abc import Iterator

from hocket.model.action import Action, Checkpoint, End, Move, Pause, Prepare, Resize, Resume, Start, Store
from hocket.model.job import Kind
from hocket.model.partition import NOW, Boundary, Holding, Partition, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Slice
from hocket.model.snapshot import LeavingTenants, Snapshot, Standing
from hocket.model.suspension import goes_on_in_place, memory_if_suspended, tier_of_pause
from hocket.model.view import Doing, JobView, Tenancy, Tier

_NOTHING = Doing.NOTHING
_NONE = Tier.NONE


def diff(standing: Standing, plan: Plan | None = None) -> tuple[list[Action], list[tuple[str, str]]]:
    """The actions to send now, and the tenants that are already as planned."""
    found = _Diff(standing)
    for job_id, task in standing.unsettled:
        found.look_at(job_id, task)
    found.break_deadlock()
    found.make_room()
    if plan is not None:
        for job_id, tier in plan.checkpoints.items():
            found.frees.insert(0, Checkpoint(job_id, tier, _boundary(standing, standing.jobs[job_id])))
    return found.prepares + found.frees + found.takes, found.settled


class _Diff:
    """Goes through the unsettled tenants and collects the actions that are possible for them."""

    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self.prepares: list[Action] = []
        self.frees: list[Action] = []
        self.takes: list[Action] = []
        self.settled: list[tuple[str, str]] = []
        self._ends: set[str] = set()  # jobs that end: one action for all tasks of a job
        self._stores: set[str] = set()  # jobs whose state is brought elsewhere: one action for each
        self._leaving = LeavingTenants(standing)
        self._blocked: dict[str, tuple[str, ...]] = {}  # running tenant → tenants in its way
        self._successors: list[tuple[str, tuple[Slice, ...]]] | None = None  # jobs that prepare, and their partitions
        self._suspended_by_node: dict[str, list[tuple[JobView, float]]] | None = None
        self._suspending: dict[str, float] = {}  # node → memory of processes that these actions suspend there

    def look_at(self, job_id: str, task: str) -> None:
        """What can be done now for one tenant."""
        view = self.standing.jobs.get(job_id)
        if view is None:
            self.settled.append((job_id, task))
            return
        if view.verdict:
            self._end(view)
            self.settled.append((job_id, task))
            return
        tenancy = next((t for t in view.tenancies if t.task == task), None)
        wanted = _wanted(self.standing, view, task)
        if tenancy is None:
            self._start(view, task, wanted)
        elif tenancy.doing is not _NOTHING:
            self.settled.append((job_id, task))  # Its result is compared with the plan then.
        else:
            self._change(view, tenancy, wanted)

    def _end(self, view: JobView) -> None:
        if view.job.id not in self._ends and all(t.doing is not Doing.ENDING for t in view.tenancies):
            self._ends.add(view.job.id)
            self.frees.append(End(view.job.id, view.verdict))

    def _start(self, view: JobView, task: str, wanted: tuple[Partition, Tenant] | None) -> None:
        """A tenant without resources: it starts, prepares or waits."""
        job_id = view.job.id
        if wanted is None:
            self.settled.append((job_id, task))
            if not view.tenancies and view.tier is not _NONE and view.keep not in (None, view.tier):
                self._store(view, view.keep)
            return
        if view.suspended is not None and view.storing is not None:
            return  # It starts when its process has ended.
        partition, tenant = wanted
        to = Holding(partition.id, partition.slices, tenant.replicas, tenant.boundary)
        if view.suspended is not None and not goes_on_in_place(view, to):
            self._store(view, Tier.DISK)  # What it goes on with elsewhere is a state on disk.
            return
        if self._leaving.in_the_way(f"{job_id}/{task}", partition.slices):
            may_prepare = view.job.warm and not view.preparing and Prepare(job_id) not in self.prepares
            if may_prepare and self._prepares_first(view):
                self.prepares.append(Prepare(job_id))
        elif not view.preparing:
            self.takes.append((Start if view.tier is _NONE else Resume)(job_id, task, to, partition))

    def _change(self, view: JobView, tenancy: Tenancy, wanted: tuple[Partition, Tenant] | None) -> None:
        """A tenant that runs: it stays, pauses, is resized or moved."""
        job_id, task, held = view.job.id, tenancy.task, tenancy.holding
        assert held is not None
        if wanted is None:
            if not self._waits_for_successor(view, task):
                self._pause(view, task, held)
            return
        partition, tenant = wanted
        same_place = partition.slices == held.slices and partition.id == held.partition
        if same_place and tenant.replicas == held.replicas and tenant.boundary == held.boundary:
            self.settled.append((job_id, task))
            return
        if self._waits_for_successor(view, task):
            return
        has = held.slices if partition.id == held.partition else ()
        if others := self._leaving.in_the_way(f"{job_id}/{task}", partition.slices, has):
            self._blocked[f"{job_id}/{task}"] = others
            return
        to = Holding(partition.id, partition.slices, tenant.replicas, tenant.boundary)
        if partition.id != held.partition or (to.size == held.size and not same_place):
            self.takes.append(Move(job_id, task, to, partition))
        elif to.size < held.size:
            self.frees.append(Resize(job_id, task, to, partition))
        else:
            self.takes.append(Resize(job_id, task, to, partition))

    def break_deadlock(self) -> None:
        """If running tenants block each other, pause one; it resumes when its resources are free."""
        if len(self._blocked) > 1 and (tenant := _in_a_cycle(self._blocked)):
            job_id, _, task = tenant.partition("/")
            view = self.standing.jobs[job_id]
            held = next(t.holding for t in view.tenancies if t.task == task)
            assert held is not None
            self._pause(view, task, held)

    def _pause(self, view: JobView, task: str, held: Holding) -> None:
        node, tier = held.slices[0].node, view.keep or Tier.DISK
        if not task and (view.keep is Tier.MEMORY or view.job.kind is Kind.QUERY):
            tier = tier_of_pause(view, held, self._room_mib(node), self.standing.now_s)
        if tier is Tier.MEMORY:
            self._suspending[node] = self._suspending.get(node, 0.0) + memory_if_suspended(view, held)
        self.frees.append(Pause(view.job.id, task, tier, held.boundary))

    def _room_mib(self, node: str) -> float:
        """Memory of a node that neither the plan nor suspended processes have; negative if these must make room."""
        free = self.standing.capacity[node].mem_mib - self._suspending.get(node, 0.0)
        return free - sum(mem_mib for _view, mem_mib in self._suspended().get(node, ()))

    def _suspended(self) -> dict[str, list[tuple[JobView, float]]]:
        """Node → the jobs suspended there, and the memory that each keeps beyond what the plan gives it."""
        if self._suspended_by_node is None:
            self._suspended_by_node = {}
            for tenant, parts in self.standing.leaving.data().items():
                view = self.standing.jobs.get(tenant.removesuffix("/"))
                if view is not None and view.suspended is not None and view.storing is None:
                    there = self._suspended_by_node.setdefault(view.suspended.node, [])
                    there.append((view, sum(part.mem_mib for part in parts)))
        return self._suspended_by_node

    def make_room(self) -> None:
        """Bring suspended processes to disk where the plan needs their memory: the largest first, and no more of them.

        So it is on nodes that are drained, which have nothing free.
        """
        for node, there in self._suspended().items():
            short_mib = -self._room_mib(node)
            for view, mem_mib in sorted(there, key=lambda found: (-found[1], found[0].number)):
                if short_mib <= 0:
                    break
                self._store(view, Tier.DISK)
                short_mib -= mem_mib

    def _store(self, view: JobView, tier: Tier) -> None:
        if view.storing is None and view.job.id not in self._stores:
            self._stores.add(view.job.id)
            self.frees.append(Store(view.job.id, tier))

    def _waits_for_successor(self, view: JobView, task: str) -> bool:
        """True while the job that will get this tenant's resources still prepares: the tenant continues until then."""
        if self._successors is None:
            self._successors = list(self._preparing())
        if not self._successors:
            return False
        left = self.standing.leaving.get(f"{view.job.id}/{task}")
        if left is None:
            return False
        return any(job_id != view.job.id and _overlap(left, slices) for job_id, slices in self._successors)

    def _preparing(self) -> Iterator[tuple[str, tuple[Slice, ...]]]:
        for job_id, task in self.standing.unsettled:
            view = self.standing.jobs.get(job_id)
            if view is not None and view.job.warm and self._prepares_first(view):
                wanted = _wanted(self.standing, view, task)
                if wanted is not None:
                    yield job_id, wanted[0].slices

    def _prepares_first(self, view: JobView) -> bool:
        """Does a warm job prepare before it starts? Not if one of its tasks runs already, or can start now."""
        if not view.job.warm or view.prepared or view.tenancies or view.suspended is not None:
            return False
        if view.job.tasks is None or view.preparing:
            return True
        standing = self.standing
        tasks = [task for job_id, task in standing.unsettled if job_id == view.job.id]
        places = [(task, wanted[0].slices) for task in tasks if (wanted := _wanted(standing, view, task)) is not None]
        return all(self._leaving.in_the_way(f"{view.job.id}/{task}", slices) for task, slices in places)


def _in_a_cycle(blocked: dict[str, tuple[str, ...]]) -> str:
    """A tenant that is blocked, through others, by itself; empty if there is none."""
    left = dict(blocked)
    while free := [tenant for tenant, others in left.items() if not any(o in left for o in others)]:
        for tenant in free:
            del left[tenant]
    if not left:
        return ""
    seen: list[str] = []
    tenant = next(iter(left))
    while tenant not in seen:
        seen.append(tenant)
        tenant = next(o for o in left[tenant] if o in left)
    return tenant


def _wanted(standing: Standing, view: JobView, task: str) -> tuple[Partition, Tenant] | None:
    """The place that the plan gives a tenant."""
    job_id = view.job.id
    for pid in view.partitions:
        partition = standing.partitions[pid]
        for tenant in partition.tenants:
            if tenant.job == job_id and tenant.task == task:
                return partition, tenant
    return None


def _overlap(some: tuple[Slice, ...], others: tuple[Slice, ...]) -> bool:
    for a in some:
        for b in others:
            if a.node == b.node and (
                not set(a.gpus).isdisjoint(b.gpus) or (a.cores and b.cores) or (a.mem_mib and b.mem_mib)
            ):
                return True
    return False


def _boundary(standing: Standing, view: JobView) -> Boundary:
    wanted = _wanted(standing, view, view.tenancies[0].task) if view.tenancies else None
    return wanted[1].boundary if wanted is not None else NOW


# -- in words -----------------------------------------------------------------------------------------------


def changes(snapshot: Snapshot, plan: Plan) -> dict[str, str]:
    """Tenant ("job", or "job/task") → what the plan changes for it. Tenants that stay as they are, are left out."""
    before = _tenants([p for pid in (*plan.drop, *(p.id for p in plan.put)) if (p := snapshot.partitions.get(pid))])
    after = _tenants(plan.put)
    found: dict[str, str] = {}
    for key in sorted({*before, *after}):
        change = _change_in_words(before.get(key), after.get(key))
        if change and key[0] not in plan.ends:
            found["/".join(part for part in key if part)] = change
    for job, verdict in plan.ends.items():
        found[job] = f"ends: {verdict}"
    for job, tier in plan.tiers.items():
        found[job] = "; ".join(part for part in (found.get(job), f"its state is moved to {tier}") if part)
    for job, tier in plan.checkpoints.items():
        found[job] = "; ".join(part for part in (found.get(job), f"is saved to {tier}") if part)
    return found


def _tenants(
    partitions: list[Partition] | tuple[Partition, ...],
) -> dict[tuple[str, str], tuple[Partition, Tenant]]:
    return {(t.job, t.task): (p, t) for p in partitions for t in p.tenants}


def _change_in_words(before: tuple[Partition, Tenant] | None, after: tuple[Partition, Tenant] | None) -> str:
    if after is None:
        return "loses its resources"
    place = f"{sum(after[1].replicas)} on {_place(*after)}"
    if before is None:
        return f"gets {place}"
    if before[0].slices == after[0].slices and before[1] == after[1]:
        return "" if before[0].id == after[0].id else f"goes from '{before[0].id}' to '{after[0].id}'"
    return f"goes from {sum(before[1].replicas)} on {_place(*before)} to {place}"


def _place(partition: Partition, tenant: Tenant) -> str:
    parts = " + ".join(_slice(s) for s, n in zip(partition.slices, tenant.replicas, strict=False) if n)
    others = len(partition.tenants) - 1
    company = f", {partition.sharing} with {others} more" if others else ""
    return (parts or "nothing") + company


def _slice(part: Slice) -> str:
    amounts = [f"GPU {','.join(map(str, part.gpus))}"] if part.gpus else []
    amounts += [f"{part.cores:g} cores"] if part.cores else []
    amounts += [f"{part.mem_mib:g} MiB"] if part.mem_mib else []
    return f"{part.node} ({', '.join(amounts)})" if amounts else part.node
