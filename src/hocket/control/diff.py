"""What to do next so that the plan comes true: pure, in order, and only what can be done now.

Prepare first, then what frees resources, then what takes them. What must wait for another tenant to leave stays
unsettled and is looked at again when that has happened; until then its resources are promised to it.
"""

from __future__ import annotations

from collections.abc import Iterator

from hocket.model.action import Action, Checkpoint, End, Move, Pause, Prepare, Resize, Resume, Start, Store
from hocket.model.partition import NOW, Boundary, Holding, Partition, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Slice
from hocket.model.snapshot import Leavers, Snapshot, Standing
from hocket.model.view import Doing, JobView, Tenancy, Tier

_NOTHING = Doing.NOTHING
_NONE = Tier.NONE


def diff(standing: Standing, plan: Plan | None = None) -> tuple[list[Action], list[tuple[str, str]]]:
    """The actions to send out now, and the tenants that turn out to be as planned already."""
    prepares: list[Action] = []
    frees: list[Action] = []
    takes: list[Action] = []
    settled: list[tuple[str, str]] = []
    stuck: dict[str, tuple[str, ...]] = {}  # tenants that run and cannot go where they shall → who is in their way
    scene = _Scene(standing)
    for key in standing.unsettled:
        job_id, task = key
        view = standing.jobs.get(job_id)
        if view is None:
            settled.append(key)
            continue
        tenancies = view.tenancies
        tenancy = None
        for t in tenancies:
            if t.task == task:
                tenancy = t
        if view.verdict:
            if all(t.doing is not Doing.ENDING for t in tenancies) and End(job_id, view.verdict) not in frees:
                frees.append(End(job_id, view.verdict))
            settled.append(key)
            continue
        wanted = _wanted(standing, view, task)
        if tenancy is None:
            if wanted is None:
                settled.append(key)
                if not tenancies and view.tier is not _NONE and view.tier is not view.keep:
                    frees.append(Store(job_id, view.keep))
                continue
            partition, tenant = wanted
            if scene.leavers.in_the_way(f"{job_id}/{task}", partition.slices):
                is_new = view.job.warm and not view.preparing and Prepare(job_id) not in prepares
                if is_new and scene.is_to_prepare(view):
                    prepares.append(Prepare(job_id))
            elif not view.preparing:
                to = Holding(partition.id, partition.slices, tenant.replicas, tenant.boundary)
                begin = Start if view.tier is _NONE else Resume
                takes.append(begin(job_id, task, to, partition))
            continue
        if tenancy.doing is not _NOTHING:
            settled.append(key)  # Its end will be compared with the plan of that time.
            continue
        _go_on(scene, view, tenancy, wanted, frees, takes, settled, stuck)
    if len(stuck) > 1 and (knot := _knot(stuck)):
        # They wait for each other: one steps aside, and comes back when it can.
        job_id, _, task = knot.partition("/")
        view = standing.jobs[job_id]
        held = next(t.holding for t in view.tenancies if t.task == task)
        assert held is not None
        frees.append(Pause(job_id, task, view.keep, held.boundary))
    if plan is not None:
        for job_id, tier in plan.checkpoints.items():
            view = standing.jobs[job_id]
            frees.insert(0, Checkpoint(job_id, tier, _boundary(standing, view)))
    if not (frees or prepares):
        return takes, settled
    return prepares + frees + takes, settled


class _Scene:
    """What a diff asks about again and again, looked up once."""

    __slots__ = ("_heirs", "leavers", "standing")

    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self.leavers = Leavers(standing)
        self._heirs: list[tuple[str, tuple[Slice, ...]]] | None = None  # jobs that are to prepare, and what for

    def heirs_are_preparing(self, view: JobView, task: str) -> bool:
        """True while someone who is promised what this tenant gives up still prepares: it works on until then."""
        if self._heirs is None:
            self._heirs = list(self._preparing())
        if not self._heirs:
            return False
        left = self.standing.leaving.get(f"{view.job.id}/{task}")
        if left is None:
            return False
        return any(heir != view.job.id and _touch(left, slices) for heir, slices in self._heirs)

    def _preparing(self) -> Iterator[tuple[str, tuple[Slice, ...]]]:
        for job_id, task in self.standing.unsettled:
            heir = self.standing.jobs.get(job_id)
            if heir is not None and heir.job.warm and self.is_to_prepare(heir):
                wanted = _wanted(self.standing, heir, task)
                if wanted is not None:
                    yield job_id, wanted[0].slices

    def is_to_prepare(self, view: JobView) -> bool:
        """Does a warm job prepare before it starts? Not if one of its tasks is there, or can start now: it starts."""
        if not view.job.warm or view.prepared or view.tenancies:
            return False
        if view.job.tasks is None or view.preparing:
            return True
        standing = self.standing
        tasks = [task for job_id, task in standing.unsettled if job_id == view.job.id]
        places = [(task, wanted[0].slices) for task in tasks if (wanted := _wanted(standing, view, task)) is not None]
        return all(self.leavers.in_the_way(f"{view.job.id}/{task}", slices) for task, slices in places)


def _go_on(
    scene: _Scene,
    view: JobView,
    tenancy: Tenancy,
    wanted: tuple[Partition, Tenant] | None,
    frees: list[Action],
    takes: list[Action],
    settled: list[tuple[str, str]],
    stuck: dict[str, tuple[str, ...]],
) -> None:
    """A tenant that runs: it stays, leaves, changes its size or its place."""
    job_id, task, held = view.job.id, tenancy.task, tenancy.holding
    assert held is not None
    if wanted is None:
        if not scene.heirs_are_preparing(view, task):
            frees.append(Pause(job_id, task, view.keep, held.boundary))
        return
    partition, tenant = wanted
    same_place = partition.slices == held.slices and partition.id == held.partition
    if same_place and tenant.replicas == held.replicas and tenant.boundary == held.boundary:
        settled.append((job_id, task))
        return
    if scene.heirs_are_preparing(view, task):
        return
    has = held.slices if partition.id == held.partition else ()
    if others := scene.leavers.in_the_way(f"{job_id}/{task}", partition.slices, has):
        stuck[f"{job_id}/{task}"] = others
        return
    to = Holding(partition.id, partition.slices, tenant.replicas, tenant.boundary)
    if partition.id != held.partition or (to.size == held.size and not same_place):
        takes.append(Move(job_id, task, to, partition))
    elif to.size < held.size:
        frees.append(Resize(job_id, task, to, partition))
    else:
        takes.append(Resize(job_id, task, to, partition))


def _knot(stuck: dict[str, tuple[str, ...]]) -> str:
    """A tenant that waits, through others, for itself; empty if none does."""
    left = dict(stuck)
    while going := [who for who, others in left.items() if not any(o in left for o in others)]:
        for who in going:
            del left[who]
    if not left:
        return ""
    seen: list[str] = []
    who = next(iter(left))
    while who not in seen:
        seen.append(who)
        who = next(o for o in left[who] if o in left)
    return who


def _wanted(standing: Standing, view: JobView, task: str) -> tuple[Partition, Tenant] | None:
    job_id = view.job.id
    for pid in view.partitions:
        partition = standing.partitions[pid]
        for tenant in partition.tenants:
            if tenant.job == job_id and tenant.task == task:
                return partition, tenant
    return None


def _touch(some: tuple[Slice, ...], others: tuple[Slice, ...]) -> bool:
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

_Places = dict[tuple[str, str], tuple[Partition, Tenant]]


def changes(snapshot: Snapshot, plan: Plan) -> dict[str, str]:
    """Tenant ("job", or "job/task") → what becomes of it. Who stays as planned before is not named."""
    before = _tenants([p for pid in (*plan.drop, *(p.id for p in plan.put)) if (p := snapshot.partitions.get(pid))])
    after = _tenants(plan.put)
    found: dict[str, str] = {}
    for key in sorted({*before, *after}):
        told = _told(before.get(key), after.get(key))
        if told and key[0] not in plan.ends:
            found["/".join(part for part in key if part)] = told
    for job, verdict in plan.ends.items():
        found[job] = f"ends: {verdict}"
    for job, tier in plan.tiers.items():
        found[job] = "; ".join(part for part in (found.get(job), f"its state goes to {tier}") if part)
    for job, tier in plan.checkpoints.items():
        found[job] = "; ".join(part for part in (found.get(job), f"is saved to {tier}") if part)
    return found


def _tenants(partitions: list[Partition] | tuple[Partition, ...]) -> _Places:
    return {(t.job, t.task): (p, t) for p in partitions for t in p.tenants}


def _told(before: tuple[Partition, Tenant] | None, after: tuple[Partition, Tenant] | None) -> str:
    if after is None:
        return "leaves its place"
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
