"""The loop that has an agent on every node of Ray: it looks which nodes there are, and what is missing or too much."""

from __future__ import annotations

import logging
import select
from io import RawIOBase
from time import monotonic

import msgspec
import ray

from hocket.agent.node.controller_link import Away, CallRefused, Credentials, Gone, Link
from hocket.agent.node.controllers import Controllers
from hocket.executors.ray.cluster import Cluster, NotReserved, kind_on
from hocket.executors.ray.idle_nodes import IdleNodes
from hocket.executors.ray.messages import LEAVE, AgentSpec, NodeNeeds, WatchSpec
from hocket.executors.ray.node_changes import NodeGroup, RayNode, actor_name, changes, reservation, room_to_ask_for

_log = logging.getLogger("hocket.executors")
_EVERY_S = 1.0  # between looks
_LEAVING_S = 300.0  # for an agent to stop its jobs whose node has left Ray but still reaches the controller
_LATER_S = 30.0  # before a node that has no room, or where no agent starts, is tried again


class Watch:
    """Keeps an agent on every node. Its state can be lost: all that it needs is in Ray."""

    def __init__(self, spec: WatchSpec) -> None:
        self._spec, self._settings = spec, spec.settings
        self._cluster = Cluster(self._settings.namespace)
        # Only this machine is sure to reach the controller if it listens on loopback.
        self._here = self._cluster.own_address()
        controllers = Controllers(self._settings.url, "", spec.ca_file)
        self._link = Link(controllers, Credentials(spec.token_file, spec.ca_file))
        self._later: dict[str, float] = {}  # node id → when to try it again
        self._logged: dict[str, str] = {}  # node id → why it has no agent, as it was logged last
        self._starting: dict[ray.ObjectRef[str], NodeGroup] = {}
        self._revoke_at: dict[str, float] = {}  # node that is lost → when its token is revoked
        self._last_error = ""  # that was logged
        self._needs: NodeNeeds | None = None  # None: the cluster stays as it is
        self._idle = IdleNodes(self._cluster, self._link, spec.idle_s, spec.drained_file)
        self._asked: list[dict[str, float]] = []

    @staticmethod
    def has_groups(namespace: str) -> bool:
        """Is something of ours there?"""
        return bool(Cluster(namespace).groups())

    def run(self, orders: RawIOBase) -> bool:
        """Watch until the controller is gone (False), or has said to leave and nothing is left (True)."""
        while True:
            self._look()
            if select.select([orders], [], [], _EVERY_S)[0]:
                if not (line := orders.readline()):
                    return False  # Agents and jobs go on, and wait for the next controller.
                if line == LEAVE:
                    self._leave()
                    return True
                self._needs = msgspec.json.decode(line, type=NodeNeeds)

    def _look(self) -> None:
        """One pass. What fails is tried again in the next."""
        try:
            nodes = self._cluster.nodes()
            self._check_started()
            self._cluster.end_orphaned_actors()
            groups = self._cluster.groups()
            found = changes(nodes, groups, self._settings.digest)
            for group in found.remove:
                _log.warning("node '%s' has left Ray", group.node, extra={"node": group.node})
                self._cluster.remove(group)
                self._revoke_at[group.node] = monotonic() + _LEAVING_S
            for group in found.replace:
                _log.info("the agent of node '%s' gets new settings", group.node, extra={"node": group.node})
                self._cluster.end_actor(group)
            for group in found.start:
                if group not in self._starting.values():
                    self._start(group, kind_on(nodes, group))
            wanted = self._needs.wanted if self._needs is not None else []
            for new in self._idle.still_wanted(found.reserve, wanted):
                if new.is_namesake:  # It may be the same machine, whose last raylet Ray has not yet found dead.
                    self._later.setdefault(new.node.id, monotonic() + _LATER_S)
                if monotonic() >= self._later.get(new.node.id, 0.0):
                    self._reserve(new.node, new.name)
            self._revoke_tokens()
            if self._needs is not None:
                self._idle.look(nodes, groups, self._needs.idle)
                self._ask_for_nodes(self._needs)
            elif not self._spec.idle_s:
                self._idle.look(nodes, groups, {})  # open nodes that an earlier process had drained under other options
            self._last_error = ""
        # A ValueError is Ray's, for a name that it has not freed yet.
        except (Away, Gone, CallRefused, ray.exceptions.RayError, OSError, RuntimeError, ValueError) as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                _log.warning("%s; trying again", self._last_error)

    def _reserve(self, node: RayNode, name: str) -> None:
        self._later[node.id] = monotonic() + _LATER_S
        if self._spec.is_local and node.address != self._here and not node.address.startswith("127."):
            why = f"it is another machine ({node.address}), and the controller listens at {self._settings.url} only"
            self._log_no_agent(node, name, f"{why}: see --listen", logging.ERROR)
            return
        reserved = reservation(node, self._spec.gpus, self._spec.cores)
        if reserved is None:
            self._log_no_agent(node, name, "no core of it is free in Ray")
            return
        try:
            self._cluster.reserve(node, name, reserved)
        except NotReserved as error:
            self._log_no_agent(node, name, str(error))
            return
        message = "node '%s' is reserved: %g CPUs, %d GPUs"
        _log.info(message, name, reserved.cpus, reserved.gpus, extra={"node": name})

    def _log_no_agent(self, node: RayNode, name: str, why: str, level: int = logging.INFO) -> None:
        if self._logged.get(node.id) != why:
            self._logged[node.id] = why
            _log.log(level, "node '%s' gets no agent: %s", name, why, extra={"node": name})

    def _start(self, group: NodeGroup, gpu_kind: str) -> None:
        actor = actor_name(group.node, group.node_id, self._settings.digest)
        reserved = msgspec.structs.replace(group.reserved, gpu_kind=gpu_kind)
        spec = AgentSpec(group.node, actor, self._new_token(group.node), self._settings, reserved)
        self._starting[self._cluster.start(group, spec)] = group

    def _check_started(self) -> None:
        for started in [ref for ref in self._starting if ray.wait([ref], timeout=0)[0]]:
            group = self._starting.pop(started)
            try:
                version = ray.get(started)
                _log.info("node '%s' has an agent: hocket %s", group.node, version, extra={"node": group.node})
            except ray.exceptions.RayError as error:
                # Most often Hocket is not installed there.
                why = str(error).strip().splitlines()[-1]
                _log.error("no agent starts on node '%s': %s", group.node, why, extra={"node": group.node})
                self._later[group.node_id] = monotonic() + _LATER_S
                self._cluster.remove(group)

    def _new_token(self, node: str) -> str:
        """A token that is good for this node only, in place of an earlier one."""
        name = token_name(node)
        self._revoke_at.pop(node, None)
        body = msgspec.json.encode({"name": name, "role": "agent", "node": node})
        self._revoke(name)
        return str(msgspec.json.decode(self._link.call("POST", "/v1/tokens", body))["token"])

    def _revoke_tokens(self) -> None:
        for node in [node for node, at in self._revoke_at.items() if monotonic() >= at]:
            self._revoke(token_name(node))
            del self._revoke_at[node]

    def _revoke(self, name: str) -> None:
        try:
            self._link.call("POST", f"/v1/tokens/{name}/revoke")
        except CallRefused as error:
            if error.status != 404:
                raise

    def _ask_for_nodes(self, needs: NodeNeeds) -> None:
        """Ray's autoscaler is told what must fit at once: what jobs can have already, and what they wait for."""
        total = room_to_ask_for(self._cluster.groups(), needs)
        if total != self._asked:
            self._cluster.ask_for_nodes(total)
            self._asked = total
            if total:
                _log.info("Ray's autoscaler is asked for room for %d waiting replicas", len(needs.wanted))

    def _leave(self) -> None:
        if self._asked:
            self._cluster.ask_for_nodes([])
        self._cluster.leave()
        try:
            for token in msgspec.json.decode(self._link.call("GET", "/v1/tokens"))["tokens"]:
                if token["role"] == "agent" and token["name"] == token_name(token["node"]):
                    self._revoke(token["name"])
        except (Away, Gone, CallRefused) as error:
            _log.warning("tokens of agents on Ray stay: %s", error)
        _log.info("nothing is reserved in Ray any more")


def token_name(node: str) -> str:
    """The name of the token for a node's agent."""
    return f"ray-{node}"[:64]
