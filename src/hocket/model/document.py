"""A snapshot as a document: versioned JSON that people and programs write, and `hocket decide` reads.

What follows from the rest may be left out: a job that a partition names and that says nothing else runs there as
planned. `to_document` leaves the same things out, so that people can read what it writes.
"""

from __future__ import annotations

import json
import re
from functools import cache
from math import isfinite
from typing import Any

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.inspect import DictType, StructType, Type, UnionType, VarTupleType, type_info

from hocket.model.entries import (
    FORMAT,
    Document,
    HistoryEntry,
    JobEntry,
    NodeEntry,
    ObservationEntry,
    OwnerEntry,
    SubmittedEntry,
)
from hocket.model.job import Job
from hocket.model.rebuild import INFINITIES, SAME, DocumentError, from_document, planned
from hocket.model.snapshot import History, Snapshot
from hocket.model.validation import explained, shown
from hocket.model.view import JobState, JobView

__all__ = [
    "Document",
    "DocumentError",
    "decode",
    "encode",
    "from_document",
    "plain",
    "readable",
    "schema",
    "to_document",
]

_WIDTH = 110
_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode  # `json.dumps` makes an encoder for each call.
_SCALARS = frozenset({str, int, bool, type(None)})  # plain as they are
_LARGEST = 1.7976931348623157e308  # the largest number that is finite

# -- text ---------------------------------------------------------------------------------------------------


def schema() -> dict[str, Any]:
    """The JSON Schema of a document."""
    found: dict[str, Any] = msgspec.json.schema(Document)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Hocket snapshot", **found}


def encode(document: Document) -> str:
    """Readable JSON, without what is as by default."""
    return readable(plain(document, keep=("format",)))


def readable(value: Any, indent: int = 0) -> str:
    """JSON of plain data, in which whatever is short stands on one line."""
    short = _json(value)
    if not isinstance(value, dict | list) or len(short) + indent <= _WIDTH:
        return short
    pad = " " * (indent + 2)
    if isinstance(value, list):
        lines = [pad + readable(item, indent + 2) for item in value]
    else:
        lines = [f"{pad}{_json(k)}: {readable(v, indent + 2)}" for k, v in value.items()]
    opens, closes = ("[", "]") if isinstance(value, list) else ("{", "}")
    return f"{opens}\n" + ",\n".join(lines) + f"\n{' ' * indent}{closes}"


def plain(value: Any, keep: tuple[str, ...] = ()) -> Any:
    """Plain data, without fields that have their default but for those to keep."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, Struct):
        if value.__struct_config__.array_like:
            return [plain(getattr(value, name)) for name, _encoded, _default in _fields_of(type(value))]
        return {
            encoded: item if type(item) in _SCALARS else plain(item)
            for name, encoded, default in _fields_of(type(value))
            if ((item := getattr(value, name)) is not default and item != default) or name in keep
        }
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return None if value != value else max(-_LARGEST, min(value, _LARGEST))  # JSON has no infinity.
    return value


@cache  # What a class has does not change, and finding it out takes longer than all else here.
def _fields_of(kind: type[Struct]) -> tuple[tuple[str, str, Any], ...]:
    """The fields of a struct: each by its name, its name in JSON and its default, NODEFAULT if it has none."""
    return tuple((f.name, f.encode_name, _default(f)) for f in msgspec.structs.fields(kind))


@cache
def _document_type() -> Type:
    return type_info(Document)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default is not NODEFAULT:
        return field.default
    return field.default_factory() if field.default_factory is not NODEFAULT else NODEFAULT


def decode(text: bytes | str) -> Document:
    """The document that this JSON is. Raises DocumentError."""
    if not text.strip():
        raise DocumentError("snapshot: it must be a JSON object, and is empty")
    try:
        raw = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DocumentError(f"snapshot: {_located(str(error), text)}") from error
    except RecursionError as error:
        raise DocumentError("snapshot: it must not be nested so deeply") from error
    if not isinstance(raw, dict):
        raise DocumentError(f"snapshot: it must be a JSON object, not {shown(raw)}")
    if raw.get("format") != FORMAT or isinstance(raw.get("format"), bool):
        given = shown(raw["format"]) if "format" in raw else "missing"
        raise DocumentError(f"snapshot: format must be {FORMAT}, which is what this hocket reads, and is {given}")
    if (path := _unknown(raw, _document_type())) is not None:
        raise DocumentError(f"snapshot: {path.removeprefix('.')} is no field that a snapshot has")
    try:
        return msgspec.convert(raw, Document)
    except msgspec.ValidationError as error:
        raise DocumentError(f"snapshot: {explained(error, raw)}") from error


def _located(message: str, text: bytes | str) -> str:
    """`JSON is malformed: … (byte 12)` with a line and a column."""
    found = re.search(r"\(byte (\d+)\)", message)
    if found is None:
        return message
    data = text.encode() if isinstance(text, str) else text
    before = data[: int(found[1])]
    line, column = before.count(b"\n") + 1, len(before) - (before.rfind(b"\n") + 1) + 1
    return f"line {line}, column {column}: {message[: found.start()].strip()}"


def _unknown(raw: Any, kind: Type) -> str | None:
    """Where the data has a field that its type has not, the first; values of our own types would pass over it in
    silence."""
    if isinstance(kind, StructType):
        if isinstance(raw, dict):
            types = _types_of(kind.cls)
            for key, value in raw.items():
                if (within := types.get(key)) is None:
                    return f".{key}"
                if isinstance(value, dict | list) and (path := _unknown(value, within)) is not None:
                    return f".{key}{path}"
    elif isinstance(kind, VarTupleType):
        if isinstance(raw, list):
            item_type = _bare(kind.item_type)
            for n, value in enumerate(raw):
                if isinstance(value, dict | list) and (path := _unknown(value, item_type)) is not None:
                    return f"[{n}]{path}"
    elif isinstance(kind, UnionType):
        for option in map(_bare, kind.types):
            if isinstance(option, VarTupleType) if isinstance(raw, list) else isinstance(option, StructType | DictType):
                return _unknown(raw, option)
    elif isinstance(kind, DictType) and isinstance(raw, dict):
        value_type = _bare(kind.value_type)
        for key, value in raw.items():
            if isinstance(value, dict | list) and (path := _unknown(value, value_type)) is not None:
                return f".{key}{path}"
    return None


@cache
def _types_of(struct: type) -> dict[str, Type]:
    """The types of a struct's fields, by their names in JSON."""
    kind = type_info(struct)
    assert isinstance(kind, StructType)
    return {field.encode_name: _bare(field.type) for field in kind.fields}


def _bare(kind: Type) -> Type:
    while isinstance(kind, msgspec.inspect.Metadata):
        kind = kind.type
    return kind


# -- values -------------------------------------------------------------------------------------------------


def to_document(snapshot: Snapshot, policy: str = "", about: str = "") -> Document:
    """A snapshot, taken under a policy, as a document."""
    return Document(
        FORMAT,
        snapshot.now_s,
        tuple(
            NodeEntry(
                n.id,
                n.gpus,
                n.gpu_kind,
                n.gpu_mem_mib,
                n.cores,
                n.mem_mib,
                n.net_mbps,
                view.up,
                view.use,
                view.drained,
                view.cleared,
            )
            for view in snapshot.nodes.values()
            for n in (view.node,)
        ),
        tuple(_entry(snapshot, view) for view in sorted(snapshot.jobs.values(), key=lambda v: v.number)),
        tuple(snapshot.partitions.values()),
        tuple(
            OwnerEntry(o.id, o.weight, o.max_gpus, o.max_cores, o.max_mem_mib, o.max_jobs)
            for o in snapshot.owners.values()
        ),
        about,
        policy,
        dict(snapshot.leaving.items()),
        snapshot.unsettled,
        snapshot.memo,
        snapshot.wake,
        snapshot.seed,
        snapshot.decision,
        snapshot.submissions,
        snapshot.arrived,
        snapshot.due,
        tuple(_history_entry(key, seen) for key, seen in snapshot.history.items()),
        snapshot.reservations,
    )


def _entry(snapshot: Snapshot, view: JobView) -> JobEntry:
    as_planned = view.state is JobState.RUNNING and set(view.tenancies) == set(
        planned(view.id, [snapshot.partitions[p] for p in view.partitions])
    )
    same = {name: getattr(view, name) for name in SAME}
    seen = tuple(
        ObservationEntry(o.at_s, o.epoch, {k: v if isfinite(v) else None for k, v in o.metrics.items()}, o.step)
        for o in view.observations
    )
    one_place = len(view.tenancies) == 1
    return JobEntry(
        _spec(view.job),
        number=view.number,
        state=None if as_planned else view.state,
        tenancies=None if as_planned and one_place else view.tenancies,
        partitions=None if len(view.partitions) < 2 else view.partitions,
        since_s=view.since_s,
        observations=seen,
        rank=tuple(_open(r) for r in view.rank) or None,
        run_began_s=view.run_began_s,
        **same,
    )


def _open(value: Any) -> Any:
    """A part of a rank; many policies rank what they know nothing of as infinite, for which JSON has no word."""
    if isinstance(value, tuple):
        return [_open(v) for v in value]
    return next((word for word, infinite in INFINITIES.items() if value == infinite), value)


def _spec(job: Job) -> SubmittedEntry:
    fields = {name: getattr(job, name) for name in Job.__struct_fields__}
    texts = {n: None if fields[n] is None else str(fields[n]) for n in ("criterion", "target")}
    return SubmittedEntry(**fields | texts)


def _history_entry(key: Any, seen: History) -> HistoryEntry:
    owner, size = key if isinstance(key, tuple) else (None, key)
    return HistoryEntry(size, seen.count, seen.log_sum, seen.log_squares, owner)
