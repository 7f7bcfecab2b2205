"""A policy for measurements: one job goes to and fro between two groups, whose other jobs stay."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hocket.model import Plan, Snapshot, Wake
from hocket.policies import Params, policy
from hocket.policies.kit.group_draft import GroupDraft


class Shuttle(Params, frozen=True):
    moved: Annotated[str, Meta(description="id of the job that is moved")] = "moved"
    every_s: Annotated[float, Meta(gt=0, description="time between two moves")] = 15.0


@policy("shuttle", params=Shuttle, reads_beliefs=False, reads_usage=False, reads=())
def decide(snapshot: Snapshot, params: Shuttle) -> Plan:
    """Half of the machines are one group, half another; `moved` is in one of them in turn, other jobs by number."""
    draft = GroupDraft(snapshot)
    live = [view for view in snapshot.jobs.values() if not view.verdict]
    for partition in draft.groups():
        draft.dissolve(partition.id)
    machines = draft.free_machines()
    side = int(snapshot.now_s / params.every_s) % 2
    for number, nodes in enumerate((machines[: len(machines) // 2], machines[len(machines) // 2 :])):
        here = [v for v in live if (side if v.job.id == params.moved else v.number % 2) == number]
        for view in draft.form(f"g{number}", nodes, here):
            draft.reasons[view.job.id] = f"is in group {number} now"
    next_s = (int(snapshot.now_s / params.every_s) + 1) * params.every_s
    return draft.plan(Wake(freed_gpus=1, epoch=False, at_s=next_s if live else None))
