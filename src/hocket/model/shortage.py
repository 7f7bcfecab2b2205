"""What a waiting job waits for: which of its requirements is short, with numbers, and when that may change."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from math import floor

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.capacity import Capacity, Free, Shape, shape_of
from hocket.model.job import Job
from hocket.model.partition import Partition
from hocket.model.resources import RESOURCES, Node, Slice
from hocket.model.snapshot import NO_USE, Snapshot, usage_of
from hocket.model.view import JobView

_TOLERANCE = 1e-9  # as in `Capacity`: amounts are sums of floats
_NAMED = 3  # nodes or jobs that are named, at most

Nodes = Sequence[tuple[Node, Free]]  # and what is free on each


class Shortage(Struct, frozen=True):
    """What is short for a job to start."""

    # Whichever binds: fields of a demand or a job (`mem_mib`, `gpu_kinds`), `nodes`, `reservation` or `quota`.
    of: tuple[str, ...]
    words: str  # what it needs and what there is of it, for users to read


class Wait(Struct, frozen=True):
    """What a job waits for."""

    short_of: tuple[str, ...]  # as `Shortage.of`; empty: nothing is short, and the policy keeps it waiting
    words: str  # for users to read
    # Seconds until there is enough, if running jobs and reservations end when believed to; None: unknown.
    expected_s: float | None


def wait_of(view: JobView, snapshot: Snapshot, now_s: float, policy_says: str = "") -> Wait:
    """What the waiting job of this `view` waits for; `policy_says` is the policy's reason."""
    if view.job.tasks is not None:  # How tasks share GPUs, and so where they fit, is the policy's to say.
        return Wait((), f"the policy, which places its {len(view.job.tasks.tasks)} tasks", None)
    room = shortage(view.job, snapshot.capacity, _closed_nodes(view.job, snapshot))
    found = [s for s in (quota_shortage(view, snapshot), room) if s is not None]
    if not found:
        said = policy_says.removeprefix("waits: ")
        return Wait((), f"its turn: there is room for it, and the policy keeps it waiting{said and f' ({said})'}", None)
    held_by = _protected(view, snapshot, now_s) if room is not None else ""
    words = "; ".join(filter(None, [*(s.words for s in found), held_by]))
    return Wait(tuple(name for s in found for name in s.of), words, _enough_in_s(view, snapshot, now_s))


class Shortages:
    """What waiting jobs are short of in one `snapshot`, without quotas: jobs of one shape lack the same."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._words: dict[Shape, str] = {}

    def words(self, view: JobView) -> str:
        """What is short for the job of this `view` to start; empty if nothing is, or if it consists of tasks."""
        job = view.job
        if job.tasks is not None:
            return ""
        shape = shape_of(job)
        if shape not in self._words:
            found = shortage(job, self.snapshot.capacity, _closed_nodes(job, self.snapshot))
            self._words[shape] = found.words if found is not None else ""
        return self._words[shape]


# -- what is short ----------------------------------------------------------------------------------------------------


def shortage(job: Job, capacity: Capacity, closed: Mapping[str, str] = {}) -> Shortage | None:
    """Why the `job` fits nowhere at its smallest size in what is free; None if it fits. It has no tasks.

    `closed` are nodes that are up and do not get the job, and what they are: drained, or reserved for others.
    """
    size, demand = job.sizes[0], job.demand
    if capacity.place(job, size) is not None:
        return None
    accepted = capacity.layout.eligible(job)
    nodes = [pair for i, pair in enumerate(capacity) if accepted & capacity.up & 1 << i]
    otherwise = capacity.layout.eligible(replace(job, excluded_nodes=()))
    down = [node.id for i, (node, _free) in enumerate(capacity) if otherwise & ~(accepted & capacity.up) & 1 << i]
    if not nodes:
        return _no_node(job, capacity, down, closed)
    asked = [(i, name, needs) for i, (name, needs) in enumerate(zip(RESOURCES, demand.vector, strict=True)) if needs]
    short = [
        (i, name, needs)
        for i, name, needs in asked
        if _room([int((free.vector[i] + _TOLERANCE) / needs) for _node, free in nodes], job.max_nodes) < size
    ]
    names = [name for _i, name, _needs in short or asked]
    if short:
        words = "; ".join(_of_one_resource(job, nodes, *each) for each in short)
    else:
        words = _of_several(job, nodes, asked)
    if down:
        words += f" ({_why_closed(down, closed)})"
        names += _names_of_closed(down, closed)
    if job.max_nodes and capacity.place(replace(job, max_nodes=0), size) is not None:
        words += "; on more nodes there would be room"
        names.append("max_nodes")
    if job.gpu_kinds or job.gpu_mem_mib:
        anywhere = replace(job, gpu_kinds=(), gpu_mem_mib=0.0)
        if capacity.place(anywhere, size) is not None:
            words += "; on nodes with other GPUs there would be room"
            names.append("gpu_kinds" if job.gpu_kinds else "gpu_mem_mib")
    return Shortage(tuple(names), words)


def quota_shortage(view: JobView, snapshot: Snapshot) -> Shortage | None:
    """Why the quota of its owner does not let a job start; None if it does, or if there is none."""
    if not snapshot.short_of_quota(view):
        return None
    job, owner, used = view.job, snapshot.owners[view.job.owner], snapshot.usage.get(view.job.owner) or NO_USE
    gpus, cores, mem_mib = job.least
    for limit, has, needs, name in (
        (owner.max_gpus, used.gpus, gpus, "gpus"),
        (owner.max_cores, used.cores, cores, "cores"),
        (owner.max_mem_mib, used.mem_mib, mem_mib, "mem_mib"),
    ):
        if 0 < limit < has + needs:
            said = f"its jobs use {_number(name, has)}, this one needs {_number(name, needs)}"
            return Shortage(("quota", name), f"room in the quota of owner '{owner.id}', {_amount(name, limit)}: {said}")
    said = f"{owner.max_jobs} job{'s' if owner.max_jobs > 1 else ''} at once: {used.jobs} of its jobs run"
    return Shortage(("quota",), f"room in the quota of owner '{owner.id}', {said}")


def _closed_nodes(job: Job, snapshot: Snapshot) -> dict[str, str]:
    """Nodes that are up and do not get the job, and what they are: drained, or reserved for other owners."""
    closed = {v.node.id: "drained" for v in snapshot.nodes.values() if v.drained and v.up}
    for r in snapshot.reservations:
        if r.node in job.excluded_nodes and r.holds_at(snapshot.now_s) and snapshot.nodes[r.node].is_open:
            closed[r.node] = r.words
    return closed


def _names_of_closed(nodes: Iterable[str], closed: Mapping[str, str]) -> list[str]:
    """What these nodes stand for in `Shortage.of`."""
    reserved = [closed.get(node, "drained") != "drained" for node in nodes]
    return ["nodes"] * (not all(reserved)) + ["reservation"] * any(reserved)


def _why_closed(nodes: Sequence[str], closed: Mapping[str, str]) -> str:
    """Why these nodes have nothing for a job: `n0 is down, n1 and n2 are drained`."""
    by_state: dict[str, list[str]] = {"down": [], "drained": []}
    for node in sorted(nodes):
        by_state.setdefault(closed.get(node, "down"), []).append(node)
    said = [
        f"{_listed(names)} {'is' if len(names) == 1 else 'are'} {state}" for state, names in by_state.items() if names
    ]
    return ", ".join(said)


def _no_node(job: Job, capacity: Capacity, down: list[str], closed: Mapping[str, str]) -> Shortage:
    """No node that is open has GPUs that the job accepts."""
    there = [node for node, _free in capacity]
    if not capacity.up and not any(node.id in closed for node in there):
        return Shortage(("nodes",), f"a node: none of {len(there)} is up" if there else "a node: there is none yet")
    wanted = f"a node with GPUs{_kind_of(job)}" if job.demand.gpus else "a node"
    if down:
        return Shortage(tuple(_names_of_closed(down, closed)), f"{wanted}: {_why_closed(down, closed)}")
    alike = [node for node in there if not job.gpu_kinds or node.gpu_kind in job.gpu_kinds]
    if not alike:
        kinds = ", ".join(sorted({node.gpu_kind for node in there if node.gpu_kind}))
        return Shortage(("gpu_kinds",), f"{wanted}: {f'there are {kinds}' if kinds else 'no node says its kind'}")
    most = max(alike, key=lambda node: node.gpu_mem_mib)
    has = f"those of {most.id} have {_floored('mem_mib', most.gpu_mem_mib)}, the most of any"
    return Shortage(("gpu_mem_mib",), f"{wanted}: {has}")


def _of_one_resource(job: Job, nodes: Nodes, at: int, name: str, needs: float) -> str:
    """How much of one resource it needs, and how much is free; that alone is not enough."""
    size, most = job.sizes[0], job.max_nodes
    of_kind = _kind_of(job)
    kind, on_nodes = (of_kind, "") if name == "gpus" else ("", of_kind and f" with GPUs{of_kind}")
    free = [(f.vector[at], node.id) for node, f in nodes]
    if name == "gpus" and needs == 1 and most != 1:
        some = sorted((pair for pair in free if pair[0]), key=lambda pair: -pair[0])[: most or None]
        total = sum(count for count, _node in some)
        on_most = f" on at most {most} nodes" if most else ""
        if not total:
            return f"{_amount(name, size)}{kind}{on_most}: none is free"
        places = _places(some) if len(free) > 1 else ""
        return f"{_amount(name, size)}{kind}{on_most}, of which {total:g} {'is' if total == 1 else 'are'} free{places}"
    largest, node = max(free, key=lambda pair: pair[0])
    has = f"{node} has {_floored(name, largest)} free{', the most of any' if len(free) > 1 else ''}"
    if size == 1 or most == 1:
        return f"{_amount(name, size * needs)}{kind} on one node{on_nodes}: {has}"
    fit = _room([int((amount + _TOLERANCE) / needs) for amount, _node in free], most)
    return f"{_times(job, _amount(name, needs) + kind)}{on_nodes}, of which {fit} {_fits(fit)}: {has}"


def _of_several(job: Job, nodes: Nodes, asked: Sequence[tuple[int, str, float]]) -> str:
    """What it needs of several resources at once: of each there is enough, but not in the same places."""
    size = job.sizes[0]
    each = " and ".join(_amount(name, needs) + (_kind_of(job) if name == "gpus" else "") for _i, name, needs in asked)
    nearest = sorted(nodes, key=lambda pair: (-pair[1].room(job.demand), *(-pair[1].vector[i] for i, _n, _d in asked)))
    has = "; ".join(
        f"{node.id} has {' and '.join(_floored(name, free.vector[i], unit=True) for i, name, _needs in asked)} free"
        for node, free in nearest[:_NAMED]
    )
    if len(nearest) > _NAMED:
        has += f"; and {len(nearest) - _NAMED} more nodes"
    if size == 1:
        return f"{each} on one node: {has}"
    fit = _room([free.room(job.demand) for _node, free in nodes], job.max_nodes)
    return f"{_times(job, each)}, of which {fit} {_fits(fit)}: {has}"


def _places(some: Sequence[tuple[float, str]]) -> str:
    """Where the free GPUs are, if that is told in a few words."""
    if len(some) == 1:
        return f" ({some[0][1]})"
    return f" ({', '.join(f'{count:g} on {node}' for count, node in some)})" if len(some) <= _NAMED else ""


def _room(rooms: Iterable[int], max_nodes: int) -> int:
    """How many replicas fit, on so many nodes at most."""
    return sum(sorted(rooms, reverse=True)[: max_nodes or None])


def _times(job: Job, each: str) -> str:
    on_nodes = f" on at most {job.max_nodes} node{'s' if job.max_nodes > 1 else ''}" if job.max_nodes else ""
    return f"{job.sizes[0]} replicas of {each}{on_nodes}"


def _fits(count: int) -> str:
    return "fits" if count == 1 else "fit"


def _kind_of(job: Job) -> str:
    kinds = f"kind {' or '.join(job.gpu_kinds)}" if job.gpu_kinds else ""
    memory = f"{_number('mem_mib', job.gpu_mem_mib)} or more" if job.gpu_mem_mib else ""
    return f" of {' and '.join(filter(None, (kinds, memory)))}" if kinds or memory else ""


def _amount(name: str, value: float) -> str:
    """What is needed or allowed of a resource, with its unit."""
    if name == "mem_mib":
        return f"{_number(name, value)} of memory"
    if name == "net_mbps":
        return f"{_number(name, value)} of network"
    unit = "GPU" if name == "gpus" else "core"
    return f"{value:g} {unit}{'' if value == 1 else 's'}"


def _number(name: str, value: float) -> str:
    if name == "mem_mib":
        return f"{value / 1024:g} GiB" if value >= 1024 else f"{value:g} MiB"
    return f"{value:g} Mbps" if name == "net_mbps" else f"{value:g}"


def _floored(name: str, value: float, unit: bool = False) -> str:
    """What is free, never more than that; `unit`: with the unit, where the number alone would have none."""
    step = 0.01 if name == "cores" else 102.4 if name == "mem_mib" and value >= 1024 else 1.0  # 0.1 GiB
    rounded = round(floor(value / step + 1e-6) * step, 6)
    return _amount(name, rounded) if unit and name in ("gpus", "cores") else _number(name, rounded)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


# -- which jobs have it, and how long ---------------------------------------------------------------------------------


def _protected(view: JobView, snapshot: Snapshot, now_s: float) -> str:
    """Which jobs may not be preempted now, if what they have is what the job lacks; empty if not."""
    job, capacity = view.job, snapshot.capacity
    why: dict[str, str] = {}  # protected job → why it is
    theirs: list[Partition] = []
    others: list[Partition] = []
    for partition in snapshot.partitions.values():
        found = {t.job: words for t in partition.tenants if (words := snapshot.jobs[t.job].protected_at(now_s))}
        why |= found
        (theirs if found else others).append(partition)
    if not why:
        return ""

    def suffices(partitions: Iterable[Partition]) -> bool:
        return capacity.give([part for p in partitions for part in p.slices]).place(job, job.sizes[0]) is not None

    if not suffices(theirs) and (suffices(others) or not suffices((*theirs, *others))):
        return ""
    jobs = _listed([f"'{name}' ({words})" for name, words in why.items()])
    count = "1 job that runs is" if len(why) == 1 else f"{len(why)} jobs that run are"
    return f"{count} protected from preemption: {jobs}"


def _enough_in_s(view: JobView, snapshot: Snapshot, now_s: float) -> float | None:
    """In how many seconds the job may start, if those that run end when they are believed to; None if unknown.

    Reservations for other owners end too; those that begin later are not looked at.
    """
    job = view.job
    ends: list[tuple[float, str, str]] = []  # (in so many seconds, job that ends, or node that is reserved no longer)
    for _rank, _number, job_id in snapshot.placed:
        other = snapshot.jobs[job_id]
        left_s = other.remaining_s(now_s, other.size)
        if left_s is not None:
            ends.append((left_s / other.pace if other.pace > 0 else left_s, job_id, ""))
    for r in snapshot.reservations:
        if r.until_s is not None and r.node in job.excluded_nodes and r.holds_at(snapshot.now_s):
            ends.append((r.until_s - now_s, "", r.node))
    ends.sort()

    def may_start(count: int) -> bool:
        """Once so many of them have ended?"""
        over = {job_id for _left_s, job_id, _node in ends[:count]}
        open_again = {node for _left_s, _job_id, node in ends[:count]}
        excluded = tuple(node for node in job.excluded_nodes if node not in open_again)
        kept: list[Partition] = []
        freed: list[Slice] = []
        for partition in snapshot.partitions.values():
            tenants = tuple(t for t in partition.tenants if t.job not in over)
            if tenants:
                kept.append(replace(partition, tenants=tenants))
            else:
                freed.extend(partition.slices)
        usage = snapshot.usage
        if job.owner in snapshot.owners:
            usage = usage.set(job.owner, usage_of(kept, snapshot.jobs).get(job.owner) or NO_USE)
        then = replace(snapshot, capacity=snapshot.capacity.give(freed), usage=usage)
        wanted = replace(job, excluded_nodes=excluded)
        return not then.short_of_quota(view) and then.capacity.place(wanted, job.sizes[0]) is not None

    # What is enough stays so when more of them end.
    count = bisect_left(range(len(ends) + 1), True, key=may_start)
    return None if count > len(ends) else ends[count - 1][0] if count else 0.0
