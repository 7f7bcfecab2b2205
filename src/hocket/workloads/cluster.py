"""Clusters: `309x8`, `8x8:v100+8x8:p100`, or a TOML file with cores, memory and network.

    cluster = group ("+" group)*
    group   = nodes "x" GPUs [":" kind]        8x8:v100 is 8 nodes of 8 V100 each

Nodes are named n000, n001, … over all groups in their order, with as many digits as the last one needs. There are
at most 100,000 of them, each has up to 1,024 GPUs, and nodes times the GPUs of the largest are at most a million.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from msgspec.structs import replace

from hocket.model.resources import MAX_GPUS, Node
from hocket.workloads.errors import WorkloadError, shown
from hocket.workloads.fields import NAME, TEXT, Fields, Number, Whole
from hocket.workloads.toml_document import TomlDocument, read_toml

MAX_NODES = 100_000
MAX_BITS = 1_000_000  # nodes times the GPUs of the largest: the bits of a number that is copied with every change
_BITS_RULE = f"times the GPUs of the largest must be at most {MAX_BITS}"
_AMOUNT = Number()
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_DIGITS = re.compile(r"[0-9]{1,9}")


def parse_cluster(text: str) -> tuple[Node, ...]:
    """The nodes that this text, or the TOML file of this path, describes."""
    if text.endswith(".toml"):
        return read_cluster(text)
    groups: list[tuple[int, Node]] = []
    at = 0
    for part in text.split("+"):
        groups.append(_group(text, at))
        at += len(part) + 1
    if (count := sum(n for n, _node in groups)) > MAX_NODES:
        raise WorkloadError(f"cluster {shown(text)}: there must be at most {MAX_NODES} nodes, not {count}")
    if (bits := _bits(groups)) > MAX_BITS:
        raise WorkloadError(f"cluster {shown(text)}: nodes {_BITS_RULE}, not {bits}")
    return _named(groups)


def read_cluster(path: str) -> tuple[Node, ...]:
    """The nodes of a TOML file; in a workload's file the rest is ignored."""
    document = read_toml(path)
    nodes = nodes_of(document)
    if not nodes:
        raise WorkloadError(f'{path}: the file must have [[nodes]] or cluster = "4x8", and has neither')
    for name in ("name", "costs", "owners", "jobs", "faults"):
        document.root.raw(name)
    document.root.finish()
    return nodes


def nodes_of(document: TomlDocument) -> tuple[Node, ...]:
    """The nodes that a document names, by [[nodes]] or by `cluster`; none if it names none."""
    tables = document.tables("nodes", "node")
    text = document.root.raw("cluster")
    if text is not None:
        if tables:
            document.root.fail("cluster", "must not be given together with [[nodes]]")
        if not isinstance(text, str) or text.endswith(".toml"):
            document.root.fail("cluster", f"must be a text such as '4x8:v100', not {shown(text)}")
        try:
            return parse_cluster(text)
        except WorkloadError as error:
            document.root.fail("cluster", f"must follow its grammar: {error}")
    groups = [_node_group(table) for table in tables]
    if (count := sum(n for n, _node in groups)) > MAX_NODES:
        document.root.fail("nodes", f"must be at most {MAX_NODES} in all, not {count}")
    if (bits := _bits(groups)) > MAX_BITS:
        document.root.fail("nodes", f"{_BITS_RULE}, not {bits}")
    nodes = _named(groups)
    seen: set[str] = set()
    for node in nodes:
        if node.id in seen:
            document.root.fail("nodes", f"must have distinct ids, and {shown(node.id)} is there twice")
        seen.add(node.id)
    return nodes


def cluster_text(nodes: Sequence[Node]) -> str:
    """A cluster in words for tables: `8x8:v100+8x8:p100`, without cores, memory and network."""
    parts = []
    for (gpus, kind), group in groupby(nodes, key=lambda n: (n.gpus, n.gpu_kind)):
        parts.append(f"{sum(1 for _ in group)}x{gpus}" + (f":{kind}" if kind else ""))
    return "+".join(parts)


def _bits(groups: Sequence[tuple[int, Node]]) -> int:
    return sum(n for n, _node in groups) * max((node.gpus for _n, node in groups), default=0)


def _group(text: str, at: int) -> tuple[int, Node]:
    """One group of the text, which begins at a position."""
    count = _number(text, at, MAX_NODES, "a number of nodes")
    at += len(count)
    if text[at : at + 1] != "x":
        raise _expected(text, at, "'x' and a number of GPUs")
    gpus = _number(text, at + 1, MAX_GPUS, "a number of GPUs")
    at += 1 + len(gpus)
    kind = ""
    if text[at : at + 1] == ":":
        match = _KIND.match(text, at + 1)
        if match is None:
            raise _expected(text, at + 1, "a GPU kind such as v100")
        kind = match[0]
        at = match.end()
    if text[at : at + 1] not in ("", "+"):
        raise _expected(text, at, "'+' or the end" if kind else "':' and a GPU kind, '+' or the end")
    return int(count), Node("", int(gpus), kind)


def _number(text: str, at: int, high: int, what: str) -> str:
    match = _DIGITS.match(text, at)
    if match is None or not 1 <= int(match[0]) <= high:
        raise _expected(text, at, f"{what} from 1 to {high}")
    return match[0]


def _expected(text: str, at: int, what: str) -> WorkloadError:
    found = shown(text[at : at + 24]) if text[at:] else "the end"
    return WorkloadError(f"cluster {shown(text)}: at column {at + 1} expected {what}, found {found}")


def _node_group(fields: Fields) -> tuple[int, Node]:
    """A [[nodes]] table: several equal nodes, or one with an id."""
    name = fields.maybe("id", NAME)
    count = fields.read("count", Whole(low=1, high=MAX_NODES), 1)
    if name is not None and count > 1:
        fields.fail("count", f"must be 1 for a node with an id, not {count}")
    node = Node(
        id=name or "",
        gpus=fields.read("gpus", Whole(high=MAX_GPUS), 0),
        gpu_kind=fields.read("gpu_kind", TEXT, ""),
        gpu_mem_mib=fields.read("gpu_mem_mib", _AMOUNT, 0.0),
        cores=fields.read("cores", _AMOUNT, 0.0),
        mem_mib=fields.read("mem_mib", _AMOUNT, 0.0),
        net_mbps=fields.read("net_mbps", _AMOUNT, 0.0),
    )
    fields.finish()
    return count, node


def _named(groups: Sequence[tuple[int, Node]]) -> tuple[Node, ...]:
    total = sum(n for n, _node in groups)
    width = max(3, len(str(total - 1)))
    kinds = (node for count, node in groups for _ in range(count))
    return tuple(n if n.id else replace(n, id=f"n{at:0{width}d}") for at, n in enumerate(kinds))
