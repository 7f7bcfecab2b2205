"""What a failed run, a lost node and a node that joins change in the state."""

from __future__ import annotations

from msgspec.structs import replace

from hocket.control.node_change import jobs_that_must_leave
from hocket.control.state import State
from hocket.model.capacity import Capacity
from hocket.model.event import JobFailed, NodeJoined, NodeLost, RunsPassed
from hocket.model.partition import Partition, Sharing, Tenant
from hocket.model.resources import UNITS, Node
from hocket.model.view import Hold, JobState, JobView, NodeView, Tier

LONGEST_REST_S = 600.0  # longest delay between two runs of a job that fails repeatedly
LEAST_REST_S = 1.0  # for a job with limited retries that is lost repeatedly, which counts as no retry


def run_lost(state: State, event: JobFailed) -> None:
    """A run failed, or was lost; its job waits again, sometimes after a delay (back-off)."""
    job_id = event.job
    if (was := state.jobs.live.get(job_id)) is None:
        return
    ran_s = state.now_s - was.since_s if was.size else 0.0
    _fail(state, job_id, event.reason)
    if was.verdict:
        return
    view = state.jobs.live[job_id]
    if event.own:
        crashed = replace(view, crashes=view.crashes + 1)
        if not _rest(state, view, crashed, view.crashes):
            state.put_view(view, crashed)
    elif before := view.failures - view.crashes - 1:
        # It was lost before, and may be the cause: delay it unless it ran for longer; no retry is counted.
        _rest(state, view, view, before - 1, ran_s, least_s=0.0 if view.job.retries is None else LEAST_REST_S)


def _rest(state: State, view: JobView, failed: JobView, times: int, ran_s: float = 0.0, least_s: float = 0.0) -> bool:
    """Hold the job for a delay that doubles with every failure; False if no delay is needed."""
    job_id = view.job.id
    rest_s = max(least_s, min(view.job.backoff_s * 2.0 ** min(times, 30), LONGEST_REST_S))
    if not rest_s or rest_s <= ran_s or view.held:
        return False
    until_s = state.now_s + rest_s
    reason = f"{view.reason}; starts again after {rest_s:g} s"
    state.put_view(view, replace(failed, held=Hold.RESTS, held_until_s=until_s, reason=reason))
    state.notes.timers.append((until_s, job_id))
    return True


def runs_passed(state: State, event: RunsPassed) -> None:
    """Numbers of runs were given before: the job's next run has a larger one."""
    view = state.jobs.live.get(event.job)
    if view is not None and (skipped := event.number - view.starts - view.failures) > view.skipped:
        state.put_view(view, replace(view, skipped=skipped))


def _fail(state: State, job_id: str, reason: str) -> None:
    """The job's run is lost; it waits again."""
    view = state.jobs.live.get(job_id)
    if view is None:
        return
    state.notes.alarm = state.notes.freed = True
    state.vacate(view)
    forget_tenants(state, view)
    tier = view.tier if view.suspended is None else view.suspended.on_disk
    now = replace(
        state.accounted(view, (), JobState.WAITING if tier is Tier.NONE else JobState.PAUSED),
        tier=tier,
        suspended=None,
        storing=None,
        failures=view.failures + 1,
        partitions=(),
        prepared=False,
        preparing=False,
        run_began_s=None,
        reason=view.reason if view.verdict else f"failed: {reason}",
    )
    state.put_view(view, now)
    if view.verdict:
        state.unsettle((job_id, ""))  # It was to end: the order is lost, or was not sent yet.


def forget_tenants(state: State, view: JobView) -> None:
    """Drop everything that the job's tenants held, or were to get."""
    job_id = view.job.id
    if state.leaving.live:
        for tenancy in view.tenancies:
            state.leaving.drop(f"{job_id}/{tenancy.task}")
        if view.suspended is not None:
            state.leaving.drop(f"{job_id}/")
    if state.unsettled:
        tasks = view.job.tasks
        for task in ("", *(t.id for t in tasks.tasks)) if tasks is not None else ("",):
            state.settle((job_id, task))


def node_lost(state: State, event: NodeLost) -> None:
    """A node is lost, with all runs on it."""
    _node_lost(state, event.node, event.reason)


def _node_lost(state: State, node: str, reason: str) -> None:
    known = state.nodes.live.get(node)
    if known is None or not known.up:
        return
    state.notes.alarm = True
    why = f"node '{node}' was lost" + (f": {reason}" if reason else "")
    _evict_from(state, node, set(state.jobs.live), why)
    state.nodes.put(node, replace(known, up=False, use=None))
    state.capacity = state.capacity.lose(node)


def _evict_from(state: State, node: str, jobs: set[str], why: str) -> None:
    """These jobs lose what they have, or were to get, on a node."""
    there = {
        (v.job.id, t.task)
        for v in state.jobs.values()
        if v.job.id in jobs
        for t in v.tenancies
        for h in (t.holding, t.coming)
        if h is not None and any(s.node == node for s in h.slices)
    }
    there |= {
        (v.job.id, "")
        for v in state.jobs.values()
        if v.suspended is not None and v.suspended.node == node and v.job.id in jobs
    }
    for job_id, task in sorted(there):
        _evict(state, job_id, task, why)
    for partition in [p for p in state.partitions.values() if any(s.node == node for s in p.slices)]:
        for tenant in partition.tenants:
            if tenant.job in jobs:
                _fall_back(state, tenant, partition.id, why)
    for key, slices in state.leaving.items():
        if key.partition("/")[0] in jobs and any(s.node == node for s in slices):
            state.leaving.drop(key)


def _evict(state: State, job_id: str, task: str, why: str) -> None:
    """A tenant is lost. If other tasks of its job still run, the job continues; else it waits again."""
    view = state.jobs.live.get(job_id)
    if view is None:
        return
    if not any(t.task != task for t in view.tenancies):
        _fail(state, job_id, why)
        return
    for pid in view.partitions:
        partition = state.partitions.live[pid]
        others = tuple(t for t in partition.tenants if (t.job, t.task) != (job_id, task))
        if len(others) < len(partition.tenants):
            state.change_tenants(partition, others)
    view = state.jobs.live[job_id]
    left = tuple(p for p in view.partitions if state.is_tenant(job_id, p))
    tenancies = tuple(t for t in view.tenancies if t.task != task)
    state.leaving.drop(f"{job_id}/{task}")
    state.settle((job_id, task))
    now = state.accounted(view, tenancies, view.state)
    state.put_view(view, replace(now, partitions=left, failures=view.failures + 1, reason=why))


def _fall_back(state: State, tenant: Tenant, pid: str, why: str) -> None:
    """A tenant was to move to a lost node: it stays where it is, unless that is promised to another tenant."""
    job_id, task = tenant.job, tenant.task
    partition = state.partitions.live[pid]
    state.change_tenants(partition, tuple(t for t in partition.tenants if (t.job, t.task) != (job_id, task)))
    view = state.jobs.live[job_id]
    left = tuple(p for p in view.partitions if state.is_tenant(job_id, p))
    held = next((t.coming or t.holding for t in view.tenancies if t.task == task), None)
    if held is not None and held.partition not in state.partitions:
        taken: list[str] = []
        capacity = state.capacity.exchange((), held.slices, taken)
        if not taken:
            tenants = (Tenant(job_id, held.replicas, task, held.boundary),)
            back = Partition(held.partition, held.slices, tenants, Sharing.STACKED if task else Sharing.ALONE)
            state.capacity = capacity
            state.partitions.put(back.id, back)
            state.count_usage(back, 1)
            left = (*left, back.id)
    now = replace(view, partitions=left, reason=why)
    if not view.tenancies:
        now = replace(now, prepared=False, preparing=False)  # The prepared process is lost with the node.
    state.put_view(view, now)
    state.update_leaving(view)
    state.unsettle((job_id, task))


def _difference(old: Node, new: Node) -> str:
    """What a node has that differs from before, in words."""
    numbers = [(getattr(new, field), getattr(old, field), unit) for field, unit in UNITS.items()]
    said = [f"{now:g} instead of {before:g} {unit}" for now, before, unit in numbers if now != before]
    return ", ".join(said) or "other GPUs"


def node_joined(state: State, event: NodeJoined) -> None:
    """A node joins: a new one, one that was lost, or one whose capacity has changed."""
    node = event.node
    state.notes.alarm = state.notes.freed = True
    known = state.nodes.live.get(node.id)
    if known is not None and known.node == node:
        if not known.up and not known.drained:
            state.capacity = state.capacity.regain(node.id)
        state.nodes.put(node.id, replace(known, up=True, use=None))
        return
    if known is not None and known.up:
        leave = jobs_that_must_leave(state, known.node, node)
        _evict_from(state, node.id, leave, f"node '{node.id}' came back with {_difference(known.node, node)}")
    state.nodes.put(node.id, NodeView(node) if known is None else replace(known, node=node, up=True, use=None))
    capacity = Capacity.of(v.node for v in state.nodes.values())
    for partition in state.partitions.values():
        capacity = capacity.take(partition.slices)
    for view in state.nodes.values():
        if not view.is_open:
            capacity = capacity.close(view.node.id)
    state.capacity = capacity
