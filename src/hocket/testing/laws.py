"""The laws for policies, as functions to call on your own: each raises `Broken` with what it found.

    from hocket.policies import find
    from hocket.testing import laws
    laws.hold(find("mine").bound(), snapshot)  # every law of one decision
    laws.hold_in_a_run(find("mine").bound(), workload, nodes)  # and those of a whole run

In all of them `bound` is the policy with its parameters set; `snapshot` is the state that it was asked with, and `plan`
what it decided then. Laws of a whole run simulate a `workload` (jobs with their arrival times and how they behave) on
these `nodes`; `seed` is that of all random numbers, and `beliefs` is what the policy is told about run times: the truth
("oracle") or what ended jobs have shown ("learned").
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from random import Random
from typing import Any

import msgspec

from hocket.control.check import examine
from hocket.executors.simulated import BeliefMode
from hocket.model.document import decode, plain, to_document
from hocket.model.job import Job, Stop
from hocket.model.partition import Partition, Sharing
from hocket.model.plan import Plan, Verdict
from hocket.model.rebuild import from_document
from hocket.model.resources import Node, fits
from hocket.model.snapshot import Snapshot, demand_of
from hocket.model.view import NO_COSTS
from hocket.policies.kit.common_params import ElasticParams
from hocket.policies.registry import OPTIONAL_FIELDS, BoundPolicy
from hocket.testing.equal_snapshots import rebuilt, renamed
from hocket.testing.harness import Ran, simulated
from hocket.testing.optional_fields import is_read
from hocket.workloads.truth import Workload

BESIDES = ("learned", "late")  # the runs that `hold_in_a_run` makes besides those with perfect beliefs
_CLOSE = 1e-6
_LATE_S = 0.005
_SELDOM = 8  # cycles between two checks of a state, where another run was checked after every cycle


__tracebackhide__ = True  # pytest shows the test and what was found, not the laws' own frames.


class Broken(AssertionError):
    """A policy or an executor broke a law: which, how, and how to repeat it.

    `snapshot` is the one that a policy was asked with.
    """

    snapshot: Snapshot | None = None  # None for a law of a whole run


def hold(bound: BoundPolicy, snapshot: Snapshot) -> Plan:
    """Every law of a single decision; returns the plan."""
    before = rebuilt(snapshot)
    plan = bound.decide(snapshot)
    of_a_plan = (
        passes_the_check, no_node_over_capacity, drained_nodes_get_no_jobs, reservations_are_kept, sizes_are_allowed,
        quotas_are_respected, works_or_says_why_not, reasons_are_given, ends_are_allowed, times_are_to_come,
    )  # fmt: skip
    _keep(bound, snapshot, leaves_the_snapshot_alone, before, snapshot)
    _keep(bound, snapshot, decides_alike_again, bound, snapshot, before, plan)
    for law in of_a_plan:
        _keep(bound, snapshot, law, snapshot, plan)
    if isinstance(bound.params, ElasticParams) and bound.params.lend:
        _keep(bound, snapshot, idle_gpus_are_lent, snapshot, plan, bound.params.restart_s)
    _keep(bound, snapshot, memos_survive_json, plan)
    _keep(bound, snapshot, names_mean_nothing, bound, snapshot, plan)
    _keep(bound, snapshot, reads_what_it_declares, bound, snapshot)
    return plan


def hold_in_a_run(
    bound: BoundPolicy, workload: Workload, nodes: Sequence[Node], seed: int = 0, besides: Sequence[str] = BESIDES
) -> Ran:
    """Every law of a whole run, with perfect beliefs and with none, and with a clock that is always late.

    `besides`: which runs follow the two with perfect beliefs. "learned": nothing is known beforehand; "late": the clock
    is late. Over many workloads they may take turns.
    """
    lazy: Ran = _keep(bound, None, every_job_ends, bound, workload, nodes, seed)
    _keep(bound, None, waking_makes_no_difference, bound, workload, nodes, lazy, seed)
    runs: dict[str, dict[str, Any]] = {"learned": {"beliefs": BeliefMode("learned")}, "late": {"late_s": _LATE_S}}
    for how in (runs[name] for name in besides):
        _keep(bound, None, every_job_ends, bound, workload, nodes, seed, **how, validate_every=_SELDOM)
    return lazy


def _keep(bound: BoundPolicy, snapshot: Snapshot | None, law: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Call the law; if it is broken, say in few lines which, by which policy, on what, and how to repeat it."""
    try:
        return law(*given, **named)
    except Broken as broken:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        knobs = ", ".join(f"{name}={value}" for name, value in bound.settings.items())
        told = Broken(
            f"policy '{bound.policy.name}' breaks the law '{law.__name__}': {_cut(broken, 400)}\n"
            f"the law: {(law.__doc__ or '').partition(chr(10))[0]}\n"
            f"parameters: {_cut(knobs or 'none')}\n"
            f"on: {'a whole run' if snapshot is None else in_short(snapshot)}\n"
            "repeat it: " + (f"python -m pytest '{test}'" if test else f"laws.{law.__name__}(…)")
        )
        told.snapshot = snapshot
        raise told from None


def in_short(snapshot: Snapshot) -> str:
    """A `snapshot` in one line."""
    placed = [entry[-1] for entry in snapshot.placed]
    waiting = [entry[-1] for entry in snapshot.waiting]
    nodes = ", ".join(f"{v.node.id} ({v.node.gpus} GPUs{'' if v.up else ', down'})" for v in snapshot.nodes.values())
    return _cut(
        f"decision {snapshot.decision} at {snapshot.now_s:g} s; placed {placed}, waiting {waiting}; {nodes}", 400
    )


def _cut(value: object, most: int = 200) -> str:
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}…"


def _difference(plan: Plan, other: Plan) -> str:
    """The first field in which two plans differ."""
    name = next(n for n in plan.__struct_fields__ if getattr(plan, n) != getattr(other, n))
    return f"plan.{name} is {_cut(getattr(plan, name))}, and then {_cut(getattr(other, name))}"


# -- laws of a decision -------------------------------------------------------------------------------------


def leaves_the_snapshot_alone(before: Snapshot, after: Snapshot) -> None:
    """A decision changes nothing but what it returns.

    `before` is a copy of the snapshot from before the decision, `after` the snapshot itself.
    """
    for name in Snapshot.__struct_fields__:
        if not (getattr(before, name) == getattr(after, name)):
            raise Broken(f"the decision changed snapshot.{name}")


def decides_alike_again(bound: BoundPolicy, snapshot: Snapshot, same: Snapshot, plan: Plan) -> None:
    """The same snapshot gives the same plan, today and when it comes back from a file.

    `same` is an equal snapshot that shares nothing with the first.
    """
    if (again := bound.decide(snapshot)) != plan:
        raise Broken(f"asked twice with one snapshot, the policy gives two plans: {_difference(plan, again)}")
    if (again := bound.decide(same)) != plan:
        raise Broken(f"asked with an equal snapshot, the policy gives another plan: {_difference(plan, again)}")
    # As `encode` writes it, but not laid out for readers, which takes longer than all decisions.
    read = from_document(decode(msgspec.json.encode(plain(to_document(snapshot), keep=("format",)))))
    if (again := bound.decide(read)) != plan:
        raise Broken(f"asked with the snapshot from a file, it gives another plan: {_difference(plan, again)}")


def passes_the_check(snapshot: Snapshot, plan: Plan) -> None:
    """A controller would accept the plan."""
    if found := examine(snapshot, plan)[0]:
        raise Broken("the plan is refused: " + "; ".join(found))


def no_node_over_capacity(snapshot: Snapshot, plan: Plan) -> None:
    """Partitions are disjoint, and all together they fit every node."""
    taken: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    for partition in snapshot.partitions_of(plan):
        for part in partition.slices:
            taken[part.node].append((partition.id, part))
    for node_id, parts in taken.items():
        view = snapshot.nodes.get(node_id)
        if view is None or not view.up:
            raise Broken(f"the plan uses node '{node_id}', which is not there")
        gpus = [g for _pid, part in parts for g in part.gpus]
        if len(set(gpus)) < len(gpus) or any(not 0 <= g < view.node.gpus for g in gpus):
            raise Broken(f"node '{node_id}' has {view.node.gpus} GPUs, the plan gives away {sorted(gpus)}")
        for name in ("cores", "mem_mib", "net_mbps"):
            total, has = sum(getattr(p, name) for _pid, p in parts), getattr(view.node, name)
            if total > has + _CLOSE:
                raise Broken(f"node '{node_id}' has {has:g} {name}, the plan gives away {total:g}")


def drained_nodes_get_no_jobs(snapshot: Snapshot, plan: Plan) -> None:
    """Jobs on a drained node may stay; none is placed there, and none gets more of it."""
    drained = {view.node.id for view in snapshot.nodes.values() if view.drained}
    if not drained:
        return
    before = {
        (tenant.job, tenant.task): partition
        for partition in snapshot.partitions.values()
        for tenant in partition.tenants
    }
    for partition in plan.put:
        for tenant in partition.tenants:
            was = before.get((tenant.job, tenant.task))
            had = {part.node: part for part in was.slices} if was is not None else {}
            for part in partition.slices:
                if part.node in drained and had.get(part.node) != part:
                    raise Broken(f"job '{tenant.job}' is placed on node '{part.node}', which is drained")


def reservations_are_kept(snapshot: Snapshot, plan: Plan) -> None:
    """Jobs of other owners may stay on a reserved node; none is placed there, and none gets more of it."""
    reserved = {r.node: r for r in snapshot.reservations if r.holds_at(snapshot.now_s)}
    if not reserved:
        return
    before = {
        (tenant.job, tenant.task, part.node): (part, replicas)
        for partition in snapshot.partitions.values()
        for tenant in partition.tenants
        for part, replicas in zip(partition.slices, tenant.replicas, strict=True)
    }
    for partition in plan.put:
        for tenant in partition.tenants:
            owner = snapshot.jobs[tenant.job].job.owner
            for part, replicas in zip(partition.slices, tenant.replicas, strict=True):
                kept = reserved.get(part.node)
                if not replicas or kept is None or owner in kept.owners:
                    continue
                had, were = before.get((tenant.job, tenant.task, part.node), (None, 0))
                if had != part or were < replicas:
                    raise Broken(
                        f"job '{tenant.job}' of owner '{owner}' is placed on node '{part.node}', which is {kept.words}"
                    )


def sizes_are_allowed(snapshot: Snapshot, plan: Plan) -> None:
    """Every job runs at one of its sizes, with all that its replicas need, where it may run."""
    for partition in plan.put:
        for tenant in partition.tenants:
            job = snapshot.jobs[tenant.job].job
            if not tenant.task and sum(tenant.replicas) not in job.sizes:
                raise Broken(f"job '{job.id}' has sizes {job.sizes}, the plan gives it {sum(tenant.replicas)}")
            demand = demand_of(job, tenant.task)
            for part, replicas in zip(partition.slices, tenant.replicas, strict=True):
                node = snapshot.nodes[part.node].node
                if replicas and job.gpu_kinds and node.gpu_kind not in job.gpu_kinds:
                    raise Broken(f"job '{job.id}' accepts {job.gpu_kinds}, node '{node.id}' has {node.gpu_kind}")
                if replicas and node.gpu_mem_mib < job.gpu_mem_mib:
                    raise Broken(f"job '{job.id}' needs more GPU memory than node '{node.id}' has")
                if partition.sharing is Sharing.ALONE and not fits(demand.times(replicas).vector, part.vector):
                    raise Broken(f"job '{job.id}' needs {demand} × {replicas}, the plan gives it {part}")


def quotas_are_respected(snapshot: Snapshot, plan: Plan) -> None:
    """An owner over its quota gets no more of that; what it has already may stay."""
    before, after = (_used(snapshot, p) for p in (list(snapshot.partitions.values()), snapshot.partitions_of(plan)))
    for owner in snapshot.owners.values():
        limits = (owner.max_gpus, owner.max_cores, owner.max_mem_mib, owner.max_jobs)
        for name, limit, had, has in zip(
            ("GPUs", "cores", "MiB", "jobs"), limits, before[owner.id], after[owner.id], strict=True
        ):
            if limit and has > limit + _CLOSE and has > had + _CLOSE:
                raise Broken(f"owner '{owner.id}' has a quota of {limit:g} {name}, the plan gives it {has:g}")


def _used(snapshot: Snapshot, partitions: list[Partition]) -> Mapping[str, list[float]]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    counted: set[str] = set()
    for partition in partitions:
        for tenant in partition.tenants:
            job = snapshot.jobs[tenant.job].job
            demand, replicas = demand_of(job, tenant.task), sum(tenant.replicas)
            for i, need in enumerate((demand.gpus, demand.cores, demand.mem_mib)):
                sums[job.owner][i] += need * replicas
            sums[job.owner][3] += job.id not in counted
            counted.add(job.id)
    return sums


def works_or_says_why_not(snapshot: Snapshot, plan: Plan) -> None:
    """No job waits while the plan leaves room for it, unless a reason names the job for which the room is kept.

    Or the policy wants to be asked again in the very next cycle. No room is kept for a job on a node that is reserved
    for other owners.
    """
    if plan.wake.at_s == snapshot.now_s:
        return
    capacity, partitions = examine(snapshot, plan)[1], snapshot.partitions_of(plan)
    kept_for = [v.job for v in snapshot.jobs.values() if f"'{v.job.id}'" in plan.reasons.get("*", "")]
    if kept_for:
        reserved = set.intersection(*(set(job.excluded_nodes) for job in kept_for))
        for node in [node.id for node, _free in capacity if node.id not in reserved]:
            capacity = capacity.lose(node)
        if not capacity.up:
            return
    have = {t.job for p in partitions for t in p.tenants}
    used = _used(snapshot, partitions)
    for view in snapshot.jobs.values():
        job = view.job
        if job.id in have or job.id in plan.ends or view.verdict or view.held or job.tasks is not None:
            continue
        if plan.reasons.get(job.id, "").startswith("waits") or not _within_quota(snapshot, job, used[job.owner]):
            continue
        if capacity.place(job, job.sizes[0]) is not None:
            raise Broken(f"job '{job.id}' waits while there is room for it, and no reason says why")


def idle_gpus_are_lent(snapshot: Snapshot, plan: Plan, assumed_s: float = 0.0) -> None:
    """No GPU idles that a job may have by growing, if that pays, unless a reason says for which job it is kept.

    It pays if the job would be faster, and in the time it has run would have gained all that its starts took; and, if
    its end is believed, gains more until then than one more start takes. One that is not yet running grows at once.
    A start of which nothing is known counts `assumed_s` seconds.
    """
    capacity, partitions = examine(snapshot, plan)[1], snapshot.partitions_of(plan)
    if plan.reasons.get("*", "").endswith("must not be delayed"):
        return
    used, now_s = _used(snapshot, partitions), snapshot.now_s
    for partition in partitions:
        view = snapshot.jobs[partition.tenants[0].job]
        job, size = view.job, partition.size_of(view.job.id)
        if len(partition.tenants) > 1 or job.tasks is not None or job.id in plan.ends or view.verdict:
            continue
        if not job.demand.gpus or view.protected_at(now_s):
            continue
        restart_s = assumed_s if view.costs == NO_COSTS else view.costs.restart_s(job.warm)
        restart_s = restart_s if view.partitions else 0.0
        for larger in (each for each in job.sizes if each > size):
            gain = view.beliefs.speed_at(larger) / view.beliefs.speed_at(size) - 1.0
            left_s = view.remaining_s(now_s, size)
            if gain <= 0 or max(view.starts, 1) * restart_s > view.ran_at(now_s) * gain * (1 - _CLOSE):
                continue
            if view.partitions and left_s is not None and left_s * gain / (1 + gain) <= restart_s * (1 + _CLOSE):
                continue
            if not _within_quota(snapshot, job, used[job.owner], larger - size, 0):
                continue
            if capacity.give(partition.slices).place(job, larger) is not None:
                raise Broken(f"job '{job.id}' has {size} replicas while there is room for {larger}")


def _within_quota(snapshot: Snapshot, job: Job, used: list[float], more_replicas: int = 0, more_jobs: int = 1) -> bool:
    owner = snapshot.owners.get(job.owner)
    if owner is None:
        return True
    demand, size = job.demand, more_replicas or job.sizes[0]
    more = (demand.gpus * size, demand.cores * size, demand.mem_mib * size, more_jobs)
    limits = (owner.max_gpus, owner.max_cores, owner.max_mem_mib, owner.max_jobs)
    return all(not limit or u + m <= limit for limit, u, m in zip(limits, used, more, strict=True))


def reasons_are_given(snapshot: Snapshot, plan: Plan) -> None:
    """Every job whose standing changes has a reason of its own."""
    changed = set(plan.ends)
    for pid in plan.drop:
        changed |= {t.job for t in snapshot.partitions[pid].tenants}
    for partition in plan.put:
        old = snapshot.partitions.get(partition.id)
        if old != partition:
            before = set(old.tenants) if old is not None and old.slices == partition.slices else set()
            changed |= {t.job for t in before ^ set(partition.tenants)}
    if missing := sorted(j for j in changed if not plan.reasons.get(j)):
        raise Broken(f"the standing of {missing} changes without a reason")


def ends_are_allowed(snapshot: Snapshot, plan: Plan) -> None:
    """No job is ended before its time unless its user allowed that, ever or for times of overload; none as attained
    that is not, and none for what a policy has no say in."""
    for job_id, verdict in plan.ends.items():
        view = snapshot.jobs[job_id]
        job = view.job
        if verdict not in (Verdict.ATTAINED, Verdict.EARLY_STOPPED, Verdict.HOPELESS):
            raise Broken(f"job '{job_id}' ends as {verdict}, which no policy decides")
        is_over = verdict == Verdict.ATTAINED and job.goal is not None and job.goal is job.criterion
        may_be_lowered = Stop.REQUIRED in (job.stop, job.may_lower) if verdict == Verdict.ATTAINED else job.may_stop
        if not (is_over or may_be_lowered):
            raise Broken(f"job '{job_id}' ends as {verdict}, and its user did not allow that")
        if verdict == Verdict.ATTAINED:
            goal = job.goal
            values = [o.metrics[goal.metric] for o in view.observations if goal.metric in o.metrics] if goal else []
            if goal is None or not values or not goal.met_by(values[-1]):
                raise Broken(f"job '{job_id}' ends as attained: {goal}, and has reported {values[-1:]}")


def memos_survive_json(plan: Plan) -> None:
    """What a policy wants to remember comes back from a file as it was."""
    for memo in (plan.memo, *plan.memos.values()):
        try:
            back = json.loads(json.dumps(memo, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise Broken(f"memo {memo!r} does not become JSON: {error}") from error
        if back != memo:
            raise Broken(f"memo {memo!r} comes back from JSON as {back!r}")


def times_are_to_come(snapshot: Snapshot, plan: Plan) -> None:
    """Moments that a policy asks for are finite and not over; else it would be asked for ever.

    To be asked "at" this very moment means in the next cycle, whatever it brings.
    """
    for job_id, at_s in plan.reviews.items():
        if not isfinite(at_s) or at_s <= snapshot.now_s or job_id not in snapshot.jobs:
            raise Broken(f"the plan wants to look at job '{job_id}' at {at_s}, and it is {snapshot.now_s}")
    again_s = plan.wake.at_s
    if again_s is not None and not (isfinite(again_s) and again_s >= snapshot.now_s):
        raise Broken(f"the plan wants to be asked at {again_s}, and it is {snapshot.now_s}")


def names_mean_nothing(bound: BoundPolicy, snapshot: Snapshot, plan: Plan) -> None:
    """Other names for the jobs give the same plan under those names. Ties are broken by submission, not by name."""
    ids = list(snapshot.jobs)
    if not ids:
        return
    names = [f"x{i}" for i in range(len(ids))]
    Random(len(ids)).shuffle(names)
    new = dict(zip(ids, names, strict=True))
    other = bound.decide(rebuilt(snapshot, new))
    for name in ("put", "drop", "ends", "checkpoints", "tiers", "memos", "memo", "reviews", "wake"):
        expected, found = renamed(getattr(plan, name), new), getattr(other, name)
        if name in ("put", "drop"):
            expected, found = sorted(expected, key=repr), sorted(found, key=repr)
        if expected != found:
            raise Broken(f"with other names for the jobs, plan.{name} is {_cut(found)} and not {_cut(expected)}")
    if {new.get(j, j) for j in plan.reasons} != set(other.reasons):
        raise Broken("with other names for the jobs, other jobs get reasons")


def reads_what_it_declares(bound: BoundPolicy, snapshot: Snapshot) -> None:
    """A policy that says which options of jobs it reads decides the same whatever the others are set to."""
    declared = bound.reads
    if declared is None:
        return
    others = [field for field in OPTIONAL_FIELDS if field not in declared]
    if is_read(bound, snapshot, others):
        read = [field for field in others if is_read(bound, snapshot, [field])]
        raise Broken(f"the policy reads {read or others}, and declares {list(declared)}")


# -- laws of a run ------------------------------------------------------------------------------------------


def every_job_ends(
    bound: BoundPolicy,
    workload: Workload,
    nodes: Sequence[Node],
    seed: int = 0,
    beliefs: BeliefMode = BeliefMode("oracle"),
    late_s: float = 0.0,
    validate_every: int = 1,
) -> Ran:
    """Every job ends, no plan is refused, and the state is sound after every cycle.

    `late_s`: by how much every wake-up comes too late, as it does live.
    `validate_every`: look at the state after every so many cycles only; sums and queues that are wrong stay so.
    """
    ran = simulated(bound, workload, nodes, seed=seed, beliefs=beliefs, late_s=late_s, validate_every=validate_every)
    if ran.refused:
        raise Broken(f"{ran.refused} plans were refused")
    if ran.left:
        waits = [f"'{j}' ({ran.final.jobs[j].state}: {ran.final.jobs[j].reason})" for j in ran.left]
        when = f", woken {late_s:g} s late" if late_s else ""
        raise Broken(f"nothing more happens{when}, and these have not ended: {', '.join(waits)}")
    return ran


def waking_makes_no_difference(
    bound: BoundPolicy, workload: Workload, nodes: Sequence[Node], lazy: Ran, seed: int = 0
) -> None:
    """A controller that asks in every cycle reaches the same schedule as one that waits for what the policy names.

    `lazy` is the run in which it waited.
    """
    eager = simulated(bound, workload, nodes, eager=True, seed=seed, validate_every=_SELDOM)
    for job_id in sorted({*lazy.ended, *eager.ended}):
        mine, other = lazy.ended.get(job_id), eager.ended.get(job_id)
        if mine is None or other is None or abs(mine[0] - other[0]) > 1e-3 or mine[1] != other[1]:
            raise Broken(f"job '{job_id}' ends {mine}, and {other} if the policy is asked in every cycle")
