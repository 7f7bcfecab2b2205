"""Where the states of paused jobs are kept under a memory budget: Ratchet's third question, arbitrated among all jobs.

For each job that a plan pauses, or that is suspended already, it is known what it costs to keep its state in memory, on
disk, or nowhere (`model/suspension.py`). Memory goes to the jobs that it saves most time for each MiB; the others are
where it is cheapest for them without memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from msgspec.structs import replace

from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.suspension import (
    INTERRUPTED_EVERY_S,
    Suspension,
    can_be_suspended,
    chance_of_interruption,
    costs_of_keeping,
    memory_if_suspended,
    suspension_of,
    where_to_keep,
)
from hocket.model.view import JobView, Tier


def with_kept_states(plan: Plan, snapshot: Snapshot, memory_share: float) -> Plan:
    """The plan, which also says where the states of paused jobs are kept, in this share of each node's memory."""
    tiers = kept_states(plan, snapshot, memory_share)
    return replace(plan, tiers={**plan.tiers, **tiers}) if tiers else plan


def kept_states(plan: Plan, snapshot: Snapshot, memory_share: float) -> dict[str, Tier]:
    """Job → where its state shall be; jobs that stay in memory as they are need not be told."""
    placed = {tenant.job for partition in plan.put for tenant in partition.tenants}
    room = {v.node.id: memory_share * v.node.mem_mib for v in snapshot.nodes.values() if v.is_open}
    asked = []
    for view, node, mem_mib in _leaving(plan, snapshot):
        if view.id not in placed:
            costs = costs_of_keeping(_at_stake(view, mem_mib, snapshot.now_s))
            saved_s = min(costs[Tier.DISK], costs[Tier.NONE]) - costs[Tier.MEMORY]
            asked.append((-saved_s / max(mem_mib, 1.0), view.number, view, node, mem_mib))
    found: dict[str, Tier] = {}
    for worth, _number, view, node, mem_mib in sorted(asked, key=lambda each: each[:2]):
        if worth < 0 and mem_mib <= room.get(node, 0.0):
            room[node] -= mem_mib
            if view.suspended is None:
                found[view.id] = Tier.MEMORY
        else:
            kept = where_to_keep(replace(_at_stake(view, mem_mib, snapshot.now_s), memory_mib=0.0))
            found[view.id] = Tier.DISK if view.suspended is not None else kept
    return found


def _leaving(plan: Plan, snapshot: Snapshot) -> Iterable[tuple[JobView, str, float]]:
    """Jobs that the plan pauses or that are suspended: the node, and the memory that they would keep or do keep."""
    for pid in plan.drop:
        for tenant in snapshot.partitions[pid].tenants:
            view = snapshot.jobs[tenant.job]
            held = view.tenancies[0].holding if len(view.tenancies) == 1 else None
            if held is not None and can_be_suspended(view.job, held):
                yield view, held.slices[0].node, memory_if_suspended(view, held)
    for process_of in snapshot.jobs.data().values():
        if (process := process_of.suspended) is not None and process_of.storing is None:
            yield process_of, process.node, process.mem_mib


def _at_stake(view: JobView, mem_mib: float, now_s: float) -> Suspension:
    """What there is to lose, as the job says it, or else by what its starts and checkpoints cost."""
    # It is believed to be paused for as long as it has waited on average so far.
    chance = chance_of_interruption(1.0 / INTERRUPTED_EVERY_S, view.waited_at(now_s) / max(view.starts, 1))
    said = suspension_of(view, chance)
    if said is not None:
        return said
    costs = view.costs
    return Suspension(
        mem_mib, view.done_at(now_s), costs.checkpoint_s, 0.0, costs.prepare_s + costs.start_s, chance,
        leaves=True, memory_mib=inf, process_mib=mem_mib,
    )  # fmt: skip
