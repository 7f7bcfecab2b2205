"""Where the states of paused jobs are kept under a memory budget: Ratchet's third question, arbitrated among all jobs.

For each job that a plan pauses, or that is suspended already, it is known what it costs to keep its state in memory, on
disk, or nowhere (`model/suspension.py`). Memory goes to the jobs for which it saves most time together; the others are
where it is cheapest for them without memory. Fixed rules are there to be compared with that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import inf
from typing import Literal

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

_FEW = 10  # states of which all choices are tried
KeepingRule = Literal["arbitrated", "memory", "disk", "redo"]


def with_kept_states(plan: Plan, snapshot: Snapshot, memory_share: float, rule: KeepingRule = "arbitrated") -> Plan:
    """The plan, which also says where the states of paused jobs are kept, in this share of each node's memory."""
    tiers = kept_states(plan, snapshot, memory_share, rule)
    return replace(plan, tiers={**plan.tiers, **tiers}) if tiers else plan


def kept_states(
    plan: Plan, snapshot: Snapshot, memory_share: float, rule: KeepingRule = "arbitrated"
) -> dict[str, Tier]:
    """Job → where its state shall be; jobs that stay in memory as they are need not be told.

    By the rule `memory` those that come first stay there while there is room, and others are written; by `disk` all
    are written, by `redo` none.
    """
    placed = {tenant.job for partition in plan.put for tenant in partition.tenants}
    leaving = [each for each in _leaving(plan, snapshot) if each[0].id not in placed]
    room = {v.node.id: memory_share * v.node.mem_mib for v in snapshot.nodes.values() if v.is_open}
    if rule == "disk" or rule == "redo":
        return {view.id: Tier.DISK if rule == "disk" else Tier.NONE for view, _node, _mem_mib in leaving}
    if rule == "memory":
        return _first_come(leaving, room)
    asked: dict[str, list[tuple[JobView, float, float]]] = {}  # node → (job, seconds that memory saves, MiB)
    for view, node, mem_mib in leaving:
        costs = costs_of_keeping(_at_stake(view, mem_mib, snapshot.now_s))
        saved_s = min(costs[Tier.DISK], costs[Tier.NONE]) - costs[Tier.MEMORY]
        asked.setdefault(node, []).append((view, saved_s, mem_mib))
    found: dict[str, Tier] = {}
    for node, there in asked.items():
        there.sort(key=lambda each: each[0].number)
        stay = most_saved([(saved_s, mem_mib) for _view, saved_s, mem_mib in there], room.get(node, 0.0))
        for n, (view, _saved_s, mem_mib) in enumerate(there):
            if n not in stay:
                kept = where_to_keep(replace(_at_stake(view, mem_mib, snapshot.now_s), memory_mib=0.0))
                found[view.id] = Tier.DISK if view.suspended is not None else kept
            elif view.suspended is None:
                found[view.id] = Tier.MEMORY
    return found


def most_saved(states: Sequence[tuple[float, float]], room_mib: float) -> frozenset[int]:
    """Which of these (seconds saved, MiB) are kept in so much memory: those that together save most time.

    Of more than a few, those first that save most for each MiB; a large state may then keep out two small ones.
    """
    able = [n for n, (saved_s, mem_mib) in enumerate(states) if saved_s > 0 and mem_mib <= room_mib]
    if sum(states[n][1] for n in able) <= room_mib:
        return frozenset(able)
    able.sort(key=lambda n: (-states[n][0] / max(states[n][1], 1.0), n))
    greedy, left_mib = [], room_mib
    for n in able:
        if states[n][1] <= left_mib:
            left_mib -= states[n][1]
            greedy.append(n)
    if len(able) > _FEW:
        return frozenset(greedy)
    best, most_s = tuple(greedy), sum(states[n][0] for n in greedy)
    for count in range(1, len(able)):
        for chosen in combinations(able, count):
            saved_s = sum(states[n][0] for n in chosen)
            if saved_s > most_s + 1e-9 and sum(states[n][1] for n in chosen) <= room_mib:
                best, most_s = chosen, saved_s
    return frozenset(best)


def _first_come(leaving: Iterable[tuple[JobView, str, float]], room: dict[str, float]) -> dict[str, Tier]:
    """Those that are in memory stay there; of the others, each that fits into what is left."""
    found = {}
    for view, node, mem_mib in sorted(leaving, key=lambda each: (each[0].suspended is None, each[0].number)):
        fits = mem_mib <= room.get(node, 0.0)
        room[node] = room.get(node, 0.0) - (mem_mib if fits else 0.0)
        if view.suspended is None or not fits:
            found[view.id] = Tier.MEMORY if fits else Tier.DISK
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
