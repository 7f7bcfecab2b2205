"""What is known from one round to the next: when it comes, and whether any placed job lacks a task."""

from __future__ import annotations

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.policies.kit.rounds import next_round_s


def between_rounds(snapshot: Snapshot, round_s: float) -> Plan:
    """Between rounds nothing is decided."""
    first = snapshot.waiting.first()
    every = f"waits: there is a round every {round_s:g} s, and the next one begins with jobs like"
    reasons = {"*": f"{every} '{first[-1]}'"} if first else {}
    at_s = next_round_s(snapshot.now_s, round_s)
    wake = Wake(arrival=False, freed_gpus=None, epoch=False, at_s=at_s)
    return Plan(reasons=reasons, memo={"asked_s": at_s}, wake=wake)


def nothing_missing(snapshot: Snapshot) -> dict[str, int]:
    """The memo of a round after which every placed job has all its tasks, with so many nodes up."""
    return {"up": snapshot.capacity.up.bit_count()}
