"""What is known of the time to come: how long jobs will hold their GPUs, and which jobs have GPUs next."""

from __future__ import annotations

from msgspec import Struct

from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.service.rows import held_gpus
from hocket.service.tokens import Token
from hocket.service.visibility import sees_all_rows


class AheadGpus(Struct, frozen=True, gc=False):
    """GPUs that a job will hold."""

    job: str
    owner: str
    gpus: list[str]
    is_next: bool  # they are planned for it, and others hold some of them still
    until_s: float | None  # its believed end; None: unknown


def plan_ahead(snapshot: Snapshot, now_s: float, token: Token) -> list[AheadGpus]:
    """GPUs that jobs will hold, and until when, where the caller may see a job's progress."""
    found: list[AheadGpus] = []
    for _rank, _number, job_id in snapshot.placed:
        view = snapshot.jobs[job_id]
        sees_end = sees_all_rows(token) or token.owns(view.job.owner)
        left_s = view.remaining_s(now_s, view.size) if sees_end and view.size and not view.verdict else None
        until_s = None if left_s is None else now_s + left_s
        held = held_gpus(view) if view.tenancies else []
        if held and until_s is not None:
            found.append(AheadGpus(job_id, view.job.owner, held, False, until_s))
        if gained := sorted(set(_planned(view, snapshot)) - set(held)):
            found.append(AheadGpus(job_id, view.job.owner, gained, True, until_s))
    return found


def _planned(view: JobView, snapshot: Snapshot) -> list[str]:
    parts = (part for pid in view.partitions for part in snapshot.partitions[pid].slices)
    return [f"{part.node}:{gpu}" for part in parts for gpu in part.gpus]
