"""Snapshots that are equal and share nothing, and the same under other names for the jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from hocket.model.capacity import Capacity, shape_of
from hocket.model.snapshot import Snapshot
from hocket.model.versioned import VersionedMap, VersionedQueue, versioned
from hocket.model.view import JobView


def rebuilt(snapshot: Snapshot, names: Mapping[str, str] | None = None) -> Snapshot:
    """An equal snapshot with nothing shared, as it would come back from a file; `names` renames jobs (old → new)."""
    new = names or {}

    def table(data: VersionedMap[Any, Any], change: Callable[[Any], Any] = _as_read) -> VersionedMap[Any, Any]:
        return versioned((new.get(k, k), change(v)) for k, v in reversed(data.items()))

    views = table(snapshot.jobs, lambda v: _as_read(renamed(v, new)))
    waiting: VersionedQueue[Any] = VersionedQueue({})
    placed: VersionedQueue[bool] = VersionedQueue({})
    for view in sorted(views.values(), key=lambda v: v.job.id):
        entry = (view.rank, view.number, view.job.id)
        if view.partitions:
            placed = placed.add(view.job.is_elastic, entry)
        elif not view.held:
            waiting = waiting.add(shape_of(view.job), entry)
    partitions = table(snapshot.partitions, lambda p: _as_read(renamed(p, new)))
    free = snapshot.capacity
    nodes, frees = zip(*free, strict=True) if len(snapshot.nodes) else ((), ())
    # To the last bit, which giving and taking in another order would not keep.
    capacity = Capacity.of(nodes)._with(dict(enumerate(frees)), free.up)
    leaving = {_renamed_tenant(tenant, new): slices for tenant, slices in snapshot.leaving.items()}
    return replace(
        snapshot,
        nodes=versioned((k, _as_read(v)) for k, v in snapshot.nodes.items()),
        owners=versioned((k, _as_read(v)) for k, v in snapshot.owners.items()),
        usage=versioned((k, _as_read(v)) for k, v in snapshot.usage.items()),
        jobs=views,
        waiting=waiting,
        placed=placed,
        partitions=partitions,
        leaving=versioned(leaving.items()),
        unsettled=tuple((new.get(job, job), task) for job, task in snapshot.unsettled),
        capacity=capacity,
        memo=renamed(snapshot.memo, new),
        arrived=tuple(new.get(j, j) for j in snapshot.arrived),
        due=tuple(new.get(j, j) for j in snapshot.due),
    )


def _as_read(value: Any) -> Any:
    """The same value, decoded from what it is encoded to."""
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value))
    if isinstance(value, JobView):
        return replace(back, rank=value.rank)  # of any types, which no file keeps apart; a reader ranks anew
    return back


def _renamed_tenant(tenant: str, new: Mapping[str, str]) -> str:
    job, slash, task = tenant.partition("/")
    return new.get(job, job) + slash + task


def renamed(value: Any, new: Mapping[str, str]) -> Any:
    """The value with other names wherever a job, or the partition of that name, is named; `new` has old → new."""
    if not new:
        return value
    if isinstance(value, str):
        return new.get(value, value)
    if isinstance(value, dict):
        return {renamed(k, new): renamed(v, new) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(renamed(v, new) for v in value)
    if isinstance(value, msgspec.Struct):
        if isinstance(value, JobView):
            job = replace(value.job, id=new.get(value.job.id, value.job.id))
            changes = {n: renamed(getattr(value, n), new) for n in ("partitions", "tenancies", "memo")}
            return replace(value, job=job, **changes)
        return type(value)(*(renamed(getattr(value, n), new) for n in value.__struct_fields__))
    return value
