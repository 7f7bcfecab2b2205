"""Owners over the API: what may be set for one, how that reaches the journal, and what is shown of them."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import Future
from math import isfinite
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace

from hocket.control.ports import LiveExecutor
from hocket.model.event import Event, OwnerSet
from hocket.model.job import NAME_LENGTH, Owner
from hocket.model.snapshot import NO_USE, Snapshot, usage_of
from hocket.model.validation import explained, too_small

Count = Annotated[int, Meta(ge=0, le=1_000_000_000, description="0 for no limit")]
Amount = Annotated[float, Meta(ge=0, le=1e12, description="0 for no limit")]


class OwnerSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be set; what is left out stays as it is."""

    weight: Annotated[float, Meta(gt=0, le=1e6, description="its part in shares")] | UnsetType = UNSET
    max_gpus: Count | UnsetType = UNSET
    max_cores: Amount | UnsetType = UNSET
    max_mem_mib: Amount | UnsetType = UNSET
    max_jobs: Annotated[Count, Meta(description="placed at once; 0 for no limit")] | UnsetType = UNSET


class Uses(Struct, frozen=True):
    """What an owner's jobs have by plan."""

    gpus: int
    cores: float
    mem_mib: float
    jobs: int


class OwnerRow(Struct, frozen=True):
    """One owner in one line; a limit of 0 is none."""

    id: str
    weight: float
    max_gpus: int
    max_cores: float
    max_mem_mib: float
    max_jobs: int
    uses: Uses
    waiting: int  # jobs that wait for a place


class OwnerError(ValueError):
    """What was said of an owner breaks a rule: owner, field, rule and value."""


def read_owner(owner_id: str, body: bytes) -> OwnerSpec:
    """What a call sets for this owner. Raises OwnerError."""
    if not 1 <= len(owner_id) <= NAME_LENGTH:
        raise OwnerError(f"an owner's name must be 1 to {NAME_LENGTH} characters, not {len(owner_id)}")
    try:
        return _read(body)
    except OwnerError as error:
        raise OwnerError(f"owner '{owner_id}': {error}") from error


def _read(body: bytes) -> OwnerSpec:
    try:
        given = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise OwnerError(_infinite_field(body) or f"the body must be JSON: {error}") from error
    fields = OwnerSpec.__struct_fields__
    if not isinstance(given, dict):
        raise OwnerError(f"the body must be an object with {', '.join(fields)}")
    if wrong := too_small(given):
        raise OwnerError(wrong)
    try:
        return msgspec.convert(given, OwnerSpec)
    except msgspec.ValidationError as error:
        raise OwnerError(explained(error, given, fields)) from error


def _infinite_field(body: bytes) -> str:
    """The field whose value is a number that JSON does not have, such as NaN, which some write all the same."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    for field in OwnerSpec.__struct_fields__ if isinstance(given, dict) else ():
        if isinstance(value := given.get(field), float) and not isfinite(value):
            return f"{field} must be a finite number, not {value}"
    return ""


class Owners:
    """Hands what is set to the controller. Private attributes are used by the controller's thread only."""

    def __init__(self, executor: LiveExecutor) -> None:
        self._executor = executor
        self._coming: dict[str, Owner] = {}  # those that the present cycle sets; the state does not know them yet

    def known(self, snapshot: Snapshot, owner_id: str) -> Owner | None:
        """An owner as it will be once all that was said so far is taken in; None if nothing was ever set for it."""
        return self._coming.get(owner_id) or snapshot.owners.get(owner_id)

    def set(self, owner_id: str, spec: OwnerSpec) -> Future[Any]:
        """Done when it is in the journal."""

        def make(snapshot: Snapshot, now_s: float) -> list[Event]:
            before = self.known(snapshot, owner_id) or Owner(owner_id)
            now = replace(before, **_given_fields(spec))
            if now == before:
                return []
            self._coming[owner_id] = now
            return [OwnerSet(now_s, now)]

        future = self._executor.post(make)
        future.add_done_callback(lambda _: self._coming.pop(owner_id, None))
        return future


def _given_fields(spec: OwnerSpec) -> dict[str, Any]:
    return {field: value for field, value in asdict(spec).items() if value is not UNSET}


def owner_row(snapshot: Snapshot, owner_id: str) -> OwnerRow:
    """One owner, whether anything was set for it or not."""
    return _rows(snapshot, [owner_id])[0]


def owner_rows(snapshot: Snapshot) -> list[OwnerRow]:
    """The owners that have live jobs, or a weight or quota that is not the default; by name."""
    listed = {owner.id for owner in snapshot.owners.values() if owner != Owner(owner.id)}
    return _rows(snapshot, sorted(listed | {view.job.owner for view in snapshot.jobs.values()}))


def _rows(snapshot: Snapshot, owner_ids: list[str]) -> list[OwnerRow]:
    # The snapshot's own usage is kept only if the policy needs it.
    usage = usage_of(snapshot.partitions.values(), snapshot.jobs)
    waiting = Counter(v.job.owner for v in snapshot.jobs.values() if not (v.partitions or v.held or v.verdict))
    found = []
    for owner_id in owner_ids:
        owner, used = snapshot.owners.get(owner_id) or Owner(owner_id), usage.get(owner_id, NO_USE)
        uses = Uses(used.gpus, used.cores, used.mem_mib, used.jobs)
        found.append(OwnerRow(**asdict(owner), uses=uses, waiting=waiting[owner_id]))
    return found
