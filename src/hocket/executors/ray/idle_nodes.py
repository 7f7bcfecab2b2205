"""Nodes that no job needs are given back to Ray, whose autoscaler may take them then; and taken again when jobs wait.

| step | by |
| --- | --- |
| no job has needed the node for `idle_s` | what the controller says of it |
| it is drained, so that no job gets it any more | a call to the controller |
| drained, it is still not needed | what the controller says of it |
| its agent ends; actor and placement group are removed | Ray |
| when the controller has noticed that it is away, it is open again, for it may come back | a call |

Which nodes are drained for that is kept in a file: else those would stay drained if this process is killed between.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Set
from time import monotonic

import msgspec
import ray

from hocket.agent.node.controller_link import CallRefused, Link
from hocket.executors.ray.cluster import Cluster
from hocket.executors.ray.node_changes import NewNode, NodeGroup, RayNode, is_head, serves

_log = logging.getLogger("hocket.executors")


class IdleNodes:
    """Gives nodes back to Ray, and remembers which."""

    def __init__(self, cluster: Cluster, link: Link, idle_s: float, drained_file: str) -> None:
        self._cluster, self._link, self._idle_s = cluster, link, idle_s
        self._file = drained_file
        self._drained = _read(drained_file)  # by us
        self._since: dict[str, float] = {}  # node → since when no job needs it
        self._leaving: dict[ray.ObjectRef[bool], NodeGroup] = {}
        self._given_back: set[str] = set()  # ids of Ray's nodes

    def still_wanted(self, nodes: Iterable[NewNode], wanted: list[dict[str, float]]) -> list[NewNode]:
        """Those to reserve: of nodes that were given back, only such as a waiting job could use."""
        found = [new for new in nodes if new.node.id not in self._given_back or serves(new.node, wanted)]
        self._given_back -= {new.node.id for new in found}
        return found

    def look(self, nodes: Iterable[RayNode], groups: Iterable[NodeGroup], idle: Mapping[str, bool]) -> None:
        """One pass; `idle` are the nodes that no job needs, and whether they are drained."""
        if not self._idle_s and not self._drained:
            return
        left = self._remove_ended()
        lent = {group.node: group for group in groups if group.digest and group.node not in left}
        heads = {node.id for node in nodes if is_head(node)}
        leaving = {group.node for group in self._leaving.values()}
        now = monotonic()
        self._since = {node: self._since.get(node, now) for node in idle if node in lent}
        for node in sorted(self._drained - leaving):
            if node not in lent:
                self._open_when_away(node)
            elif node not in idle or not self._idle_s:
                _log.info("node '%s' stays: a job needs it", node, extra={"node": node})
                self._open(node)
        for node in due(self._since, now - self._idle_s, lent, heads, leaving) if self._idle_s else ():
            if node not in self._drained and not idle[node]:  # One that a user has drained stays as it is.
                self._drain(node)
            elif node in self._drained and idle[node]:
                self._leaving[self._cluster.ask_to_leave(lent[node])] = lent[node]

    def _drain(self, node: str) -> None:
        _log.info("node '%s' is given back to Ray: no job needs it", node, extra={"node": node})
        self._keep(self._drained | {node})
        self._call(node, "drain")

    def _open(self, node: str) -> None:
        self._call(node, "undrain")
        self._keep(self._drained - {node})

    def _open_when_away(self, node: str) -> None:
        rows = msgspec.json.decode(self._link.call("GET", "/v1/nodes"))["nodes"]
        if not any(row["id"] == node and row["up"] for row in rows):
            self._open(node)

    def _call(self, node: str, what: str) -> None:
        try:
            self._link.call("POST", f"/v1/nodes/{node}/{what}", b"{}")
        except CallRefused as error:
            if error.status not in (400, 404):  # It is so already, or the node is not known.
                raise

    def _remove_ended(self) -> set[str]:
        """The nodes whose agents have just ended: what was reserved of them is removed."""
        found = set()
        for left in [ref for ref in self._leaving if ray.wait([ref], timeout=0)[0]]:
            group = self._leaving.pop(left)
            self._given_back.add(group.node_id)
            self._cluster.remove(group)
            found.add(group.node)
        return found

    def _keep(self, drained: set[str]) -> None:
        with open(f"{self._file}.new", "wb") as file:
            file.write(msgspec.json.encode(sorted(drained)))
        os.replace(f"{self._file}.new", self._file)
        self._drained = drained


def due(
    since: Mapping[str, float], before: float, lent: Mapping[str, NodeGroup], heads: Set[str], leaving: Set[str]
) -> list[str]:
    """The nodes to give back: idle since before then, not with Ray's head, and one is always left. Pure."""
    found = sorted(node for node, at in since.items() if at <= before and lent[node].node_id not in heads)
    found = [node for node in found if node not in leaving]
    return found[: max(0, len(lent.keys() - leaving) - 1)]


def _read(file: str) -> set[str]:
    try:
        with open(file, "rb") as kept:
            return set(msgspec.json.decode(kept.read(), type=list[str]))
    except (OSError, msgspec.MsgspecError):
        return set()
